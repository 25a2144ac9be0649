"""inotify(7): which names in a folder came, went or changed. The three calls that Python lacks.

Numbers and layouts come from linux/inotify.h. On other systems `available` is False and every
call raises OSError(ENOSYS).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator

available = sys.platform == "linux"

CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
OVERFLOW, IGNORED = 0x4000, 0x8000
ONLY_FOLDERS, NOT_THROUGH_LINKS = 0x01000000, 0x02000000
NAMES = MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF

_HEADER = struct.Struct("=iIII")
_libc = ctypes.CDLL(None, use_errno=True)


def create() -> int:
    """A non-blocking descriptor to read events from."""
    return _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)


def watch(fd: int, folder: str, mask: int) -> int:
    """Watch a folder (not through a link); the number its events carry."""
    path = ctypes.c_char_p(os.fsencode(folder))
    return _call("inotify_add_watch", fd, path, mask | ONLY_FOLDERS | NOT_THROUGH_LINKS)


def unwatch(fd: int, number: int) -> None:
    _call("inotify_rm_watch", fd, number)


def read(fd: int) -> Iterator[tuple[int, int, str]]:
    """(number of the watch, what happened, name) of each event that waits; number -1 and OVERFLOW
    when the kernel had to drop some."""
    try:
        data = os.read(fd, 65536)
    except BlockingIOError:
        return
    place = 0
    while place < len(data):
        number, mask, _, length = _HEADER.unpack_from(data, place)
        place += _HEADER.size
        name = data[place : place + length].split(b"\0")[0]
        place += length
        yield number, mask, os.fsdecode(name)


def _call(name: str, *arguments: object) -> int:
    if not available:
        raise OSError(errno.ENOSYS, "inotify is a call of Linux")
    result: int = getattr(_libc, name)(*arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
