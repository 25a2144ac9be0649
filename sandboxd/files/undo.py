"""What each change replaced, kept within a quota, so that a person can take it back.

One file for each change in the private state folder: a line that describes it, then the contents as
they were before. It is written before the first file is touched, so a change that a crash cut in
two can still be taken back. The oldest go first when the quota is used up.
"""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from sandboxd.errors import ChangeUnknown

QUOTA_BYTES = 256 * 1024 * 1024
QUOTA_CHANGES = 10_000
KEPT_BYTES = 64 * 1024 * 1024
"""A change whose old contents are larger is made and not kept."""
ENDING = ".change"
UNDO = "fs.undo"


class Before(Struct, frozen=True, kw_only=True):
    """One file of a change: what it was, and the identity of what it became."""

    path: str
    existed: bool
    size: int = 0
    mode: int = 0o644
    after: str | None
    """The version that the change made; None: the file was removed."""


class Change(Struct, frozen=True, kw_only=True):
    """One change of one or several files."""

    change_id: str
    run_id: str
    session_id: str
    workspace: str
    operation: str
    at: float
    files: tuple[Before, ...]


@dataclass(frozen=True)
class Kept:
    """A change with the contents that it replaced, one for each of its files."""

    change: Change
    contents: tuple[bytes, ...]


class Undo:
    """The changes that lie in one private folder."""

    def __init__(self, folder: str, *, quota_bytes: int = QUOTA_BYTES) -> None:
        self._folder = folder
        self._quota = quota_bytes
        self._used: int | None = None
        self._count = 0

    def keep(
        self,
        files: list[tuple[Before, bytes]],
        *,
        run_id: str | None,
        session_id: str,
        workspace: str,
        operation: str,
    ) -> str | None:
        """Keep what is about to be replaced; its id, or None when it is too large to be kept."""
        size = sum(len(content) for _, content in files)
        if size > min(KEPT_BYTES, self._quota):
            return None
        change_id = f"c-{time.time_ns():016x}-{secrets.token_hex(3)}"
        change = Change(
            change_id=change_id,
            run_id=run_id or change_id,
            session_id=session_id,
            workspace=workspace,
            operation=operation,
            at=time.time(),
            files=tuple(before for before, _ in files),
        )
        line = msgspec.json.encode(change) + b"\n"
        self._write(change_id, b"".join([line, *(content for _, content in files)]))
        self._account(len(line) + size)
        return change_id

    def drop(self, change_id: str | None) -> None:
        """Forget a change that was not made after all, or has been taken back."""
        if change_id is not None:
            try:
                os.unlink(self._path(change_id))
            except FileNotFoundError:
                pass

    def find(self, workspace: str, *, change_id: str | None, run_id: str | None) -> list[Kept]:
        """The changes that are meant, the latest first: one by id, all of a run, or the last one
        of the workspace. Raises ChangeUnknown."""
        found = []
        for change in reversed(self.listing(workspace)):
            if change_id not in (None, change.change_id) or run_id not in (None, change.run_id):
                continue
            if change_id is None and run_id is None and change.operation == UNDO:
                continue  # one step further back each time; by its id it can be taken back too
            found.append(change)
            if run_id is None:
                break
        if not found:
            named = change_id or run_id
            raise ChangeUnknown(
                f"no change {named!r} of this workspace is kept"
                if named
                else "no change of this workspace is kept",
                hint="`sandboxd file undo --list` shows what is; the oldest are dropped over a quota",
            )
        return [self._read(change) for change in found]

    def listing(self, workspace: str) -> list[Change]:
        """Every kept change of a workspace, the oldest first."""
        found = []
        for name in self._names():
            try:
                with open(os.path.join(self._folder, name), "rb") as file:
                    change = msgspec.json.decode(file.readline(), type=Change)
            except (OSError, msgspec.MsgspecError):
                continue
            if change.workspace == workspace:
                found.append(change)
        return found

    def _read(self, change: Change) -> Kept:
        with open(self._path(change.change_id), "rb") as file:
            file.readline()
            return Kept(change, tuple(file.read(before.size) for before in change.files))

    def _path(self, change_id: str) -> str:
        return os.path.join(self._folder, change_id + ENDING)

    def _names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._folder) if name.endswith(ENDING))
        except FileNotFoundError:
            return []

    def _write(self, change_id: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        path = self._path(change_id)
        try:
            fd = os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            fd = os.open(path, flags, 0o600)
        with open(fd, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]

    # -- the quota

    def _account(self, size: int) -> None:
        if self._used is None:
            sizes = [self._size(name) for name in self._names()]
            self._used, self._count = sum(sizes), len(sizes)
        else:
            self._used += size
            self._count += 1
        if self._used > self._quota or self._count > QUOTA_CHANGES:
            self._make_room()

    def _make_room(self) -> None:
        """Drop the oldest until a tenth of the quota is free again."""
        sizes = {name: self._size(name) for name in self._names()}
        used = sum(sizes.values())
        for name in list(sizes):
            if used <= self._quota * 0.9 and len(sizes) <= QUOTA_CHANGES * 0.9:
                break
            self.drop(name.removesuffix(ENDING))
            used -= sizes.pop(name)
        self._used, self._count = used, len(sizes)

    def _size(self, name: str) -> int:
        try:
            return os.stat(os.path.join(self._folder, name)).st_size
        except OSError:
            return 0
