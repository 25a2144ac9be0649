"""`sandboxd terminal ...` as people and scripts call it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from sandboxd.client import Client
from sandboxd.model import ExecRequest, Pty
from sandboxd.protocol import messages as m
from tests.e2e.conftest import CLI, Daemon
from tests.ptys import on_pty


class Shop:
    def __init__(self, daemon: Daemon, workspace: Path) -> None:
        self.workspace = workspace
        self.words = [*CLI, "terminal", "--socket", daemon.socket, "--workspace", str(workspace)]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.words, *words],
            cwd=self.workspace,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )

    def json(self, *words: str) -> Any:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def shop(daemon: Daemon, workspace: Path) -> Shop:
    return Shop(daemon, workspace)


def test_start_write_read_list_kill(shop: Shop) -> None:
    started = shop.run("start", "--approve", "all", "--", "cat")
    assert started.returncode == 0, started.stderr
    name = started.stdout.strip()
    assert shop.run("write", name, "hello ☃", "--enter").returncode == 0
    read = shop.run("read", "--wait", "20", name)
    assert read.stdout.splitlines().count("hello ☃") == 2
    assert "[waiting_for_input]" in read.stderr
    assert shop.json("list", "--json")["terminals"][0]["state"] == "running"
    assert shop.run("kill", name).returncode == 0
    after = shop.json("read", "--json", name)
    assert (after["state"], after["exit_code"]) == ("exited", 137)
    assert f"{name}  exited 137  cat" in shop.run("list").stdout


def test_a_dev_server_in_a_terminal_is_published(shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    serve = f"python3 -m http.server -b 127.0.0.1 {port}"
    started = shop.run("start", "--approve", "all", "--publish", str(port), "-c", serve)
    assert started.returncode == 0, started.stderr
    shop.run("read", "--wait", "20", started.stdout.strip())
    (shop.workspace / "page").write_text("served from a terminal")
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=5) as answer:
                assert answer.read() == b"served from a terminal"
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert shop.run("kill", started.stdout.strip()).returncode == 0
    assert shop.run("start", "--publish", "0", "--", "cat").returncode == 2


def test_a_command_that_must_be_asked_about_is_refused_with_a_hint(shop: Shop) -> None:
    refused = shop.run("start", "-c", "touch made")
    assert refused.returncode == 125
    assert "--approve mutating" in refused.stderr
    assert not (shop.workspace / "made").exists()


def test_mistakes_are_sentences(shop: Shop) -> None:
    unknown = shop.run("read", "t-none")
    assert unknown.returncode == 125
    assert "there is no terminal 't-none'" in unknown.stderr
    assert shop.run("start", "--cols", "0", "--rows", "5", "--", "cat").returncode == 2
    assert shop.run("write", "t-none").returncode == 2
    no_daemon = subprocess.run(
        [*CLI, "terminal", "--socket", "/nonexistent/s", "list"], capture_output=True, text=True
    )
    assert no_daemon.returncode == 125
    assert "no daemon answers" in no_daemon.stderr


def test_a_person_attaches_types_and_leaves(shop: Shop) -> None:
    name = shop.run(
        "start", "--approve", "all", "--", "bash", "--noprofile", "--norc"
    ).stdout.strip()
    environment = {**os.environ, "TERM": "xterm"}
    with on_pty([*shop.words, "attach", name], env=environment, size=(30, 100)) as at:
        at.expect(b"attached to")
        at.type("stty size\r")
        at.expect(b"30 100")
        at.type("echo $((6*7))\r")
        at.expect(b"42")
        at.type("\x1d")
        assert at.wait() == 0
        assert b"it goes on" in at.seen
    assert shop.json("read", "--json", "--wait", "20", name)["state"] == "at_prompt"
    with on_pty([*shop.words, "attach", name], env=environment) as at:
        at.expect(b"attached to")
        at.type("exit 3\r")
        assert at.wait() == 0
        assert b"it has ended" in at.seen
    assert shop.json("read", "--json", name)["exit_code"] == 3


def test_attach_without_a_terminal_says_what_to_use(shop: Shop) -> None:
    done = shop.run("attach", "t-none")
    assert done.returncode == 2
    assert "sandboxd terminal read" in done.stderr


def test_a_command_that_comes_to_wait_is_told(daemon: Daemon, workspace: Path) -> None:
    """`command.state`: waiting, going on, and the password kind on a pty."""
    for request, expected in (
        (
            ExecRequest(command="read x; sleep 1; exit 3", stdin_open=True, approve="all"),
            [
                ("running", False),
                ("waiting_for_input", False),
                ("running", False),
                ("exited", False),
            ],
        ),
        (
            ExecRequest(
                argv=("python3", "-c", "import getpass, time; getpass.getpass(); time.sleep(1)"),
                stdin_open=True,
                approve="all",
                pty=Pty(),
            ),
            [
                ("running", False),
                ("waiting_for_input", True),
                ("running", False),
                ("exited", False),
            ],
        ),
    ):
        assert _states(daemon, workspace, request) == expected


def _states(daemon: Daemon, workspace: Path, request: ExecRequest) -> list[tuple[str, bool]]:
    """The states of a run that gets a line as soon as it waits for one."""
    from sandboxd.protocol import wire

    states = []
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        client._send(wire.encode_request(90, "command.exec", request))
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = wire.decode(client._next_line())
            if isinstance(message, wire.Notification) and message.method == "command.state":
                state = wire.decode_body(message.params, m.CommandState)
                states.append((state.state, state.password))
                if state.state == "waiting_for_input":
                    write = m.CommandWrite(run_id=state.run_id, text="line\n")
                    client._send(wire.encode_request(91, "command.write", write))
            if isinstance(message, wire.Response) and message.id == 90:
                break
    return states
