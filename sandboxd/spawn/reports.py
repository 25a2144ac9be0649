"""What the child side says and how it waits: reports, wake-up pipes, who descends from whom.

Shared by the zygote and the inits it clones. Like all of the child side it imports C modules
only (no `signal`, `typing` or `socket`: each brings a heap that every run's fork must copy).
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket
import marshal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SetUpFailed(Exception):
    """A step of the set-up failed: its name, the errno and the path it was about."""

    def __init__(self, stage: str, error: int, path: str = "") -> None:
        self.report = ("failed", stage, error, path)


def namespace_stage(request: dict[str, Any], stage: str) -> str:
    """The name of a step that makes namespaces: the network's, where nothing else wants them."""
    names = request["namespaces"]
    return f"network.{stage}" if "net" in names and "mount" not in names else stage


def send(channel: _socket.socket, message: tuple[Any, ...]) -> None:
    try:
        channel.send(marshal.dumps(message))
    except OSError:
        pass  # the reader is gone; end-of-file on our side ends us


def ignore_signal(number: int, frame: object) -> None:
    """A handler, so that the wake-up descriptor is written."""


def wakeup_pipe() -> tuple[int, int]:
    """A pipe for signal.set_wakeup_fd, neither end of which may block."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def children(pid: int | None = None) -> list[int]:
    """Direct children of a process (our own by default), from /proc (CONFIG_PROC_CHILDREN); none
    when it is gone or /proc is not there."""
    parent = os.getpid() if pid is None else pid
    try:
        with open(f"/proc/{parent}/task/{parent}/children", "rb", buffering=0) as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def descendants(pid: int | None = None) -> list[int]:
    """Every process below a process (ourselves by default)."""
    found: list[int] = []
    queue = children(pid)
    while queue:
        below = queue.pop()
        found.append(below)
        queue += children(below)
    return found


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
