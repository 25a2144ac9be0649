"""Descriptors that a leader inherits besides 0 to 2, and what a helper says in one of them.

A helper is a leader that starts the run's program itself, beneath itself: bwrap reads its options
and our filter from descriptors, and tells in another which process it made and how the program
ended. Loaded by the zygote: nothing but C modules and `os` may be imported here.
Source: bwrap(1), `--args`, `--seccomp`, `--json-status-fd`.
"""

from __future__ import annotations

import errno
import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_memfd_create: Callable[[str], int] | None = getattr(os, "memfd_create", None)
"""memfd_create(2), close-on-exec; what has none has no helper either."""

CHILD_PID = b'"child-pid":'
EXIT_CODE = b'"exit-code":'
SOURCES_FROM = 7
"""Promised numbers are mostly below, ours from here up, or from above the highest promised one: none
is overwritten before it was copied, and a low limit on open files still leaves room."""


def make(contents: dict[int, bytes]) -> dict[int, int]:
    """For each promised number a descriptor of ours with that content, read from the start.

    Before limits on file size bind: an unnamed file counts as one.
    """
    lowest = max(SOURCES_FROM, *(number + 1 for number in contents)) if contents else SOURCES_FROM
    return {number: _holding(content, lowest) for number, content in contents.items()}


def _holding(content: bytes, lowest: int) -> int:
    if _memfd_create is None:
        raise OSError(errno.ENOSYS, "no unnamed files")
    low = _memfd_create("sandboxd-passed")
    try:
        while content:
            content = content[os.write(low, content) :]
        os.lseek(low, 0, os.SEEK_SET)
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, lowest)
    finally:
        os.close(low)


def said(fd: int) -> bytes:
    """What a helper has written so far; it keeps its place."""
    return os.pread(fd, 4096, 0)


def program_group(status: bytes) -> int:
    """The process group that holds the program, once the helper has named it; else 0."""
    _, found, rest = status.partition(CHILD_PID)
    digits = rest.strip(b" ").partition(b",")[0].partition(b" ")[0].partition(b"}")[0]
    return int(digits) if found and digits.isdigit() else 0


def has_started_program(status: bytes) -> bool:
    """Whether the program ran at all: a helper tells an exit code only of one that it executed."""
    return EXIT_CODE in status
