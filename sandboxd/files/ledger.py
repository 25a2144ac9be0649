"""What this session has seen: which files, as what content; shared by its commands and file tools.

Identity is content: a hash for everything that is edited as text, what the system says about the
file for what is larger. A file that was touched and not changed is still the one that was seen. The
ledger lies in the session's private folder, one line for each entry, so that two processes of one
session (a daemon, a command line without one) see the same; the last line of a path counts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from sandboxd.errors import FileRefusal, NotObserved, StaleVersion

HASHED_BYTES = 16 * 1024 * 1024
"""Files up to this size are known by a hash of their content."""
COMPACT_BYTES = 1024 * 1024
GONE = "gone"
"""The version of something that was seen and found deleted: matches no content."""


class Stamp(Struct, frozen=True, array_like=True):
    """What the system says of a file; equal stamps mean that nobody wrote to it in between."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Seen(Struct, frozen=True, array_like=True):
    """One file as it was seen."""

    path: str
    version: str
    stamp: Stamp | None
    refreshed_by: str | None = None
    """The command of ours that has changed it since it was read."""


def version_of(data: bytes) -> str:
    """The identity of content: what `version` and `expected_version` mean on the wire."""
    return hashlib.sha256(data).hexdigest()[:32]


def stamp_version(stamp: Stamp) -> str:
    """The identity of what is too large to be hashed for every look."""
    return "stat-" + hashlib.sha256(msgspec.json.encode(stamp)).hexdigest()[:27]


@dataclass
class _Known:
    """How far the file of the ledger has been read."""

    inode: int = 0
    size: int = 0


class Ledger:
    """The entries of one session; `path` is its file, None keeps it in memory."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._entries: dict[str, Seen] = {}
        self._known = _Known()
        self.delivered: dict[tuple[str, int | None, int | None, bool], str] = {}
        """The version that each read of (path, offset, limit, numbered) gave in full."""

    def get(self, path: str) -> Seen | None:
        self._catch_up()
        return self._entries.get(path)

    def entries(self) -> list[Seen]:
        """Everything that has been seen and is not known to be gone, the latest last."""
        self._catch_up()
        return [entry for entry in self._entries.values() if entry.version != GONE]

    def record(self, entry: Seen) -> None:
        if self._entries.get(entry.path) == entry:
            return
        self._take(entry)
        self._append(entry)

    def forget(self, path: str) -> None:
        """As if it had never been seen: our own command has deleted it."""
        if self.get(path) is not None:
            self.record(Seen(path, "", None))

    def _take(self, entry: Seen) -> None:
        self._entries.pop(entry.path, None)
        if entry.version:
            self._entries[entry.path] = entry

    # -- the file

    def _catch_up(self) -> None:
        """Take in what another process has added."""
        if self._path is None:
            return
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return
        known = self._known
        if (found.st_ino, found.st_size) == (known.inode, known.size):
            return
        with open(self._path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            self._read(file.fileno())

    def _read(self, fd: int) -> None:
        found = os.fstat(fd)
        begin = self._known.size if found.st_ino == self._known.inode else 0
        if begin > found.st_size:
            begin = 0
        if begin == 0:
            self._entries.clear()
        for line in os.pread(fd, found.st_size - begin, begin).splitlines():
            try:
                self._take(msgspec.json.decode(line, type=Seen))
            except msgspec.MsgspecError:
                continue  # a line cut short when its writer was killed
        self._known = _Known(found.st_ino, found.st_size)

    def _append(self, entry: Seen) -> None:
        if self._path is None:
            return
        with self._locked(self._path) as fd:
            self._read(fd)
            self._take(entry)
            os.write(fd, msgspec.json.encode(entry) + b"\n")
            self._known = _Known(os.fstat(fd).st_ino, os.fstat(fd).st_size)
            if self._known.size > COMPACT_BYTES:
                self._compact(fd)

    @contextmanager
    def _locked(self, path: str) -> Iterator[int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)

    def _compact(self, fd: int) -> None:
        """Keep only the last line of each path; in place, so that everybody's lock stays one."""
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in self._entries.values())
        if len(lines) < self._known.size // 2:
            os.ftruncate(fd, 0)
            os.write(fd, lines)
            self._known = _Known(0, 0)


# --------------------------------------------------------------------------- the checks


def refusal_unless_fresh(
    ledger: Ledger, path: str, shown: str, version: str | None, *, operation: str
) -> FileRefusal | None:
    """Why a file of this version (None: it is not there) may not be changed unseen; None: it may.

    The caller adds the lines that stand there now to a StaleVersion's data.
    """
    seen = ledger.get(path)
    if version is None:
        if seen is None:
            return None
        ledger.record(Seen(path, GONE, None))
        return StaleVersion(
            f"{shown} was deleted after it was read",
            hint="somebody removed it on purpose, perhaps: ask, or take another name; this one is "
            "open again once it exists and has been read",
            path=shown,
            data={"version": None},
        )
    if seen is None:
        return NotObserved(
            f"{shown} has not been read in this session, so {operation} could lose what is in it",
            hint="read it with fs.read, then send the same call again",
            path=shown,
        )
    if seen.version == version:
        return None
    return StaleVersion(
        f"{shown} has changed since it was read",
        hint="`data` shows it as it is now; read it again with fs.read and base the change on that",
        path=shown,
        data={"seen_version": seen.version, "version": version},
    )
