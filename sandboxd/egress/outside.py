"""How the daemon itself reaches the world: look-ups, connections, the host's name servers.

A module of its own because it is the edge: everything else in this stage is handed an `Outside`
and can be tried against another. Sources: resolver(5), getaddrinfo(3), tcp(7).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket

from sandboxd.egress import hosts
from sandboxd.egress.hosts import Address
from sandboxd.system import posix

TCP_SYNCNT, SYN_RETRIES = 7, 3
"""Linux gives up an address that does not answer after about 15 s: tcp(7)."""
DIAL_S = 10.0
"""How long one address may take to answer."""
LOOKUP_S = 10.0
MAX_ADDRESSES = 16
MAX_NAMESERVERS = 3
RESOLV_CONF = "/etc/resolv.conf"


class Outside:
    """This host's own network."""

    def is_own(self, address: Address) -> bool:
        """Whether the address is this host's."""
        return hosts.is_own_address(address)

    def reaches_ipv6(self) -> bool:
        return posix.reaches_ipv6()

    async def lookup(self, name: str) -> list[Address]:
        """The addresses of a name as this host resolves it; raises OSError when there is none."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LOOKUP_S):
                found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except TimeoutError:
            raise OSError(f"{name} could not be looked up within {LOOKUP_S:g} s") from None
        except UnicodeError as error:
            raise OSError(f"{name} cannot be looked up: {error}") from None
        texts = dict.fromkeys(str(entry[4][0]) for entry in found)
        return [ipaddress.ip_address(text) for text in texts][:MAX_ADDRESSES]

    def begin(self, address: Address, port: int) -> socket.socket:
        """Begin to connect to exactly this address; raises OSError where that fails at once."""
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, TCP_SYNCNT, SYN_RETRIES)
            code = made.connect_ex((str(address), port))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except BaseException:
            made.close()
            raise
        return made

    async def dial(self, address: Address, port: int) -> socket.socket:
        """A connection to exactly this address; raises OSError."""
        made = self.begin(address, port)
        try:
            await _connected(made)
        except BaseException:
            made.close()
            raise
        return made

    def nameservers(self) -> list[tuple[str, int]]:
        """Whom this host asks about names; empty when it asks nobody we could ask too."""
        found = []
        with (
            contextlib.suppress(OSError),
            open(RESOLV_CONF, encoding="ascii", errors="replace") as file,
        ):
            for line in file:
                words = line.split()
                if len(words) >= 2 and words[0] == "nameserver":
                    with contextlib.suppress(ValueError):
                        ipaddress.ip_address(words[1])
                        found.append((words[1], 53))
        return found[:MAX_NAMESERVERS]

    async def datagram(self, server: tuple[str, int]) -> socket.socket:
        """A UDP socket that talks to this server alone."""
        family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
        made = socket.socket(family, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            made.connect(server)
        except OSError:
            made.close()
            raise
        return made


async def _connected(made: socket.socket) -> None:
    """Wait until a connection that was begun is there; raises OSError."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(DIAL_S, _set, ready)
    loop.add_writer(made.fileno(), _set, ready)
    try:
        await ready
    finally:
        timer.cancel()
        loop.remove_writer(made.fileno())
    code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
    try:
        made.getpeername()
    except OSError:
        raise OSError(f"no answer within {DIAL_S:g} s") from None


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
