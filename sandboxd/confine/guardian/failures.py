"""A tool's failure that a protected name explains, though the tool may call it success.

`git checkout` of a branch that tracks `.vscode` says "unable to unlink old
'.vscode/settings.json': Read-only file system", exits 0 and leaves the old file, which the next
`commit -a` would take for a change. Whoever reads only the exit code needs to be told.
"""

from __future__ import annotations

import os
import re

REFUSED = ("Read-only file system", "Device or resource busy")
MAX_TEXT = 64 * 1024
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"|(\S+)")


def stale_files(text: str, cwd: str, protected: tuple[str, ...]) -> list[str]:
    """Protected paths that lines of the output say could not be written, each once."""
    found: list[str] = []
    for line in text[-MAX_TEXT:].splitlines():
        if any(word in line for word in REFUSED):
            for match in _QUOTED.finditer(line):
                path = _path(match, cwd)
                if any(path == name or path.startswith(name + "/") for name in protected):
                    found.append(path)
    return list(dict.fromkeys(found))


def _path(match: re.Match[str], cwd: str) -> str:
    written = next(group for group in match.groups() if group is not None)
    return os.path.normpath(os.path.join(cwd, written.strip(":,")))
