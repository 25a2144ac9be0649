"""Networks by netlink messages written by hand: links, addresses, routes, nf_tables rules.

A module of its own because the zygote's inits use it (`python -I -S`): it imports C modules only
and nothing of sandboxd. It stands for `ip` and `nft`, which a host need not have and which cost
a process each. Every function raises OSError with the kernel's errno.

rtnetlink counts in host byte order, nf_tables in network byte order. The TPROXY rule works
without NAT, connection tracking, marks or policy routing: what is routed to `lo` passes the
PREROUTING hook like anything that arrives. Sources: rtnetlink(7), netlink(7),
linux/netfilter/nf_tables.h, linux/rtnetlink.h, Documentation/networking/tproxy.rst.
"""

from __future__ import annotations

import _socket
import errno
import os
import struct

AF_NETLINK, ROUTE, NETFILTER = 16, 0, 12
IPV4, IPV6 = 2, 10
LOOPBACK_INDEX = 1

REQUEST, ACK, EXCL, CREATE, APPEND = 1, 4, 0x200, 0x400, 0x800
NLMSG_ERROR = 2
NESTED = 0x8000

RTM_NEWLINK, RTM_NEWADDR, RTM_NEWROUTE = 16, 20, 24
TABLE_LOCAL, PROTO_BOOT, SCOPE_HOST, IFA_F_NODAD, IFF_UP = 255, 3, 254, 2, 1
RTN_LOCAL, RTN_UNREACHABLE = 2, 7
RTA_DST, RTA_OIF, RTA_PREFSRC = 1, 4, 7
IFA_ADDRESS, IFA_LOCAL = 1, 2

BATCH_BEGIN, BATCH_END = 0x10, 0x11
NFT, NEWTABLE, NEWCHAIN, NEWRULE = 10 << 8, 0, 3, 6
TABLE = b"sandboxd\0"
CHAIN = b"relay\0"
HOOK_PREROUTING, HOOK_OUTPUT = 0, 3
TCP, UDP = 6, 17
DNS_PORT = 53
REGISTER = 1

Address = tuple[int, bytes]
"""Family, and the address as it stands in a packet."""


class Messages:
    """Messages for one send(2), numbered from 1; the last asks for an acknowledgement."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.count = 0
        self._last = 0

    def add(self, kind: int, flags: int, payload: bytes) -> int:
        """Put one behind the others; its number."""
        self.count += 1
        self._last = len(self.data)
        self.data += struct.pack("=IHHII", 16 + len(payload), kind, flags | REQUEST, self.count, 0)
        self.data += payload
        return self.count

    def asked(self) -> bytes:
        """All of them, the last one with the question for an acknowledgement."""
        made = bytes(self.data)
        place = self._last + 6
        flags = struct.unpack_from("=H", made, place)[0] | ACK
        return made[:place] + struct.pack("=H", flags) + made[place + 2 :]


def exchange(protocol: int, data: bytes, last: int) -> dict[int, int]:
    """Send messages and wait until number `last` is answered: the errno of each that failed.

    The kernel takes them one after the other and answers errors unasked. It ends a batch of
    nf_tables at an error, so that also ends the wait there.
    """
    channel = _socket.socket(AF_NETLINK, _socket.SOCK_RAW, protocol)
    try:
        channel.send(data)
        errors: dict[int, int] = {}
        while not _is_answered(channel.recv(65536), last, errors):
            if errors and protocol == NETFILTER:
                break
        return errors
    finally:
        channel.close()


def _is_answered(answer: bytes, last: int, errors: dict[int, int]) -> bool:
    """Whether message `last` is among these answers; what failed is put into `errors`."""
    is_answered = False
    while len(answer) >= 28:
        length, kind = struct.unpack_from("=IH", answer)
        if kind == NLMSG_ERROR:
            code, _, _, _, number = struct.unpack_from("=iIHHI", answer, 16)
            if code:
                errors[number] = -code
            is_answered |= number == last
        answer = answer[(length + 3) & ~3 :]
    return is_answered


def failed(code: int) -> OSError:
    return OSError(code, os.strerror(code))


# --------------------------------------------------------------------------- rtnetlink


def attribute(kind: int, data: bytes) -> bytes:
    """One attribute in host byte order, padded to four bytes."""
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def loopback_up(messages: Messages) -> int:
    """`ip link set lo up`."""
    return messages.add(
        RTM_NEWLINK, 0, struct.pack("=BxHiII", 0, 0, LOOPBACK_INDEX, IFF_UP, IFF_UP)
    )


def add_address(messages: Messages, address: Address) -> int:
    """`ip address add ADDRESS dev lo`, usable at once."""
    family, packed = address
    bits = 8 * len(packed)
    flags = IFA_F_NODAD if family == IPV6 else 0
    body = struct.pack("=BBBBI", family, bits, flags, 0, LOOPBACK_INDEX)
    body += attribute(IFA_LOCAL, packed) + attribute(IFA_ADDRESS, packed)
    return messages.add(RTM_NEWADDR, CREATE | EXCL, body)


def route_everything_here(messages: Messages, family: int, source: bytes | None) -> int:
    """Every address of the family is local: `ip route add local default dev lo src SOURCE`.

    Without a source a connection's own address would equal the one it goes to.
    """
    scope = SCOPE_HOST if family == IPV4 else 0
    body = struct.pack(
        "=BBBBBBBBI", family, 0, 0, 0, TABLE_LOCAL, PROTO_BOOT, scope, RTN_LOCAL, 0
    ) + attribute(RTA_OIF, struct.pack("=I", LOOPBACK_INDEX))
    if source is not None:
        body += attribute(RTA_PREFSRC, source)
    return messages.add(RTM_NEWROUTE, CREATE | EXCL, body)


def make_unreachable(messages: Messages, address: Address, bits: int) -> int:
    """`ip route add unreachable RANGE`, named by its first address and prefix length."""
    family, packed = address
    body = struct.pack(
        "=BBBBBBBBI", family, bits, 0, 0, TABLE_LOCAL, PROTO_BOOT, 0, RTN_UNREACHABLE, 0
    ) + attribute(RTA_DST, packed)
    if family == IPV6:
        body += attribute(RTA_OIF, struct.pack("=I", LOOPBACK_INDEX))
    return messages.add(RTM_NEWROUTE, CREATE | EXCL, body)


# --------------------------------------------------------------------------- nf_tables


def _nested(kind: int, *parts: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(parts))


def _number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("!I", value))


def _expression(name: bytes, *parts: bytes) -> bytes:
    return _nested(1, attribute(1, name + b"\0"), _nested(2, *parts))


def _protocol_is(protocol: int) -> bytes:
    meta = _expression(b"meta", _number(1, REGISTER), _number(2, 16))
    return meta + _compare(0, bytes([protocol]))


def _compare(operation: int, value: bytes) -> bytes:
    data = _nested(3, attribute(1, value))
    return _expression(b"cmp", _number(1, REGISTER), _number(2, operation), data)


def _payload(base: int, offset: int, length: int) -> bytes:
    return _expression(
        b"payload",
        _number(1, REGISTER),
        _number(2, base),
        _number(3, offset),
        _number(4, length),
    )


def _is_not_loopback(family: int) -> bytes:
    """The destination is not 127.0.0.0/8, or not ::1: those are the run's own."""
    if family == IPV4:
        return _payload(1, 16, 1) + _compare(1, b"\x7f")
    return _payload(1, 24, 16) + _compare(1, bytes(15) + b"\x01")


