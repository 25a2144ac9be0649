"""Reads terminal output and edits rows with it: the exact, slow path of the renderer.

An `Editor` holds the last `max_rows` rows and a cursor among them. With one row it is the line
renderer: what would leave the row is dropped. Bytes may arrive cut anywhere; the parser state,
a split UTF-8 character and a split sequence are kept between calls, payloads of strings (OSC,
DCS, APC, PM, SOS) are not. `linefeed` resets everything but the rows: LF is the only line
separator, and an unterminated string never swallows the next line.

Sources: ECMA-48 5th edition; VT510 manual for DECSC/DECRC; the state machine is Paul Williams'
ANSI parser (vt100.net) reduced to what captured output needs. Behaviour checked against tmux.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

from sandboxd.output import escapes as e
from sandboxd.output.cells import CAP, Pen, Row
from sandboxd.output.overlay import Hidden, overlay, restart_point
from sandboxd.output.widths import has_odd

REPEAT_BUDGET = 8 * CAP
"""Cells that REP may fill in one line: without it 64 KB of `ESC[4096b\\r` cost seconds."""
_SHORTCUT_FROM = 128
_ASCII_CONTROLS = (*e.RARE_C0, b"\b", b"\t", b"\r", b"\x1b")


class Editor:
    """Rows, a cursor and a parser. `rows[row]` is the row under the cursor."""

    def __init__(self, max_rows: int = 1, *, wakes_to: int = 1) -> None:
        self.max_rows = max_rows
        self.wakes_to = wakes_to
        """The rows that stay editable from the first move between rows on."""
        self.rows = [Row()]
        self.row = 0
        self.scrolled: list[Row] = []
        """Rows that left at the top, oldest first; the owner takes them away."""
        self._pen = Pen()
        self._undecoded = b""
        self._is_odd = False
        """Whether the text being read holds characters of other than one column."""
        self._reset_line()

    def _reset_line(self) -> None:
        self._state: Callable[[str, int], int] = self._ground
        self._parameters = ""
        self._has_intermediate = False
        self._is_charset = False
        self._last: str | None = None
        self._saved: tuple[int, int | None] = (0, None)
        self._budget = REPEAT_BUDGET
        self._pen.move(0)

    # ------------------------------------------------------------------ what the owner calls

    def feed(self, data: bytes) -> None:
        """Interpret bytes without LF."""
        if self._undecoded:
            data = self._undecoded + data
            self._undecoded = b""
        is_long = len(data) >= _SHORTCUT_FROM
        if is_long:
            if self._pen.over and self._is_only_text(data):
                self._pen.lose(self._current(), len(data))
                self._last = chr(data[-1])
                return
            data = self._skip(data)
        is_thinned = is_long and not _matters_to_repeat(data)
        if is_thinned:
            data = data.translate(e.HARMLESS_AS_NUL)
        text, used = codecs.utf_8_decode(data, "replace", False)
        self._undecoded = data[used:]
        self._read(text.replace("\0", "") if is_thinned else text)

    def linefeed(self) -> None:
        """End the line: the cursor goes to the start of the next row, a new one at the bottom."""
        self._flush()
        self._down_or_scroll()
        self._reset_line()

    def text(self) -> str:
        """The row under the cursor, an incomplete character at its end included."""
        self._flush()
        return self._current().text()

    def is_fresh(self) -> bool:
        """The cursor stands in an empty last row, as after a LF at the bottom."""
        return self.row == len(self.rows) - 1 and self.rows[-1].is_empty()

    def insert_above(self, rows: list[Row]) -> list[Row]:
        """Put rows between the others and the cursor's, which is the last; returns the excess."""
        above = [*self.rows[:-1], *rows]
        out = max(0, len(above) - self.max_rows + 1)
        self.rows = [*above[out:], self.rows[-1]]
        self.row = len(self.rows) - 1
        return above[:out]

    def keep_last_row(self) -> None:
        """Forget all rows but the cursor's, which is the last."""
        self.rows = self.rows[-1:]
        self.row = 0

    def fork(self) -> Editor:
        """A copy that can be fed without changing this one."""
        other = Editor(self.max_rows, wakes_to=self.wakes_to)
        other.rows = [row.copy() for row in self.rows]
        other.row = self.row
        other._pen.column, other._pen.over = self._pen.column, self._pen.over
        other._undecoded = self._undecoded
        other._state = getattr(other, self._state.__name__)
        other._parameters, other._has_intermediate = self._parameters, self._has_intermediate
        other._is_charset, other._last = self._is_charset, self._last
        other._saved, other._budget = self._saved, self._budget
        return other

    # ------------------------------------------------------------------ parser

    def _flush(self) -> None:
        if self._undecoded:
            left, self._undecoded = self._undecoded, b""
            self._read(left.decode("utf-8", "replace"))

    def _read(self, text: str) -> None:
        self._is_odd = has_odd(text)
        position, end = 0, len(text)
        while position < end:
            position = self._state(text, position)

    def _ground(self, text: str, position: int) -> int:
        """Where no sequence has begun: one token after the other, until one of them begins one."""
        self._has_intermediate = False
        ground, pen = self._state, self._pen
        for token in e.TOKEN.finditer(text, position):
            kind = token.lastindex
            if kind == e.IS_TEXT:
                run, row = token[0], self.rows[self.row]
                if self._is_odd or row.raw is not None:
                    self._print(run)
                else:
                    self._last = run[-1]
                    pen.print_narrow(row, run)
            elif kind == e.IS_SEQUENCE:
                self._control_sequence(token[2], token[3])
            else:
                self._control(token[0])
                if self._state != ground:
                    return token.end()
        return len(text)

    def _escape(self, text: str, position: int) -> int:
        """After ESC: intermediates are collected, any final ends it (ECMA-35 nF, Fp, Fe, Fs)."""
        character = text[position]
        if character < " " or "\x80" <= character <= "\x9f":
            self._control(character)
        elif character <= "/":
            self._is_charset = True
        elif character < "\x7f":
            self._state = self._ground
            self._escape_final(character if not self._is_charset else "")
        return position + 1

    def _sequence(self, text: str, position: int) -> int:
        """Inside a control sequence: C0 controls act, a final ends it."""
        character = text[position]
        if character < " " or "\x80" <= character <= "\x9f":
            self._control(character)
        elif character <= "/":
            self._has_intermediate = True
        elif character <= "?":
            if len(self._parameters) < e.MAX_PARAMETERS:
                self._parameters += character
        elif character < "\x7f":
            self._state = self._ground
            self._control_sequence(self._parameters, character)
        return position + 1

    def _string(self, text: str, position: int) -> int:
        """Inside OSC, DCS, APC, PM or SOS: skip to BEL, CAN, SUB, ESC or a C1 control."""
        found = e.STRING_END.search(text, position)
        if found is None:
            return len(text)
        if found[0] == e.BEL:
            self._state = self._ground
        else:
            self._control(found[0])
        return found.end()

    def _control(self, character: str) -> None:
        """A C0 or C1 control or DEL. All but DEL and introducers end what REP could repeat."""
        if character == e.DEL:
            return
        if character == e.ESC:
            self._enter_escape()
            return
        if character >= "\x80":
            self._enter_escape()
            self._state = self._ground
            self._escape_final(chr(ord(character) - 0x40))
            return
        self._last = None
        if character == e.CR:
            self._pen.home()
        elif character == e.BS:
            self._left(1)
        elif character == e.HT:
            self._pen.move((self._pen.column // 8 + 1) * 8)
        elif character in (e.CAN, e.SUB):
            self._state = self._ground

    def _enter_escape(self) -> None:
        self._state = self._escape
        self._is_charset = False

    def _escape_final(self, character: str) -> None:
        if character == e.CSI:
            self._state = self._sequence
            self._parameters = ""
            self._has_intermediate = False
            return
        self._last = None
        if character in e.STRING_INTRODUCERS:
            self._state = self._string
        elif character == e.DECSC:
            self._save()
        elif character == e.DECRC:
            self._restore()
        elif character in (e.IND, e.NEL, e.RI):
            self._escape_row(character)

    def _control_sequence(self, parameters: str, final: str) -> None:
        self._last, last = None, self._last
        act = _ACTIONS.get(final)
        if act is None or self._has_intermediate:
            return
        if not parameters:
            values = [0]
        else:
            try:
                values = [int(part[:9] or 0) for part in parameters.split(";")]
            except ValueError:  # a private marker or a colon: another sequence of the same final
                return
        self._last = last if final == e.REP else None
        act(self, values[0], values)
        self._last = None

    # ------------------------------------------------------------------ printing and columns

    def _print(self, text: str) -> None:
        self._last = text[-1]
        row = self._current()
        if self._is_odd and not self._pen.over:
            self._pen.print_any(row, text)
        else:
            self._pen.print_narrow(row, text)

    def _skip(self, data: bytes) -> bytes:
        """Take the shortcuts over what later bytes hide; returns what is left to read."""
        if self._state != self._string and (end := restart_point(data)):
            self._show(Hidden(end, True, ""))
            self._state = self._ground
            data = data[end:]
        first = data.find(b"\r") + 1
        if not first or data.find(b"\r", first) < 0:
            return data
        self._read(data[:first].decode("utf-8", "replace"))
        data = data[first:]
        if self._state == self._ground and (hidden := overlay(data)):
            self._show(hidden)
            data = data[hidden.end :]
        return data

    def _is_only_text(self, data: bytes) -> bool:
        """ASCII without controls, so that a line far beyond CAP is counted and nothing else."""
        return (
            self._state == self._ground
            and data.isascii()
            and not any(code in data for code in _ASCII_CONTROLS)
        )

    def _show(self, hidden: Hidden) -> None:
        row = self._current()
        if hidden.clears:
            row.erase_all()
        self._pen.move(0)
        self._pen.print_narrow(row, hidden.visible)
        self._pen.move(0)
        self._last = None

    def _current(self) -> Row:
        """The row under the cursor as cells."""
        row = self.rows[self.row]
        if row.raw is not None:
            line = Editor()
            line.feed(row.raw.removesuffix(b"\n"))
            line._flush()
            row.take_cells(line.rows[0])
        return row

    def _left(self, count: int) -> None:
        self._pen.move(min(self._pen.column, CAP - 1) - count)

    def _save(self) -> None:
        self._saved = (self._pen.column, self.row)

    def _restore(self) -> None:
        column, row = self._saved
        self._pen.move(column)
        if row is not None and row < len(self.rows):
            self.row = row

    def _cursor_forward(self, n: int, _: list[int]) -> None:
        self._pen.move(self._pen.column + max(n, 1))

    def _cursor_back(self, n: int, _: list[int]) -> None:
        self._left(max(n, 1))

    def _cursor_column(self, n: int, _: list[int]) -> None:
        self._pen.move(max(n, 1) - 1)

    def _tab_forward(self, n: int, _: list[int]) -> None:
        self._pen.move((self._pen.column // 8 + max(n, 1)) * 8)

    def _tab_back(self, n: int, _: list[int]) -> None:
        column = min(self._pen.column, CAP - 1)
        self._pen.move(((column + 7) // 8 - max(n, 1)) * 8)

    def _erase_in_line(self, n: int, _: list[int]) -> None:
        row, column = self._current(), self._pen.column
        if n == 0:
            row.erase_to_end(column)
        elif n == 1:
            row.erase_to_start(min(column, CAP - 1))
        elif n == 2:
            row.erase_all()

    def _erase_characters(self, n: int, _: list[int]) -> None:
        self._current().erase(min(self._pen.column, CAP - 1), max(n, 1))

    def _delete_characters(self, n: int, _: list[int]) -> None:
        self._current().delete(min(self._pen.column, CAP - 1), max(n, 1))

    def _insert_characters(self, n: int, _: list[int]) -> None:
        self._current().insert(min(self._pen.column, CAP - 1), max(n, 1))

    def _repeat(self, n: int, _: list[int]) -> None:
        """REP: tmux repeats ASCII only, up to the right edge."""
        if self._last is None or not self._last.isascii():
            return
        count = min(max(n, 1), CAP - self._pen.column, self._budget)
        if count > 0:
            self._budget -= count
            self._pen.print_narrow(self._current(), self._last * count)

    def _save_sequence(self, _n: int, values: list[int]) -> None:
        if values == [0]:
            self._save()

    def _restore_sequence(self, _n: int, values: list[int]) -> None:
        if values == [0]:
            self._restore()

    # ------------------------------------------------------------------ rows

    def _down_or_scroll(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append(Row())
        if len(self.rows) > self.max_rows:
            self.scrolled.append(self.rows.pop(0))
            self.row -= 1

    def _to_row(self, row: int) -> None:
        """Move among the live rows; below the last one rows come into being up to `max_rows`."""
        self.max_rows = max(self.max_rows, self.wakes_to)
        self.row = max(0, min(row, self.max_rows - 1))
        while self.row >= len(self.rows):
            self.rows.append(Row())

    def _escape_row(self, character: str) -> None:
        if character == e.RI:
            self._to_row(self.row - 1)
            return
        self.max_rows = max(self.max_rows, self.wakes_to)
        if self.max_rows == 1:  # a single line has nowhere to go
            return
        self._down_or_scroll()
        if character == e.NEL:
            self._pen.move(0)

    def _cursor_up(self, n: int, _: list[int]) -> None:
        self._to_row(self.row - max(n, 1))

    def _cursor_down(self, n: int, _: list[int]) -> None:
        self._to_row(self.row + max(n, 1))

    def _previous_line(self, n: int, _: list[int]) -> None:
        self._to_row(self.row - max(n, 1))
        self._pen.move(0)

    def _next_line(self, n: int, _: list[int]) -> None:
        self._to_row(self.row + max(n, 1))
        self._pen.move(0)

    def _cursor_position(self, n: int, values: list[int]) -> None:
        self._to_row(max(n, 1) - 1)
        self._pen.move(max(values[1] if len(values) > 1 else 1, 1) - 1)

    def _row_position(self, n: int, _: list[int]) -> None:
        self._to_row(max(n, 1) - 1)

    def _erase_in_display(self, n: int, values: list[int]) -> None:
        if n > 2:  # 3 is the scrollback, which is not ours
            return
        self._erase_in_line(n, values)
        if n != 1:
            for gone in self.rows[self.row + 1 :]:
                self._current().take_counts(gone)
            del self.rows[self.row + 1 :]
        if n != 0:
            for above in self.rows[: self.row]:
                above.raw = None
                above.erase_all()


def _matters_to_repeat(data: bytes) -> bool:
    """Whether REP, here or in what follows, could tell that harmless controls are gone."""
    return data[-1:] in e.HARMLESS or e.REPEAT.search(data) is not None


_ACTIONS: dict[str, Callable[[Editor, int, list[int]], None]] = {
    e.ICH: Editor._insert_characters,
    e.CUU: Editor._cursor_up,
    e.CUD: Editor._cursor_down,
    e.CUF: Editor._cursor_forward,
    e.CUB: Editor._cursor_back,
    e.CNL: Editor._next_line,
    e.CPL: Editor._previous_line,
    e.CHA: Editor._cursor_column,
    e.CUP: Editor._cursor_position,
    e.CHT: Editor._tab_forward,
    e.ED: Editor._erase_in_display,
    e.EL: Editor._erase_in_line,
    e.DCH: Editor._delete_characters,
    e.ECH: Editor._erase_characters,
    e.CBT: Editor._tab_back,
    e.HPA: Editor._cursor_column,
    e.HPR: Editor._cursor_forward,
    e.REP: Editor._repeat,
    e.VPA: Editor._row_position,
    e.VPR: Editor._cursor_down,
    e.HVP: Editor._cursor_position,
    e.SCOSC: Editor._save_sequence,
    e.SCORC: Editor._restore_sequence,
}
