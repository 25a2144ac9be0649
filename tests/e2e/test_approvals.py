"""Approvals end to end: a real daemon, real clients, and `sandboxd approve` in a real terminal."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sandboxd import errors
from sandboxd.client import Client
from sandboxd.model import ApprovalAsk, ApprovalReply
from sandboxd.protocol import messages as m

APPROVE = [sys.executable, "-m", "sandboxd", "approve"]


def until(done: Callable[[], bool], what: str, limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


class Tmux:
    """One real terminal in which a program runs; what a person would see, and keys."""

    def __init__(self, folder: Path, command: list[str], cwd: Path) -> None:
        program = shutil.which("tmux")
        assert program is not None, (
            "tmux is missing: it is the person's terminal (apt install tmux)"
        )
        self._program, self._socket = program, str(folder / "t")
        words = " ".join(f"'{word}'" for word in command)
        self._run(
            "-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "50", "-c", str(cwd), words
        )

    def _run(self, *arguments: str) -> str:
        # A service account's own shell may be one that ends at once.
        environment = {
            **os.environ,
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color",
            "SHELL": "/bin/sh",
        }
        environment.pop("TMUX", None)
        done = subprocess.run(
            [self._program, "-S", self._socket, *arguments],
            env=environment, capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
        return done.stdout

    def sees(self, text: str) -> None:
        until(lambda: text in self.screen(), f"{text!r} on the screen")

    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-S", "-", "-J")

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def close(self) -> None:
        subprocess.run(
            [self._program, "-S", self._socket, "kill-server"], check=False, capture_output=True
        )


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = Path("/tmp") / f"sbx-{os.getpid()}-{threading.get_native_id()}"
    folder.mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def terminal(daemon: Any, short: Path, workspace: Path) -> Iterator[Tmux]:
    """`sandboxd approve` in a terminal of its own, attached."""
    tmux = Tmux(short, [*APPROVE, "--socket", daemon.socket], workspace)
    try:
        tmux.sees("waiting for questions")
        yield tmux
    finally:
        tmux.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


@pytest.fixture
def client(daemon: Any, workspace: Path) -> Iterator[Client]:
    """A client whose person is not there."""
    with Client.connect(daemon.socket, workspace=str(workspace)) as connected:
        yield connected


def listed(daemon: Any) -> list[m.ApprovalEntry]:
    with Client.connect(daemon.socket, workspace="/tmp") as asking:
        return list(asking.call("approval.list", m.Empty(), m.ApprovalListing).requests)


def resolve(daemon: Any, request_id: str, answer: str, reason: str | None = None) -> str | None:
    with Client.connect(daemon.socket, workspace="/tmp") as asking:
        params = m.ApprovalResolve(request_id=request_id, answer=answer, reason=reason)  # type: ignore[arg-type]
        return asking.call("approval.resolve", params, m.ApprovalResolved).answer


def test_once_session_and_deny_with_a_reason_by_one_key_each(
    terminal: Tmux, client: Client, workspace: Path, pool: ThreadPoolExecutor
) -> None:
    first = pool.submit(client.exec, "touch one && ls")
    terminal.sees("touch one && ls")
    terminal.sees("makes files or folders: touch one")
    terminal.sees("Allow it? [y once, s session, n no")
    terminal.press("y")
    assert first.result(20).decision.approved_by == "person"
    again = pool.submit(client.exec, "touch one && ls")
    until(lambda: terminal.screen().count("Allow it?") == 2, "asked again after once")
    terminal.press("s")
    assert again.result(20).exit_code == 0
    assert client.exec("touch one").decision.approved_by == "session"

    denied = pool.submit(client.exec, "touch two")
    terminal.sees("    touch two")
    terminal.press("r")
    terminal.sees("Why not?")
    terminal.press("use three", "Enter")
    with pytest.raises(errors.ApprovalDenied, match="said no: use three"):
        denied.result(20)
    stopped = pool.submit(client.exec, "touch three")
    terminal.sees("    touch three")
    terminal.press("x")
    with pytest.raises(errors.ApprovalDenied) as caught:
        stopped.result(20)
    assert caught.value.data is not None
    assert caught.value.data["answer"] == "stop"
    assert "end your turn" in caught.value.hint
    assert sorted(file.name for file in workspace.iterdir()) == ["one"]


def test_destructive_is_asked_each_time_and_says_what_is_lost(
    terminal: Tmux, client: Client, workspace: Path, pool: ThreadPoolExecutor
) -> None:
    for count in (1, 2):
        (workspace / "build").mkdir()
        (workspace / "build" / "file").write_text("12345")
        call = pool.submit(client.exec, "rm -rf build")
        until(lambda n=count: terminal.screen().count("Allow it?") == n, "asked")
        assert "loses:  " + str(workspace) + "/build (1 file, 5 bytes)" in terminal.screen()
        assert "s session" not in terminal.screen()
        terminal.press("s")  # no key here
        terminal.press("y")
        assert call.result(20).exit_code == 0
        assert not (workspace / "build").exists()


def test_what_cannot_be_read_is_never_remembered(daemon: Any, workspace: Path) -> None:
    asked: list[ApprovalAsk] = []

    def approver(ask: ApprovalAsk) -> Any:
        asked.append(ask)
        return "session"

    with Client.connect(daemon.socket, workspace=str(workspace), approver=approver) as client:
        for _ in range(2):
            client.exec("touch x; eval \"$(printf 'tr'; echo ue; for)\"")
    assert [ask.may_remember for ask in asked] == [False, False]


def test_units_that_were_approved_are_not_asked_again_inside_another_list(
    daemon: Any, workspace: Path
) -> None:
    asked: list[ApprovalAsk] = []

    def approver(ask: ApprovalAsk) -> Any:
        asked.append(ask)
        return "session"

    with Client.connect(daemon.socket, workspace=str(workspace), approver=approver) as client:
        warm = "mkdir -p x; touch a; ls -la"
        until(lambda: client.classify(warm).cacheable, "the second reader of texts has started")
        client.exec("touch a")
        client.exec("mkdir -p deep/er && ls")
        for text in ("touch a", "ls; touch a", "mkdir -p deep/er; touch a; ls -la"):
            assert client.exec(text).decision.approved_by == "session", text
        client.exec("touch a; touch c")
    assert [ask.command for ask in asked] == [
        "touch a",
        "mkdir -p deep/er && ls",
        "touch a; touch c",
    ]
    ask = asked[1]
    assert ask.writes == (f"{workspace}/deep/er",)
    assert (ask.creates, ask.cwd) == ((f"{workspace}/deep",), str(workspace))
    assert [ask.command[start:end] for start, end in ask.marks] == ["mkdir -p deep/er"]
    assert (ask.workspace, ask.session_id != "") == (str(workspace), True)
    assert ask.tier.gaps


def test_an_approval_holds_in_its_tier_and_without_additions_only(
    daemon: Any, workspace: Path
) -> None:
    asked: list[str] = []

    def approver(ask: ApprovalAsk) -> Any:
        asked.append(ask.tier.name)
        return "session"

    with Client.connect(daemon.socket, workspace=str(workspace), approver=approver) as client:
        for tier in ("namespaces", "namespaces", "containment", "containment"):
            client.exec("touch a", tier=tier)
    assert asked == ["namespaces", "containment"]


def test_a_host_is_asked_once_for_the_session_also_by_calls_at_the_same_time(
    daemon: Any, workspace: Path, pool: ThreadPoolExecutor
) -> None:
    asked: list[tuple[str, ...]] = []
    gate = threading.Event()

    def approver(ask: ApprovalAsk) -> Any:
        asked.append(ask.hosts)
        gate.wait(20)
        return "session"

    options = {
        "workspace": str(workspace),
        "session_id": f"hosts-{secrets.token_hex(4)}",
        "approver": approver,
    }
    clients = [Client.connect(daemon.socket, **options) for _ in range(3)]
    urls = ["http://127.0.0.1:1/a", "http://127.0.0.1:1/a", "http://127.0.0.1:1/b"]
    calls = [
        pool.submit(client.exec, ["curl", "-s", url])
        for client, url in zip(clients, urls, strict=True)
    ]
    until(lambda: [entry.callers for entry in listed(daemon)] in ([2, 1], [1, 2]), "two questions")
    until(lambda: len(asked) == 2, "both are asked")
    gate.set()
    assert {call.result(20).exit_code for call in calls} == {7}
    assert clients[0].exec(["curl", "-s", "http://127.0.0.1:1/c"]).exit_code == 7
    assert len(asked) == 2
    for client in clients:
        client.close()


def test_concurrent_requests_for_the_same_key_are_asked_once(
    daemon: Any, workspace: Path, pool: ThreadPoolExecutor, terminal: Tmux
) -> None:
    name = f"same-{secrets.token_hex(4)}"
    clients = [
        Client.connect(daemon.socket, workspace=str(workspace), session_id=name) for _ in range(8)
    ]
    calls = [pool.submit(client.exec, "touch same") for client in clients]
    until(lambda: [entry.callers for entry in listed(daemon)] == [8], "all wait for one")
    terminal.press("y")
    assert {call.result(20).exit_code for call in calls} == {0}
    assert terminal.screen().count("Allow it?") == 1
    for client in clients:
        client.close()


def test_a_question_dies_with_its_caller(daemon: Any, workspace: Path, terminal: Tmux) -> None:
    code = (
        "from sandboxd.client import Client\n"
        f"Client.connect({daemon.socket!r}, workspace={str(workspace)!r}).exec('touch never')"
    )
    caller = subprocess.Popen([sys.executable, "-c", code])
    terminal.sees("    touch never")
    [entry] = listed(daemon)
    caller.kill()
    caller.wait()
    terminal.sees("needs no answer any more")
    assert listed(daemon) == []
    with pytest.raises(errors.ApprovalUnknown):
        resolve(daemon, entry.ask.request_id, "once")
    assert not (workspace / "never").exists()


def test_list_and_answer_by_the_command_line(
    daemon: Any, workspace: Path, client: Client, pool: ThreadPoolExecutor
) -> None:
    words = [*APPROVE, "--socket", daemon.socket]
    attached = subprocess.Popen(
        [*words, "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert attached.stdout is not None
    assert attached.stdin is not None
    try:
        assert json.loads(attached.stdout.readline()) == {"attached": {}}
        call = pool.submit(client.exec, "touch by-line")
        pending = json.loads(attached.stdout.readline())["pending"]
        assert pending["command"] == "touch by-line"
        shown = subprocess.run(
            [*words, "--list"], capture_output=True, text=True, check=True
        ).stdout
        assert "    touch by-line" in shown
        assert f"id:     {pending['request_id']}, asked of the approver" in shown
        answer = [*words, "--answer", pending["request_id"], "deny", "--reason", "not today"]
        assert subprocess.run(answer, check=True, capture_output=True).stdout == b"denied\n"
        late = subprocess.run([*answer, "--json"], check=False, capture_output=True, text=True)
        assert late.returncode == 125
        assert json.loads(late.stdout)["error"]["code"] == "APPROVAL_UNKNOWN"
        with pytest.raises(errors.ApprovalDenied, match="not today"):
            call.result(20)
        assert json.loads(attached.stdout.readline())["resolved"]["answer"] == "deny"

        call = pool.submit(client.exec, "touch by-json")
        request_id = json.loads(attached.stdout.readline())["pending"]["request_id"]
        attached.stdin.write(
            "nonsense\n" + json.dumps({"request_id": request_id, "answer": "once"}) + "\n"
        )
        attached.stdin.flush()
        assert call.result(20).exit_code == 0
    finally:
        attached.terminate()
        attached.wait()
    wrong = subprocess.run([*words, "--answer", "a-1", "perhaps"], check=False, capture_output=True)
    assert (wrong.returncode, b"is no answer" in wrong.stderr) == (2, True)


def test_nobody_answers_in_time(daemon: Any, workspace: Path) -> None:
    from sandboxd.model import ExecRequest

    def approver(ask: ApprovalAsk) -> Any:
        time.sleep(1)
        return "once"

    with Client.connect(daemon.socket, workspace=str(workspace), approver=approver) as client:
        with pytest.raises(errors.ApprovalTimedOut):
            client.run(ExecRequest(command="touch late", approval_wait_s=0.3))
        assert not (workspace / "late").exists()


def test_approving_a_dev_server_in_a_terminal_approves_nothing_else(
    daemon: Any, workspace: Path
) -> None:
    asked: list[str] = []
    answers: Iterator[Any] = iter(["session", "deny", "deny", "deny"])

    def approver(ask: ApprovalAsk) -> Any:
        asked.append(ask.command)
        return next(answers)

    (workspace / "package.json").write_text(
        '{"scripts": {"dev": "sleep 60", "evil": "touch evil"}}'
    )
    with Client.connect(daemon.socket, workspace=str(workspace), approver=approver) as client:
        params = m.TerminalStart(argv=("npm", "run", "dev"))
        started = client.call("terminal.start", params, m.TerminalStarted)
        shell = client.call("terminal.start", m.TerminalStart(approve="all"), m.TerminalStarted)
        ready = m.TerminalRead(terminal_id=shell.terminal_id, wait_s=10)
        client.call("terminal.read", ready, m.TerminalReading)
        typed = m.TerminalWrite(terminal_id=shell.terminal_id, text="npm run evil\n")
        for call in (
            lambda: client.call("terminal.write", typed, m.Done),
            lambda: client.exec(["npm", "run", "evil"]),
            lambda: client.exec("npm run dev && touch evil"),
        ):
            with pytest.raises(errors.ApprovalDenied):
                call()
        for terminal_id in (started.terminal_id, shell.terminal_id):
            client.call("terminal.kill", m.TerminalKill(terminal_id=terminal_id), m.Done)
    assert asked == ["npm run dev", "npm run evil", "npm run evil", "npm run dev && touch evil"]
    assert not (workspace / "evil").exists()


def test_an_attached_approver_goes_before_a_commands_own_terminal_and_hands_back_when_killed(
    daemon: Any, workspace: Path, terminal: Tmux, short: Path
) -> None:
    (short / "2").mkdir()
    words = [
        sys.executable,
        "-m",
        "sandboxd",
        "exec",
        "--socket",
        daemon.socket,
        "--",
        "touch",
        "x",
    ]
    own = Tmux(short / "2", ["sh", "-c", " ".join(words) + "; sleep 60"], workspace)
    try:
        terminal.sees("    touch x")
        own.sees("waits for an answer: sandboxd approve --answer a-")
        terminal.close()
        own.sees("Allow it?")
        own.press("y")
        until((workspace / "x").exists, "the file is made")
    finally:
        own.close()


def test_approvals_of_a_commands_session_survive_the_daemon(
    own_daemon: Any, workspace: Path
) -> None:
    def approver(ask: ApprovalAsk) -> Any:
        return ApprovalReply(answer="session")

    options = {"workspace": str(workspace), "session_id": "workspace"}
    first = own_daemon()
    with Client.connect(first.socket, approver=approver, **options) as client:
        client.exec("touch kept")
    first.stop()
    with Client.connect(own_daemon().socket, **options) as client:
        assert client.exec("touch kept").decision.approved_by == "session"
        with pytest.raises(errors.ApprovalRequired):
            client.exec("touch other")
