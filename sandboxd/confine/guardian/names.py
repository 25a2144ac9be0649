"""Which names of a policy are looked at, and how one was found.

Pure but for `look`. The list is computed once for each policy; a run then pays one lstat(2) for
each name that could be a plant, at its beginning and at its end.
"""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from sandboxd.model import Policy

Kind = Literal["protected", "pinned", "denied", "head", "bare", "repository"]


class Name(Struct, frozen=True):
    """A name that is watched.

    `protected`   runs later, outside: must stay as it is, or stay absent
    `pinned`      a folder around protected names, covered by a mount where there are mounts
    `denied`      hidden by a mount where there are mounts
    `head`        `HEAD` of a git folder: without it git looks elsewhere
    `bare`        `HEAD`, `objects`, `refs` of the workspace itself: with them it is a repository
    `repository`  the workspace's `.git`
    """

    kind: Kind
    path: str

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)


class Stamp(Struct, frozen=True, array_like=True):
    """How a name was found; equal stamps mean the same untouched file (`ctime` cannot be set)."""

    form: int
    device: int
    inode: int
    size: int
    changed_ns: int
    links: int

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.form)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.form)

    def is_same_file(self, other: Stamp | None) -> bool:
        return other is not None and (self.form, self.device, self.inode) == (
            other.form,
            other.device,
            other.inode,
        )


def look(path: str) -> Stamp | None:
    """How the name is found now, links not followed; None when it is absent or out of reach."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    size = 0 if stat.S_ISDIR(found.st_mode) else found.st_size
    form = stat.S_IFMT(found.st_mode)
    return Stamp(form, found.st_dev, found.st_ino, size, found.st_ctime_ns, found.st_nlink)


SETTLED_NS = 50_000_000
"""A folder that changed this recently may change again within the same tick of its time stamp."""


class Folder(Struct, frozen=True):
    """A folder as it was found, and which of its watched names were absent: as long as it is found
    the same, they still are."""

    stamp: Stamp
    absent: frozenset[str]


def look_into(
    folder: str, paths: tuple[str, ...], known: Folder | None, now_ns: int
) -> tuple[dict[str, Stamp | None], Folder | None]:
    """How the names are found, and the folder when that can be relied on later. What `known` says
    to be absent is not looked at again."""
    stamp = look(folder)
    if stamp is None:
        return dict.fromkeys(paths), None
    absent = known.absent if known is not None and known.stamp == stamp else frozenset()
    found = {path: None if path in absent else look(path) for path in paths}
    if now_ns - stamp.changed_ns < SETTLED_NS:
        return found, None
    return found, Folder(stamp, frozenset(path for path in paths if found[path] is None))


class Names(Struct, frozen=True):
    """All names of one policy, and which are found in which folder."""

    all: tuple[Name, ...]
    by_place: dict[tuple[str, str], tuple[Name, ...]]
    """(folder, name) -> what is watched there."""
    stamped: tuple[Name, ...]
    """Those whose stamp is taken at the beginning."""
    by_folder: tuple[tuple[str, tuple[str, ...]], ...]
    """Their paths by folder."""
    kept_in: tuple[str, ...]
    """Folders of names that are to stay as they are."""
    hidden_in: tuple[str, ...]
    """Other folders, of names that are hidden. Landlock keeps what comes there shut until it is
    hidden again, so they are watched from a moment after the launch."""


def names_of(policy: Policy) -> Names:
    own = set(policy.own)
    protected = tuple(path for path in policy.protected if path not in own)
    covered = tuple(copy.path for copy in policy.shown)
    covered += tuple(each.path for each in policy.redacted)
    return _names_of(policy.workspace, protected, policy.pinned, (*policy.denied, *covered))


@lru_cache(maxsize=64)
def _names_of(
    workspace: str, protected: tuple[str, ...], pinned: tuple[str, ...], denied: tuple[str, ...]
) -> Names:
    git = os.path.join(workspace, ".git")
    found = [Name("protected", path) for path in protected]
    found += [Name("pinned", path) for path in pinned]
    found += [Name("denied", path) for path in denied if not path.startswith("/tmp/")]
    if protected:
        heads = [os.path.dirname(path) for path in protected if path.endswith("/commondir")]
        found += [Name("head", os.path.join(folder, "HEAD")) for folder in dict.fromkeys(heads)]
        found += [Name("bare", os.path.join(workspace, n)) for n in ("HEAD", "objects", "refs")]
        if git not in protected:
            found.append(Name("repository", git))
    by_place: dict[tuple[str, str], tuple[Name, ...]] = {}
    for name in found:
        place = (name.folder, os.path.basename(name.path))
        by_place[place] = (*by_place.get(place, ()), name)
    stamped = tuple(name for name in found if name.kind not in ("pinned", "denied"))
    kept_in = dict.fromkeys(name.folder for name in found if name.kind != "denied")
    hidden_in = dict.fromkeys(name.folder for name in found if name.folder not in kept_in)
    grouped: dict[str, tuple[str, ...]] = {}
    for name in stamped:
        grouped[name.folder] = (*grouped.get(name.folder, ()), name.path)
    by_folder = tuple(grouped.items())
    return Names(tuple(found), by_place, stamped, by_folder, tuple(kept_in), tuple(hidden_in))
