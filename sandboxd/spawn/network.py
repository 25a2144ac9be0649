"""The run's own network: a loopback, or one from which everything arrives at the daemon.

Runs in init, in the run's network namespace, while it still has that namespace's capabilities;
once they are dropped nothing here can be undone. Sockets keep the namespace that they were made
in, so the daemon accepts from outside what programs of the run connect to: no bridge process, no
tun device, no setuid helper. What is made is handed over on the control socket, each descriptor
with a tag:

    tcp         TCP listener: the destination is the accepted socket's own name
    nat4 nat6   the same where the kernel has no TPROXY: the destination is SO_ORIGINAL_DST
    dns         TCP, 127.0.0.1:53, beside these
    udp udp4 udp6   UDP, port 53 of every address: datagrams tell where they were sent
    proxy       TCP, 127.0.0.1, for programs that know of a proxy
    host:PORT   TCP, both loopback addresses: a port of the host's loopback that was named
    out4 out6   unconnected TCP sockets, for connections into the run

With TPROXY two sockets do, each for both families, at port 53: a connection's own name tells whether
somebody asked a name server, and no program of the run could take a port below 1024 anyway.

Facts: an address on `lo` that is not loopback is what makes getaddrinfo with AI_ADDRCONFIG ask
for its family; IP_TRANSPARENT must be set before bind and holds for both families; a port below
1024 needs a capability that we still have. Sources: ip(7), ipv6(7), tproxy.rst of the kernel, and `system.netlink`.
"""

from __future__ import annotations

import _socket
import errno
import marshal
import sys

from sandboxd.spawn.reports import SetUpFailed
from sandboxd.system import netlink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Request = dict[str, Any]

SOURCE = {4: bytes([198, 18, 0, 2]), 6: bytes.fromhex("fd5ebd00000000000000000000000002")}
"""The run's own addresses: of the benchmarking range (RFC 2544), and a local one (RFC 4193)."""
FAMILY = {4: netlink.IPV4, 6: netlink.IPV6}
LOOPBACK = {4: "127.0.0.1", 6: "::1"}
BACKLOG = 1024
IP_TRANSPARENT, IP_RECVORIGDSTADDR = (0, 19), (0, 20)
IPV6_TRANSPARENT, IPV6_RECVORIGDSTADDR, IPV6_V6ONLY = (41, 75), (41, 74), (41, 26)
WITHOUT_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EACCES, errno.EOPNOTSUPP)

Tagged = list[tuple[str, _socket.socket]]
Batch = tuple[bytes, int]
"""Messages, and the number of the one whose answer ends the wait."""


def set_up(request: Request, messages: Messages) -> Tagged:
    """Make the network that the plan describes; its sockets are for `hand_out`."""
    carries = request["carries"] == "everything"
    stage = "network.routes" if carries else "network"
    made: Tagged = []
    try:
        versions = messages.send_routes()
        if carries:
            stage = "network.nftables"
            made += _capture(versions, messages.capture)
        stage = "network.sockets"
        if request["proxy_port"] is not None:
            made.append(("proxy", _listener(4, request["proxy_port"], LOOPBACK[4])))
        made += _for_host(request["host_ports"])
        made += _pool(request["publish_pool"])
    except OSError as error:
        raise SetUpFailed(stage, error.errno or 0) from None
    return made


class Prepared:
    """The messages for networks like the last one: writing them costs more than their effect."""

    def __init__(self) -> None:
        self._request: Request | None = None
        self._messages: Messages | None = None

    def of(self, request: Request | None) -> Messages | None:
        """Those for this network; None where there is none."""
        if request is not None and request != self._request:
            self._request, self._messages = request, Messages(request)
        return self._messages if request is not None else None


class Messages:
    """What a network's set-up tells the kernel: loopback, addresses and routes in one go, and the
    rules for a kernel that has both families."""

    def __init__(self, request: Request) -> None:
        self.routes = netlink.Messages()
        self.of_ipv6: list[int] = []
        self.base = netlink.loopback_up(self.routes)
        self.capture = _rules([4, 6]) if request["carries"] == "everything" else (b"", 0)
        if request["carries"] == "everything":
            for version, family in FAMILY.items():
                self._lead_here(version, family, request["has_ipv6_source"])
            self.base = self.routes.count
            for text in request["unreachable"]:
                self._refuse(text)
        self.sent = self.routes.asked()

    def _lead_here(self, version: int, family: int, has_ipv6_source: bool) -> None:
        source = SOURCE[version] if version == 4 or has_ipv6_source else None
        numbers = []
        if source is not None:
            numbers.append(netlink.add_address(self.routes, (family, source)))
        numbers.append(netlink.route_everything_here(self.routes, family, source))
        if version == 6:
            self.of_ipv6 += numbers

    def _refuse(self, text: str) -> None:
        address, _, bits = text.partition("/")
        family = netlink.IPV6 if ":" in address else netlink.IPV4
        packed = _socket.inet_pton(family, address)
        number = netlink.make_unreachable(self.routes, (family, packed), int(bits))
        if family == netlink.IPV6:
            self.of_ipv6.append(number)

    def send_routes(self) -> list[int]:
        """The versions of IP that this kernel has. Raises OSError."""
        errors = netlink.exchange(netlink.ROUTE, self.sent, self.routes.count)
        lacks_ipv6 = any(
            errors.get(number) in WITHOUT_IPV6 for number in self.of_ipv6 if number <= self.base
        )
        for number, code in errors.items():
            if not (lacks_ipv6 and number in self.of_ipv6):
                raise netlink.failed(code)
        return [4] if lacks_ipv6 else [4, 6]


