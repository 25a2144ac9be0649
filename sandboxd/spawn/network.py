"""The run's own network: a loopback, or one from which everything arrives at the daemon.

Runs in init, in the run's network namespace, while it still has that namespace's capabilities;
once they are dropped nothing here can be undone. Sockets keep the namespace that they were made
in, so the daemon accepts from outside what programs of the run connect to: no bridge process, no
tun device, no setuid helper. What is made is handed over on the control socket, each descriptor
with a tag:

    tcp4 tcp6   TCP listeners: the destination is the accepted socket's own name
    nat4 nat6   the same where the kernel has no TPROXY: the destination is SO_ORIGINAL_DST
    dns         TCP, 127.0.0.1:53
    udp4 udp6   UDP, port 53 of every address: datagrams tell where they were sent
    proxy       TCP, 127.0.0.1, for programs that know of a proxy
    out4 out6   unconnected TCP sockets, for connections into the run

Facts: an address on `lo` that is not loopback is what makes getaddrinfo with AI_ADDRCONFIG ask
for its family; IP_TRANSPARENT must be set before bind; a port below 1024 needs a capability that
we still have. Sources: ip(7), ipv6(7), tproxy.rst of the kernel, and `system.netlink`.
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


def set_up(request: Request) -> Tagged:
    """Make the network that the plan describes; its sockets are for `hand_out`."""
    stage = "network"
    made: Tagged = []
    try:
        route = netlink.Netlink(netlink.ROUTE)
        netlink.loopback_up(route)
        if request["carries"] == "everything":
            stage = "network.routes"
            families = _route(route, request)
            stage = "network.nftables"
            made += _capture(families)
        route.close()
        stage = "network.sockets"
        if request["proxy_port"] is not None:
            made.append(("proxy", _listener(4, request["proxy_port"], LOOPBACK[4])))
        made += _pool(request["publish_pool"])
    except OSError as error:
        raise SetUpFailed(stage, error.errno or 0) from None
    return made


def _route(route: netlink.Netlink, request: Request) -> list[int]:
    """Route each family to `lo`; the families that this kernel has."""
    families = []
    for version, family in FAMILY.items():
        source = SOURCE[version] if version == 4 or request["has_ipv6_source"] else None
        try:
            if source is not None:
                netlink.add_address(route, (family, source))
            netlink.route_everything_here(route, family, source)
        except OSError as error:
            if version == 6 and error.errno in WITHOUT_IPV6:
                continue
            raise
        families.append(version)
    ranges = [_range(text) for text in request["unreachable"]]
    netlink.make_unreachable(route, [it for it in ranges if _version(it[0][0]) in families])
    return families


def _range(text: str) -> tuple[netlink.Address, int]:
    address, _, bits = text.partition("/")
    family = netlink.IPV6 if ":" in address else netlink.IPV4
    return (family, _socket.inet_pton(family, address)), int(bits)


def _version(family: int) -> int:
    return 6 if family == netlink.IPV6 else 4


def _capture(families: list[int]) -> Tagged:
    """Listeners for everything, and the rules that lead there."""
    netfilter = netlink.Netlink(netlink.NETFILTER)
    try:
        return _transparent(families, netfilter)
    except OSError as error:
        if error.errno not in netlink.MISSING:
            raise
    try:
        return _redirected(families, netfilter)
    finally:
        netfilter.close()


def _transparent(families: list[int], netfilter: netlink.Netlink) -> Tagged:
    made: Tagged = []
    ports: dict[int, int] = {}
    try:
        for version in families:
            listener = _listener(version, 0, "", IP_TRANSPARENT, IPV6_TRANSPARENT)
            made.append((f"tcp{version}", listener))
            ports[FAMILY[version]] = listener.getsockname()[1]
            options = (
                (IP_TRANSPARENT, IP_RECVORIGDSTADDR)
                if version == 4
                else (IPV6_TRANSPARENT, IPV6_RECVORIGDSTADDR)
            )
            made.append((f"udp{version}", _bound(version, _socket.SOCK_DGRAM, 53, "", *options)))
        made.append(("dns", _listener(4, netlink.DNS_PORT, LOOPBACK[4])))
        netlink.capture(netfilter, ports, with_nat=False)
    except OSError:
        for _, each in made:
            each.close()
        raise
    return made


def _redirected(families: list[int], netfilter: netlink.Netlink) -> Tagged:
    """With NAT the kernel turns destinations into loopback ones and answers back by itself."""
    made: Tagged = []
    ports: dict[int, int] = {}
    for version in families:
        listener = _listener(version, 0, LOOPBACK[version])
        made.append((f"nat{version}", listener))
        ports[FAMILY[version]] = listener.getsockname()[1]
        made.append((f"udp{version}", _bound(version, _socket.SOCK_DGRAM, 53, LOOPBACK[version])))
    made.append(("dns", _listener(4, netlink.DNS_PORT, LOOPBACK[4])))
    netlink.capture(netfilter, ports, with_nat=True)
    return made


def _listener(version: int, port: int, address: str, *options: tuple[int, int]) -> _socket.socket:
    """A listening TCP socket; of `options` only those of its family are set."""
    own = [option for option in options if (option[0] == 41) == (version == 6)]
    made = _bound(version, _socket.SOCK_STREAM, port, address, *own)
    made.listen(BACKLOG)
    return made


def _bound(
    version: int, kind: int, port: int, address: str, *options: tuple[int, int]
) -> _socket.socket:
    made = _socket.socket(FAMILY[version], kind)
    for level, name in (*options, IPV6_V6ONLY) if version == 6 else options:
        made.setsockopt(level, name, 1)
    if kind == _socket.SOCK_STREAM:
        made.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    made.bind((address, port))
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
