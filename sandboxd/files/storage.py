"""Bytes to and from disk: whole reads that are never torn, writes that are old or new and never mixed.

A write goes to a temporary file beside the target, is synced, and takes the target's name in one
step. Where the kernel can swap two names (renameat2(2), RENAME_EXCHANGE) the old file is looked at
*after* the swap: when it is not the one that the change was based on, it is swapped back, so a
program that knows nothing of our locks loses nothing to us. Everything happens relative to the
handle of the folder, on names without links.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property

from sandboxd.errors import AlreadyExists, Fault, FileBusy, StaleVersion, TooLarge
from sandboxd.files import handles
from sandboxd.files.guard import Place, Scope
from sandboxd.files.ledger import HASHED_BYTES, Stamp, stamp_version, version_of
from sandboxd.files.locks import TEMPORARY, Held
from sandboxd.system import beneath

NEW_MODE = 0o644
NEW_FOLDER_MODE = 0o755
TRIES = 3
PIECE = 1024 * 1024
_TMPFILE = getattr(os, "O_TMPFILE", 0)


@dataclass(frozen=True)
class Content:
    """A whole file as it was in one moment."""

    data: bytes
    found: os.stat_result

    @cached_property
    def version(self) -> str:
        is_hashed = len(self.data) <= HASHED_BYTES
        return version_of(self.data) if is_hashed else stamp_version(self.stamp)

    @property
    def stamp(self) -> Stamp:
        return Stamp.of(self.found)


def read_whole(place: Place, scope: Scope, *, limit: int = HASHED_BYTES) -> Content:
    """All of a file, as a run sees it. Raises what `handles.opened` does, TooLarge, FileBusy (never at
    rest)."""
    copy = scope.copy_of(place.path) if scope.copies else None
    for _ in range(TRIES):
        with handles.opened(place, scope) as fd:
            before = os.fstat(fd)
            if copy is not None:
                return Content(copy.encode("utf-8", "surrogateescape"), before)
            if before.st_size > limit:
                raise too_large(place, before.st_size, limit)
            data = read_fd(fd, before.st_size)
            after = os.fstat(fd)
        if Stamp.of(before) == Stamp.of(after) and len(data) == after.st_size:
            return Content(data, after)
    raise FileBusy(f"{place.shown} is being written all the time", hint="try again later")


def read_fd(fd: int, size: int) -> bytes:
    """What follows in the file, about `size` bytes of it."""
    parts = []
    while part := os.read(fd, max(size + 1, 4096)):
        parts.append(part)
        size = max(0, size - len(part))
    return b"".join(parts)


def too_large(place: Place, size: int, limit: int) -> TooLarge:
    return TooLarge(
        f"{place.shown} has {size} bytes; this operation takes {limit}",
        hint="read a part of it with offset and limit, or use a command",
        path=place.shown,
        data={"bytes": size, "limit": limit},
    )


def version_at(place: Place, scope: Scope) -> tuple[str, Stamp]:
    """The content identity of a file without keeping it in memory."""
    with handles.opened(place, scope) as fd:
        found = os.fstat(fd)
        stamp = Stamp.of(found)
        if found.st_size > HASHED_BYTES:
            return stamp_version(stamp), stamp
        digest = hashlib.sha256()
        while part := os.read(fd, PIECE):
            digest.update(part)
        return digest.hexdigest()[:32], stamp


# --------------------------------------------------------------------------- writing


def put(
    place: Place,
    scope: Scope,
    data: bytes,
    base: os.stat_result | None,
    held: Held,
    *,
    mode: int | None = None,
) -> Stamp:
    """Make `data` the file's content. `base` is the file that it replaces, None a new one.

    Mode, owner and attributes of a replaced file are kept. Raises AlreadyExists (something is there
    by now), StaleVersion (it is not `base` any more); Fault when the system says no.
    """
    try:
        with (
            beneath.acting_as(scope.owner),
            handles.parent_of(place) as (folder, name),
            _temporary(folder, name, place, held) as temporary,
        ):
            _fill(temporary.fd, data, base, place, mode)
            if base is None:
                _create(temporary, folder, name, place)
            else:
                _replace(temporary, folder, name, base, place)
            return Stamp.of(os.fstat(temporary.fd))
    except OSError as error:
        raise handles.refusal_of(error, place) from error


@dataclass
class _Temporary:
    """A new file without a name, or with one that nobody looks for."""

    fd: int
    folder: int
    name: str
    is_named: bool

    def give_name(self) -> None:
        if not self.is_named:
            try:
                self.link(self.name)
            except FileExistsError:  # a killed writer's
                os.unlink(self.name, dir_fd=self.folder)
                self.link(self.name)
            self.is_named = True

    def link(self, name: str) -> None:
        source = self.name if self.is_named else f"/proc/self/fd/{self.fd}"
        where = self.folder if self.is_named else None
        os.link(source, name, src_dir_fd=where, dst_dir_fd=self.folder, follow_symlinks=True)

    def drop_name(self) -> None:
        if self.is_named:
            with suppress(FileNotFoundError):
                os.unlink(self.name, dir_fd=self.folder)


@contextmanager
def _temporary(folder: int, name: str, place: Place, held: Held) -> Iterator[_Temporary]:
    """A temporary file in the folder; its name depends on the target's alone and is under its lock."""
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    own = f".{digest}{TEMPORARY}"
    held.note(place.path, os.path.join(os.path.dirname(place.path), own))
    fd, is_named = _open_temporary(folder, own)
    temporary = _Temporary(fd, folder, own, is_named)
    try:
        yield temporary
    finally:
        temporary.drop_name()
        os.close(fd)


