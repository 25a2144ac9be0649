"""What a run is blocked on: whether it waits for input, as the kernel says it, not as silence does.

A module of its own because it only looks: at /proc/P/task/T/syscall, at what the descriptors named
there lead to, and at poll, select and epoll sets. It writes nothing, stops nothing and needs no
privilege over processes of the same user. Runs have process ids and a devpts of their own, so
everything here is seen from outside: host process ids, and ttys by device number and by the devpts
instance that holds them, never by name.

What cannot be looked at (a setuid program, a restarted call) is `unknown`, never `running`.
Sources: proc(5), ioctl_tty(2), poll(2), select(2), epoll(7), termios(3).
"""

from __future__ import annotations

import array
import fcntl
import os
import stat
import struct
import termios
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from sandboxd.spawn.reports import descendants

TIOCGPTN = 0x80045430
TIOCGPTPEER = 0x5441
DEV_TTY = os.makedev(5, 0)
UNIX98_SLAVES = 136
MAX_POLLED = 4096
POLLIN_ANY = 0x001 | 0x002 | 0x040
"""POLLIN, POLLPRI, POLLRDNORM: poll.h, with the same values for epoll."""

SHELLS = frozenset(
    {"ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "ksh93", "mksh", "nu", "oksh", "pwsh"}
    | {"rbash", "sh", "tcsh", "xonsh", "yash", "zsh", "busybox"}
)
EDITING_SHELLS = frozenset({"bash", "fish", "rbash", "tcsh", "zsh"})


class Call(StrEnum):
    """The calls in which a program waits for input."""

    READ = "read"
    POLL = "poll"
    SELECT = "select"
    EPOLL = "epoll"
    RESTARTED = "restarted"


_CALLS: dict[str, dict[int, Call]] = {
    "x86_64": {
        0: Call.READ,
        19: Call.READ,
        7: Call.POLL,
        271: Call.POLL,
        23: Call.SELECT,
        270: Call.SELECT,
        232: Call.EPOLL,
        281: Call.EPOLL,
        441: Call.EPOLL,
        219: Call.RESTARTED,
    },
    "aarch64": {
        63: Call.READ,
        65: Call.READ,
        73: Call.POLL,
        72: Call.SELECT,
        22: Call.EPOLL,
        441: Call.EPOLL,
        128: Call.RESTARTED,
    },
}
"""read, readv, poll, ppoll, select, pselect6, epoll_wait, epoll_pwait, epoll_pwait2 and
restart_syscall, by machine."""


class State(StrEnum):
    """What a terminal or a run is doing; the names are the protocol's."""

    WAITING_FOR_INPUT = "waiting_for_input"
    """Blocked in a read of its input."""
    POLLS_INPUT = "polls_input"
    """Waits for several things, its input among them: a prompt, an editor, perhaps a server."""
    AT_PROMPT = "at_prompt"
    """An interactive shell waits for a command."""
    RUNNING = "running"
    UNKNOWN = "unknown"
    """The kernel would not say."""


class Sight(NamedTuple):
    """What was seen. `is_password`: lines are read and not shown while they are typed. `is_shell`:
    an interactive shell is among those that take the input, at its prompt or in its own `read`."""

    state: State
    is_password: bool = False
    is_shell: bool = False


class Tty(NamedTuple):
    """The slave side of a pty, seen from its master."""

    rdev: int
    dev: int | None
    """The devpts instance; None where it cannot be known (Linux before 4.13)."""

    @staticmethod
    def of(master: int) -> Tty:
        """Raises OSError when `master` is not the living master of a pty."""
        number = array.array("i", [0])
        fcntl.ioctl(master, TIOCGPTN, number)
        try:
            slave = fcntl.ioctl(master, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return Tty(os.makedev(UNIX98_SLAVES, number[0]), None)
        try:
            found = os.fstat(slave)
        finally:
            os.close(slave)
        return Tty(found.st_rdev, found.st_dev)


class Process(NamedTuple):
    pid: int
    group: int
    tty: int


class Blocked(NamedTuple):
    """The call a thread is blocked in, with its arguments as registers hold them."""

    call: Call
    arguments: tuple[int, ...]


IsInput = Callable[[os.stat_result], bool]


def terminal_state(master: int, tty: Tty, root: int) -> Sight:
    """What the foreground group of a terminal does; its processes lie at or beneath `root`.

    `exited` is not among the answers: whoever asks knows that better.
    """
    try:
        foreground = os.tcgetpgrp(master)
        flags = termios.tcgetattr(master)[3]
    except (OSError, termios.error):
        return Sight(State.UNKNOWN)
    is_canonical = bool(flags & termios.ICANON)
    is_password = is_canonical and not flags & termios.ECHO
    sights = [
        _sight_at_terminal(process, tty, is_canonical)
        for process in _processes(root)
        if process.group == foreground
    ]
    state = _strongest(sight.state for sight in sights)
    may_ask = state in (State.WAITING_FOR_INPUT, State.UNKNOWN)
    return Sight(state, is_password and may_ask, any(sight.is_shell for sight in sights))


def pipe_state(pipe: int, root: int) -> Sight:
    """Whether anything at or beneath `root` waits for what is written to this pipe's other end."""
    try:
        wanted = os.fstat(pipe)
    except OSError:
        return Sight(State.UNKNOWN)

    def is_input(found: os.stat_result) -> bool:
        return (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)

    states = []
    for process in _processes(root):
        if (state := _state(process.pid, is_input)) is not State.UNKNOWN:
            states.append(state)
    return Sight(_strongest(states))


def _strongest(states: Iterable[State]) -> State:
    """One process that waits is what counts; one that hides leaves the rest open."""
    found = set(states)
    order = (State.AT_PROMPT, State.WAITING_FOR_INPUT, State.POLLS_INPUT, State.UNKNOWN)
    for state in order:
        if state in found:
            return state
    return State.RUNNING if found else State.UNKNOWN


# --------------------------------------------------------------------------- one process


def _sight_at_terminal(process: Process, tty: Tty, is_canonical: bool) -> Sight:
    def is_input(found: os.stat_result) -> bool:
        if not stat.S_ISCHR(found.st_mode):
            return False
        if found.st_rdev == DEV_TTY:
            return process.tty == tty.rdev
        return found.st_rdev == tty.rdev and tty.dev in (None, found.st_dev)

    state = _state(process.pid, is_input)
    words = _command_line(process.pid)
    if not is_interactive_shell(words):
        return Sight(state)
    if state in (State.WAITING_FOR_INPUT, State.POLLS_INPUT):
        if not is_canonical or (not _edits_lines(words) and not _reads_one_byte(process.pid)):
            state = State.AT_PROMPT
        return Sight(state, is_shell=True)
    return Sight(state)


def _edits_lines(words: list[str]) -> bool:
    """Whether this shell leaves the canonical mode at its prompts."""
    return os.path.basename(words[0].lstrip("-")) in EDITING_SHELLS and "--noediting" not in words


def _state(pid: int, is_input: IsInput) -> State:
    states = [_thread_state(pid, thread, is_input) for thread in _threads(pid)]
    return _strongest(states)


def _thread_state(pid: int, thread: int, is_input: IsInput) -> State:
    try:
        blocked = _blocked(pid, thread)
        if blocked is None:
            return State.RUNNING
        if blocked.call is Call.READ:
            is_wanted = is_input(os.stat(f"/proc/{pid}/fd/{blocked.arguments[0]}"))
            return State.WAITING_FOR_INPUT if is_wanted else State.RUNNING
        if blocked.call is Call.RESTARTED:
            return State.UNKNOWN
        is_wanted = any(_leads_to(pid, fd, is_input) for fd in _polled(pid, blocked))
        return State.POLLS_INPUT if is_wanted else State.RUNNING
    except FileNotFoundError:  # it has gone on, or ended
        return State.RUNNING
    except OSError:
        return State.UNKNOWN


def _blocked(pid: int, thread: int) -> Blocked | None:
    """The waiting call of a thread; None when it is in another one, or runs."""
    words = _read(f"/proc/{pid}/task/{thread}/syscall").split()
    if len(words) < 7:  # `running`, or -1: blocked outside of a call
        return None
    call = _CALLS.get(os.uname().machine, {}).get(int(words[0]))
    if call is None:
        return None
    return Blocked(call, tuple(int(word, 16) for word in words[1:7]))


def _polled(pid: int, blocked: Blocked) -> list[int]:
    """The descriptors whose readability the call waits for."""
    first, second, *_ = blocked.arguments
    if blocked.call is Call.POLL:
        count = min(second & 0xFFFFFFFF, MAX_POLLED)
        entries = struct.iter_unpack("=ihh", _memory(pid, first, 8 * count))
        return [fd for fd, events, _ in entries if fd >= 0 and events & POLLIN_ANY]
    if blocked.call is Call.SELECT:
        count = min(first & 0xFFFFFFFF, MAX_POLLED)
        words = -(-count // 64) * 8
        bits = int.from_bytes(_memory(pid, second, words), "little") if second else 0
        return [fd for fd in range(count) if bits >> fd & 1]
    return _watched(pid, first)


def _watched(pid: int, epoll: int) -> list[int]:
    """The descriptors in an epoll set, from its fdinfo."""
    found = []
    for line in _read(f"/proc/{pid}/fdinfo/{epoll}").splitlines():
        words = line.split()
        if len(words) >= 4 and words[0] == "tfd:" and int(words[3], 16) & POLLIN_ANY:
            found.append(int(words[1]))
    return found


def _leads_to(pid: int, fd: int, is_input: IsInput) -> bool:
    """Whether a descriptor is the input, or an epoll set that holds it (event loops nest once)."""
    try:
        if is_input(os.stat(f"/proc/{pid}/fd/{fd}")):
            return True
        if os.readlink(f"/proc/{pid}/fd/{fd}") != "anon_inode:[eventpoll]":
            return False
        return any(is_input(os.stat(f"/proc/{pid}/fd/{below}")) for below in _watched(pid, fd))
    except FileNotFoundError:
        return False


def _reads_one_byte(pid: int) -> bool:
    """How the `read` of a plain shell reads; at its prompt it takes what there is, or polls."""
    try:
        blocked = _blocked(pid, pid)
    except OSError:
        return False
    return blocked is not None and blocked.call is Call.READ and blocked.arguments[2] == 1


# --------------------------------------------------------------------------- /proc


def is_interactive_shell(words: list[str]) -> bool:
    """Whether a command line is that of a shell without a script or a text to run."""
    if not words:
        return False
    if os.path.basename(words[0].lstrip("-")) not in SHELLS:
        return False
    operands = words[1:]
    while operands and operands[0] in ("--rcfile", "--init-file", "-o", "+o", "-O", "+O"):
        operands = operands[2:]
    for word in operands:
        if not word.startswith(("-", "+")):
            return os.path.basename(word) in SHELLS  # busybox sh
        if not word.startswith("--") and "c" in word:
            return False
    return True


def _processes(root: int) -> Iterator[Process]:
    for pid in (root, *descendants(root)):
        try:
            fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        except OSError:
            continue
        yield Process(pid, int(fields[2]), int(fields[4]) & 0xFFFFFFFF)


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _command_line(pid: int) -> list[str]:
    try:
        return _read(f"/proc/{pid}/cmdline").split("\0")[:-1]
    except OSError:
        return []


def _memory(pid: int, address: int, size: int) -> bytes:
    fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, address)
    finally:
        os.close(fd)


def _read(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return (file.read(1 << 16) or b"").decode("utf-8", "surrogateescape")


# --------------------------------------------------------------------------- shells


def shells(root: int) -> set[str]:
    """Names of the interactive shells at or beneath `root`: whatever is typed may reach them."""
    return {os.path.basename(words[0].lstrip("-")) for _, words in _shells(root)}


def shell_folder(root: int) -> str | None:
    """The working directory of the innermost interactive shell, as its own names go."""
    folder = None
    for pid, _ in _shells(root):
        try:
            folder = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
    return folder


def _shells(root: int) -> Iterator[tuple[int, list[str]]]:
    for process in _processes(root):
        words = _command_line(process.pid)
        if is_interactive_shell(words):
            yield process.pid, words
