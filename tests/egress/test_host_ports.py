"""A port of this host's loopback that was named is the run's own port; nothing else of it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sandboxd.egress.variables import inner_proxies
from sandboxd.errors import InvalidRequest
from sandboxd.model import Denial, ExecRequest
from tests.egress.gate import text, through_gate
from tests.egress.running import PRELUDE
from tests.egress.world import World, http_server

ASK = """
for host in ("127.0.0.1", "localhost", "::1"):
    print(attempt(lambda: fetch(host, 5432)))
print(attempt(lambda: fetch("127.0.0.1", 5433)))
"""


def asking(code: str, *hosts: str, **more: object) -> ExecRequest:
    argv = (sys.executable, "-I", "-c", PRELUDE + code)
    return ExecRequest(argv=argv, approve="all", allow_hosts=hosts, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("tier", ["namespaces", "bubblewrap"])
@pytest.mark.parametrize("profile", ["default", "allowlist"])
@pytest.mark.parametrize("named", ["localhost:5432", "127.0.0.1:5432"])
def test_a_named_port_leads_to_the_hosts(
    tmp_path: Path, world: World, tier: str, profile: str, named: str
) -> None:
    with http_server() as port:
        world.servers = {("127.0.0.1", 5432): port, ("127.0.0.1", 5433): port}
        [result] = through_gate(world, tmp_path, asking(ASK, named, tier=tier, profile=profile))
    assert text(result).split("\n")[:4] == [
        "127.0.0.1 /",
        "localhost /",
        "::1 /",
        "ConnectionRefusedError",
    ]
    assert {place for place in world.dialled if place[0] != "::1"} == {("127.0.0.1", 5432)}
    assert result.denial is None


def test_a_server_that_listens_on_ipv6_only_is_found_too(tmp_path: Path, world: World) -> None:
    with http_server() as port:
        world.servers = {("::1", 5432): port}
        [result] = through_gate(world, tmp_path, asking(ASK, "localhost:5432"))
    assert text(result).split("\n")[0] == "127.0.0.1 /"


def test_a_deny_wins_and_is_told(tmp_path: Path, world: World) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("extends: default\nnetwork:\n  mode: open\n  deny: ['127.0.0.0/8', '[::1]']\n")
    with http_server() as port:
        world.servers = {("127.0.0.1", 5432): port}
        [result] = through_gate(world, tmp_path, asking(ASK, "localhost:5432", profile=str(file)))
    assert text(result).split("\n")[:3] == ["ConnectionResetError"] * 3
    assert isinstance(result.denial, Denial)
    assert result.denial.rule.startswith("network.deny")
    assert world.dialled == []


@pytest.mark.parametrize("named", ["localhost", "127.0.0.1"])
def test_without_a_port_nothing_of_the_host_is_named(
    tmp_path: Path, world: World, named: str
) -> None:
    with http_server() as port:
        world.servers = {("127.0.0.1", 5432): port}
        [result] = through_gate(world, tmp_path, asking(ASK, named))
    assert text(result).split("\n")[:3] == ["ConnectionRefusedError"] * 3


def test_a_port_that_the_run_needs_itself_cannot_be_named(tmp_path: Path, world: World) -> None:
    with pytest.raises(InvalidRequest, match="name server"):
        through_gate(world, tmp_path, asking("", "localhost:53"))


@pytest.mark.parametrize(
    ("words", "port"),
    [
        ("curl: (7) Failed to connect to 127.0.0.1 port 5432 after 0 ms", "5432"),
        ('connection to server at "localhost" (::1), port 5432 failed: Connection refused', "5432"),
        ("Error: connect ECONNREFUSED ::1:6379", "6379"),
        ("requests: http://localhost:8080/x: Connection refused", "8080"),
        ("Connection refused", None),
        ("listening on 127.0.0.1:5432", None),
    ],
)
def test_a_program_that_misses_a_server_of_the_host_is_told_how_to_name_it(
    tmp_path: Path, world: World, words: str, port: str | None
) -> None:
    argv = ("sh", "-c", 'echo "$0" >&2; exit 3', words)
    [result] = through_gate(world, tmp_path, ExecRequest(argv=argv, approve="all"))
    if port is None:
        assert result.denial is None
        return
    assert isinstance(result.denial, Denial)
    assert (result.denial.evidence, result.denial.rule) == ("text", "network.loopback")
    assert f"--allow-host localhost:{port}" in (result.denial.hint or "")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("http://10.1.2.3:3128", ["10.1.2.3:3128"]),
        ("http://me:secret@localhost:3128/", ["localhost:3128"]),
        ("127.0.0.1:8888", ["127.0.0.1:8888"]),
        ("socks5h://[fd00::9]:1080", ["[fd00::9]:1080"]),
        ("http://169.254.169.254:80", []),
        ("http://203.0.113.5:3128", []),
        ("http://proxy.corp.example:3128", []),
        ("http://10.1.2.3", []),
        ("http://10.1.2.3:x", []),
        ("http://[::1", []),
        ("", []),
    ],
)
def test_only_inner_proxies_with_address_and_port_are_found(value: str, found: list[str]) -> None:
    assert inner_proxies({"https_proxy": value, "HTTPS_PROXY": value}) == found


@pytest.mark.parametrize("place", ["10.1.2.3", "127.0.0.1"])
def test_the_callers_own_proxy_is_reached_in_open_and_said(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{place}:3128")
    curl = ("curl", "-sS", "-m", "9", "http://any.example/page")
    with http_server() as port:
        world.servers = {(place, 3128): port}
        asked = ExecRequest(argv=curl, approve="all")
        shut = ExecRequest(argv=curl, approve="all", profile="allowlist")
        opened, closed = through_gate(world, tmp_path, asked, shut)
    assert "any.example http://any.example/page" in text(opened), text(opened)
    said = [gap for gap in opened.tier.gaps if "proxy of the caller" in gap]
    assert said == [f"network: the proxy of the caller's environment can be reached: {place}:3128"]
    assert isinstance(closed.denial, Denial)
    assert closed.denial.host == "any.example:80"
    assert not [gap for gap in closed.tier.gaps if "proxy of the caller" in gap]


def test_a_proxy_that_the_request_itself_names_opens_nothing(tmp_path: Path, world: World) -> None:
    curl = ("curl", "-sS", "-m", "9", "http://any.example/page")
    env: dict[str, str | None] = {"http_proxy": "http://10.1.2.3:3128"}
    with http_server() as port:
        world.servers = {("10.1.2.3", 3128): port}
        [result] = through_gate(world, tmp_path, ExecRequest(argv=curl, approve="all", env=env))
    assert world.dialled == []
    assert isinstance(result.denial, Denial)
    assert result.denial.rule == "network.private"
