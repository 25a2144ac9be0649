"""Which file a program name means, and whether a run could have planted it.

`ls` is only `ls` when the run's PATH finds it in a place that a run cannot write: a planted
`venv/bin/ls`, a relative or empty PATH entry, or a folder inside a writable root that is searched
before (or, for an absent name, at all) make it somebody else's program.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


class ProgramFinder:
    """Resolves names on one PATH against one set of writable roots."""

    def __init__(self, path: str, writable_roots: Sequence[str]) -> None:
        self._folders = path.split(":") if path else [""]
        self._roots = tuple(_with_slash(os.path.realpath(root)) for root in writable_roots)

    def plantable(self, name: str) -> str | None:
        """Why a run could decide what `name` means; None when it cannot."""
        if "/" in name:
            return None
        for folder in self._folders:
            if not folder.startswith("/"):
                return f"PATH searches the current folder before {name} is found"
            if self._is_writable(folder):
                return f"PATH searches {folder}, which a run can write, before {name} is found"
            found = os.path.join(folder, name)
            if os.access(found, os.X_OK) and os.path.isfile(found):
                if self._is_writable(found):
                    return f"{name} is {os.path.realpath(found)}, which a run can write"
                return None
        return None

    def _is_writable(self, path: str) -> bool:
        real = _with_slash(os.path.realpath(path))
        return any(real.startswith(root) for root in self._roots)


def _with_slash(path: str) -> str:
    return path if path.endswith("/") else path + "/"
