"""The transparent relay: connections that believe they go out, carried to where they were going.

A program of the run calls connect(2) and nothing else; the kernel hands the connection to a
listener of ours. Where it was going is the accepted socket's own name (TPROXY), or the option that
NAT leaves (SO_ORIGINAL_DST). connect(2) has succeeded by then, so what is refused, and what does
not answer out there, is a reset. Port 53 is the run's name server, whatever the address.
Sources: tproxy.rst, linux/netfilter_ipv4.h, linux/netfilter_ipv6/ip6_tables.h.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable

from sandboxd.egress import hosts
from sandboxd.egress.dns import NameServer
from sandboxd.egress.door import Door
from sandboxd.egress.flows import Connections, reset
from sandboxd.egress.hosts import Address
from sandboxd.model import Denial

Opening = Callable[[], Awaitable[socket.socket | Denial]]

SO_ORIGINAL_DST = 80
DNS_PORT = 53


class Relay:
    """Carries the transparent connections of one run."""

    def __init__(self, door: Door, names: NameServer, connections: Connections) -> None:
        self.door = door
        self.names = names
        self.connections = connections

    async def carry_transparent(self, near: socket.socket) -> None:
        """One connection that came by TPROXY."""
        host, port = near.getsockname()[:2]
        await self._carry(near, hosts.plain(ipaddress.ip_address(host)), port)

    async def carry_redirected(self, near: socket.socket) -> None:
        """One connection that came by NAT."""
        try:
            host, port = redirected_destination(near)
        except OSError:
            reset(near)  # someone connected to the listener itself
            return
        await self._carry(near, host, port)

    async def _carry(self, near: socket.socket, host: Address, port: int) -> None:
        if port == DNS_PORT:
            await self.names.serve_stream(near)
            return
        await self._lead(near, lambda: self._begin(host, port))

    async def _begin(self, host: Address, port: int) -> socket.socket | Denial:
        return self.door.begin_address(host, port)

    async def carry_to_host(self, near: socket.socket, port: int) -> None:
        """One connection to a port of the run's loopback that stands for the host's."""
        await self._lead(near, lambda: self.door.open_loopback(port))

    async def _lead(self, near: socket.socket, opening: Opening) -> None:
        """Carry it to what is opened; reset it when that is refused or does not answer."""
        far: socket.socket | Denial | None = None
        try:
            far = await opening()
            if isinstance(far, Denial):
                reset(near)
                return
            await self.connections.carry(near, far)
            near.close()
            far.close()
        except OSError:
            pass
        finally:
            # What is still open was cut off: both sides see a reset.
            for side in (near, far):
                if isinstance(side, socket.socket) and side.fileno() >= 0:
                    with contextlib.suppress(OSError):
                        reset(side)


def redirected_destination(near: socket.socket) -> tuple[Address, int]:
    """Where a connection was going before NAT; raises OSError when nothing was changed."""
    if near.family == socket.AF_INET:
        data = near.getsockopt(socket.IPPROTO_IP, SO_ORIGINAL_DST, 16)
        return ipaddress.IPv4Address(data[4:8]), int.from_bytes(data[2:4], "big")
    data = near.getsockopt(socket.IPPROTO_IPV6, SO_ORIGINAL_DST, 28)
    return ipaddress.IPv6Address(data[8:24]), int.from_bytes(data[2:4], "big")
