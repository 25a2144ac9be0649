"""The files of one log: `events.db`, `events.000002.db`, ...; which is written, which are let go.

A segment is never renamed, because SQLite finds its side files by name. The newest file is the one
that is written. The next one is created while the write lock of the one before it is held, and every
writer looks for it under that lock: so no event can follow the last one of a finished segment, and
the chain goes on in the next file from exactly that hash.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

SEGMENT_BYTES = 64 * 1024 * 1024
"""A segment that has grown to this is finished."""
KEPT_SEGMENTS = 16
"""How many files are kept, the one that is written included: about 1 GiB in all."""
_SIDE_FILES = ("", "-wal", "-shm")


def path_of(base: str, number: int) -> str:
    """The file of segment `number` (from 1) of the log whose first file is `base`."""
    if number == 1:
        return base
    stem, extension = os.path.splitext(base)
    return f"{stem}.{number:06d}{extension}"


def numbers(base: str) -> list[int]:
    """The segments that exist, oldest first."""
    folder, name = os.path.split(base)
    stem, extension = os.path.splitext(name)
    pattern = re.compile(re.escape(stem) + r"\.(\d{6,})" + re.escape(extension))
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return []
    found = [int(match[1]) for match in map(pattern.fullmatch, names) if match]
    return sorted({*found, *([1] if name in names else [])})


def paths(base: str) -> list[str]:
    """The files that exist, oldest first."""
    return [path_of(base, number) for number in numbers(base)]


def newest(base: str) -> int:
    """The segment that is written; 1 when there is none yet."""
    found = numbers(base)
    return found[-1] if found else 1


def surplus(base: str, kept: int) -> list[int]:
    """The oldest segments beyond `kept` files."""
    found = numbers(base)
    return found[: max(0, len(found) - kept)]


def remove(base: str, number: int) -> None:
    """Let a finished segment go; whoever reads it just now reads on."""
    for suffix in _SIDE_FILES:
        with suppress(OSError):
            os.unlink(path_of(base, number) + suffix)
