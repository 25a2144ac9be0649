"""Lines leave in order and whole, and the transport never holds much at a time."""

from __future__ import annotations

import asyncio
import socket

from sandboxd.daemon.outbox import TRANSPORT_BYTES, Outbox


class Peer(asyncio.Protocol):
    """A connection that only writes, through an outbox."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.outbox = Outbox(transport)  # type: ignore[arg-type]

    def pause_writing(self) -> None:
        self.outbox.pause()

    def resume_writing(self) -> None:
        self.outbox.resume()


def test_everything_arrives_in_order_through_a_small_transport_buffer() -> None:
    lines = [b"%d:" % number + b"x" * 10_000 + b"\n" for number in range(3000)]

    async def test() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        _, peer = await loop.connect_accepted_socket(Peer, ours)
        for line in lines:
            peer.outbox.put(line)
            held = peer.transport.get_write_buffer_size()
            assert held <= TRANSPORT_BYTES + len(line)
        assert peer.outbox.queued_bytes > 20_000_000
        theirs.setblocking(False)
        got = b""
        pieces = []
        size = sum(map(len, lines))
        while sum(map(len, pieces)) < size:
            pieces.append(await asyncio.wait_for(loop.sock_recv(theirs, 1 << 20), 30))
        got = b"".join(pieces)
        assert got == b"".join(lines)
        assert peer.outbox.queued_bytes == 0
        peer.outbox.close()
        theirs.close()

    asyncio.run(test())
