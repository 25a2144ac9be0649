"""Lines for clients that read at their own pace: bounded, and never skipped in silence.

The owner appends pieces as they become final; they are rendered when somebody reads them, or never,
so a flood that nobody reads costs little more than counting it. Each client holds a cursor. When a
client is so slow that its lines were dropped, it is told how many lines and bytes of the source it
missed. One slow client costs nothing to the child, to the others, or to memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sandboxd.output.pieces import Piece, shown_lines

_PIECE_WEIGHT = 128
"""What a piece costs in memory beside its bytes."""


class Place(NamedTuple):
    """Before which line (counted from 0) and byte of the source a client stands."""

    line: int
    byte: int


class Batch(NamedTuple):
    """Lines from a place on, what was dropped before them, and the place to go on from."""

    lines: list[str]
    gap_lines: int
    gap_bytes: int
    place: Place


class Backlog:
    """The newest final lines, at most about `limit_bytes` of them."""

    def __init__(self, limit_bytes: int = 1 << 18) -> None:
        self._limit = limit_bytes
        self._pieces: deque[tuple[Place, Piece]] = deque()
        """Each with where it begins."""
        self._weight = 0
        self.end = Place(0, 0)

    def append(self, pieces: Iterable[Piece]) -> None:
        """Add pieces of whole lines (the very last may lack its LF); the oldest make room."""
        for piece in pieces:
            self._pieces.append((self.end, piece))
            line, byte = self.end
            self.end = Place(line + shown_lines(piece), byte + piece.n_bytes)
            self._weight += _weight(piece)
            while self._weight > self._limit:
                self._weight -= _weight(self._pieces.popleft()[1])

    def read(self, place: Place, max_lines: int) -> Batch:
        """Up to `max_lines` lines from `place` on."""
        first = self._pieces[0][0] if self._pieces else self.end
        gap = first.line > place.line
        start = first if gap else place
        lines: list[str] = []
        at = start
        for text, n_bytes in self._lines_from(start):
            if len(lines) >= max_lines:
                break
            lines.append(text)
            at = Place(at.line + 1, at.byte + n_bytes)
        return Batch(lines, start.line - place.line, start.byte - place.byte, at)

    def _lines_from(self, place: Place) -> Iterator[tuple[str, int]]:
        """Rendered lines, each with the bytes of the source that it stands for."""
        for begin, piece in self._pieces:
            if begin.line + shown_lines(piece) > place.line:
                lines = _lines(piece)
                yield from lines[max(place.line - begin.line, 0) :]


class Cursor:
    """One client's place in a backlog."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._place = Place(0, 0)

    def take(self, max_lines: int = 1000) -> Batch:
        """The next lines for this client, with what it missed since the last time."""
        batch = self._backlog.read(self._place, max_lines)
        self._place = batch.place
        return batch


def _lines(piece: Piece) -> list[tuple[str, int]]:
    texts = piece.rendered().removesuffix("\n").split("\n")
    if piece.raw is None:
        sizes = [0] * (len(texts) - 1) + [piece.n_bytes]
    else:
        sizes = [len(raw) + 1 for raw in piece.raw.removesuffix(b"\n").split(b"\n")]
        sizes[-1] -= not piece.raw.endswith(b"\n")
    return list(zip(texts, sizes, strict=True))


def _weight(piece: Piece) -> int:
    return len(piece.raw or piece.text) + _PIECE_WEIGHT
