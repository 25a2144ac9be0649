"""Terminals of a real daemon, through its socket: typing, reading, judging, ending."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.client import Client
from sandboxd.errors import ApprovalRequired, InvalidRequest, Overloaded, RunUnknown
from sandboxd.model import ApprovalAsk
from sandboxd.protocol import messages as m
from tests.e2e.conftest import Daemon


class Desk:
    """One client and its terminals."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def start(self, *argv: str, approve: Any = "all", **more: Any) -> str:
        started = self.client.terminal_start(argv or None, approve=approve, **more)
        return started.terminal_id

    def type(self, terminal_id: str, text: str, approve: Any = "none") -> None:
        self.client.terminal_write(terminal_id, text, approve=approve)

    def press(self, terminal_id: str, *keys: str, approve: Any = "none") -> None:
        self.client.terminal_write(terminal_id, keys=keys, approve=approve)

    def read(self, terminal_id: str, wait_s: float = 20) -> m.TerminalReading:
        return self.client.terminal_read(terminal_id, wait_s=wait_s)

    def kill(self, terminal_id: str, signal: str | None = None) -> None:
        self.client.terminal_kill(terminal_id, signal)

    def list(self) -> tuple[m.TerminalEntry, ...]:
        return self.client.terminals()


Sit = Callable[..., Desk]


@pytest.fixture
def sit(daemon: Daemon, workspace: Path) -> Iterator[Sit]:
    clients = []

    def sit_down(**more: Any) -> Desk:
        client = Client.connect(daemon.socket, workspace=str(workspace), **more)
        clients.append(client)
        return Desk(client)

    yield sit_down
    for client in clients:
        client.close()


@pytest.fixture
def desk(sit: Sit) -> Iterator[Desk]:
    at = sit()
    yield at
    for entry in at.list():
        at.kill(entry.terminal_id)


def test_a_shell_is_typed_into_and_read(desk: Desk) -> None:
    shell = desk.start()
    reading = desk.read(shell)
    assert reading.state == "at_prompt"
    desk.type(shell, "echo one; echo two\n")
    reading = desk.read(shell)
    assert [line for line in reading.lines + reading.live if line in ("one", "two")] == [
        "one",
        "two",
    ]
    assert reading.state == "at_prompt"
    assert "reading again will not change anything" in reading.note


def test_reading_takes_final_rows_once_and_shows_live_rows_again(desk: Desk) -> None:
    cat = desk.start("bash", "-c", "seq 1 100; cat")
    first = desk.read(cat)
    second = desk.read(cat)
    assert first.state == second.state == "waiting_for_input"
    assert list(first.lines + first.live)[:100] == [str(n) for n in range(1, 101)]
    assert (second.lines, second.live) == ((), first.live)


def test_silence_so_far_is_not_silence_in_the_end(desk: Desk) -> None:
    busy, done = desk.start("sleep", "60"), desk.start("true")
    reading = desk.read(busy, wait_s=0.3)
    assert (reading.state, reading.lines, reading.live) == ("running", (), ())
    assert reading.note.endswith("It has printed nothing yet.")
    reading = desk.read(done)
    assert (reading.state, reading.exit_code, reading.lines) == ("exited", 0, ())
    assert reading.note.endswith("It has printed nothing at all.")
    spoken = desk.start("echo", "word")
    assert "nothing" not in desk.read(spoken).note.replace("nothing will change", "")


def test_a_terminal_outlives_its_connection(sit: Sit) -> None:
    first = sit(session_id="lasting-terminals")
    shell = first.start("cat")
    first.client.close()
    second = sit(session_id="lasting-terminals")
    assert [entry.state for entry in second.list() if entry.terminal_id == shell] == ["running"]
    second.type(shell, "still here\n")
    reading = second.read(shell)
    assert (reading.lines + reading.live).count("still here") == 2
    second.kill(shell)
    assert second.read(shell).state == "exited"


def test_what_a_program_reads_is_input(desk: Desk) -> None:
    shell = desk.start()
    assert desk.read(shell).state == "at_prompt"
    desk.type(shell, "cat\n", approve="all")
    assert desk.read(shell).state == "waiting_for_input"
    desk.type(shell, "rm -rf everything\n")
    assert "rm -rf everything" in desk.read(shell).lines + desk.read(shell).live


def test_a_line_at_a_prompt_is_judged_like_a_command(desk: Desk, workspace: Path) -> None:
    (workspace / "kept").write_text("x")
    shell = desk.start()
    assert desk.read(shell).state == "at_prompt"
    desk.type(shell, "ls\n")
    with pytest.raises(ApprovalRequired):
        desk.type(shell, "rm kept\n")
    assert desk.read(shell).state == "at_prompt"
    assert (workspace / "kept").exists()
    desk.type(shell, "rm kept\n", approve="all")
    assert desk.read(shell).state == "at_prompt"
    assert not (workspace / "kept").exists()


def test_a_line_is_judged_whole_however_it_is_typed(desk: Desk, workspace: Path) -> None:
    (workspace / "kept").write_text("x")
    shell = desk.start()
    assert desk.read(shell).state == "at_prompt"
    desk.type(shell, "rm ")
    desk.type(shell, "kept")
    with pytest.raises(ApprovalRequired):
        desk.press(shell, "enter")
    desk.press(shell, "ctrl-u")
    desk.type(shell, "ls\n")
    desk.press(shell, "up", "up")
    with pytest.raises(ApprovalRequired, match="cannot be read"):
        desk.press(shell, "enter")
    assert (workspace / "kept").exists()


def test_what_a_program_leaves_unread_is_not_run(desk: Desk, workspace: Path) -> None:
    (workspace / "kept").write_text("x")
    shell = desk.start()
    assert desk.read(shell).state == "at_prompt"
    desk.type(shell, "timeout 1 cat\n", approve="all")
    assert desk.read(shell).state == "waiting_for_input"
    desk.type(shell, "rm kept")
    while desk.read(shell, 0).state != "at_prompt":
        time.sleep(0.1)
    desk.press(shell, "enter")
    assert desk.read(shell).state == "at_prompt"
    assert (workspace / "kept").exists()


def test_text_typed_ahead_is_judged(desk: Desk, workspace: Path) -> None:
    (workspace / "kept").write_text("x")
    shell = desk.start()
    assert desk.read(shell).state == "at_prompt"
    desk.type(shell, "sleep 1\n", approve="all")
    with pytest.raises(ApprovalRequired):
        desk.type(shell, "rm kept\n")
    assert desk.read(shell).state == "at_prompt"
    assert (workspace / "kept").exists()


def test_what_changes_a_later_line_is_judged_with_it(desk: Desk, workspace: Path) -> None:
    shell = desk.start()
    assert desk.read(shell).state == "at_prompt"
    desk.type(shell, 'ls() { rm -rf "$1"; }\n', approve="all")
    with pytest.raises(ApprovalRequired):
        desk.type(shell, "ls kept\n")


def test_a_person_is_asked_about_a_line(sit: Sit, workspace: Path) -> None:
    asked: list[str] = []

    def person(ask: ApprovalAsk) -> Any:
        asked.append(ask.command)
        return "once"

    desk = sit(approver=person)
    shell = desk.start(approve="none")
    assert desk.read(shell).state == "at_prompt"
    desk.type(shell, "touch made\n")
    assert desk.read(shell).state == "at_prompt"
    assert asked[-1] == "touch made"
    assert (workspace / "made").exists()
    desk.kill(shell)


def test_a_password_is_neither_judged_nor_shown(desk: Desk) -> None:
    shell = desk.start()
    assert desk.read(shell).state == "at_prompt"
    desk.type(shell, "python3 -c 'import getpass; print(len(getpass.getpass()))'\n", approve="all")
    reading = desk.read(shell)
    assert (reading.state, reading.password) == ("waiting_for_input", True)
    desk.type(shell, "rm -rf /\n")
    reading = desk.read(shell)
    assert "8" in reading.lines + reading.live
    assert not any("rm -rf" in line for line in reading.lines + reading.live)


def test_keys_by_name_reach_the_program(desk: Desk) -> None:
    sleeping = desk.start(
        "bash", "-c", "trap 'echo caught; exit 5' INT; while :; do sleep 0.1; done"
    )
    time.sleep(0.5)
    assert desk.read(sleeping, 0).state == "running"
    desk.press(sleeping, "ctrl-c")
    reading = desk.read(sleeping)
    assert (reading.state, reading.exit_code) == ("exited", 5)
    assert "caught" in [line.removeprefix("^C") for line in reading.lines]


def test_a_new_size_is_seen(desk: Desk) -> None:
    shell = desk.start(cols=90, rows=20)
    assert desk.read(shell).state == "at_prompt"
    desk.client.call(
        "terminal.resize", m.TerminalResize(terminal_id=shell, cols=120, rows=50), m.Done
    )
    desk.type(shell, "stty size\n", approve="all")
    reading = desk.read(shell)
    assert "50 120" in reading.lines + reading.live


@pytest.mark.parametrize("size", [(0, 24), (80, 0), (100_000, 24), (-1, 24)])
def test_an_absurd_size_is_refused(desk: Desk, size: tuple[int, int]) -> None:
    cat = desk.start("cat")
    cols, rows = size
    with pytest.raises(InvalidRequest, match="1 to 1000"):
        desk.client.call(
            "terminal.resize", m.TerminalResize(terminal_id=cat, cols=cols, rows=rows), m.Done
        )
    with pytest.raises(InvalidRequest, match="1 to 1000"):
        desk.start("cat", cols=cols, rows=rows)


def test_typing_into_an_ended_terminal_is_refused(desk: Desk) -> None:
    ended = desk.start("true")
    assert desk.read(ended).state == "exited"
    with pytest.raises(RunUnknown, match="has ended"):
        desk.type(ended, "x\n")
    with pytest.raises(RunUnknown, match="no terminal"):
        desk.type("t-unknown", "x\n")


def test_bytes_that_are_no_text_and_keys_that_nobody_knows_are_refused(desk: Desk) -> None:
    cat = desk.start("cat")
    params = m.TerminalWrite(terminal_id=cat, bytes_b64="/w==")
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        desk.client.call("terminal.write", params, m.Done)
    with pytest.raises(InvalidRequest, match="no key"):
        desk.press(cat, "ctrl-nonsense")


def test_a_reader_that_never_reads_is_told_what_it_missed(desk: Desk) -> None:
    flood = desk.start("bash", "-c", "seq 1 400000; cat")
    deadline = time.monotonic() + 30
    while (
        desk.client.call("terminal.list", m.Empty(), m.TerminalListing)
        and time.monotonic() < deadline
    ):
        reading = desk.read(flood)
        if reading.state == "waiting_for_input":
            break
    assert reading.gap_lines > 0
    numbers = [line for line in reading.lines if line.isdigit()]
    assert int(numbers[0]) == reading.gap_lines + 1


def test_a_program_that_never_reads_does_not_hang_the_writer(desk: Desk) -> None:
    asleep = desk.start("sh", "-c", "stty raw -echo; sleep 60")
    time.sleep(0.3)
    with pytest.raises(Overloaded, match="does not read"):
        desk.type(asleep, "x" * 250_000)
    with pytest.raises(InvalidRequest, match="characters at once"):
        desk.type(asleep, "x" * 1_000_000)


def test_no_zombie_and_no_descriptor_is_left_after_many(desk: Desk, daemon: Daemon) -> None:
    def descriptors() -> int:
        return len(os.listdir(f"/proc/{daemon.pid}/fd"))

    desk.read(desk.start("true"))
    before = descriptors()
    for _ in range(40):
        assert desk.read(desk.start("true")).state == "exited"
    deadline = time.monotonic() + 10
    while descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert descriptors() <= before
    assert zombies(daemon.pid) == 0
    assert len(desk.list()) <= 40


def zombies(pid: int) -> int:
    """Dead and unreaped processes beneath one."""
    count = 0
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        children = file.read().split()
    for child in children:
        with open(f"/proc/{child}/stat", encoding="utf-8", errors="replace") as file:
            count += file.read().rpartition(")")[2].split()[0] == "Z"
        count += zombies(int(child))
    return count
