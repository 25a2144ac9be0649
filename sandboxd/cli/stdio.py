"""What the three standard descriptors are, and writing to them whatever they are.

A module of its own because each of them may be closed, a terminal, a full disk or a reader that
has gone, and `exec` must behave sensibly in every combination without Python's file objects.
"""

from __future__ import annotations

import os
import select

TERMINAL, PIPE, NOTHING, CLOSED = "terminal", "pipe", "nothing", "closed"


def guard() -> list[str]:
    """What fds 0-2 are (`terminal`, `pipe`, `nothing` or `closed`); closed ones become /dev/null.

    Must run before anything is opened: a socket that landed on a closed fd 1 would receive
    what is meant for stdout.
    """
    return [_kind(number) for number in (0, 1, 2)]


def _kind(number: int) -> str:
    try:
        found = os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number: this very one
        os.set_inheritable(opened, True)
        return CLOSED
    if os.isatty(number):
        return TERMINAL
    null = os.stat(os.devnull)
    return NOTHING if found.st_rdev == null.st_rdev and null.st_rdev else PIPE


def is_same_file(one: int, other: int) -> bool:
    """Whether two descriptors are the same pipe or file (`2>&1`)."""
    first, second = os.fstat(one), os.fstat(other)
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def write_all(number: int, data: bytes) -> None:
    """Write everything, also to a descriptor that somebody made non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(number, view) :]
        except BlockingIOError:
            poller = select.poll()
            poller.register(number, select.POLLOUT)
            poller.poll()
