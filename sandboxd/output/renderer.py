"""Rendered text for whoever reads it: a whole stream at once, or lines as they come."""

from __future__ import annotations

from sandboxd.output.rows import LIVE_ROWS, LiveRows


def render(data: bytes) -> str:
    """A complete stream as a person would see it in the end."""
    rows = LiveRows()
    pieces = rows.feed(data)
    return "".join(piece.rendered() for piece in (*pieces, *rows.live()))


class LineRenderer:
    """Lines of a growing stream, each handed out once, when it can no longer change.

    Until a program first moves between rows that is at each LF; from then on the last
    `live_rows` rows are held back, and `live()` shows them as they stand.
    """

    def __init__(self, live_rows: int = LIVE_ROWS) -> None:
        self._rows = LiveRows(live_rows, waits=True)

    def feed(self, chunk: bytes) -> list[str]:
        """Take bytes; returns the lines that are now final, without their LFs."""
        pieces = self._rows.feed(chunk)
        if not pieces:
            return []
        return "".join(piece.rendered() for piece in pieces).split("\n")[:-1]

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
        return rest
