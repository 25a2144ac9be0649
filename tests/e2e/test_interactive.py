"""`sandboxd exec` at a real terminal: a person types, real programs answer, nothing is left behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import CLI, Daemon
from tests.ptys import OnPty, on_pty

BASH = ["bash", "--noprofile", "--norc"]
WAYS = ("daemon", "embedded")


class Person:
    """Starts `sandboxd exec` on a pty, through the daemon or in process."""

    def __init__(self, way: str, workspace: Path, socket: str) -> None:
        self.words = ["--socket", socket] if way == "daemon" else ["--no-daemon"]
        self.workspace = workspace

    def line(self, *argv: str) -> list[str]:
        return [*CLI, "exec", *self.words, "--approve", "all", "--", *argv]

    def sits_at(self, *argv: str, size: tuple[int, int] = (24, 80)):  # type: ignore[no-untyped-def]
        environment = {**os.environ, "TERM": "xterm", "PS1": "$ "}
        return on_pty(self.line(*argv), cwd=str(self.workspace), env=environment, size=size)


@pytest.fixture(params=WAYS)
def person(request: pytest.FixtureRequest, daemon: Daemon, workspace: Path) -> Person:
    return Person(request.param, workspace, daemon.socket)


@pytest.fixture
def at_daemon(daemon: Daemon, workspace: Path) -> Person:
    return Person("daemon", workspace, daemon.socket)


def is_cooked(at: OnPty) -> bool:
    flags = termios.tcgetattr(at.master)[3]
    return bool(flags & termios.ICANON and flags & termios.ECHO and flags & termios.ISIG)


def test_program_has_a_terminal_of_the_same_size(person: Person) -> None:
    with person.sits_at("sh", "-c", "tty; stty size", size=(33, 99)) as at:
        assert at.wait() == 0
        assert b"33 99" in at.seen
        assert b"not a tty" not in at.seen
        assert is_cooked(at)


def test_keys_reach_a_repl_and_its_exit_code_comes_back(person: Person) -> None:
    with person.sits_at(sys.executable, "-q") as at:
        at.expect(b">>> ")
        at.type("print(6 * 7)\r")
        at.expect(b"42")
        at.type("raise SystemExit(9)\r")
        assert at.wait() == 9
        assert is_cooked(at)


def test_ctrl_c_acts_inside_only(person: Person) -> None:
    text = "trap 'echo caught' INT; sh -c 'echo beg''un; exec sleep 60'; echo code $?; exit 4"
    with person.sits_at("bash", "-c", text) as at:
        at.expect(b"begun")
        at.type("\x03")
        assert at.wait() == 4
        assert b"code 130" in at.seen


def test_a_new_window_size_reaches_the_program(at_daemon: Person) -> None:
    text = "trap 'stty size; exit' WINCH; echo beg''un; while :; do sleep 0.05; done"
    with at_daemon.sits_at("bash", "-c", text) as at:
        at.expect(b"begun")
        fcntl.ioctl(at.master, termios.TIOCSWINSZ, struct.pack("HHHH", 41, 141, 0, 0))
        at.expect(b"41 141")
        assert at.wait() == 0


def test_ctrl_z_gives_the_shell_its_terminal_back(person: Person) -> None:
    """A shell with job control, sandboxd in it, a program in that: stop, look around, go on."""
    with on_pty(
        [*BASH, "-i"], cwd=str(person.workspace), env={**os.environ, "TERM": "xterm"}
    ) as at:
        code = "print('beg'+'un', flush=True); print('got', input())"
        at.type(
            " ".join(
                f"'{word}'" if " " not in word else f'"{word}"'
                for word in person.line(sys.executable, "-c", code)
            )
            + "\r"
        )
        at.expect(b"begun")
        time.sleep(0.2)
        at.type("\x1a")
        at.expect(b"Stopped")
        at.type("echo shell $((40+2))\r")
        at.expect(b"shell 42")
        at.type("fg\r")
        time.sleep(0.5)
        at.type("words\r")
        at.expect(b"got words")


def test_what_forges_or_asks_does_not_reach_the_person(person: Person) -> None:
    text = r"printf 'a\033]52;c;aGk=\007b\033]0;title\007c\033[6nd\033[31me\n'"
    with person.sits_at("bash", "-c", text) as at:
        assert at.wait() == 0
        assert b"abcd\x1b[31me" in at.seen


def test_modes_that_a_killed_program_left_are_undone(at_daemon: Person) -> None:
    with at_daemon.sits_at("bash", "-c", r"printf '\033[?1049h\033[?1000hbegun'; kill -9 $$") as at:
        assert at.wait() == 137
        assert at.seen.index(b"\x1b[?1000l\x1b[?1049l") > at.seen.index(b"begun")
        assert is_cooked(at)


@pytest.mark.parametrize("words", [["vim", "-u", "NONE", "-N", "file"], ["less", "file"], ["top"]])
def test_full_screen_programs_work(at_daemon: Person, words: list[str], workspace: Path) -> None:
    assert shutil.which(words[0]), f"{words[0]} is needed"
    (workspace / "file").write_text("".join(f"line {n}\n" for n in range(200)))
    with at_daemon.sits_at(*words) as at:
        at.expect({"vim": b"line 5", "less": b"line 5", "top": b"PID"}[words[0]])
        time.sleep(0.3)
        if words[0] == "vim":
            at.type("ggdGihello\x1b:wq\r")
        else:
            at.type("q")
        assert at.wait() == 0
        assert is_cooked(at)
    if words[0] == "vim":
        assert (workspace / "file").read_text() == "hello\n"


def test_the_output_alone_may_be_a_pipe(at_daemon: Person) -> None:
    command = " ".join(
        [*at_daemon.line(), "sh", "-c", "'test -t 0 && echo in; test -t 1 || echo out'"]
    )
    with on_pty(["bash", "-c", f"{command} | cat -A"], cwd=str(at_daemon.workspace)) as at:
        at.wait()
        assert b"in$\r\nout$" in at.seen


def test_json_stays_pure(at_daemon: Person) -> None:
    line = at_daemon.line("sh", "-c", "test -t 1 && echo terminal || echo none")
    line.insert(line.index("exec") + 1, "--json")
    with on_pty(line, cwd=str(at_daemon.workspace)) as at:
        assert at.wait() == 0
        assert at.seen.strip().startswith(b"{")
        assert b'"text":"none\\n"' in at.seen


def test_the_run_dies_with_its_terminal(at_daemon: Person) -> None:
    with at_daemon.sits_at("bash", "-c", "echo beg''un; exec sleep 72.5") as at:
        at.expect(b"begun")
        os.kill(at.pid, signal.SIGKILL)
        at.wait()
    deadline = time.monotonic() + 10
    while _running("72.5") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _running("72.5")


def _running(word: str) -> bool:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if file.read().split(b"\0")[:2] == [b"sleep", word.encode()]:
                    return True
        except OSError:
            continue
    return False


def test_inside_real_tmux(at_daemon: Person, tmp_path: Path) -> None:
    """The whole chain as a person has it: tmux, a shell, sandboxd, a shell in the sandbox.

    The shell before sandboxd says how it ended. tmux itself is not asked: 3.3a sometimes misses
    the end of a pane's process, of a plain bash too, and then leaves it a zombie without a status.
    """
    assert shutil.which("tmux"), "tmux is needed"
    tmux = ["tmux", "-S", str(tmp_path / "s"), "-f", "/dev/null"]

    def see(text: str) -> None:
        deadline = time.monotonic() + 20
        while True:
            pane = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True)
            if text in pane.stdout:
                return
            assert time.monotonic() < deadline, pane.stdout
            time.sleep(0.05)

    shell = ["sh", "-c", '"$@"; echo "ended with $?"; exec sleep 60', "sh"]
    subprocess.run(
        [*tmux, "new-session", "-d", "-x90", "-y20", *shell, *at_daemon.line(*BASH, "-i")],
        check=True,
        cwd=at_daemon.workspace,
        env={**os.environ, "TERM": "xterm", "SHELL": "/bin/sh"},
    )
    try:
        see("bash-")
        subprocess.run([*tmux, "send-keys", "stty size; tty", "Enter"], check=True)
        see("20 90")
        see("/dev/pts/0")
        subprocess.run([*tmux, "send-keys", "exit 5", "Enter"], check=True)
        see("ended with 5")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
