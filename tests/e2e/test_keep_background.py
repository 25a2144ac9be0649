"""`keep_background`: the call is answered, what it left behind lives on, and nothing lives for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.client import Client
from sandboxd.errors import InvalidRequest, RunUnknown
from sandboxd.model import ExecRequest, Result
from sandboxd.protocol import messages as m
from tests.contract.test_tiers import eventually, processes_named

TIERS = ("namespaces", "landlock", "containment")


@pytest.fixture
def client(daemon: Any, workspace: Path) -> Iterator[Client]:
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        yield client


def keep(client: Client, text: str, **more: Any) -> Result:
    begun = time.monotonic()
    result = client.run(ExecRequest(command=text, approve="all", keep_background=True, **more))
    assert time.monotonic() - begun < 8
    return result


def terminate(client: Client, run_id: str, signal: str = "TERM") -> None:
    client.call("command.terminate", m.CommandTerminate(run_id=run_id, signal=signal), m.Done)


def assert_over(client: Client, run_id: str) -> None:
    """Soon nobody knows the run any more."""
    with pytest.raises(RunUnknown):
        eventually(lambda: terminate(client, run_id, "CONT"))


def nap() -> str:
    return f"81.{os.getpid()}{time.monotonic_ns() % 1_000_000}"


def sleeping(seconds: str) -> list[int]:
    return processes_named(f"sleep\0{seconds}\0")


@pytest.mark.parametrize("tier", TIERS)
def test_it_lives_on_is_listed_and_can_be_ended(client: Client, workspace: Path, tier: str) -> None:
    seconds = nap()
    text = f"cd /usr; sleep {seconds} & setsid sleep {seconds} & echo started; exit 5"
    result = keep(client, text, tier=tier)
    assert result.stdout is not None
    assert (result.exit_code, result.stdout.text, result.survivors) == (5, "started\n", 2)
    assert result.cwd == "/usr"
    assert {left.command for left in result.left_running} == {f"sleep {seconds}"}
    assert sorted(left.pid for left in result.left_running) == sorted(sleeping(seconds))
    assert client.exec("true", approve="all").exit_code == 0
    assert len(sleeping(seconds)) == 2
    terminate(client, result.run_id)
    assert eventually(lambda: not sleeping(seconds))
    assert_over(client, result.run_id)


def test_where_nothing_is_left_it_is_an_ordinary_run(client: Client) -> None:
    result = keep(client, "echo whole")
    assert (result.exit_code, result.survivors, result.left_running) == (0, 0, ())
    assert result.stdout is not None
    assert result.stdout.text == "whole\n"


def test_a_server_goes_on_writing_and_ends_by_itself(client: Client, workspace: Path) -> None:
    text = "(for n in 1 2 3 4 5; do echo line $n; sleep 0.2; done; echo over > over) & echo up"
    result = keep(client, text)
    assert result.survivors >= 1
    assert eventually((workspace / "over").exists)
    assert_over(client, result.run_id)


def test_it_ends_with_its_session(daemon: Any, workspace: Path) -> None:
    seconds = nap()
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        keep(client, f"sleep {seconds} & true")
        assert client.session is not None
        name = client.session.session_id
    assert len(sleeping(seconds)) == 1  # its connection may go
    with Client.connect(daemon.socket, workspace=str(workspace), session_id=name) as client:
        client.call("session.close", m.SessionClose(session_id=name), m.Done)
        assert eventually(lambda: not sleeping(seconds))


def test_the_time_limit_is_that_of_the_command(client: Client) -> None:
    seconds = nap()
    result = keep(client, f"sleep {seconds}", timeout_s=0.5)
    assert (result.timed_out, result.exit_code) == (True, 124)
    assert not sleeping(seconds)


def test_it_dies_with_the_daemon(own_daemon: Any, workspace: Path) -> None:
    seconds = nap()
    daemon = own_daemon()
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        keep(client, f"setsid sleep {seconds} & true")
        assert len(sleeping(seconds)) == 1
        assert daemon.stop() == 0
    assert eventually(lambda: not sleeping(seconds))


def test_a_tier_that_cannot_keep_it_says_so(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="bubblewrap cannot keep"):
        keep(client, "sleep 1 & true", tier="bubblewrap")
