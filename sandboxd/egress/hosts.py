"""Who may be reached: host names and addresses in one canonical form, held against rules.

A pure module. A name is judged as written in the rules; an address is judged again after the
name was resolved, and the address judged is the one dialled, so a name that points into the
private network (DNS rebinding, a redirect) gains nothing by being named. Deny wins.

One host has many spellings: case, a trailing dot, IDNA, `127.1`, `0x7f000001`, `::ffff:10.0.0.1`,
and IPv6 prefixes that carry an IPv4 address (NAT64, 6to4). All are brought to one form first; what
has none is refused. Sources: RFC 3986 and inet_aton(3) for spellings, RFC 4291, RFC 6052 and RFC
3056 for embedded addresses, RFC 1918, 4193, 6598, 3927 for ranges.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from sandboxd.model import REFUSED_RANGES, Denial, EgressRules, NetworkMode

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PRIVATE_RANGES = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "fc00::/7",
)
"""What `allow_private` opens: the rest of the refused ranges is this host or its metadata."""
UNSPECIFIED = ipaddress.IPv6Address(0)
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
COMPATIBLE = ipaddress.IPv6Network("::/96")
MAX_NAME = 253
_NAME = re.compile(
    r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
)
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")


def canonical(host: str) -> str | None:
    """The one spelling of a host name or address; None when it is neither."""
    text = host.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    if not text.isascii():
        try:
            text = text.encode("idna").decode("ascii")  # turns digits of other scripts into ours
        except UnicodeError:
            return None
    address = address_of(text)
    if address is not None:
        return str(address)
    name = text.lower().removesuffix(".")
    if not name or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        return None
    return name


def address_of(text: str) -> Address | None:
    """The address that a text is, IPv4-mapped ones as IPv4; None when it is a name."""
    try:
        return plain(ipaddress.ip_address(text))
    except ValueError:
        pass
    labels = text.lower().removesuffix(".").split(".")
    if len(labels) <= 4 and all(_NUMBER.fullmatch(label) for label in labels):
        try:
            return ipaddress.IPv4Address(socket.inet_aton(".".join(labels)))
        except OSError:
            return None
    return None


def plain(address: Address) -> Address:
    """An IPv4-mapped address as IPv4; a zone index is taken off."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.scope_id is not None:
            return ipaddress.IPv6Address(int(address))
    return address


def embedded(address: Address) -> list[Address]:
    """The address itself, and an IPv4 address that it carries."""
    found = [plain(address)]
    if isinstance(found[0], ipaddress.IPv6Address):
        number = int(found[0])
        if found[0] in NAT64 or found[0] in COMPATIBLE:
            found.append(ipaddress.IPv4Address(number & 0xFFFFFFFF))
        elif found[0] in SIX_TO_FOUR:
            found.append(ipaddress.IPv4Address(number >> 80 & 0xFFFFFFFF))
    return found


@dataclass(frozen=True)
class Pattern:
    """One entry of `allow` or `deny`."""

    text: str
    name: str | None = None
    """A canonical name, `*.domain`, or `*`."""
    network: Network | None = None
    port: int | None = None

    def names(self, host: str, port: int | None) -> bool:
        """Whether it matches a canonical name; a port of None stands for any."""
        if self.name is None or not self._has_port(port):
            return False
        if self.name == "*":
            return True
        if self.name.startswith("*."):
            return host.endswith(self.name[1:]) and len(host) > len(self.name) - 1
        return host == self.name

    def covers(self, address: Address, port: int | None) -> bool:
        """Whether it is an address or a range that holds this one."""
        if self.network is None or not self._has_port(port):
            return False
        return self.network.version == address.version and address in self.network

    def _has_port(self, port: int | None) -> bool:
        return self.port is None or port is None or self.port == port


@lru_cache(1024)
def parse_pattern(text: str) -> Pattern:
    """`host`, `*.domain`, `*`, an address or a range, each with `:port` or without; IPv6 with a port
    in brackets. Raises ValueError with a sentence."""
    body, port = _split_port(text.strip())
    star = body.startswith("*")
    if star:
        rest = body[2:] if body.startswith("*.") else ""
        name = "*" if body == "*" else canonical(rest) if rest else None
        if name is None or (name != "*" and address_of(rest) is not None):
            raise ValueError(
                f"{text!r} is no host: a star stands alone or before a dot and a domain"
            )
        return Pattern(text, name=name if name == "*" else f"*.{name}", port=port)
    if "/" in body:
        try:
            return Pattern(text, network=ipaddress.ip_network(body.strip("[]")), port=port)
        except ValueError as error:
            raise ValueError(f"{text!r} is no address range: {error}") from None
    host = canonical(body)
    if host is None:
        raise ValueError(f"{text!r} is neither a host name nor an address, with :port or without")
    address = address_of(host)
    if address is not None:
        return Pattern(text, network=ipaddress.ip_network(address), port=port)
    return Pattern(text, name=host, port=port)


def _split_port(text: str) -> tuple[str, int | None]:
    head, colon, tail = text.rpartition(":")
    if not colon or (":" in head and not head.endswith("]")):
        return text, None
    if not (tail.isascii() and tail.isdigit()) or not 0 < int(tail) < 65536:
        raise ValueError(f"{text!r} has no port from 1 to 65535 after the colon")
    return head, int(tail)


def is_inner(address: Address) -> bool:
    """Whether it is of a private network or of loopback; link-local ones, with them metadata, are not."""
    networks = map(ipaddress.ip_network, (*PRIVATE_RANGES, "127.0.0.1", "::1"))
    return any(address.version == it.version and address in it for it in networks)


class HostRules:
    """The rules of one run. Every question is answered by a Denial, or None for yes."""

    def __init__(
        self,
        mode: NetworkMode,
        rules: EgressRules,
        *,
        is_own: Callable[[Address], bool],
        refused: Iterable[str] = REFUSED_RANGES,
    ) -> None:
        """`is_own` says whether an address is this host's; `refused` are ranges to be named first."""
        self.mode = mode
        self.allow = tuple(parse_pattern(text) for text in rules.allow)
        self.deny = tuple(parse_pattern(text) for text in rules.deny)
        self.is_own = is_own
        opened = PRIVATE_RANGES if rules.allow_private else ()
        self.refused = tuple(ipaddress.ip_network(text) for text in refused if text not in opened)

    @property
    def is_allowlist(self) -> bool:
        return self.mode is NetworkMode.ALLOWLIST

    def judge_name(self, name: str, port: int | None) -> Denial | None:
        """May this (canonical) name be asked for? A port of None: at any port at all."""
        for pattern in self.deny:
            # A deny of one port leaves the name itself to be looked up.
            if (port is not None or pattern.port is None) and pattern.names(name, port):
                return _denied(name, port, f"network.deny: {pattern.text}", _DENIED_HINT)
        if not self.is_allowlist or any(pattern.names(name, port) for pattern in self.allow):
            return None
        return _denied(name, port, "network.allow", _missing_hint(name, port))

    def judge_address(
        self, address: Address, port: int, *, name: str | None = None
    ) -> Denial | None:
        """May this address be dialled? `name` is the allowed name that it was resolved from."""
        address = plain(address)
        shown = f"{name} ({address})" if name else str(address)
        faces = embedded(address)
        for pattern in self.deny:
            if any(pattern.covers(face, port) for face in faces):
                return _denied(shown, port, f"network.deny: {pattern.text}", _DENIED_HINT)
        naming = [pattern for pattern in self.allow if pattern.covers(address, port)]
        if self._is_refused(faces) and not any(map(self._names_refused, naming)):
            return _denied(shown, port, "network.private", _private_hint(address, port))
        if self.is_allowlist and name is None and not naming:
            return _denied(shown, port, "network.allow", _missing_hint(str(address), port))
        return None

    def _names_refused(self, pattern: Pattern) -> bool:
        """Whether an allow names refused addresses on purpose: one of them, or a range of them.
        A wide range such as 0.0.0.0/0 names the internet."""
        network = pattern.network
        if network is None:
            return False
        if network.num_addresses == 1:
            return True
        return any(_is_within(network, refused) for refused in self.refused)

    def _is_refused(self, faces: list[Address]) -> bool:
        if faces[0] == UNSPECIFIED:
            return True
        return any(
            self.is_own(face)
            or any(face.version == net.version and face in net for net in self.refused)
            for face in faces
        )


def _is_within(inner: Network, outer: Network) -> bool:
    return (
        inner.version == outer.version
        and inner.prefixlen >= outer.prefixlen
        and inner.network_address in outer
    )


_DENIED_HINT = "the profile denies this host, and a deny wins over every allow"


def _missing_hint(name: str, port: int | None) -> str:
    shown = f"[{name}]" if ":" in name else name
    place = shown if port in (None, 80, 443) else f"{shown}:{port}"
    return f"name it with --allow-host {place}, or under network.allow in the profile"


def _private_hint(address: Address, port: int) -> str:
    shown = f"[{address}]" if address.version == 6 else str(address)
    return (
        f"this host, private networks and metadata are refused unless the address is named: "
        f"--allow-host {shown}:{port}"
    )


def _denied(host: str, port: int | None, rule: str, hint: str) -> Denial:
    if port is not None:
        host = f"[{host}]:{port}" if ":" in host and "(" not in host else f"{host}:{port}"
    return Denial(evidence="proxy", rule=rule, host=host, hint=hint)


@cache
def _binds_anything(version: int) -> bool:
    """Whether this host binds addresses that it does not have (ip_nonlocal_bind in ip-sysctl)."""
    return _can_bind("192.0.2.255" if version == 4 else "2001:db8:ffff::ffff")


def _can_bind(text: str) -> bool:
    """An error other than `not mine` counts as yes: what cannot be judged is refused."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((text, 0))
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


def is_own_address(address: Address) -> bool:
    """Whether an address belongs to this host, as it is now: it can be bound. Where a host binds
    any address, one that is reached from itself is its own. Sends nothing."""
    text = str(address)
    if not _binds_anything(address.version):
        return _can_bind(text)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((text, 9))
            return str(probe.getsockname()[0]) == text
    except OSError:
        return False
