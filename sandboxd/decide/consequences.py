"""What a person should know before they answer, beyond the verdict: folders that would be made, and
what a destructive command would take away.

A module of its own because it alone looks at the file system for an approval. It looks and opens
nothing, follows no link, and its work is bounded: a folder is counted up to `MOST_FILES`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence

from sandboxd.model import CommandClass, Span, Verdict

MOST_FILES = 5000
MOST_NAMED = 5


def deciding(verdict: Verdict) -> tuple[Span, ...]:
    """The parts of the command that make it as bad as it is; where nothing was read, the reason's."""
    if not verdict.parsed or verdict.class_ is CommandClass.READ_ONLY:
        spans = [reason.span for reason in verdict.reasons if reason.span is not None]
    else:
        spans = [part.span for part in verdict.parts if part.class_ is verdict.class_]
    return tuple(sorted(set(spans)))


def creates(paths: Sequence[str]) -> tuple[str, ...]:
    """Folders that would have to be made for these paths: the outermost of each."""
    found = (_missing_folder(path) for path in paths)
    return tuple(dict.fromkeys(path for path in found if path is not None))


def _missing_folder(path: str) -> str | None:
    missing = None
    folder = os.path.dirname(path.rstrip("/"))
    while os.path.isabs(folder) and folder != "/" and not os.path.lexists(folder):
        missing, folder = folder, os.path.dirname(folder)
    return missing


def loses(verdict: Verdict) -> str | None:
    """For a destructive command, in one sentence, what would be gone; else None."""
    if not verdict.parsed or verdict.class_ is not CommandClass.DESTRUCTIVE:
        return None
    there = [path for path in verdict.write_paths if os.path.lexists(path)]
    if there:
        named = [_weight(path) for path in there[:MOST_NAMED]]
        more = len(there) - MOST_NAMED
        return ", ".join(named) + (f" and {more} more" if more > 0 else "")
    if verdict.write_paths:
        return "nothing that is there now: " + ", ".join(verdict.write_paths[:MOST_NAMED])
    why = (part.reason for part in verdict.parts if part.class_ is CommandClass.DESTRUCTIVE)
    return "; ".join(dict.fromkeys(why)) or None


def _weight(path: str) -> str:
    if os.path.islink(path):
        return f"{path} (a link)"
    if not os.path.isdir(path):
        return f"{path} ({_size_told(_size(path))})"
    files = total = 0
    for size in _below(path):
        files, total = files + 1, total + size
        if files >= MOST_FILES:
            return f"{path} (more than {MOST_FILES} files)"
    return f"{path} ({files} file{'' if files == 1 else 's'}, {_size_told(total)})"


def _below(folder: str) -> Iterator[int]:
    for parent, _, names in itertools.islice(os.walk(folder), MOST_FILES):
        for name in names:
            yield _size(os.path.join(parent, name))


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _size_told(size: int) -> str:
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
