"""Rendered text for whoever reads it: a whole stream at once, or lines as they come."""

from __future__ import annotations

from sandboxd.output.binary import BinaryWatch
from sandboxd.output.rows import LIVE_ROWS, LiveRows

BINARY_NOTE = "[binary output from here on is not shown]"


def render(data: bytes) -> str:
    """A complete stream as a person would see it in the end."""
    rows = LiveRows()
    pieces = rows.feed(data)
    return "".join(piece.rendered() for piece in (*pieces, *rows.live()))


class LineRenderer:
    """Lines of a growing stream, each handed out once, when it can no longer change.

    Until a program first moves between rows that is at each LF; from then on the last
    `live_rows` rows are held back, and `live()` shows them as they stand. Binary output is said
    once and then only counted: rendering it would cost much and tell nothing. What follows a NUL is
    shown at once, though it may turn out to be the start of that: nobody waits for a verdict.
    """

    def __init__(self, live_rows: int = LIVE_ROWS) -> None:
        self._rows = LiveRows(live_rows, waits=True)
        self._watch = BinaryWatch()
        self.hidden_bytes = 0
        """What is not shown because it is binary."""
        self.hidden_lines = 0

    def feed(self, chunk: bytes) -> list[str]:
        """Take bytes; returns the lines that are now final, without their LFs."""
        if self._watch.is_binary:
            self._hide(chunk)
            return []
        before = self._watch.undecided()
        text = self._watch.text_part(chunk)
        lines = self._feed_text((text + self._watch.undecided())[len(before) :])
        if self._watch.is_binary:
            lines += [*_lines(self.live()), BINARY_NOTE]
            self._rows = LiveRows(self._rows.max_rows, waits=True)
            self._hide((before + chunk)[max(len(text), len(before)) :])
        return lines

    def live(self) -> str:
        """What stands after the committed lines and may still change."""
        return "".join(piece.rendered() for piece in self._rows.live())

    def flush(self) -> str:
        """The end of the stream: what was held back, usually the last partial line or nothing.

        Several rows (separated by LF) when the program moved between rows. The renderer starts
        anew afterwards.
        """
        rest = self.live()
        self._rows = LiveRows(self._rows.max_rows, waits=True)
        self._watch = BinaryWatch()
        return rest

    def _feed_text(self, text: bytes) -> list[str]:
        pieces = self._rows.feed(text) if text else ()
        return _lines("".join(piece.rendered() for piece in pieces))

    def _hide(self, data: bytes) -> None:
        self.hidden_bytes += len(data)
        self.hidden_lines += data.count(b"\n")


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []
