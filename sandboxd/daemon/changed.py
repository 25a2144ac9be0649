"""The file changes of a session with their differences, while what they replaced is kept.

Apart from `recorded` because this reads the store of undone changes and, for what a change made, the files
themselves: only content whose identity is the one that the change left is shown as its result.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from sandboxd.events.redaction import Redactor
from sandboxd.files.ledger import version_of
from sandboxd.files.text import difference, unified
from sandboxd.files.undo import Before, Change, Undo
from sandboxd.protocol import event_messages as em

MOST_BYTES = 1024 * 1024
"""Larger files are named without their difference."""
MOST_CHANGES = 500
MOST_SHOWN = 64 * 1024


def changes_of(undo: Undo, workspace: str, session_id: str, redactor: Redactor) -> em.ChangeListing:
    """The changes of the session that are kept, oldest first."""
    kept = [one for one in undo.listing(workspace) if one.session_id == session_id]
    later = _Later(undo, undo.listing(workspace))
    found = [
        _entry(change, before, content, later, redactor)
        for change in kept[-MOST_CHANGES:]
        for before, content in _contents(undo, change)
    ]
    return em.ChangeListing(changes=tuple(found), is_abridged=len(kept) > MOST_CHANGES)


def _contents(undo: Undo, change: Change) -> Iterator[tuple[Before, bytes | None]]:
    try:
        (kept,) = undo.find(change.workspace, change_id=change.change_id, run_id=None)
    except Exception:  # dropped over the quota just now
        yield from ((before, None) for before in change.files)
        return
    yield from zip(change.files, kept.contents, strict=True)


class _Later:
    """What a change has made of a file: as it lies there, or as a later change found it."""

    def __init__(self, undo: Undo, changes: list[Change]) -> None:
        self._undo = undo
        self._changes = changes

    def content(self, change: Change, before: Before) -> bytes | None:
        if before.after is None:
            return b""
        now = _read(before.path)
        if now is not None and version_of(now) == before.after:
            return now
        for other in self._changes[self._changes.index(change) + 1 :]:
            for one, content in _contents(self._undo, other):
                if one.path == before.path and content is not None:
                    return content if version_of(content) == before.after else None
        return None


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            return None
        return file.read(MOST_BYTES + 1)


def _entry(
    change: Change, before: Before, content: bytes | None, later: _Later, redactor: Redactor
) -> em.ChangedFile:
    after = later.content(change, before) if content is not None else None
    diff, added, removed, note = None, 0, 0, ""
    if content is None or after is None:
        note = "what it made is no longer there" if content is not None else "no longer kept"
    elif max(len(content), len(after)) > MOST_BYTES or b"\0" in content + after:
        note = "too large, or no text"
    else:
        found = difference(content.decode("utf-8", "replace"), after.decode("utf-8", "replace"))
        diff, added, removed = (
            redactor.text(unified(found, before.path)),
            found.added,
            found.removed,
        )
        diff = diff if len(diff) <= MOST_SHOWN else diff[:MOST_SHOWN] + "\n[the rest is left out]\n"
    return em.ChangedFile(
        change_id=change.change_id,
        run_id=change.run_id,
        operation=change.operation,
        at=change.at,
        path=before.path,
        diff=diff,
        added=added,
        removed=removed,
        note=note,
    )
