"""What the next start needs to finish a run's end when the daemon was killed before it.

One file for each living run, in its session's folder; its writer holds a lock on it, so that
another engine's start tells a living run from a dead one. It is gone when the run has ended well.
Nothing of ours ever lies in the workspace but for the moment between a plant's renaming and its
removal, and that name is written down first.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from sandboxd.confine.guardian.names import Stamp
from sandboxd.confine.guardian.restore import Kept
from sandboxd.model import Policy

FOLDER = "guard"


class Watched(Struct, frozen=True, kw_only=True):
    """One run, as far as its protected names are concerned."""

    run_id: str
    policy: Policy
    is_masked: bool
    """Whether protected names are covered by mounts: the run cannot have changed them itself."""
    is_reader: bool
    """A command that only reads: what costs more than a few looks is left out."""
    session_folder: str
    opened: tuple[str, ...] = ()
    """Protected names that an approval let this run write."""
    written: tuple[str, ...] = ()
    """Files that the command names as write targets."""


class Record(Struct, frozen=True, kw_only=True):
    """The journal's content."""

    run: Watched
    begun_ns: int
    found: dict[str, Stamp | None]
    kept: Kept
    heads: dict[str, bytes] = {}


class Journal:
    """The file of one living run."""

    def __init__(self, session_folder: str, run_id: str) -> None:
        self.path = os.path.join(session_folder, FOLDER, run_id.replace("/", "_") + ".json")
        self._fd = -1
        self._has_noted = False

    def open(self, record: Record) -> None:
        """Write it under another name, lock it, and only then let it be found."""
        data = msgspec.json.encode(record)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        temporary = self.path + ".new"
        try:
            self._fd = os.open(temporary, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self._fd = os.open(temporary, flags, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.write(self._fd, data)
        os.rename(temporary, self.path)

    def note(self, harmless: str) -> None:
        """A name that may lie in the workspace for a moment."""
        self._has_noted = True
        with open(self.path + ".aside", "ab") as file:
            file.write(os.fsencode(harmless) + b"\n")

    def close(self) -> None:
        """The run has ended and everything is done."""
        for path in (self.path, *([self.path + ".aside"] if self._has_noted else [])):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def abandoned(sessions_folder: str) -> Iterator[tuple[Record, list[str], list[str]]]:
    """Each run that nobody finished: its record, the harmless names that may be left over, and
    the files to remove afterwards."""
    for session in _entries(sessions_folder):
        for path in _entries(os.path.join(session, FOLDER)):
            if path.endswith(".json") and (record := _dead(path)) is not None:
                yield record, _noted(path), [path, path + ".aside"]


def _entries(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


def _dead(path: str) -> Record | None:
    """The record when its writer lives no more."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return msgspec.json.decode(file.read(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None


def _noted(path: str) -> list[str]:
    try:
        with open(path + ".aside", "rb") as file:
            return [os.fsdecode(line) for line in file.read().split(b"\n") if line]
    except OSError:
        return []