def _port_is(port: int) -> bytes:
    return _payload(2, 2, 2) + _compare(0, struct.pack("!H", port))


def _to_port(port: int) -> bytes:
    return _expression(
        b"immediate", _number(1, REGISTER), _nested(2, attribute(1, struct.pack("!H", port)))
    )


def _steal(family: int, port: int) -> bytes:
    """Hand to the transparent socket at `port`, whatever the destination."""
    accept = _expression(b"immediate", _number(1, 0), _nested(2, _nested(2, _number(1, 1))))
    return (
        _to_port(port) + _expression(b"tproxy", _number(1, family), _number(3, REGISTER)) + accept
    )


def _redirect(family: int, port: int) -> bytes:
    return _to_port(port) + _expression(b"redir", _number(1, REGISTER))


def capture(ports: dict[int, int], *, with_nat: bool) -> tuple[bytes, int]:
    """A batch that brings every TCP connection of a family to the listener at its port, and every
    DNS query to port 53 here: by TPROXY, or by NAT where the kernel lacks that. Also the number of
    the message whose answer says that all of it holds."""
    hook, priority, kind = (
        (HOOK_OUTPUT, -100, b"nat\0") if with_nat else (HOOK_PREROUTING, -150, b"filter\0")
    )
    send_to = _redirect if with_nat else _steal
    batch = Messages()
    batch.add(BATCH_BEGIN, 0, struct.pack("!BBH", 0, 0, NFT >> 8))
    last = batch.count
    for family, port in ports.items():
        head = struct.pack("!BBH", family, 0, 0)
        where = attribute(1, TABLE)
        place = _nested(4, _number(1, hook), attribute(2, struct.pack("!i", priority)))
        foreign = _is_not_loopback(family)
        rules = (
            _protocol_is(UDP) + foreign + _port_is(DNS_PORT) + send_to(family, DNS_PORT),
            _protocol_is(TCP) + foreign + send_to(family, port),
        )
        batch.add(NFT | NEWTABLE, CREATE, head + where)
        chain = where + attribute(3, CHAIN) + place + attribute(7, kind)
        batch.add(NFT | NEWCHAIN, CREATE, head + chain)
        for rule in rules:
            last = batch.add(NFT | NEWRULE, CREATE | APPEND, head + _rule(rule))
    data = batch.asked()
    end = struct.pack("!BBH", 0, 0, NFT >> 8)
    return data + struct.pack("=IHHII", 16 + len(end), BATCH_END, REQUEST, last + 1, 0) + end, last


def _rule(expressions: bytes) -> bytes:
    return attribute(1, TABLE) + attribute(2, CHAIN) + _nested(4, expressions)


MISSING = (errno.EOPNOTSUPP, errno.ENOENT, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT)
"""How the kernel says that it has no such part."""
