"""What the ring keeps of a stream: a head that fills once, and a tail that moves on.

Budgets are UTF-8 bytes of rendered text, and lines where wanted. The tail holds raw pieces and renders them from the
newest back when there are too many; what falls out is in neither part, so nobody counts it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from copy import copy

from sandboxd.output.pieces import (
    Piece,
    first_lines,
    last_lines,
    piece_after,
    shown_lines,
    single_lines,
    slices,
    slices_backwards,
    split_start,
    take_end,
)

MANY = 1 << 62
"""Lines, where only bytes are budgeted."""
_PRUNE_AT = 1 << 20
_PIECE_WEIGHT = 128
"""What a piece costs in memory beside its bytes."""
_WORTH_RENDERING = 4
"""Raw lines so much longer than their text are kept as text."""


class Kept:
    """The pieces that are kept: a head that is full once and for all, and a tail that moves on.

    What is neither in the head nor in the tail was omitted; nobody needs to count it.
    """

    def __init__(
        self, head_budget: int, tail_budget: int, head_lines: int = MANY, tail_lines: int = MANY
    ) -> None:
        self.head: list[str] = []
        self.head_source_bytes = 0
        self.head_source_lines = 0
        self.tail_budget = tail_budget
        self._head_room = head_budget
        self._head_lines = head_lines
        """Lines that the head has room for."""
        self._tail_lines = tail_lines
        self._is_head_open = head_budget > 0 and head_lines > 0
        self._tail: deque[Piece] = deque()
        self._tail_weight = 0
        self._prune_at = max(_PRUNE_AT, 8 * tail_budget)

    @property
    def weight(self) -> int:
        """Bytes in memory, about."""
        return self._tail_weight + sum(map(len, self.head))

    def copy(self) -> Kept:
        other = copy(self)
        other.head = self.head.copy()
        other._tail = self._tail.copy()
        return other

    def add(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if not piece.n_bytes and not piece.text:
                continue
            if not self._is_head_open:
                self._append(piece)
                continue
            for part in slices(piece):
                if rest := self._fill_head(part):
                    self._append(rest)

    def tail(self) -> tuple[str, int, int]:
        """The newest text within the budget, and the source bytes and LFs it stands for."""
        room, lines = self.tail_budget, self._tail_lines
        texts: list[str] = []
        n_bytes = n_lines = 0
        for whole in self._newest_first():
            part = last_lines(whole, lines)
            if part is None:
                break
            end = take_end(part, room, shorten=not n_bytes)
            texts.append(end.text)
            n_bytes += end.n_bytes
            n_lines += end.n_lines
            room -= end.size
            lines -= shown_lines(part)
            if end.n_bytes < whole.n_bytes:
                break
        return "".join(reversed(texts)), n_bytes, n_lines

    # ------------------------------------------------------------------ head

    def _fill_head(self, piece: Piece) -> Piece | None:
        """Move the lines that fit to the head; returns the rest. The first that does not ends it."""
        self._is_head_open &= self._head_lines > 0
        if not self._is_head_open:
            return piece
        part, beyond = first_lines(piece, self._head_lines)
        fit, rest = split_start(part, self._head_room, shorten=not self.head)
        self._head_lines -= shown_lines(part)
        if beyond is not None:
            rest = beyond if rest is None else piece_after(piece, fit.n_bytes)
        self.head.append(fit.text)
        self.head_source_bytes += fit.n_bytes
        self.head_source_lines += fit.n_lines
        self._head_room -= fit.size
        self._is_head_open = rest is None
        return rest

    # ------------------------------------------------------------------ tail

    def _append(self, piece: Piece) -> None:
        self._tail.append(piece)
        self._tail_weight += _weight(piece)
        if self._tail_weight > self._prune_at:
            self._prune()

    def _newest_first(self) -> Iterator[Piece]:
        for piece in reversed(self._tail):
            yield from slices_backwards(piece)

    def _prune(self) -> None:
        """Keep what covers the budget, rendered where the source is much longer than its text."""
        kept: deque[Piece] = deque()
        room = self.tail_budget
        for part in self._newest_first():
            if room <= 0:
                break
            size = part.least_size()
            room -= size
            if part.raw is not None and len(part.raw) > _WORTH_RENDERING * size:
                kept.extendleft(reversed(tuple(single_lines(part))))
            else:
                kept.appendleft(part)
        self._tail = kept
        self._tail_weight = sum(map(_weight, kept))


def _weight(piece: Piece) -> int:
    return len(piece.raw or piece.text) + _PIECE_WEIGHT
