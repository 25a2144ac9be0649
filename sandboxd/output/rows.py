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

from collections import deque
from collections.abc import Collection
from copy import copy

from sandboxd.output.cells import Row
from sandboxd.output.editor import Editor
from sandboxd.output.escapes import row_moves
from sandboxd.output.lines import FOLD, render_lines
from sandboxd.output.pieces import Piece, raw_piece, start_of_last

LIVE_ROWS = 32


class LiveRows:
    """Feed bytes, take committed pieces; `live()` shows the rest as it stands.

    With `waits` the rows are not held back until the first line that moves between rows (for
    streaming over a pipe, where programs rarely do): at most the first frame stays stale.
    """

    def __init__(self, max_rows: int = LIVE_ROWS, *, waits: bool = False) -> None:
        self.max_rows = max_rows
        self._is_streaming = waits
        self._editor = Editor(1 if waits else max_rows, wakes_to=max_rows)
        """Rows that were edited, and the row under the cursor: above the held lines."""
        self._held: deque[Piece] = deque()
        """Raw lines that might still be edited, between the editor's last two rows."""
        self._held_lines = 0
        self._pending = bytearray()
        self._is_folded = False
        """The current line has outgrown FOLD and lives in the editor."""
        self._committed: list[Piece] = []

    def feed(self, chunk: bytes, n_lines: int | None = None) -> list[Piece]:
        """Take bytes (`n_lines` LFs, where known); returns what can no longer change."""
        if self._is_folded:
            chunk, n_lines = self._feed_folded(chunk), None
        cut = chunk.rfind(b"\n") + 1
        if cut:
            lines = chunk if cut == len(chunk) else chunk[:cut]
            if self._pending:
                lines = bytes(self._pending) + lines
            self._pending = bytearray(chunk[cut:])
            self._take_lines(lines, n_lines)
        else:
            self._pending += chunk
        if len(self._pending) > FOLD:
            self._fold()
        committed, self._committed = self._committed, []
        return committed

    def live(self) -> list[Piece]:
        """The rows that may still change, the incomplete last line included."""
        raw = bytes(self._pending)
        if raw and (not self._editor.is_fresh() or row_moves(raw)):
            other = self.copy()
            other._begin_edit()
            _edit(other._editor, raw)
            other._pending.clear()
            return other._committed + _pieces(other._editor.scrolled) + other.live()
        rows = _without_blank_end(self._editor)
        pieces = [*_pieces(rows[:-1]), *self._held, _piece(rows[-1], ""), raw_piece(raw)]
        return [piece for piece in pieces if piece.n_bytes or piece.text]

    @property
    def held_bytes(self) -> int:
        return sum(piece.n_bytes for piece in self._held) + len(self._pending)

    def copy(self) -> LiveRows:
        """Rows that can be fed without changing these."""
        other = copy(self)
        other._editor = self._editor.fork()
        other._held = self._held.copy()
        other._pending = self._pending.copy()
        other._committed = []
        return other

    def drop_pending(self) -> int:
        """Forget the incomplete last line as long as it is raw; returns its size in bytes."""
        size = len(self._pending)
        self._pending.clear()
        return size

    # ------------------------------------------------------------------ lines

    def _take_lines(self, lines: bytes, n_lines: int | None) -> None:
        position = 0
        for found in row_moves(lines):
            if found < position:  # on a line that was edited already
                continue
            start = max(lines.rfind(b"\n", position, found) + 1, position)
            end = lines.index(b"\n", found) + 1
            self._take_still(lines[position:start])
            self._edit_line(lines[start:end])
            position = end
        if position:
            self._take_still(lines[position:])
        else:
            self._take_still(lines, n_lines)

    def _take_still(self, lines: bytes, n_lines: int | None = None) -> None:
        """Lines without row moves: edited until the cursor is at the bottom, then in bulk."""
        position = 0
        while position < len(lines) and not self._editor.is_fresh():
            end = lines.index(b"\n", position) + 1
            self._edit_line(lines[position:end])
            position = end
        if position:
            lines, n_lines = lines[position:], None
        if lines:
            self._hold(raw_piece(lines, n_lines))

    def _hold(self, piece: Piece) -> None:
        """Raw lines at the bottom; what has enough lines after it is committed, in bulk."""
        room = self._editor.max_rows - 1
        for part in self._parts(piece, room):
            self._held.append(part)
            self._held_lines += part.n_lines
        if self._held_lines < room:
            return
        above = self._editor.rows[:-1]
        if above:
            self._committed += _pieces(above)
            self._editor.keep_last_row()
        while self._held and self._held_lines - self._held[0].n_lines >= room:
            piece = self._held.popleft()
            self._held_lines -= piece.n_lines
            self._committed.append(piece)

    def _parts(self, piece: Piece, room: int) -> tuple[Piece, ...]:
        """Streaming, no line may wait for the next chunk only because it came in a large one."""
        raw = piece.raw or b""
        if not self._is_streaming or not 0 < room < piece.n_lines:
            return (piece,)
        start = start_of_last(raw, room)
        return raw_piece(raw[:start], piece.n_lines - room), raw_piece(raw[start:], room)

    def _edit_line(self, line: bytes) -> None:
        self._begin_edit()
        _edit(self._editor, line[:-1])
        self._end_line()

    def _begin_edit(self) -> None:
        if self._held:
            self._committed += _lay_down(self._editor, self._held)
            self._held.clear()
            self._held_lines = 0

    def _end_line(self) -> None:
        row = self._editor.rows[self._editor.row]
        row.n_lines += 1
        row.n_bytes += 1
        self._editor.linefeed()
        if self._editor.scrolled:
            self._committed += _pieces(self._editor.scrolled)
            self._editor.scrolled = []

    # ------------------------------------------------------------------ a line beyond FOLD

    def _fold(self) -> None:
        self._is_folded = True
        raw = bytes(self._pending)
        self._pending.clear()
        self._begin_edit()
        _edit(self._editor, raw)

    def _feed_folded(self, chunk: bytes) -> bytes:
        end = chunk.find(b"\n")
        _edit(self._editor, chunk if end < 0 else chunk[:end])
        if end < 0:
            return b""
        self._is_folded = False
        self._end_line()
        return chunk[end + 1 :]


