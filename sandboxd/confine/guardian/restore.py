"""What a tier without mounts could not protect: kept before the run, compared and put back after.

Landlock cannot subtract, so in the tiers `landlock` and `containment` a run can write protected
names. Their content is kept when it is small; what a run made of it is set aside, not lost.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from msgspec import Struct

from sandboxd.confine.guardian.aside import read_beneath
from sandboxd.confine.guardian.names import Stamp, look

MAX_FILE = 64 * 1024
MAX_TOTAL = 1024 * 1024
MAX_ENTRIES = 200


RootOf = Callable[[str], str]
"""The writable root that a path lies in."""


class Copy(Struct, frozen=True):
    """A protected file as it was."""

    stamp: Stamp
    mode: int
    data: bytes | None
    """None: too large to be kept; a change is reported and cannot be undone."""


class Kept(Struct):
    """Everything below the protected names of one run."""

    copies: dict[str, Copy] = {}
    folders: list[str] = []
    unseen: list[str] = []
    """Folders with too many entries to be kept."""


class Change(Struct, frozen=True):
    """`new`: was not there. `changed`: other content or kind. `gone`: was there."""

    kind: str
    path: str
    copy: Copy | None = None


class Keeper:
    """Keeps what protected names hold; content that has not changed is not read again."""

    def __init__(self) -> None:
        self._known: dict[str, Copy] = {}

    def keep(self, root_of: RootOf, paths: list[str]) -> Kept:
        """Copies of every plain file at or below the paths, as far as the bounds allow."""
        kept = Kept()
        total = 0
        for path in paths:
            for found in _walk(path, kept.folders, kept.unseen):
                copy = self._copy(root_of(found), found, MAX_TOTAL - total)
                if copy is not None:
                    kept.copies[found] = copy
                    total += len(copy.data or b"")
        return kept

    def _copy(self, root: str, path: str, left: int) -> Copy | None:
        stamp = look(path)
        if stamp is None:
            return None
        known = self._known.get(path)
        if known is not None and known.stamp == stamp and len(known.data or b"") <= left:
            return known
        data = read_beneath(root, path, min(MAX_FILE, left)) if stamp.is_file else None
        try:
            mode = stat.S_IMODE(os.lstat(path).st_mode)
        except OSError:
            return None
        copy = Copy(stamp, mode, data)
        if len(self._known) > MAX_ENTRIES * 8:
            self._known.clear()
        self._known[path] = copy
        return copy


def changes(root_of: RootOf, paths: list[str], kept: Kept) -> list[Change]:
    """What became of it. Paths that were wholly absent are not looked at here."""
    there: set[str] = set()
    found: list[Change] = []
    for path in paths:
        if path in kept.unseen:
            continue
        for inner in _walk(path, [], []):
            there.add(inner)
            copy = kept.copies.get(inner)
            if copy is None:
                found.append(Change("new", inner))
            elif _has_changed(root_of(inner), inner, copy):
                found.append(Change("changed", inner, copy))
    gone = [path for path in kept.copies if path not in there]
    return found + [Change("gone", path, kept.copies[path]) for path in gone]


def _has_changed(root: str, path: str, copy: Copy) -> bool:
    stamp = look(path)
    if stamp == copy.stamp and copy.data is None:
        return False
    if stamp is None or stamp.form != copy.stamp.form:
        return True
    if copy.data is None:
        return stamp != copy.stamp
    return read_beneath(root, path, MAX_FILE) != copy.data


def _walk(path: str, folders: list[str], unseen: list[str]) -> list[str]:
    """Everything at or below the path that is no folder, git's sample hooks left out."""
    stamp = look(path)
    if stamp is None:
        return []
    if not stamp.is_folder:
        return [path]
    found: list[str] = []
    queue = [path]
    while queue:
        folder = queue.pop()
        folders.append(folder)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(entry.path)
                    elif not entry.name.endswith(".sample"):
                        found.append(entry.path)
        except OSError:
            continue
        if len(found) + len(queue) > MAX_ENTRIES:
            unseen.append(path)
            return found[:MAX_ENTRIES]
    return found
