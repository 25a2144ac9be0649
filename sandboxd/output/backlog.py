"""Lines for clients that read at their own pace: bounded, and never skipped in silence.

The renderer appends, each client holds a cursor (the number of the next line it wants). When a
client is so slow that its lines were dropped, it is told how many lines and bytes it missed. One
slow client costs nothing to the child, to the others, or to memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

_LINE_WEIGHT = 64
"""What a line costs in memory beside its characters."""


class Batch(NamedTuple):
    """Lines from a cursor on, what was dropped before them, and the cursor to go on from."""

    lines: list[str]
    gap_lines: int
    gap_bytes: int
    cursor: int


class Backlog:
    """The newest rendered lines, at most about `limit_bytes` of them. Lines count from 0."""

    def __init__(self, limit_bytes: int = 1 << 18) -> None:
        self._limit = limit_bytes
        self._lines: deque[tuple[str, int]] = deque()
        """Each with the bytes of all lines before it."""
        self._weight = 0
        self._first = 0
        self.total_bytes = 0

    @property
    def total_lines(self) -> int:
        return self._first + len(self._lines)

    def append(self, lines: Iterable[str]) -> None:
        """Add lines; the oldest make room."""
        for line in lines:
            self._lines.append((line, self.total_bytes))
            self.total_bytes += len(line.encode()) + 1
            self._weight += len(line) + _LINE_WEIGHT
            while self._weight > self._limit:
                gone, _ = self._lines.popleft()
                self._weight -= len(gone) + _LINE_WEIGHT
                self._first += 1

    def read(self, cursor: int, seen_bytes: int, max_lines: int) -> Batch:
        """Up to `max_lines` lines from `cursor` on, for a client that was given `seen_bytes`.

        `seen_bytes` counts each line with its LF and includes the gaps it was told of.
        """
        start = max(cursor, self._first)
        gap_lines = start - cursor
        at = start - self._first
        before = self._lines[at][1] if at < len(self._lines) else self.total_bytes
        count = max(0, min(max_lines, len(self._lines) - at))
        lines = [self._lines[index][0] for index in range(at, at + count)]
        return Batch(lines, gap_lines, before - seen_bytes if gap_lines else 0, start + count)


class Cursor:
    """One client's place in a backlog."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._next = 0
        self._seen_bytes = 0

    def take(self, max_lines: int = 1000) -> Batch:
        """The next lines for this client, with what it missed since the last time."""
        batch = self._backlog.read(self._next, self._seen_bytes, max_lines)
        self._next = batch.cursor
        self._seen_bytes += batch.gap_bytes + sum(len(line.encode()) + 1 for line in batch.lines)
        return batch
