"""One stream in bounded memory: what came first, what came last, and how much lies between.

The head is rendered at once and closed when its budget is used. After that pieces are kept raw
and rendered from the newest back, only when they are pruned or shown, so a flood costs little
more than counting it. Budgets are bytes of *rendered* text, counts are bytes and LFs of the
*source*: head + omitted + tail is exactly what was fed, and a line number here is the line
number in the spilled stream.
"""

from __future__ import annotations

from sandboxd.model import Captured
from sandboxd.output.binary import BinaryWatch, readable_end
from sandboxd.output.kept import Kept
from sandboxd.output.pieces import raw_piece
from sandboxd.output.rows import LiveRows


class Ring:
    """Head and tail of one stream. `feed` never fails and never blocks."""

    def __init__(self, head_bytes: int = 32768, tail_bytes: int = 32768) -> None:
        self.total_bytes = 0
        self.total_lines = 0
        self._rows = LiveRows()
        self._kept = Kept(max(head_bytes, 0), max(tail_bytes, 0))
        self._watch = BinaryWatch()
        self._last_raw = b""
        """Once the stream is binary: its last bytes, for a readable end."""

    @property
    def is_binary(self) -> bool:
        return self._watch.is_binary

    def feed(self, chunk: bytes) -> None:
        """Take bytes as they came."""
        self.total_bytes += len(chunk)
        n_lines = chunk.count(b"\n")
        self.total_lines += n_lines
        if not self._watch.is_binary:
            text = self._watch.text_part(chunk)
            self._kept.add(self._rows.feed(text, n_lines if text is chunk else None))
            if self._watch.is_binary:
                self._rows.drop_pending()
                self._kept.close_head()
        if self._watch.is_binary:
            self._keep_end(chunk)

    def _keep_end(self, chunk: bytes) -> None:
        if size := self._kept.tail_budget:
            self._last_raw = (self._last_raw + chunk[-size:])[-size:]

    def snapshot(self, output_id: str | None = None) -> Captured:
        """Everything so far as a person would read it; feeding may go on afterwards.

        When something was left out, a line between head and tail says how many bytes and lines,
        and with `output_id` how to read them.
        """
        kept = self._kept.copy()
        kept.add(self._rows.live())
        end = readable_end(self._last_raw) if self._watch.is_binary else self._watch.undecided()
        kept.add([raw_piece(end)])
        tail, tail_bytes, tail_lines = kept.tail()
        omitted_bytes = self.total_bytes - kept.head_source_bytes - tail_bytes
        omitted_lines = self.total_lines - kept.head_source_lines - tail_lines
        middle = ""
        if omitted_bytes:
            first = kept.head_source_lines + 1
            is_binary = self._watch.is_binary
            middle = _marker(omitted_bytes, omitted_lines, first, output_id, is_binary=is_binary)
        return Captured(
            text="".join((*kept.head, middle, tail)),
            total_bytes=self.total_bytes,
            total_lines=self.total_lines,
            omitted_bytes=omitted_bytes,
            omitted_lines=omitted_lines,
            output_id=output_id,
        )


def _marker(size: int, lines: int, first: int, output_id: str | None, *, is_binary: bool) -> str:
    what = "of binary output not shown" if is_binary else "omitted"
    marker = f"[{size} bytes, {lines} lines {what}"
    if output_id is not None:
        how = ', "raw": true' if is_binary else f', "from_line": {first}, "count": {max(lines, 1)}'
        marker += f'; read them with output.read {{"output_id": "{output_id}"{how}}}'
    return f"{marker}]\n"
