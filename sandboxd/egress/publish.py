"""Published ports: a server of the run, reachable on this host's own 127.0.0.1.

The run's network cannot be entered from here. Its init made a pool of unconnected sockets there and
handed them out; connecting one reaches the run's loopback. After use a socket is disconnected
(connect(2) with AF_UNSPEC) and goes back to the pool, so the pool bounds how many connections there
are at once, not how many there can be. It is connected to loopback addresses only.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable

from sandboxd.egress.flows import Connections, reset
from sandboxd.system import linux

CONNECT_S = 5.0
LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
UNSPECIFIED = bytes(16)
"""A struct sockaddr with AF_UNSPEC."""


def listen(ports: Iterable[int]) -> dict[int, socket.socket]:
    """Listeners on this host's 127.0.0.1, one for each port; raises OSError with `filename` as the
    port that cannot be had."""
    made: dict[int, socket.socket] = {}
    for port in ports:
        try:
            made[port] = socket.create_server((LOOPBACK[socket.AF_INET], port))
        except OSError as error:
            for each in made.values():
                each.close()
            error.filename = str(port)
            raise
    return made


class Published:
    """The published ports of one run."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self._pools: dict[int, asyncio.LifoQueue[socket.socket]] = {}

    def add(self, pooled: socket.socket) -> None:
        """A socket of the run, ours from now on."""
        pooled.setblocking(False)
        self._pools.setdefault(pooled.family, asyncio.LifoQueue()).put_nowait(pooled)

    def serve(self, listener: socket.socket, port: int) -> None:
        """Lead connections at this listener, ours from now on, to the run's port."""

        async def handle(near: socket.socket) -> None:
            await self._lead_in(near, port)

        self.connections.accept_from(listener, handle)

    def close(self) -> None:
        for pool in self._pools.values():
            while not pool.empty():
                pool.get_nowait().close()

    async def _lead_in(self, near: socket.socket, port: int) -> None:
        try:
            for family, address in LOOPBACK.items():
                if family in self._pools and await self._try(near, family, (address, port)):
                    near.close()
                    return
        except OSError:
            pass
        finally:
            if near.fileno() >= 0:
                reset(near)

    async def _try(self, near: socket.socket, family: int, place: tuple[str, int]) -> bool:
        """Carry the connection there; False when nobody listens."""
        far = await self._pools[family].get()
        try:
            try:
                async with asyncio.timeout(CONNECT_S):
                    await self.connections.loop.sock_connect(far, place)
            except (OSError, TimeoutError):
                return False
            await self.connections.carry(near, far)
            return True
        finally:
            self._put_back(far, family)

    def _put_back(self, far: socket.socket, family: int) -> None:
        if self.connections.is_closed:
            far.close()
            return
        with contextlib.suppress(OSError):
            linux.connect(far.fileno(), UNSPECIFIED, (0, 0))
        self._pools[family].put_nowait(far)
