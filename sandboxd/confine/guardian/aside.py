"""Moving things out of the way, safely and without losing them.

A plant is renamed first, in its own folder, to a name that means nothing to anybody: that is one
atomic step and works whatever file system the session's folder lies on. Then it is carried into
the session's folder. Every folder on the way is opened without following links, because the run
may swap one while we look; without that, `.git -> ~/.ssh` would have us move `~/.ssh/config`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sandboxd.system import linux, posix

MAX_BYTES = 64 * 1024 * 1024
MAX_ENTRIES = 2000
MAX_DEPTH = 32
PREFIX = ".set-aside-"

_FOLDER = (
    (linux.O_PATH if posix.IS_LINUX else os.O_RDONLY)
    | os.O_DIRECTORY
    | os.O_NOFOLLOW
    | os.O_CLOEXEC
)


def open_beneath(root: str, folder: str) -> int:
    """A descriptor of a folder in `root`, opened step by step; no link is followed below it."""
    fd = os.open(root, _FOLDER)
    try:
        for step in os.path.relpath(folder, root).split("/"):
            if step == ".":
                continue
            if step == "..":
                raise OSError(f"{folder} does not lie in {root}")
            following = os.open(step, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = following
    except BaseException:
        os.close(fd)
        raise
    return fd


class TooLarge(OSError):
    """More than is carried away; it stays under its harmless name."""


class Store:
    """Where the things of one run are put. `note` is told a harmless name before it is used."""

    def __init__(self, folder: str, note: Callable[[str], None]) -> None:
        self.folder = folder
        self.note = note
        self.count = 0

    def take(self, root: str, path: str) -> str | None:
        """Move a name in `root` out of the way; where it is now, None when it was gone already.
        Raises OSError when even that is impossible."""
        parent = open_beneath(root, os.path.dirname(path))
        try:
            harmless = PREFIX + secrets.token_hex(6)
            place = os.path.join(os.path.dirname(path), harmless)
            self.note(place)
            try:
                _rename(parent, os.path.basename(path), harmless)
            except FileNotFoundError:
                return None
            return self.carry(parent, harmless, os.path.basename(path)) or place
        finally:
            os.close(parent)

    def carry(self, parent: int, harmless: str, name: str) -> str | None:
        """Move what lies under its harmless name into the store; None when it cannot be moved."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self.count += 1
        target = os.path.join(
            self.folder, f"{self.count:03}-{secrets.token_hex(2)}-{name.lstrip('.')}"
        )
        try:
            os.rename(harmless, target, src_dir_fd=parent)
        except OSError:
            try:
                _copy(parent, harmless, target, _Budget())
            except OSError:
                return None
            remove(parent, harmless)
        return target


def _rename(parent: int, name: str, harmless: str) -> None:
    try:
        os.rename(name, harmless, src_dir_fd=parent, dst_dir_fd=parent)
    except PermissionError:
        # The run took the folder's write bit away; it is ours to give back.
        place = f"/proc/self/fd/{parent}"
        os.chmod(place, stat.S_IMODE(os.stat(place).st_mode) | stat.S_IRWXU)
        os.rename(name, harmless, src_dir_fd=parent, dst_dir_fd=parent)


def remove(parent: int, name: str) -> None:
    """Delete a name with all that lies in it; links are not followed."""
    if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        shutil.rmtree(name, dir_fd=parent, ignore_errors=True)
    else:
        os.unlink(name, dir_fd=parent)


class _Budget:
    """What may still be copied."""

    def __init__(self) -> None:
        self.bytes = MAX_BYTES
        self.entries = MAX_ENTRIES

    def spend(self, size: int, depth: int) -> None:
        self.bytes -= size
        self.entries -= 1
        if self.bytes < 0 or self.entries < 0 or depth > MAX_DEPTH:
            raise TooLarge("too much to be carried")


def _copy(parent: int, name: str, target: str, budget: _Budget, depth: int = 0) -> None:
    """Plain files, folders and links; devices, pipes and sockets are left behind."""
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    budget.spend(found.st_size if stat.S_ISREG(found.st_mode) else 0, depth)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=parent), target)
    elif stat.S_ISREG(found.st_mode):
        _copy_file(parent, name, target, budget)
    elif stat.S_ISDIR(found.st_mode):
        os.mkdir(target, 0o700)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        inner = os.open(name, flags, dir_fd=parent)
        try:
            for entry in os.listdir(inner):
                _copy(inner, entry, os.path.join(target, entry), budget, depth + 1)
        finally:
            os.close(inner)


def _copy_file(parent: int, name: str, target: str, budget: _Budget) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with (
        open(os.open(name, flags, dir_fd=parent), "rb") as source,
        open(target, "xb", opener=lambda path, mode: os.open(path, mode, 0o600)) as copy,
    ):
        while data := source.read(1 << 20):
            budget.bytes -= len(data)
            if budget.bytes < -MAX_BYTES:
                raise TooLarge("it grows while it is carried")
            copy.write(data)


def write_beneath(
    root: str, path: str, data: bytes, mode: int, owner: tuple[int, int] | None
) -> None:
    """Put a file's content in place in one step, missing folders made, no link followed."""
    parent = _make_folders(root, os.path.dirname(path), owner)
    temporary = PREFIX + secrets.token_hex(6)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600, dir_fd=parent)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            if owner is not None:
                os.fchown(fd, *owner)
            os.fchmod(fd, mode & 0o777)
        os.rename(temporary, os.path.basename(path), src_dir_fd=parent, dst_dir_fd=parent)
    finally:
        os.close(parent)


Write = Callable[[bytes, int, tuple[int, int] | None], None]


@contextmanager
def lock_beneath(root: str, path: str) -> Iterator[Write]:
    """Hold git's own lock on a file: `PATH.lock`, made exclusively (git's lockfile.h). What is
    handed out replaces the file's content, which also ends the lock, as git does it.

    Raises FileExistsError when somebody else holds it.
    """
    parent = open_beneath(root, os.path.dirname(path))
    name = os.path.basename(path)
    lock = name + ".lock"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(lock, flags, 0o600, dir_fd=parent)

        def write(data: bytes, mode: int, owner: tuple[int, int] | None) -> None:
            with open(fd, "wb", closefd=False) as file:
                file.write(data)
            if owner is not None:
                os.fchown(fd, *owner)
            os.fchmod(fd, mode & 0o777)
            os.rename(lock, name, src_dir_fd=parent, dst_dir_fd=parent)

        try:
            yield write
        finally:
            os.close(fd)
            with suppress(FileNotFoundError):
                os.unlink(lock, dir_fd=parent)
    finally:
        os.close(parent)


def _make_folders(root: str, folder: str, owner: tuple[int, int] | None) -> int:
    try:
        return open_beneath(root, folder)
    except FileNotFoundError:
        parent = _make_folders(root, os.path.dirname(folder), owner)
    try:
        os.mkdir(os.path.basename(folder), 0o755, dir_fd=parent)
        fd = os.open(os.path.basename(folder), _FOLDER, dir_fd=parent)
        if owner is not None:
            os.chown(f"/proc/self/fd/{fd}", *owner)
        return fd
    finally:
        os.close(parent)


def read_beneath(root: str, path: str, limit: int) -> bytes | None:
    """A plain file's content, no link followed; None when it is absent, no plain file or larger."""
    try:
        parent = open_beneath(root, os.path.dirname(path))
    except OSError:
        return None
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(os.path.basename(path), flags, dir_fd=parent), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(limit + 1)
            return data if len(data) <= limit else None
    except OSError:
        return None
    finally:
        os.close(parent)
