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
    """Cells of one row, the count of characters that did not fit, and the source it stands for.

    As long as every character takes one column the cells are a plain string, which is cut and
    joined much faster than a list; the first odd character makes a list of them.
    """

    __slots__ = ("_cells", "_plain", "lost", "n_bytes", "n_lines", "raw")

    def __init__(self, raw: bytes | None = None) -> None:
        self._plain = ""
        self._cells: list[str] | None = None
        """Instead of the plain string, once there is an odd character."""
        self.lost = 0
        self.raw = raw
        """A whole line nobody has edited yet; it becomes cells when somebody does."""
        self.n_bytes = len(raw) if raw else 0
        self.n_lines = 1 if raw else 0

    def is_empty(self) -> bool:
        return not self._plain and not self._cells and self.raw is None

    def take_counts(self, other: Row) -> None:
        """Answer for the source of a row that is no more."""
        self.n_bytes += other.n_bytes
        self.n_lines += other.n_lines

    def take_cells(self, other: Row) -> None:
        """Show what the other row shows, which is given up."""
        self._plain, self._cells, self.lost, self.raw = other._plain, other._cells, other.lost, None

    def text(self) -> str:
        """The row as a person reads it, `[+N]` appended when N characters did not fit.

        Blanks at its end are what erasing and padding leave; nobody sees them.
        """
        text = self._plain if self._cells is None else "".join(self._cells)
        return f"{text}[+{self.lost}]" if self.lost else text.rstrip(BLANK)

    def copy(self) -> Row:
        other = Row(self.raw)
        other._plain = self._plain
        other._cells = self._cells.copy() if self._cells is not None else None
        other.lost = self.lost
        other.n_bytes, other.n_lines = self.n_bytes, self.n_lines
        return other

    def put(self, column: int, text: str) -> None:
        """Overwrite with characters of one column each; the caller keeps within `CAP`."""
        cells = self._cells
        if cells is None:
            have = self._plain
            size = len(have)
            if column < size:
                self._plain = have[:column] + text + have[column + len(text) :]
            elif column == size:
                self._plain = have + text
            else:
                self._plain = have + BLANK * (column - size) + text
            return
        end = column + len(text)
        _pad(cells, column)
        _split(cells, column)
        _split(cells, end)
        cells[column:end] = text

    def put_wide(self, column: int, character: str) -> None:
        cells = self._listed()
        _pad(cells, column)
        _split(cells, column)
        _split(cells, column + 2)
        cells[column : column + 2] = (character, "")

    def combine(self, column: int, mark: str) -> None:
        """Join a mark to the cell before `column`; at the very start it is dropped."""
        if column == 0:
            return
        cells = self._listed()
        _pad(cells, column)
        at = column - 1
        if at > 0 and not cells[at]:
            at -= 1
        if len(cells[at]) <= COMBINING_CAP:
            cells[at] += mark

    def erase_to_end(self, column: int) -> None:
        self.lost = 0
        if self._cells is None:
            self._plain = self._plain[:column]
        else:
            _split(self._cells, column)
            del self._cells[column:]

    def erase_to_start(self, column: int) -> None:
        """Blank everything up to and including `column`."""
        self.erase(0, column + 1)

    def erase_all(self) -> None:
        self._plain, self._cells, self.lost = "", None, 0

    def erase(self, column: int, count: int) -> None:
        cells = self._cells
        end = min(column + count, len(self._plain if cells is None else cells))
        if column >= end:
            return
        if cells is None:
            self._plain = self._plain[:column] + BLANK * (end - column) + self._plain[end:]
        else:
            _split(cells, column)
            _split(cells, end)
            cells[column:end] = BLANK * (end - column)

    def delete(self, column: int, count: int) -> None:
        cells = self._cells
        if cells is None:
            self._plain = self._plain[:column] + self._plain[column + count :]
        else:
            _split(cells, column)
            _split(cells, column + count)
            del cells[column : column + count]

    def insert(self, column: int, count: int) -> None:
        """Shift the rest right by `count` blanks; what passes `CAP` falls off."""
        blanks = BLANK * min(count, CAP - column)
        cells = self._cells
        if cells is None:
            if column < len(self._plain):
                self._plain = (self._plain[:column] + blanks + self._plain[column:])[:CAP]
        elif column < len(cells):
            _split(cells, column)
            cells[column:column] = blanks
            _split(cells, CAP)
            del cells[CAP:]

    def _listed(self) -> list[str]:
        if self._cells is None:
            self._cells, self._plain = list(self._plain), ""
        return self._cells


def _pad(cells: list[str], column: int) -> None:
    if column > len(cells):
        cells.extend(BLANK * (column - len(cells)))


def _split(cells: list[str], column: int) -> None:
    """A border at `column` that runs through a wide character blanks both its halves."""
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
