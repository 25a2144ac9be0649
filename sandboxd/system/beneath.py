"""Opening beneath a folder without following a single link, and swapping two names at once.

A module of its own because a race must not beat it: on Linux 5.6 and newer the kernel resolves the
whole path in one call (openat2(2), RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
elsewhere, macOS included, every component is opened by itself with O_NOFOLLOW, so that a component
that became a link is an error and never a step outside. Raises OSError: ELOOP or ENOTDIR for a
link on the way. Sources: openat2(2), renameat2(2), setfsuid(2), open(2) of Linux and macOS.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 2, 4, 8
_O_PATH = 0x200000
_RENAME_EXCHANGE = 2
_NOBODY_ELSE = 0xFFFFFFFF
"""An id that setfsuid(2) takes as a question: it changes nothing and says what holds."""
_IS_ARM = os.uname().machine in ("aarch64", "arm64")
_SYS_OPENAT2 = 437
_SYS_RENAMEAT2 = 276 if _IS_ARM else 316
_SYS_SETFSUID = 151 if _IS_ARM else 122
_SYS_SETFSGID = 152 if _IS_ARM else 123
_SYS_SETGROUPS = 159 if _IS_ARM else 116
_TRIES = 8
"""openat2 says EAGAIN when a folder was moved meanwhile."""
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


def path_flag() -> int:
    """O_PATH where it exists: a handle that reads nothing and needs no permission on the file."""
    return _O_PATH if sys.platform == "linux" else os.O_RDONLY


def open_root(path: str) -> int:
    """A handle of the folder with this absolute, link-free path."""
    top = os.open("/", path_flag() | _FOLDER)
    try:
        if path == "/":
            return os.dup(top)
        return open_beneath(top, path[1:], path_flag() | os.O_DIRECTORY)
    finally:
        os.close(top)


def open_beneath(folder_fd: int, path: str, flags: int, mode: int = 0) -> int:
    """open(2) of a relative path that holds neither `..` nor links; close-on-exec."""
    if path.startswith("/") or ".." in path.split("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    if has_openat2():
        return _openat2(folder_fd, path, flags, mode)
    return walk_beneath(folder_fd, path, flags, mode)


@cache
def has_openat2() -> bool:
    """Whether this kernel has openat2(2), and no filter around us refuses it."""
    if sys.platform != "linux":
        return False
    top = os.open("/", path_flag() | _FOLDER)
    try:
        os.close(_openat2(top, ".", path_flag() | os.O_DIRECTORY, 0))
    except OSError:
        return False
    finally:
        os.close(top)
    return True


def _openat2(folder_fd: int, path: str, flags: int, mode: int) -> int:
    resolve = _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS
    wanted_mode = mode if flags & os.O_CREAT else 0
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC | os.O_NOFOLLOW, wanted_mode, resolve)
    for _ in range(_TRIES):
        try:
            return _call(_SYS_OPENAT2, folder_fd, os.fsencode(path), how, len(how))
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                raise
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def walk_beneath(folder_fd: int, path: str, flags: int, mode: int = 0) -> int:
    """The same without openat2: component by component, each by O_NOFOLLOW."""
    *folders, name = [part for part in path.split("/") if part not in ("", ".")] or ["."]
    held = os.dup(folder_fd)
    try:
        for folder in folders:
            step = os.open(folder, path_flag() | _FOLDER, dir_fd=held)
            os.close(held)
            held = step
        return os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode, dir_fd=held)
    finally:
        os.close(held)


def exchange(folder_fd: int, first: str, second: str) -> bool:
    """Swap two names of one folder in one step; False where kernel or file system cannot."""
    if sys.platform != "linux":
        return False
    try:
        names = (os.fsencode(first), os.fsencode(second))
        _call(_SYS_RENAMEAT2, folder_fd, names[0], folder_fd, names[1], _RENAME_EXCHANGE)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP):
            return False
        raise
    return True


@contextmanager
def acting_as(ids: tuple[int, int] | None) -> Iterator[None]:
    """This thread's file accesses are those of (uid, gid); None keeps our own.

    For root alone, and on Linux: the kernel then checks and owns files as that user, without root's
    capabilities over files, in this thread only (setfsuid(2)). Elsewhere nothing changes.
    """
    if sys.platform != "linux" or ids is None or os.getuid() != 0 or ids[0] == 0:
        yield
        return
    if _call(_SYS_SETFSUID, _NOBODY_ELSE) == ids[0]:
        yield  # this thread acts so already
        return
    groups = os.getgroups()
    _set_file_ids(*ids, groups=[ids[1]])
    try:
        yield
    finally:
        _set_file_ids(0, os.getgid(), groups=groups)


def _set_file_ids(uid: int, gid: int, *, groups: list[int]) -> None:
    """setfsuid(2), setfsgid(2) and setgroups(2) as bare system calls, which change this thread
    alone. Leaving uid 0 takes the capabilities over files away, coming back restores them."""
    _call(_SYS_SETGROUPS, len(groups), struct.pack(f"={len(groups)}I", *groups))
    _call(_SYS_SETFSGID, gid)
    _call(_SYS_SETFSUID, uid)
    if _call(_SYS_SETFSUID, uid) != uid:  # it never fails, it only says what held before
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@cache
def _library() -> ctypes.CDLL:
    """The C library by a handle that lets other threads run meanwhile (a slow network folder)."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.argtypes = [ctypes.c_long] + [ctypes.c_void_p] * 6
    library.syscall.restype = ctypes.c_long
    return library


def _call(number: int, *arguments: int | bytes) -> int:
    padded = arguments + (0,) * (6 - len(arguments))
    result: int = _library().syscall(number, *padded)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
