"""The last rows stay editable: frames that a program redraws do not pile up.

`LiveRows` cuts the stream into lines and holds back the last `max_rows` of them, because cargo,
docker, ink, listr2, nested tqdm and rich move the cursor up and draw again. A row is committed
when it scrolls out at the top. Lines that no one edits stay raw bytes all the while, in bulk;
the editor is entered for lines that move between rows and left when the cursor is at the bottom
again. Which lines are edited depends on the stream alone, never on how it was cut.

Every committed piece says which source it stands for in bytes and LFs, and all of them together
stand for everything that was fed.
"""

from __future__ import annotations

from sandboxd.output.cells import Row
from sandboxd.output.editor import Editor
from sandboxd.output.escapes import find_row_move
from sandboxd.output.lines import FOLD
from sandboxd.output.pieces import Piece, raw_piece, start_of_last

LIVE_ROWS = 32


class LiveRows:
    """Feed bytes, take committed pieces; `live()` shows the rest as it stands.

    With `waits` the rows are not held back until the first line that moves between rows (for
    streaming over a pipe, where programs rarely do): at most the first frame stays stale.
    """

    def __init__(self, max_rows: int = LIVE_ROWS, *, waits: bool = False) -> None:
        self.max_rows = max_rows
        self._editor = Editor(1 if waits else max_rows, wakes_to=max_rows)
        self._pending = bytearray()
        self._is_folded = False
        """The current line has outgrown FOLD and lives in the editor."""
        self._committed: list[Piece] = []

    def feed(self, chunk: bytes) -> list[Piece]:
        """Take bytes; returns what can no longer change."""
        if self._is_folded:
            chunk = self._feed_folded(chunk)
        cut = chunk.rfind(b"\n") + 1
        if cut:
            lines = bytes(self._pending) + chunk[:cut] if self._pending else chunk[:cut]
            self._pending = bytearray(chunk[cut:])
            self._take_lines(lines)
        else:
            self._pending += chunk
        if len(self._pending) > FOLD:
            self._fold()
        committed, self._committed = self._committed, []
        return committed

    def live(self) -> list[Piece]:
        """The rows that may still change, the incomplete last line included."""
        raw = bytes(self._pending)
        editor = self._editor
        if raw and (not editor.is_fresh() or find_row_move(raw) >= 0):
            editor = editor.fork()
            _edit(editor, raw)
            raw = b""
        rows = _without_blank_end(editor)
        pieces = [_piece(row, "\n") for row in rows[:-1]]
        pieces += [_piece(row, "") for row in rows[-1:]]
        if raw:
            pieces.append(raw_piece(raw))
        return [piece for piece in pieces if piece.n_bytes or piece.text]

    def drop_pending(self) -> int:
        """Forget the incomplete last line while it is raw; returns its size in bytes."""
        size = len(self._pending)
        self._pending.clear()
        return size

    # ------------------------------------------------------------------ lines

    def _take_lines(self, lines: bytes) -> None:
        position = 0
        while position < len(lines):
            found = find_row_move(lines, position)
            if found < 0:
                self._take_still(lines[position:] if position else lines)
                return
            start = max(lines.rfind(b"\n", position, found) + 1, position)
            end = lines.index(b"\n", found) + 1
            if start > position:
                self._take_still(lines[position:start])
            self._edit_line(lines[start:end])
            position = end

    def _take_still(self, lines: bytes) -> None:
        """Lines without row moves: edited until the cursor is at the bottom, then in bulk."""
        position = 0
        while position < len(lines) and not self._editor.is_fresh():
            end = lines.index(b"\n", position) + 1
            self._edit_line(lines[position:end])
            position = end
        if position < len(lines):
            self._scroll(lines[position:] if position else lines)

    def _edit_line(self, line: bytes) -> None:
        _edit(self._editor, line[:-1])
        self._end_line()

    def _end_line(self) -> None:
        row = self._editor.rows[self._editor.row]
        row.n_lines += 1
        row.n_bytes += 1
        self._editor.linefeed()
        if self._editor.scrolled:
            self._commit_rows(self._editor.scrolled)
            self._editor.scrolled = []

    def _scroll(self, lines: bytes) -> None:
        """Append raw lines at the bottom; all but the last `max_rows - 1` rows are committed."""
        editor = self._editor
        room = editor.max_rows - 1
        held = start_of_last(lines, room)
        rows = [Row(line + b"\n") for line in lines[held:].split(b"\n")[:-1]]
        fresh = editor.rows.pop()
        above = editor.rows
        out = max(0, len(above) + len(rows) - room)
        self._commit_rows(above[:out])
        if held:
            self._committed.append(raw_piece(lines[:held]))
        editor.rows = [*above[out:], *rows, fresh]
        editor.row = len(editor.rows) - 1

    def _commit_rows(self, rows: list[Row]) -> None:
        raw: list[bytes] = []
        for row in rows:
            if row.raw is not None:
                raw.append(row.raw)
                continue
            self._commit_raw(raw)
            self._committed.append(_piece(row, "\n"))
        self._commit_raw(raw)

    def _commit_raw(self, lines: list[bytes]) -> None:
        if lines:
            raw = b"".join(lines)
            self._committed.append(Piece(len(raw), len(lines), raw))
            lines.clear()

    # ------------------------------------------------------------------ a line beyond FOLD

    def _fold(self) -> None:
        self._is_folded = True
        raw = bytes(self._pending)
        self._pending.clear()
        _edit(self._editor, raw)

    def _feed_folded(self, chunk: bytes) -> bytes:
        end = chunk.find(b"\n")
        part = chunk if end < 0 else chunk[:end]
        _edit(self._editor, part)
        if end < 0:
            return b""
        self._is_folded = False
        self._end_line()
        return chunk[end + 1 :]


def _edit(editor: Editor, part: bytes) -> None:
    """Feed part of a line; its source counts for the row on which it began."""
    editor.rows[editor.row].n_bytes += len(part)
    editor.feed(part)


def _piece(row: Row, end: str) -> Piece:
    if row.raw is not None:
        return Piece(row.n_bytes, row.n_lines, row.raw)
    return Piece(row.n_bytes, row.n_lines, None, row.text() + end)


def _without_blank_end(editor: Editor) -> list[Row]:
    """The rows, without empty ones below the cursor (a frame that was erased, not printed)."""
    rows = list(editor.rows)
    while len(rows) > editor.row + 1 and rows[-1].is_empty():
        gone = rows.pop()
        if gone.n_bytes:
            rows[-1] = rows[-1].copy()
            rows[-1].take_counts(gone)
    return rows
