"""What programs on a real terminal wait for, as the kernel tells it, against what they do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandboxd.spawn.waiting import (
    Sight,
    State,
    Tty,
    is_interactive_shell,
    pipe_state,
    terminal_state,
)
from tests.ptys import OnPty, on_pty

PYTHON = sys.executable
WAITING, POLLS, PROMPT, RUNNING = (
    State.WAITING_FOR_INPUT,
    State.POLLS_INPUT,
    State.AT_PROMPT,
    State.RUNNING,
)
BASH = ["bash", "--noprofile", "--norc"]
THREADS = "import threading,time;threading.Thread(target=time.sleep,args=(60,),daemon=True).start();input()"
SELECTS = "import select,sys;select.select([sys.stdin],[],[])"
EPOLLS = (
    "import select,sys;e=select.epoll();e.register(0,select.EPOLLIN);"
    "o=select.epoll();o.register(e.fileno(),select.EPOLLIN);o.poll()"
)
HTTP_SERVER = "require('http').createServer(()=>{}).listen(0)"
WRITES = "import select,os;r,w=os.pipe();select.select([r],[1],[r]) and select.select([r],[],[])"

TABLE: dict[str, tuple[list[str], State]] = {
    "cat": (["cat"], WAITING),
    "bash read": (["bash", "-c", "read x"], WAITING),
    "sh read": (["sh", "-c", "read x"], WAITING),
    "dash read": (["dash", "-c", "read x"], WAITING),
    "python input": ([PYTHON, "-c", "input('name? ')"], WAITING),
    "python input with threads": ([PYTHON, "-c", THREADS], WAITING),
    "less": (["less", "/etc/services"], WAITING),
    "ssh-keygen": (["ssh-keygen", "-t", "ed25519"], WAITING),
    "xargs -p": (["sh", "-c", "echo x | xargs -p echo"], WAITING),
    "perl": (["perl", "-e", "<STDIN>"], WAITING),
    "cat in a pipe": (["sh", "-c", "cat | sort"], WAITING),
    "read from /dev/tty": (["sh", "-c", "read x </dev/tty"], WAITING),
    "dd": (["dd", "of=/dev/null"], WAITING),
    "python select": ([PYTHON, "-c", SELECTS], POLLS),
    "python nested epoll": ([PYTHON, "-c", EPOLLS], POLLS),
    "node REPL": (["node", "-i"], POLLS),
    "node question": (
        [
            "node",
            "-e",
            "require('readline').createInterface(process.stdin,process.stdout).question('?',()=>{})",
        ],
        POLLS,
    ),
    "top": (["top"], POLLS),
    "vim": (["vim", "-u", "NONE", "-N"], POLLS),
    "bash": ([*BASH, "-i"], PROMPT),
    "bash without editing": ([*BASH, "--noediting"], PROMPT),
    "dash": (["dash", "-i"], PROMPT),
    "busybox sh": (["busybox", "sh"], PROMPT),
    "sleep": (["sleep", "60"], RUNNING),
    "tail -f": (["tail", "-f", "/dev/null"], RUNNING),
    "python http.server": ([PYTHON, "-m", "http.server", "0", "--bind", "127.0.0.1"], RUNNING),
    "node http server": (["node", "-e", HTTP_SERVER], RUNNING),
    "sleep in a pipe": (["sh", "-c", "sleep 60 | cat"], RUNNING),
    "busy loop": (["sh", "-c", "while :; do :; done"], RUNNING),
    "waits to write": ([PYTHON, "-c", WRITES], RUNNING),
    "read from a pipe": (["bash", "-c", "sleep 60 | read x"], RUNNING),
    "background job": (["bash", "-c", "cat & sleep 60"], RUNNING),
}
PASSWORDS: dict[str, list[str]] = {
    "getpass": [PYTHON, "-c", "import getpass;getpass.getpass()"],
    "openssl passwd": ["openssl", "passwd"],
    "read -s": ["sh", "-c", "stty -echo; read x"],
    "a customised prompt": ["bash", "-c", "printf '\\xf0\\x9f\\x94\\x91 '; stty -echo; read -r x"],
}
LINES = os.environ | {"TERM": "xterm", "HISTFILE": "/dev/null"}


def sight(running: OnPty, tty: Tty) -> Sight:
    return terminal_state(running.master, tty, running.pid)


def settles_on(running: OnPty, expected: Sight) -> None:
    """The sight becomes the expected one, and stays."""
    tty = Tty.of(running.master)

    def is_so() -> bool:
        return sight(running, tty) == expected

    assert running.until(is_so), (sight(running, tty), running.seen)
    for _ in range(3):
        running.pump(0.1)
        if (again := sight(running, tty)) != expected:
            assert running.until(is_so), (again, running.seen)


@pytest.mark.parametrize("name", TABLE)
def test_waiting_table(name: str, tmp_path: Path) -> None:
    argv, expected = TABLE[name]
    assert shutil.which(argv[0]), f"{argv[0]} is needed for the table"
    with on_pty(argv, cwd=str(tmp_path), env=LINES) as running:
        settles_on(running, Sight(expected, is_shell=expected is PROMPT))


@pytest.mark.parametrize("name", PASSWORDS)
def test_a_password_prompt_is_known_by_the_echo_that_is_off(name: str, tmp_path: Path) -> None:
    with on_pty(PASSWORDS[name], cwd=str(tmp_path), env=LINES) as running:
        settles_on(running, Sight(WAITING, is_password=True))


@pytest.mark.parametrize("argv", [[PYTHON, "-q"], ["npm", "init"], ["bc", "-q"], ["sqlite3"]])
def test_a_repl_waits_one_way_or_the_other(argv: list[str], tmp_path: Path) -> None:
    """Which call a line editor uses depends on its version; that it waits does not."""
    with on_pty(argv, cwd=str(tmp_path), env=LINES) as running:
        tty = Tty.of(running.master)
        assert running.until(lambda: sight(running, tty).state in (WAITING, POLLS)), running.seen


def test_a_command_that_a_shell_runs_is_not_its_prompt() -> None:
    with on_pty([*BASH, "-i"], env=LINES) as running:
        settles_on(running, Sight(PROMPT, is_shell=True))
        running.type("sleep 60\n")
        settles_on(running, Sight(RUNNING))
        running.type("\x03")
        settles_on(running, Sight(PROMPT, is_shell=True))
        running.type("cat\n")
        settles_on(running, Sight(WAITING))
        running.type("\x04")
        settles_on(running, Sight(PROMPT, is_shell=True))
        running.type("read x\n")
        settles_on(running, Sight(WAITING, is_shell=True))


def test_a_shell_inside_a_shell_is_a_prompt_too() -> None:
    with on_pty([*BASH, "-i"], env=LINES) as running:
        settles_on(running, Sight(PROMPT, is_shell=True))
        running.type("dash -i\n")
        running.expect(b"dash -i\r\n")
        settles_on(running, Sight(PROMPT, is_shell=True))


def test_a_finished_program_is_never_waiting() -> None:
    with on_pty(["true"]) as running:
        running.wait()
        seen = {
            terminal_state(running.master, Tty(os.makedev(136, 0), None), running.pid).state
            for _ in range(5)
        }
        assert seen == {State.UNKNOWN}


def test_the_tty_of_another_pty_is_not_this_one() -> None:
    with on_pty(["sleep", "60"]) as other, on_pty(["cat"]) as running:
        settles_on(running, Sight(WAITING))
        assert terminal_state(running.master, Tty.of(other.master), running.pid) == Sight(RUNNING)


def test_looking_takes_milliseconds() -> None:
    with on_pty([PYTHON, "-c", THREADS]) as running:
        settles_on(running, Sight(WAITING))
        tty = Tty.of(running.master)
        begun = time.perf_counter()
        for _ in range(20):
            sight(running, tty)
        assert (time.perf_counter() - begun) / 20 < 0.05


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("read x", WAITING),
        ("cat | sort", WAITING),
        ("sleep 60", RUNNING),
        ("cat /dev/null; sleep 60", RUNNING),
    ],
)
def test_a_pipe_tells_who_reads_it(text: str, expected: State) -> None:
    process = subprocess.Popen(
        ["bash", "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert process.stdin is not None
        pipe = process.stdin.fileno()
        deadline = time.monotonic() + 20
        while pipe_state(pipe, process.pid) != Sight(expected):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.1)
        assert pipe_state(pipe, process.pid) == Sight(expected)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["bash"], True),
        (["-bash"], True),
        (["/bin/bash", "--noprofile", "--norc", "-i"], True),
        (["bash", "--rcfile", "x", "-i"], True),
        (["busybox", "sh"], True),
        (["bash", "-c", "read x"], False),
        (["bash", "-lc", "read x"], False),
        (["bash", "script.sh"], False),
        (["python3"], False),
        ([], False),
    ],
)
def test_a_shell_with_something_to_run_is_not_interactive(words: list[str], expected: bool) -> None:
    assert is_interactive_shell(words) is expected
