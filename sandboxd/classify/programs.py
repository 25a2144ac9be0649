"""Which file a program name means, and whether a run could have planted it.

`ls` is only `ls` when the run's PATH finds it in a place that a run cannot write: a planted
`venv/bin/ls`, a relative or empty PATH entry, or a folder inside a writable root that is searched
before (or, for an absent name, at all) make it somebody else's program.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence

FRESH_SECONDS = 0.02
"""How long the folders' time stamps are taken as they were seen."""
SETTLED_NS = 100_000_000
"""A folder that changed a moment ago may change again within the same tick of its time stamp."""
MAX_LINKS = 40


class ProgramFinder:
    """Resolves names on one PATH against one set of writable roots.

    Where the folders lie is looked up once: a run cannot move a folder that it cannot write.
    Which files are in them is remembered while the folders' own time stamps stay the same; what
    a folder's time stamp does not tell (a file that is not executable yet) is looked up each time.
    """

    def __init__(self, path: str, writable_roots: Sequence[str]) -> None:
        self._roots = tuple(
            {_with_slash(root) for root in writable_roots}
            | {_with_slash(os.path.realpath(root)) for root in writable_roots}
        )
        self._folders = [(_with_slash(name), self._trouble(name)) for name in path.split(":")]
        self._known: dict[str, str | None] = {}
        self._stamps: list[tuple[int, ...]] = []
        self._looked_at = float("-inf")
        self._is_settled = False

    def _trouble(self, folder: str) -> str | None:
        if not folder.startswith("/"):
            return "the current folder"
        return f"{folder}, which a run can write," if self._is_writable(folder) else None

    def plantable(self, name: str) -> str | None:
        """Why a run could decide what `name` means; None when it cannot."""
        if "/" in name:
            return None
        now = time.monotonic()
        if now - self._looked_at > FRESH_SECONDS:
            self._look(now)
        if name in self._known:
            return self._known[name]
        answer, is_certain = self._search(name)
        if is_certain and self._is_settled:
            self._known[name] = answer
        return answer

    def _look(self, now: float) -> None:
        """Forget what was known when one of the folders has changed."""
        stamps = []
        for folder, trouble in self._folders:
            if trouble is not None:
                break
            stamps.append(_stamp(folder))
        if stamps != self._stamps:
            self._known.clear()
        self._stamps, self._looked_at = stamps, now
        newest = max([stamp[-1] for stamp in stamps], default=0)
        self._is_settled = newest < time.time_ns() - SETTLED_NS

    def _search(self, name: str) -> tuple[str | None, bool]:
        """The answer, and whether it holds as long as no folder's time stamp changes."""
        is_certain = True
        for prefix, trouble in self._folders:
            if trouble is not None:
                return f"PATH searches {trouble} before {name} is found", is_certain
            found = prefix + name
            try:
                mode = os.lstat(found).st_mode
            except OSError as error:
                is_certain = is_certain and isinstance(error, FileNotFoundError)
                continue
            if stat.S_ISLNK(mode):
                if not (os.access(found, os.X_OK) and os.path.isfile(found)):
                    is_certain = False
                    continue
                where = self._writable_target(found)
                return where and f"{name} is {where}, which a run can write", is_certain
            if stat.S_ISREG(mode) and mode & 0o111:
                return None, is_certain
            is_certain = False
        return None, is_certain

    def _writable_target(self, link: str) -> str | None:
        """Where on the way from a link to its file a run could put something else."""
        here = link
        for _ in range(MAX_LINKS):
            here = os.path.join(os.path.realpath(os.path.dirname(here)), os.path.basename(here))
            if self._is_inside(here):
                return here
            if not os.path.islink(here):
                return None
            here = os.path.join(os.path.dirname(here), os.readlink(here))
        return here

    def _is_writable(self, path: str) -> bool:
        return self._is_inside(path) or self._is_inside(os.path.realpath(path))

    def _is_inside(self, path: str) -> bool:
        return _with_slash(path).startswith(self._roots)


def _with_slash(path: str) -> str:
    return path if path.endswith("/") else path + "/"


def _stamp(folder: str) -> tuple[int, ...]:
    """What changes when a name appears in the folder or leaves it, its modification time last."""
    try:
        status = os.stat(folder)
    except OSError as error:
        return (error.errno or 0, 0)
    return (status.st_dev, status.st_ino, status.st_ctime_ns, status.st_mtime_ns)