def _rules(versions: list[int]) -> Batch:
    ports = dict.fromkeys([FAMILY[version] for version in versions], netlink.DNS_PORT)
    return netlink.capture(ports, with_nat=False)


def _capture(versions: list[int], rules: Batch) -> Tagged:
    """Listeners for everything, and the rules that lead there."""
    made = _transparent(versions)
    try:
        _install(rules if 6 in versions else _rules(versions))
    except OSError as error:
        for _, each in made:
            each.close()
        if error.errno not in netlink.MISSING:
            raise
        return _redirected(versions)
    return made


def _install(rules: Batch) -> None:
    for code in netlink.exchange(netlink.NETFILTER, *rules).values():
        raise netlink.failed(code)


def _transparent(versions: list[int]) -> Tagged:
    """One listener and one socket for datagrams, for both families where there are two."""
    version = versions[-1]
    options = (IP_TRANSPARENT,) if version == 4 else (IPV6_TRANSPARENT,)
    told = (IP_RECVORIGDSTADDR,) if version == 4 else (IP_RECVORIGDSTADDR, IPV6_RECVORIGDSTADDR)
    port = netlink.DNS_PORT
    return [
        ("tcp", _listener(version, port, "", *options)),
        ("udp", _bound(version, _socket.SOCK_DGRAM, port, "", *options, *told)),
    ]


def _redirected(versions: list[int]) -> Tagged:
    """With NAT the kernel turns destinations into loopback ones and answers back by itself."""
    made: Tagged = []
    ports: dict[int, int] = {}
    alone = (IPV6_V6ONLY,)
    for version in versions:
        listener = _listener(version, 0, LOOPBACK[version], *(alone if version == 6 else ()))
        made.append((f"nat{version}", listener))
        ports[FAMILY[version]] = listener.getsockname()[1]
        server = _bound(version, _socket.SOCK_DGRAM, netlink.DNS_PORT, LOOPBACK[version])
        made.append((f"udp{version}", server))
    made.append(("dns", _listener(4, netlink.DNS_PORT, LOOPBACK[4])))
    _install(netlink.capture(ports, with_nat=True))
    return made


def _listener(version: int, port: int, address: str, *options: tuple[int, int]) -> _socket.socket:
    made = _bound(version, _socket.SOCK_STREAM, port, address, *options)
    made.listen(BACKLOG)
    return made


def _bound(
    version: int, kind: int, port: int, address: str, *options: tuple[int, int]
) -> _socket.socket:
    made = _socket.socket(FAMILY[version], kind)
    for level, name in options:
        made.setsockopt(level, name, 1)
    made.bind((address, port))
    return made


def _for_host(ports: list[int]) -> Tagged:
    """Listeners on both loopback addresses, or on that of IPv4 where there is no other."""
    made: Tagged = []
    for port in ports:
        for version in FAMILY:
            try:
                own = () if version == 4 else (IPV6_V6ONLY,)
                made.append((f"host:{port}", _listener(version, port, LOOPBACK[version], *own)))
            except OSError as error:
                if version == 4 or error.errno not in WITHOUT_IPV6:
                    raise
    return made


def _pool(size: int) -> Tagged:
    """Three quarters for 127.0.0.1, the rest for servers that listen on ::1 only."""
    made: Tagged = []
    for place in range(size):
        version = 6 if place % 4 == 3 else 4
        try:
            kind = _socket.SOCK_STREAM
            made.append((f"out{version}", _socket.socket(FAMILY[version], kind)))
        except OSError:
            if version == 4:
                raise
    return made


def hand_out(made: Tagged, control: _socket.socket) -> None:
    """Give the sockets to the daemon; ours are closed, so the run can never reach them."""
    if not made:
        return
    rights = b"".join(each.fileno().to_bytes(4, sys.byteorder) for _, each in made)
    ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)]
    control.sendmsg([marshal.dumps(("network", [tag for tag, _ in made]))], ancillary)
    for _, each in made:
        each.close()
