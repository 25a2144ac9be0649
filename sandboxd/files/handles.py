"""Opening a place that the guard has located, so that a swap in between cannot win.

The canonical path holds no links; it is opened from its root without following any. What was
located and what is opened are compared once more on the handle itself.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sandboxd.errors import DeniedPath, Fault, NotFound, OutsideRoot, SandboxdError, SpecialFile
from sandboxd.files.guard import Place, Scope, kind_of
from sandboxd.system import beneath

MAX_DENIED = 256
"""How many entries of denied folders a file with several hard links is compared with."""


@contextmanager
def opened(place: Place, scope: Scope) -> Iterator[int]:
    """A read-only handle of a regular file. Raises NotFound, SpecialFile, OutsideRoot (it became a
    link meanwhile), DeniedPath (a hard link to something denied); Fault when the system says no."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    with _translated(place), beneath.acting_as(scope.owner), folder_of(place.root) as root:
        fd = beneath.open_beneath(root, place.below, flags)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise SpecialFile(
                f"{place.shown} is {kind_of(found.st_mode)}, not a file",
                hint="list a folder with fs.list; use a command for what else is no file",
                path=place.shown,
            )
        refuse_hard_link(found, place, scope)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def folder_of(path: str, *, is_read: bool = False) -> Iterator[int]:
    """A handle of the folder with this canonical path, to reach what is in it, or to list it too.
    Raises OSError."""
    fd = beneath.open_root(path)
    if is_read:
        held = fd
        try:
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)
        finally:
            os.close(held)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_folder(place: Place, scope: Scope) -> Iterator[int]:
    """A readable handle of a located folder."""
    with _translated(place), beneath.acting_as(scope.owner), folder_of(place.root) as root:
        fd = beneath.open_beneath(root, place.below, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def parent_of(place: Place) -> Iterator[tuple[int, str]]:
    """A handle of the folder that holds the place, and the place's name in it."""
    above, name = os.path.split(place.below)
    if name in ("", "."):
        raise SpecialFile(
            f"{place.shown} is a folder, not a file", hint="name a file in it", path=place.shown
        )
    with _translated(place), folder_of(place.root) as root:
        fd = beneath.open_beneath(root, above or ".", beneath.path_flag() | os.O_DIRECTORY)
    try:
        yield fd, name
    finally:
        os.close(fd)


def refuse_hard_link(found: os.stat_result, place: Place, scope: Scope) -> None:
    """A second name of something denied is denied too, whatever it is called."""
    if found.st_nlink < 2:
        return
    for denied in _identities(scope.denied):
        if (denied.st_dev, denied.st_ino) == (found.st_dev, found.st_ino):
            raise DeniedPath(
                f"{place.shown} is a hard link to a file that the profile denies",
                hint="ask the person for what you need from it",
                path=place.shown,
                rule="files.deny",
            )


def _identities(denied: Sequence[str]) -> Iterator[os.stat_result]:
    """What the denied names hold: files themselves, and the entries of folders."""
    for path in denied:
        try:
            found = os.lstat(path)
            if stat.S_ISDIR(found.st_mode):
                with os.scandir(path) as entries:
                    for _, entry in zip(range(MAX_DENIED), entries, strict=False):
                        yield entry.stat(follow_symlinks=False)
            else:
                yield found
        except OSError:
            continue


# --------------------------------------------------------------------------- the one funnel


@contextmanager
def _translated(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise refusal_of(error, place) from error


def not_found(place: Place) -> NotFound:
    return NotFound(
        f"there is no file {place.shown}",
        hint="look with fs.list or fs.glob; fs.write creates files",
        path=place.shown,
    )


def refusal_of(error: OSError, place: Place) -> SandboxdError:
    """What the system's no means: absence and links are refusals, everything else is a fault that
    says no more than the system's own words."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and os.path.isdir(place.root):
        return not_found(place)
    if error.errno in (errno.ELOOP, errno.EXDEV, errno.EMLINK):
        return OutsideRoot(
            f"{place.shown} became a link while it was opened",
            hint="something else changes this folder; look again with fs.list",
            path=place.shown,
            rule="no-links",
        )
    if error.errno in (errno.ENXIO, errno.EISDIR):
        return SpecialFile(
            f"{place.shown} is no regular file", hint="use a command for it", path=place.shown
        )
    hints = {
        errno.EACCES: "the file's or a folder's permissions do not allow it; ask the person",
        errno.EPERM: "the system does not allow it, whoever asks; ask the person",
        errno.ENOSPC: "free some space, then try again",
        errno.EDQUOT: "free some space, then try again",
        errno.EROFS: "the file system is read-only; write elsewhere",
        errno.EFBIG: "the file is over the size limit of this process; write less",
        errno.ENOENT: "the folder of this session is gone; open a session in another workspace",
    }
    said = error.strerror or type(error).__name__
    return Fault(
        f"{place.shown} could not be touched: {said}; what was there before is untouched",
        hint=hints.get(error.errno or 0, "try again; if it stays, ask the person"),
    )
