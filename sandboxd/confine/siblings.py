"""What may be read, said without naming what may not: the siblings of everything denied.

Landlock cannot subtract: a rule on `/` would grant the denied folders too. And a mount over a
denied name ends when the host replaces or renames that name (mount_namespaces(7)), so the mount
view alone is no boundary in time. Rules that stop short of a denied name hold on whatever comes
to lie there, because a new file has no rule.

A module of its own because two tiers need it and because it is the one plan that looks at the
disk; a list that was computed once is used until a folder that it depends on changes.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable
from itertools import count

from sandboxd.errors import TierUnavailable

ListFolder = Callable[[str], list[str]]

MAX_RULES = 4000
"""A folder above something denied whose entries would go beyond this (a crowded /tmp) is granted
nothing of: what lies beside the denied then cannot be read either."""
SETTLED_NS = 50_000_000
"""A folder changed this recently may change again within the same tick of its time stamp."""
KEPT_POLICIES = 64

Stamp = tuple[int, int, int]
"""Device, inode and change time of a folder."""


def plain_names(folder: str) -> list[str]:
    """The names in a folder that are no symbolic links. A link needs no rule, where it leads is
    covered by its own; and a rule made through it would grant a denied folder it leads to."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if not entry.is_symlink()]


class Cover:
    """The list for one set of denied paths, and what it was made from."""

    def __init__(
        self, version: int, granted: tuple[str, ...], listed: tuple[str, ...], seen: set[str]
    ) -> None:
        self.version = version
        """Another number for each cover, whoever computed it."""
        self.granted = granted
        """Paths that together cover the whole tree without anything denied."""
        self.listed = listed
        """Folders above something denied: nothing grants them, and so nothing lists them."""
        self.stamps = {folder: _stamp(folder) for folder in (*listed, *seen)}

    def is_settled(self, now_ns: int) -> bool:
        """Whether a later change is sure to show in the stamps."""
        return all(stamp and now_ns - stamp[2] > SETTLED_NS for stamp in self.stamps.values())

    def is_current(self) -> bool:
        return all(_stamp(folder) == stamp for folder, stamp in self.stamps.items())


class Siblings:
    """Computes covers and remembers them for as long as the disk agrees."""

    def __init__(self, list_folder: ListFolder = plain_names) -> None:
        self.list_folder = list_folder
        self._known: dict[tuple[str, ...], Cover] = {}
        self._versions = count(secrets.randbits(48))

    def cover(self, denied: tuple[str, ...]) -> Cover:
        """The cover of `/` without the denied paths and without /dev, which is granted device by
        device. Raises TierUnavailable when it would take more than MAX_RULES rules."""
        known = self._known.get(denied)
        if known is not None and known.is_current():
            return known
        granted, listed = readable("/", denied, self.list_folder)
        seen = {_existing_parent(path) for path in denied}
        made = Cover(next(self._versions), tuple(granted), tuple(listed), seen)
        self._known.pop(denied, None)
        if made.is_settled(time.time_ns()):
            if len(self._known) >= KEPT_POLICIES:
                self._known.clear()
            self._known[denied] = made
        return made


def readable(
    top: str, denied: Iterable[str], list_folder: ListFolder = plain_names
) -> tuple[list[str], list[str]]:
    """(the shortest list of paths that covers `top` without anything denied, the folders listed
    for it, which are not granted themselves). What is denied and does not exist yet counts too:
    it has no rule when it comes to be."""
    real = {os.path.realpath(path) for path in denied} | {"/dev"}
    above = {folder for path in real for folder in _parents(path)}
    found: list[str] = []
    listed: list[str] = []
    queue = [top]
    while queue:
        folder = queue.pop()
        if folder in real:
            continue
        if folder not in above:
            found.append(folder)
            if len(found) > MAX_RULES:
                raise TierUnavailable(
                    f"the folders beside what is denied have over {MAX_RULES} entries",
                    hint="deny whole folders, or use a host with namespaces",
                )
            continue
        try:
            prefix = folder.rstrip("/") + "/"
            names = list_folder(folder)
            listed.append(folder)
            if folder == top or len(found) + len(queue) + len(names) <= MAX_RULES:
                queue += [prefix + name for name in names]
        except OSError:
            continue  # what we cannot list, the run may not read
    return sorted(found), sorted(listed)


def _parents(path: str) -> list[str]:
    found = []
    while path != "/":
        path = os.path.dirname(path)
        found.append(path)
    return found


def _existing_parent(path: str) -> str:
    """The nearest folder above that exists: it changes when more of the path comes to be."""
    parent = os.path.dirname(path)
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    return parent


def _stamp(folder: str) -> Stamp | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns
