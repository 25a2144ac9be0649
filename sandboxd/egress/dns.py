"""The run's name server: what resolves on this host resolves in the run, within the rules.

Whatever server a program asks, the question arrives here. In `open` it is sent on to this host's
own name servers as it is (but under a number of ours), unless the name is denied. In `allowlist`
nothing of a program's own is ever sent on: an allowed name is looked up by this host and answered
with addresses, any other name does not exist, so a question cannot carry data out. The addresses
given out are remembered, since a transparent connection shows nothing else.

Without a server to ask (a host that resolves by other means) look-ups serve `open` too. IPv6
addresses are left out where the host reaches none: programs would try them first.
Sources: RFC 1035, RFC 7766 (TCP), resolver(5), ip(7) for IP_ORIGDSTADDR and IP_PKTINFO.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import struct

from sandboxd.egress import dns_messages as messages
from sandboxd.egress import hosts
from sandboxd.egress.dns_messages import Question
from sandboxd.egress.door import Door
from sandboxd.egress.flows import Connections

UPSTREAM_S = 2.5
ROUNDS = 2
STREAM_IDLE_S = 10.0
MAX_MESSAGE = 65535
RECEIVE_AT_ONCE = 64
# (level, kind) of where a datagram was sent, and how its answer names that as its source
ORIGINAL_IPV4, SOURCE_IPV4 = (0, 20), (0, 8)
ORIGINAL_IPV6, SOURCE_IPV6 = (41, 74), (41, 50)

REVERSE = (".in-addr.arpa", ".ip6.arpa")
"""Look-ups from address to name: programs make them for their logs, a denial would say nothing."""

Ancillary = list[tuple[int, int, bytes]]


class NameServer:
    """Answers the questions of one run."""

    def __init__(self, door: Door, connections: Connections) -> None:
        self.door = door
        self.connections = connections
        self._sockets: list[socket.socket] = []

    def serve_datagrams(self, server: socket.socket) -> None:
        """Answer on this UDP socket, ours from now on."""
        server.setblocking(False)
        self._sockets.append(server)
        self.connections.loop.add_reader(server.fileno(), self._receive, server)

    def close(self) -> None:
        for server in self._sockets:
            self.connections.loop.remove_reader(server.fileno())
            server.close()
        self._sockets = []

    def _receive(self, server: socket.socket) -> None:
        for _ in range(RECEIVE_AT_ONCE):
            try:
                data, ancillary, _, peer = server.recvmsg(4096, 128)
            except OSError:
                return
            if not self.connections.is_full:  # else the program asks again
                work = self._answer_datagram(server, data, _source_of(ancillary), peer)
                self.connections.spawn(work)

    async def _answer_datagram(
        self, server: socket.socket, data: bytes, source: Ancillary, peer: tuple[str, int]
    ) -> None:
        reply = await self.answer(data, is_stream=False)
        if reply is not None and server.fileno() >= 0:
            with contextlib.suppress(OSError):
                server.sendmsg([reply], source, 0, peer)

    async def serve_stream(self, near: socket.socket) -> None:
        """Answer the questions of one TCP connection, one after the other; closes it."""
        loop = self.connections.loop
        with near, contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            while True:
                async with asyncio.timeout(STREAM_IDLE_S):
                    size = int.from_bytes(await _exactly(near, 2), "big")
                    data = await _exactly(near, size)
                reply = await self.answer(data, is_stream=True)
                if reply is None:
                    return
                await loop.sock_sendall(near, struct.pack("!H", len(reply)) + reply)

    async def answer(self, data: bytes, *, is_stream: bool) -> bytes | None:
        """The reply to one message; None when it is no question at all."""
        question = messages.parse_question(data)
        if question is None:
            return None
        name = hosts.canonical(question.name)
        denial = self.door.rules.judge_name(name or question.name, None)
        if denial is not None:
            if not question.name.endswith(REVERSE):
                self.door.denials.add(denial)
            return messages.answer(question, messages.NAME_ERROR)
        if question.kind == messages.AAAA and not self.door.outside.reaches_ipv6():
            return messages.answer(question, messages.NO_ERROR)
        servers = self.door.outside.nameservers()
        if self.door.rules.is_allowlist or not servers:
            return await self._look_up(question, name)
        return await self._forward(question, data, name, servers, is_stream)

    async def _look_up(self, question: Question, name: str | None) -> bytes:
        """Answer by what this host's own look-up says; other kinds of record do not exist."""
        is_address = question.kind in (messages.A, messages.AAAA)
        if name is None or not is_address or question.class_ != messages.CLASS_IN:
            return messages.answer(question, messages.NO_ERROR)
        try:
            found = await self.door.outside.lookup(name)
        except socket.gaierror as error:
            is_known = error.errno not in (socket.EAI_NONAME, socket.EAI_FAIL)
            code = messages.SERVER_FAILURE if is_known else messages.NAME_ERROR
            return messages.answer(question, code)
        except OSError:
            return messages.answer(question, messages.SERVER_FAILURE)
        self.door.names.add(name, found)
        return messages.answer(question, messages.NO_ERROR, found)

    async def _forward(
        self,
        question: Question,
        data: bytes,
        name: str | None,
        servers: list[tuple[str, int]],
        is_stream: bool,
    ) -> bytes:
        """Ask the host's servers, one after the other, and hand their answer on."""
        number = struct.pack("!H", secrets.randbelow(1 << 16))
        ask = self._ask_by_stream if is_stream else self._ask_by_datagram
        for server in servers * ROUNDS:
            try:
                async with asyncio.timeout(UPSTREAM_S):
                    reply = await ask(server, number + data[2:])
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                continue
            if name is not None:
                self.door.names.add(name, messages.answered_addresses(reply))
            return data[:2] + reply[2:]
        return messages.answer(question, messages.SERVER_FAILURE)

    async def _ask_by_datagram(self, server: tuple[str, int], data: bytes) -> bytes:
        loop = self.connections.loop
        with await self.door.outside.datagram(server) as upstream:
            await loop.sock_sendall(upstream, data)
            while True:
                reply = await loop.sock_recv(upstream, MAX_MESSAGE)
                if reply[:2] == data[:2] and len(reply) >= messages.HEADER.size:
                    return reply

    async def _ask_by_stream(self, server: tuple[str, int], data: bytes) -> bytes:
        loop = self.connections.loop
        address = hosts.address_of(server[0])
        if address is None:
            raise OSError("no address")
        with await self.door.outside.dial(address, server[1]) as upstream:
            await loop.sock_sendall(upstream, struct.pack("!H", len(data)) + data)
            return await _exactly(upstream, int.from_bytes(await _exactly(upstream, 2), "big"))


def _source_of(ancillary: Ancillary) -> Ancillary:
    """What makes the answer come from the address that was asked."""
    for level, kind, data in ancillary:
        if (level, kind) == ORIGINAL_IPV4:
            return [(*SOURCE_IPV4, struct.pack("=i4s4x", 0, data[4:8]))]
        if (level, kind) == ORIGINAL_IPV6:
            return [(*SOURCE_IPV6, data[8:24] + bytes(4))]
    return []


async def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    loop = asyncio.get_running_loop()
    while len(data) < size:
        chunk = await loop.sock_recv(source, size - len(data))
        if not chunk:
            raise asyncio.IncompleteReadError(bytes(data), size)
        data += chunk
    return bytes(data)
