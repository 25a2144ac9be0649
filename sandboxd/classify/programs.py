"""Which file a program name means, and whether a run could have planted it.

`ls` is only `ls` when the run's PATH finds it in a place that a run cannot write: a planted
`venv/bin/ls`, a relative or empty PATH entry, or a folder inside a writable root that is searched
before (or, for an absent name, at all) make it somebody else's program.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence


class ProgramFinder:
    """Resolves names on one PATH against one set of writable roots.

    Where the folders lie is looked up once: a run cannot move a folder that it cannot write.
    Which files are in them is looked up each time.
    """

    def __init__(self, path: str, writable_roots: Sequence[str]) -> None:
        self._roots = tuple(
            {_with_slash(root) for root in writable_roots}
            | {_with_slash(os.path.realpath(root)) for root in writable_roots}
        )
        self._folders = [(_with_slash(name), self._trouble(name)) for name in path.split(":")]

    def _trouble(self, folder: str) -> str | None:
        if not folder.startswith("/"):
            return "the current folder"
        return f"{folder}, which a run can write," if self._is_writable(folder) else None

    def plantable(self, name: str) -> str | None:
        """Why a run could decide what `name` means; None when it cannot."""
        if "/" in name:
            return None
        for prefix, trouble in self._folders:
            if trouble is not None:
                return f"PATH searches {trouble} before {name} is found"
            found = prefix + name
            try:
                mode = os.lstat(found).st_mode
            except OSError:
                continue
            if stat.S_ISLNK(mode):
                if not (os.access(found, os.X_OK) and os.path.isfile(found)):
                    continue
                if self._is_writable(found):
                    return f"{name} is {os.path.realpath(found)}, which a run can write"
                return None
            if stat.S_ISREG(mode) and mode & 0o111:
                return None
        return None

    def _is_writable(self, path: str) -> bool:
        return any(
            _with_slash(place).startswith(root)
            for place in (path, os.path.realpath(path))
            for root in self._roots
        )


def _with_slash(path: str) -> str:
    return path if path.endswith("/") else path + "/"
