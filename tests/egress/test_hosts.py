"""Who may be reached: spellings, patterns, ranges, and that a deny wins."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.egress import hosts
from sandboxd.egress.hosts import HostRules, canonical, is_own_address, parse_pattern
from sandboxd.model import EgressRules, NetworkMode

PUBLIC = "203.0.113.5"


def rules(mode: str = "allowlist", own: tuple[str, ...] = (), **fields: object) -> HostRules:
    return HostRules(
        NetworkMode(mode),
        EgressRules(**fields),  # type: ignore[arg-type]  # a table's values
        is_own=lambda address: str(address) in own,
    )


def may_ask(name: str, port: int | None = 443, **fields: object) -> bool:
    host = canonical(name)
    return host is not None and rules(**fields).judge_name(host, port) is None  # type: ignore[arg-type]


def may_dial(address: str, port: int = 443, mode: str = "open", **fields: object) -> bool:
    return rules(mode, **fields).judge_address(ipaddress.ip_address(address), port) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example.", "xn--bcher-kva.example"),
        ("a_b.example", "a_b.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("\uff11\uff10.0.0.1", "10.0.0.1"),
        ("127\u30020.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[::FFFF:a00:1]", "10.0.0.1"),
        ("[2001:DB8::0]", "2001:db8::"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_a_host_has_one_spelling(written: str, meant: str) -> None:
    assert canonical(written) == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        "a b",
        "a\0b",
        "-",
        "a/b",
        "user@host",
        "a" * 64 + ".example",
        "x." * 130,
        "a:b",
    ],
)
def test_what_is_no_host_has_no_spelling(text: str) -> None:
    assert canonical(text) is None


@given(st.text(max_size=300))
def test_canonical_is_its_own_canonical_form(text: str) -> None:
    once = canonical(text)
    assert once is None or canonical(once) == once


@pytest.mark.parametrize(
    ("pattern", "host", "port", "matches"),
    [
        ("example.com", "example.com", 443, True),
        ("Example.com.", "EXAMPLE.com", 80, True),
        ("example.com", "www.example.com", 443, False),
        ("example.com", "badexample.com", 443, False),
        ("*.example.com", "www.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "badexample.com", 443, False),
        ("example.com:443", "example.com", 443, True),
        ("example.com:443", "example.com", 80, False),
        ("*.example.com:8443", "x.example.com", 8443, True),
        ("*", "anything.example", 1, True),
        ("*:443", "anything.example", 80, False),
        ("bücher.example", "xn--bcher-kva.example", 443, True),
    ],
)
def test_pattern_matches_names(pattern: str, host: str, port: int, matches: bool) -> None:
    assert may_ask(host, port, allow=(pattern,)) is matches


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*x.example",
        "*.",
        "*.*.example",
        "*.10.0.0.1",
        "a b",
        "host:0",
        "host:65536",
        "host:",
        "host:x",
        "http://host",
        "10.0.0.0/33",
        "10.0.0.1/8",
        "[::1",
        "a/b",
    ],
)
def test_pattern_that_is_none_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"is n|has no port"):
        parse_pattern(text)


def test_a_deny_wins_over_every_allow() -> None:
    both: dict[str, object] = {"allow": ("*.example.com",), "deny": ("bad.example.com",)}
    assert may_ask("good.example.com", **both)
    assert not may_ask("bad.example.com", **both)
    assert not may_ask("BAD.example.com.", **both)
    assert not may_ask("x.example", mode="open", deny=("*.example", "x.example"))


def test_a_denied_port_leaves_the_name_to_be_looked_up() -> None:
    fields: dict[str, object] = {"mode": "open", "deny": ("x.example:25",)}
    assert may_ask("x.example", None, **fields)
    assert not may_ask("x.example", 25, **fields)
    assert may_ask("x.example", 443, **fields)


REFUSED = [
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.8.9.10",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "::",
    "::1",
    "fc00::1",
    "fd12::9",
    "fe80::1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "64:ff9b::a00:1",
    "2002:a00:1::1",
    "::a00:1",
]


@pytest.mark.parametrize("address", REFUSED)
def test_refused_range_is_refused_in_every_spelling(address: str) -> None:
    assert not may_dial(address)
    assert not may_dial(address, mode="allowlist", allow=("*", "0.0.0.0/0", "::/0"))


@pytest.mark.parametrize(
    "address",
    [PUBLIC, "198.51.100.7", "192.0.2.9", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:db8::1"],
)
def test_nothing_else_is_refused_in_open(address: str) -> None:
    assert may_dial(address)


@pytest.mark.parametrize("naming", ["10.0.0.1", "10.0.0.1:443", "10.0.0.0/8", "::ffff:10.0.0.1"])
def test_refused_address_is_allowed_when_it_is_named(naming: str) -> None:
    assert may_dial("10.0.0.1", allow=(naming,))
    assert may_dial("::ffff:10.0.0.1", allow=(naming,))
    assert not may_dial("192.168.0.1", allow=(naming,))


def test_private_addresses_can_be_allowed_and_metadata_still_not() -> None:
    assert may_dial("10.0.0.1", allow_private=True)
    assert may_dial("fd12::9", allow_private=True)
    assert not may_dial("169.254.169.254", allow_private=True)
    assert not may_dial("127.0.0.1", allow_private=True)
    assert not may_dial("fe80::1", allow_private=True)


def test_the_hosts_own_addresses_are_refused_like_loopback() -> None:
    assert not may_dial(PUBLIC, own=(PUBLIC,))
    assert may_dial(PUBLIC, own=(PUBLIC,), allow=(PUBLIC,))


def test_a_named_host_that_resolves_to_a_private_address_is_refused() -> None:
    judge = rules(allow=("inside.example",))
    assert judge.judge_name("inside.example", 443) is None
    denial = judge.judge_address(ipaddress.ip_address("10.0.0.1"), 443, name="inside.example")
    assert denial is not None
    assert (denial.host, denial.rule) == ("inside.example (10.0.0.1):443", "network.private")


def test_denied_range_wins_over_a_named_host() -> None:
    judge = rules(allow=("*",), deny=("203.0.113.0/24",))
    assert judge.judge_address(ipaddress.ip_address(PUBLIC), 443, name="x.example") is not None


def test_denial_names_host_rule_and_what_to_do() -> None:
    denial = rules().judge_name("example.com", 8443)
    assert denial is not None
    assert denial.evidence == "proxy"
    assert (denial.host, denial.rule) == ("example.com:8443", "network.allow")
    assert "--allow-host example.com:8443" in (denial.hint or "")


def test_an_address_of_this_host_is_known_as_its_own() -> None:
    assert is_own_address(ipaddress.ip_address("127.0.0.1"))
    assert not is_own_address(ipaddress.ip_address("198.51.100.77"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.77", 9))
        except OSError:
            return  # a host without a network has no further address
        assert is_own_address(ipaddress.ip_address(probe.getsockname()[0]))


@given(st.ip_addresses())
def test_mapped_address_is_judged_as_what_it_is(address: hosts.Address) -> None:
    if isinstance(address, ipaddress.IPv4Address):
        mapped = ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)
        assert may_dial(str(address)) == may_dial(str(mapped))
