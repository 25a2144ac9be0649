"""A port of this host's loopback that was named is the run's own port; nothing else of it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

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
    with pytest.raises(InvalidRequest, match="name server and proxy"):
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
