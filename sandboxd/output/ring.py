"""One stream in bounded memory: what came first, what came last, and how much lies between.

The head is rendered at once and closed when its budget is used. After that pieces are kept raw
and rendered from the newest back, only when they are pruned or shown, so a flood costs little
more than counting it. Budgets are bytes of *rendered* text, counts are bytes and LFs of the
*source*: head + omitted + tail is exactly what was fed, and a line number here is the line
number in the spilled stream.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

from sandboxd.model import Captured
from sandboxd.output.binary import BinaryWatch, readable_end, text_end
from sandboxd.output.kept import MANY, Kept
from sandboxd.output.lines import render_lines
from sandboxd.output.pieces import raw_piece
from sandboxd.output.rows import LiveRows


class Ring:
    """Head and tail of one stream. `feed` never fails and never blocks."""

    def __init__(
        self,
        head_bytes: int = 32768,
        tail_bytes: int = 32768,
        head_lines: int = MANY,
        tail_lines: int = MANY,
    ) -> None:
        self.total_bytes = 0
        self.total_lines = 0
        self._rows = LiveRows()
        self._kept = Kept(max(head_bytes, 0), max(tail_bytes, 0), head_lines, tail_lines)
        self._watch = BinaryWatch()
        self._text_bytes = 0
        self._text_lines = 0
        """Source of what was taken for text; the rest of the totals is binary."""
        self._last_raw = b""
        """Once the stream is binary: its last bytes, for a readable end."""

    @property
    def is_binary(self) -> bool:
        return self._watch.is_binary

    @property
    def held_bytes(self) -> int:
        """What is kept in memory, about."""
        return self._kept.weight + self._rows.held_bytes

    def feed(self, chunk: bytes, n_lines: int | None = None) -> None:
        """Take bytes as they came, `n_lines` LFs of them where that is known."""
        n_lines = chunk.count(b"\n") if n_lines is None else n_lines
        self.total_bytes += len(chunk)
        self.total_lines += n_lines
        if not self._watch.is_binary:
            text = self._watch.text_part(chunk)
            self._add_text(text, n_lines if text is chunk else text.count(b"\n"))
            if self._watch.is_binary:
                self._end_text()
        if self._watch.is_binary:
            self._keep_end(chunk)

    def snapshot(self, output_id: str | None = None) -> Captured:
        """Everything so far as a person would read it; feeding may go on afterwards.

        When something was left out, a line in its place says how many bytes and lines, and with
        `output_id` how to read them.
        """
        if not self.total_bytes:
            return _NOTHING
        ring = self._as_if_ended()
        kept = ring._kept
        tail, tail_bytes, tail_lines = kept.tail()
        middle = _Gap(
            ring._text_bytes - kept.head_source_bytes - tail_bytes,
            ring._text_lines - kept.head_source_lines - tail_lines,
        )
        end = readable_end(self._last_raw)
        binary = _Gap(
            self.total_bytes - ring._text_bytes - len(end),
            self.total_lines - ring._text_lines - end.count(b"\n"),
        )
        parts = (
            *kept.head,
            _omission(middle, kept.head_source_lines + 1, output_id),
            tail,
            _binary_omission(binary, output_id),
            render_lines(end),
        )
        return Captured(
            text="".join(parts),
            total_bytes=self.total_bytes,
            total_lines=self.total_lines,
            omitted_bytes=middle.n_bytes + binary.n_bytes,
            omitted_lines=middle.n_lines + binary.n_lines,
            output_id=output_id,
        )

    def _add_text(self, text: bytes, n_lines: int) -> None:
        self._text_bytes += len(text)
        self._text_lines += n_lines
        self._kept.add(self._rows.feed(text, n_lines))

    def _end_text(self) -> None:
        """From here on the stream is binary; the lines in which that began belong to it."""
        self._text_bytes -= self._rows.drop_pending()
        pieces = self._rows.live()
        while pieces and pieces[-1].raw is not None:
            raw = pieces.pop().raw or b""
            end = text_end(raw)
            self._text_bytes -= len(raw) - end
            self._text_lines -= raw.count(b"\n", end)
            if end:
                pieces.append(raw_piece(raw[:end]))
                break
        self._kept.add(pieces)
        self._rows = LiveRows()

    def _as_if_ended(self) -> Ring:
        """A copy in which nothing is held back."""
        other = copy(self)
        other._kept = self._kept.copy()
        other._rows = self._rows.copy()
        undecided = self._watch.undecided()
        if self._watch.looks_binary():
            other._end_text()
        else:
            other._add_text(undecided, undecided.count(b"\n"))
            other._kept.add(other._rows.live())
        return other

    def _keep_end(self, chunk: bytes) -> None:
        if size := self._kept.tail_budget:
            self._last_raw = (self._last_raw + chunk[-size:])[-size:]


class _Gap(NamedTuple):
    n_bytes: int
    n_lines: int


def _omission(gap: _Gap, first_line: int, output_id: str | None) -> str:
    if not gap.n_bytes:
        return ""
    if output_id is None:
        return f"[{gap.n_bytes} bytes, {gap.n_lines} lines omitted]\n"
    request = (
        f'{{"output_id": "{output_id}", "from_line": {first_line}, "count": {max(gap.n_lines, 1)}}}'
    )
    return f"[{gap.n_bytes} bytes, {gap.n_lines} lines omitted; read them with output.read {request}]\n"


def _binary_omission(gap: _Gap, output_id: str | None) -> str:
    if not gap.n_bytes:
        return ""
    what = f"{gap.n_bytes} bytes, {gap.n_lines} lines of binary output not shown"
    if output_id is None:
        return f"[{what}]\n"
    return f'[{what}; read them with output.read {{"output_id": "{output_id}", "raw": true}}]\n'


_NOTHING = Captured(text="", total_bytes=0, total_lines=0)
