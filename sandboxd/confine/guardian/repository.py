"""What git would make of a folder, read without running git.

git must not be run on a repository under suspicion: its configuration can name programs for
nearly every command. Formats: gitrepository-layout(5), gitformat-index(5), gitformat-pack(5).
What cannot be read answers no.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterable

MAX_BLOB = 1024 * 1024
MAX_FILES = 200
MAX_INDEX = 16 * 1024 * 1024
_ENTRY_FIXED = 62


def is_bare(folder: str) -> bool:
    """Whether git, standing in the folder, takes it for a repository without a working tree."""
    return (
        os.path.lexists(os.path.join(folder, "HEAD"))
        and os.path.isdir(os.path.join(folder, "objects"))
        and os.path.isdir(os.path.join(folder, "refs"))
    )


def tracked(git: str) -> dict[str, str]:
    """The index: path -> object name in hexadecimal. Empty when there is none or it is of a
    version whose paths are compressed (4)."""
    data = _read(os.path.join(git, "index"), MAX_INDEX)
    if data is None or len(data) < 12:
        return {}
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3):
        return {}
    found: dict[str, str] = {}
    place = 12
    for _ in range(count):
        if place + _ENTRY_FIXED > len(data):
            return {}
        name = data[place + 40 : place + 60].hex()
        flags = int.from_bytes(data[place + 60 : place + 62], "big")
        start = place + _ENTRY_FIXED + (2 if version == 3 and flags & 0x4000 else 0)
        end = data.find(b"\0", start)
        if end < 0:
            return {}
        found[os.fsdecode(data[start:end])] = name
        place += (end - place + 8) // 8 * 8
    return found


def blob_name(data: bytes) -> str:
    """The object name of a file's content in a repository with SHA-1 names."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def files_of(path: str) -> list[str] | None:
    """The plain files that a name stands for: itself, or those in the folder. None when there is
    anything else in it (links, devices) or too much."""
    try:
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode):
            return [path]
        if not stat.S_ISDIR(found.st_mode):
            return None
        files: list[str] = []
        queue = [path]
        while queue:
            with os.scandir(queue.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        files.append(entry.path)
                    else:
                        return None
                    if len(files) + len(queue) > MAX_FILES:
                        return None
    except OSError:
        return None
    return files


def holds_since_before(git: str, paths: Iterable[str], before_ns: int) -> bool:
    """Whether the content of every file was in the object store before that moment.

    By the change time of the file that holds the object: a run cannot forge it.
    """
    objects = os.path.join(git, "objects")
    packs = _old_packs(os.path.join(objects, "pack"), before_ns)
    for path in paths:
        data = _read(path, MAX_BLOB)
        if data is None:
            return False
        name = blob_name(data)
        loose = os.path.join(objects, name[:2], name[2:])
        if not _is_older(loose, before_ns) and not any(_pack_has(pack, name) for pack in packs):
            return False
    return True


def _is_older(path: str, before_ns: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_ctime_ns < before_ns


def _old_packs(folder: str, before_ns: int) -> list[bytes]:
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".idx")]
    except OSError:
        return []
    found = []
    for name in names[:MAX_FILES]:
        path = os.path.join(folder, name)
        if _is_older(path, before_ns) and _is_older(path[:-4] + ".pack", before_ns):
            data = _read(path, 4 * MAX_INDEX)
            if data is not None and data[:8] == b"\xfftOc\0\0\0\x02":
                found.append(data)
    return found


def _pack_has(index: bytes, name: str) -> bool:
    """Binary search in a version 2 pack index: a table of 256 counts, then sorted names."""
    wanted = bytes.fromhex(name)
    table = 8
    if len(index) < table + 1024:
        return False
    first = wanted[0]
    low = int.from_bytes(index[table + 4 * first - 4 : table + 4 * first], "big") if first else 0
    high = int.from_bytes(index[table + 4 * first : table + 4 * first + 4], "big")
    names = table + 1024
    while low < high:
        middle = (low + high) // 2
        found = index[names + 20 * middle : names + 20 * middle + 20]
        if found == wanted:
            return True
        low, high = (middle + 1, high) if found < wanted else (low, middle)
    return False


def _read(path: str, limit: int) -> bytes | None:
    """A plain file's content, at most `limit` bytes; None when it is larger, or no plain file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
            return None
        with open(fd, "rb", closefd=False) as file:
            return file.read(limit + 1)[:limit]
    except OSError:
        return None
    finally:
        os.close(fd)