def _open_temporary(folder: int, name: str) -> tuple[int, bool]:
    """Without a name where the file system can (open(2), O_TMPFILE): then nothing is left behind."""
    if _TMPFILE and os.path.exists("/proc/self/fd"):
        try:
            return os.open(".", _TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=folder), False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
                raise
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=folder), True


def _fill(
    fd: int, data: bytes, base: os.stat_result | None, place: Place, mode: int | None
) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    if base is not None:
        _keep_owner(fd, base, place)
    wanted = stat.S_IMODE(base.st_mode) & 0o1777 if base is not None else NEW_MODE
    os.fchmod(fd, wanted if mode is None else mode)
    os.fsync(fd)


def _keep_owner(fd: int, base: os.stat_result, place: Place) -> None:
    ours = os.fstat(fd)
    if (ours.st_uid, ours.st_gid) == (base.st_uid, base.st_gid):
        return
    try:
        os.fchown(fd, base.st_uid, base.st_gid)
    except PermissionError as error:
        raise Fault(
            f"{place.shown} belongs to another user or group and would not any more",
            hint="ask the person to change its owner, or write another file",
        ) from error


def _create(temporary: _Temporary, folder: int, name: str, place: Place) -> None:
    try:
        temporary.link(name)
    except FileExistsError as error:
        raise AlreadyExists(
            f"{place.shown} is there by now",
            hint="read it with fs.read, then decide",
            path=place.shown,
        ) from error
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder))
        os.rename(temporary.name, name, src_dir_fd=folder, dst_dir_fd=folder)


def _replace(
    temporary: _Temporary, folder: int, name: str, base: os.stat_result, place: Place
) -> None:
    _copy_attributes(folder, name, temporary.fd)
    temporary.give_name()
    if not _is_base(folder, name, base):
        raise _overtaken(place)
    if not beneath.exchange(folder, temporary.name, name):
        os.rename(temporary.name, name, src_dir_fd=folder, dst_dir_fd=folder)
    elif not _is_base(folder, temporary.name, base):
        beneath.exchange(folder, temporary.name, name)
        raise _overtaken(place)


def _is_base(folder: int, name: str, base: os.stat_result) -> bool:
    """Whether the name holds the very file, unwritten since; a rename changes its ctime alone."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) == (
        base.st_dev,
        base.st_ino,
        base.st_size,
        base.st_mtime_ns,
    )


def _overtaken(place: Place) -> StaleVersion:
    return StaleVersion(
        f"{place.shown} was changed by another program in this very moment",
        hint="read it again with fs.read and base the change on that",
        path=place.shown,
    )


def _copy_attributes(folder: int, name: str, to_fd: int) -> None:
    """Extended attributes, access lists among them; what may not be set is left."""
    listing, getting, setting = (
        getattr(os, f"{what}xattr", None) for what in ("list", "get", "set")
    )
    if listing is None or getting is None or setting is None:
        return  # macOS: Python has no calls for them
    with suppress(OSError):
        fd = beneath.open_beneath(folder, name, os.O_RDONLY | os.O_NONBLOCK)
        try:
            for attribute in listing(fd):
                with suppress(OSError):
                    setting(to_fd, attribute, getting(fd, attribute))
        finally:
            os.close(fd)


def missing_parents(place: Place) -> tuple[str, ...]:
    """The folders that a write to this place would have to make, outer ones first."""
    missing = []
    folder = os.path.dirname(place.path)
    while folder != place.root and not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return tuple(reversed(missing))


def make_parents(place: Place, scope: Scope, folders: tuple[str, ...]) -> None:
    """Make them, each beneath the handle of the one above, through no link."""
    try:
        with beneath.acting_as(scope.owner), handles.folder_of(place.root) as root:
            for folder in folders:
                below = folder[len(place.root.rstrip("/")) + 1 :]
                above, name = os.path.split(below)
                flags = beneath.path_flag() | os.O_DIRECTORY
                fd = beneath.open_beneath(root, above or ".", flags)
                try:
                    with suppress(FileExistsError):
                        os.mkdir(name, NEW_FOLDER_MODE, dir_fd=fd)
                finally:
                    os.close(fd)
    except OSError as error:
        raise handles.refusal_of(error, place) from error


def remove(place: Place, scope: Scope, base: os.stat_result) -> None:
    """Delete the file that `base` is. Raises StaleVersion when it is another by now."""
    try:
        with beneath.acting_as(scope.owner), handles.parent_of(place) as (folder, name):
            if not _is_base(folder, name, base):
                raise _overtaken(place)
            os.unlink(name, dir_fd=folder)
    except OSError as error:
        raise handles.refusal_of(error, place) from error