def _lay_down(editor: Editor, held: Collection[Piece]) -> list[Piece]:
    """Make rows of the held lines, above the cursor's; returns what has no room among them."""
    if not held:  # the cursor may be anywhere
        return []
    lines = b"".join(piece.raw or b"" for piece in held)
    start = start_of_last(lines, editor.max_rows - 1)
    rows = [Row(line + b"\n") for line in lines[start:].split(b"\n")[:-1]]
    out = editor.insert_above(rows)
    pieces = _pieces(out)
    if start:
        pieces.append(raw_piece(lines[:start]))
    return pieces


def _edit(editor: Editor, part: bytes) -> None:
    """Feed part of a line; its source counts for the row on which it began."""
    editor.rows[editor.row].n_bytes += len(part)
    editor.feed(part)


def _pieces(rows: list[Row]) -> list[Piece]:
    return [_piece(row, "\n") for row in rows]


def _piece(row: Row, end: str) -> Piece:
    """A row with the source it stands for: more than its own line when a cursor passed over it."""
    if row.raw is None:
        return Piece(row.n_bytes, row.n_lines, None, row.text() + end)
    if len(row.raw) == row.n_bytes:
        return Piece(row.n_bytes, row.n_lines, row.raw)
    return Piece(row.n_bytes, row.n_lines, None, render_lines(row.raw))


def _without_blank_end(editor: Editor) -> list[Row]:
    """The rows, without empty ones below the cursor (a frame that was erased, not printed)."""
    rows = list(editor.rows)
    while len(rows) > editor.row + 1 and rows[-1].is_empty():
        gone = rows.pop()
        if gone.n_bytes:
            rows[-1] = rows[-1].copy()
            rows[-1].take_counts(gone)
    return rows
