"""One row of character cells, and the editing that terminals do inside a row.

The row knows nothing of escape sequences: `editor.py` reads those and calls this. A cell holds
a character with its combining marks; the second half of a wide character is the empty string,
so the text of a row is the cells joined. Nothing here allocates beyond `CAP` columns, whatever
the numbers asked for (`ESC[999999999@`).
"""

from __future__ import annotations

from sandboxd.output.widths import parts, width

CAP = 4096
"""Columns of a line; what is printed beyond is counted and shown as `[+N]`."""
COMBINING_CAP = 16
"""Marks that join one cell."""
BLANK = " "


class Row:
    """Cells of one row, the count of characters that did not fit, and the source it stands for."""

    __slots__ = ("cells", "has_wide", "lost", "n_bytes", "n_lines", "raw")

    def __init__(self, raw: bytes | None = None) -> None:
        self.cells: list[str] = []
        self.has_wide = False
        """Whether any character of two columns was ever put here."""
        self.lost = 0
        self.raw = raw
        """A whole line nobody has edited yet; it becomes cells when somebody does."""
        self.n_bytes = len(raw) if raw else 0
        self.n_lines = 1 if raw else 0

    def is_empty(self) -> bool:
        return not self.cells and self.raw is None

    def take_counts(self, other: Row) -> None:
        """Answer for the source of a row that is no more."""
        self.n_bytes += other.n_bytes
        self.n_lines += other.n_lines

    def text(self) -> str:
        """The row as a person reads it, `[+N]` appended when N characters did not fit.

        Blanks at its end are what erasing and padding leave; nobody sees them.
        """
        text = "".join(self.cells)
        return f"{text}[+{self.lost}]" if self.lost else text.rstrip(BLANK)

    def copy(self) -> Row:
        other = Row(self.raw)
        other.cells = self.cells.copy()
        other.lost, other.has_wide = self.lost, self.has_wide
        other.n_bytes, other.n_lines = self.n_bytes, self.n_lines
        return other

    def put(self, column: int, text: str) -> None:
        """Overwrite with characters of one column each; the caller keeps within `CAP`."""
        cells = self.cells
        size = len(cells)
        if column >= size:  # at the end, as most are
            if column > size:
                cells.extend(BLANK * (column - size))
            cells.extend(text)
            return
        end = column + len(text)
        if self.has_wide:
            self._split(column)
            self._split(end)
        cells[column:end] = text

    def put_wide(self, column: int, character: str) -> None:
        self._pad(column)
        self._split(column)
        self._split(column + 2)
        self.cells[column : column + 2] = (character, "")
        self.has_wide = True

    def combine(self, column: int, mark: str) -> None:
        """Join a mark to the cell before `column`; at the very start it is dropped."""
        self._pad(column)
        at = column - 1
        if at > 0 and not self.cells[at]:
            at -= 1
        if at >= 0 and len(self.cells[at]) <= COMBINING_CAP:
            self.cells[at] += mark

    def erase_to_end(self, column: int) -> None:
        self._split(column)
        del self.cells[column:]
        self.lost = 0

    def erase_to_start(self, column: int) -> None:
        """Blank everything up to and including `column`."""
        self.erase(0, column + 1)

    def erase_all(self) -> None:
        self.cells.clear()
        self.lost = 0

    def erase(self, column: int, count: int) -> None:
        end = min(column + count, len(self.cells))
        if column < end:
            self._split(column)
            self._split(end)
            self.cells[column:end] = BLANK * (end - column)

    def delete(self, column: int, count: int) -> None:
        self._split(column)
        self._split(column + count)
        del self.cells[column : column + count]

    def insert(self, column: int, count: int) -> None:
        """Shift the rest right by `count` blanks; what passes `CAP` falls off."""
        if column >= len(self.cells):
            return
        self._split(column)
        self.cells[column:column] = BLANK * min(count, CAP - column)
        if len(self.cells) > CAP:
            self._split(CAP)
            del self.cells[CAP:]

    def _pad(self, column: int) -> None:
        if column > len(self.cells):
            self.cells.extend(BLANK * (column - len(self.cells)))

    def _split(self, column: int) -> None:
        """A border at `column` that runs through a wide character blanks both its halves."""
        cells = self.cells
        if 0 < column < len(cells) and not cells[column]:
            cells[column - 1] = cells[column] = BLANK


class Pen:
    """Prints runs of text into a row, column by column, never past `CAP`.

    `column` may equal `CAP` (just past the last column); `over` counts the characters that the
    current pass has printed beyond it.
    """

    __slots__ = ("column", "over")

    def __init__(self) -> None:
        self.column = 0
        self.over = 0

    def move(self, column: int) -> None:
        self.column = column if 0 <= column < CAP else max(0, min(column, CAP - 1))
        self.over = 0

    def home(self) -> None:
        self.column = self.over = 0

    def print_narrow(self, row: Row, text: str) -> None:
        """Text of which every character takes one column."""
        column = self.column
        end = column + len(text)
        if end <= CAP:
            row.put(column, text)
            self.column = end
            return
        if column < CAP:
            row.put(column, text[: CAP - column])
            self.column = CAP
        self.lose(row, end - CAP)

    def print_any(self, row: Row, text: str) -> None:
        found = parts(text)
        if len(found) == 1:
            self.print_narrow(row, text)
            return
        for at, part in enumerate(found):
            if at % 2:
                self._print_one(row, part)
            elif part:
                self.print_narrow(row, part)

    def _print_one(self, row: Row, character: str) -> None:
        columns = width(character)
        if self.column + columns > CAP:
            self.column = CAP
            self.lose(row, 1)
        elif columns == 1:
            row.put(self.column, character)
            self.column += 1
        elif columns == 2:
            row.put_wide(self.column, character)
            self.column += 2
        elif self.over:
            self.lose(row, 1)
        else:
            row.combine(self.column, character)

    def lose(self, row: Row, count: int) -> None:
        self.over += count
        row.lost = max(row.lost, self.over)
