"""What a line of terminal output looks like in the end, sequence by sequence."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings

from sandboxd.output.cells import CAP
from sandboxd.output.editor import Editor
from sandboxd.output.lines import FOLD, render_line, render_lines
from tests.output.streams import line, streams

CASES = {
    "CR returns to column 0": ("abc\rX", "Xbc"),
    "CR CR LF is a line end": ("abc\r\r", "abc"),
    "BS moves and erases nothing": ("abc\b\bX", "aXc"),
    "BS stops at column 0": ("a\b\b\bX", "X"),
    "HT stays a tab in a plain line": ("a\tb", "a\tb"),
    "HT erases nothing": ("0123456789\r\tX", "01234567X9"),
    "CHA is one-based": ("abcdef\x1b[3GX", "abXdef"),
    "CHA 0 means 1": ("abc\x1b[0GX", "Xbc"),
    "HPA is CHA": ("abcdef\x1b[2`X", "aXcdef"),
    "CUF leaves blanks": ("a\x1b[3Cb", "a   b"),
    "CUF 0 means 1": ("a\x1b[0Cb", "a b"),
    "HPR is CUF": ("a\x1b[2ab", "a  b"),
    "CUB": ("abcdef\x1b[4DX", "abXdef"),
    "CUB stops at column 0": ("abc\x1b[99DX", "Xbc"),
    "CHT": ("a\x1b[2Ib", "a" + " " * 15 + "b"),
    "CBT": ("0123456789abcdefghij\x1b[2ZX", "01234567X9abcdefghij"),
    "EL 0": ("abcdef\x1b[3G\x1b[K", "ab"),
    "EL 1 includes the cursor": ("abcdef\x1b[3G\x1b[1K", "   def"),
    "EL 2 keeps the column": ("abcdef\x1b[3G\x1b[2KX", "  X"),
    "EL above 2 does nothing": ("abcdef\r\x1b[3K", "abcdef"),
    "EL after CR empties the line": ("abc\r\x1b[K", ""),
    "EL at the end does nothing": ("abc\x1b[K", "abc"),
    "ED 0 on the line": ("abcdef\x1b[3G\x1b[J", "ab"),
    "ED 3 is the scrollback and not ours": ("abc\r\x1b[3J", "abc"),
    "ECH": ("abcdef\x1b[2G\x1b[3X", "a   ef"),
    "DCH": ("abcdef\x1b[2G\x1b[3P", "aef"),
    "ICH": ("abcdef\x1b[2G\x1b[2@", "a  bcdef"),
    "REP": ("ab\x1b[3b", "abbbb"),
    "REP needs a printable just before it": ("ab\x07\x1b[3b", "ab"),
    "DEL does not come between": ("a\x7f\x1b[2b", "aaa"),
    "REP once only": ("a\x1b[2b\x1b[2b", "aaa"),
    "REP of other than ASCII is ignored": ("é\x1b[3b", "é"),
    "DECSC and DECRC": ("abc\x1b7def\x1b8X", "abcXef"),
    "DECRC without DECSC goes to column 0": ("abc\x1b8X", "Xbc"),
    "SCOSC and SCORC": ("abc\x1b[sdef\x1b[uX", "abcXef"),
    "CUP sets the column": ("abcdef\x1b[1;3HX", "abXdef"),
    "SGR with semicolons and colons": ("\x1b[1;31ma\x1b[38:2::1:2:3mb\x1b[m", "ab"),
    "private modes": ("\x1b[?25la\x1b[?2004hb", "ab"),
    "a private marker changes the meaning": ("abc\r\x1b[?K", "abc"),
    "an intermediate changes the meaning": ("abc\x1b[2 @X", "abcX"),
    "character sets": ("\x1b(Ba\x1b)0b", "ab"),
    "OSC ended by BEL": ("a\x1b]0;title\x07b", "ab"),
    "OSC ended by ST": ("a\x1b]8;;http://x/(y)\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
    "OSC ended by CAN": ("a\x1b]0;t\x18b", "ab"),
    "OSC ended by the line": ("a\x1b]0;never ended", "a"),
    "DCS, APC, PM, SOS": ("a\x1bPx\x1b\\b\x1b_x\x1b\\c\x1b^x\x1b\\d\x1bXx\x1b\\e", "abcde"),
    "ESC in a sequence starts anew": ("a\x1b[1\x1b[31mb", "ab"),
    "CAN and SUB cancel": ("a\x1b[3\x18b\x1b[3\x1ac", "abc"),
    "a control acts inside a sequence": ("abc\x1b[\r2CX", "abX"),
    "C1 in UTF-8 is ESC and a letter": ("abc\x9b2GX\x9d0;t\x9cY", "aXY"),
    "a bare ESC at the end": ("abc\x1b", "abc"),
    "a bare OSC at the end": ("abc\x1b]", "abc"),
    "other C0, DEL, VT, FF": ("a\x00b\x07c\x0bd\x0ce\x7ff", "abcdef"),
    "CJK is two columns": ("你好\x1b[3GX", "你X"),
    "overwriting the first half blanks the second": ("你\rX", "X"),
    "overwriting the second half blanks the first": ("你\bX", " X"),
    "a wide character over two": ("你好\x1b[2G文", " 文"),
    "DCH through a wide character": ("a你b\x1b[3G\x1b[P", "a b"),
    "a combining mark joins the cell before": ("e\u0301x\rX", "Xx"),
    "a combining mark at column 0 is dropped": ("x\r\u0301a", "a"),
    "ZWJ and variation selectors take no column": ("a\u200d\ufe0fb\x1b[2GX", "a\u200d\ufe0fX"),
    "invalid UTF-8 is U+FFFD": (b"a\xffb\xe2\x82", "a\ufffdb\ufffd"),
    "half a surrogate at the end is two": (b"\ra\xed\xa0", "a\ufffd\ufffd"),
    "a frame shorter than the last keeps its end": ("100%\r99%", "99%%"),
    "coloured frames": ("\x1b[32m 10%\x1b[0m\r\x1b[32m 20%\x1b[0m\r100%", "100%"),
    "frames that erase": ("\r\x1b[Klong frame\r\x1b[Kend", "end"),
    "frames that erase after the text": ("long frame\x1b[K\rend\x1b[K\r", "end"),
}


@pytest.mark.parametrize(("source", "shown"), CASES.values(), ids=CASES.keys())
def test_a_line_ends_up_as(source: str | bytes, shown: str) -> None:
    data = source if isinstance(source, bytes) else source.encode()
    assert render_line(data) == shown


def slowly(data: bytes) -> str:
    """The reference: one byte at a time, so that no shortcut can be taken."""
    editor = Editor()
    for at in range(len(data)):
        editor.feed(data[at : at + 1])
    return editor.text()


def same(fast: str, slow: str) -> bool:
    """Tabs, and blanks at the end, may stay in lines that need no editing."""
    return fast.rstrip(" ") == slow or ("\t" in fast and slowly(fast.encode()) == slow)


@settings(max_examples=400)
@given(streams)
def test_shortcuts_show_what_the_editor_shows(data: bytes) -> None:
    for part in data.split(b"\n"):
        assert same(render_line(part), slowly(part)), part


def test_shortcuts_are_exact_on_long_lines() -> None:
    """Restart points and overlays are only tried on longer lines."""
    rng = random.Random(11)
    for _ in range(400):
        frames = [line(rng, broken=rng.random() < 0.2) for _ in range(rng.randint(2, 8))]
        data = rng.choice((b"\r", b"\r\x1b[K", b"\x1b[2K\r", b"\x1b[K\r", b"\x1b[1G\x1b[0K")).join(
            frames
        )
        assert same(render_line(data), slowly(data)), data


@given(streams)
def test_lines_together_show_what_they_show_alone(data: bytes) -> None:
    assert render_lines(data) == "\n".join(map(render_line, data.split(b"\n")))


def test_taking_colour_out_never_makes_a_new_sequence() -> None:
    assert render_lines(b"abc\x1b\x1b[0m[2Gx\n\x1b[1\x1b[mmtext\n") == "abc[2Gx\nmtext\n"


def test_taking_colour_out_never_joins_a_split_character() -> None:
    assert render_line(b"\xe2\x80\x1b[m\x94") == "\ufffd\ufffd"


def test_an_unterminated_string_never_swallows_the_next_line() -> None:
    assert render_lines(b"a\x1b]0;title\nb\x1bP\nc") == "a\nb\nc"


@pytest.mark.parametrize("extra", [0, 1, 100, FOLD])
def test_columns_beyond_the_cap_are_counted(extra: int) -> None:
    shown = render_line(b"x" * (CAP + extra))
    assert shown == "x" * CAP + (f"[+{extra}]" if extra else "")


def test_the_cap_counts_columns_and_not_characters() -> None:
    shown = render_line("你".encode() * (CAP // 2 + 5))
    assert shown == "你" * (CAP // 2) + "[+5]"


def test_what_was_lost_is_forgotten_when_the_line_is_erased() -> None:
    assert render_line(b"x" * (CAP + 9) + b"\r\x1b[Kshort") == "short"
    assert render_line(b"x" * (CAP + 9) + b"\rshort") == "short" + "x" * (CAP - 5) + "[+9]"


def test_more_than_sixteen_marks_do_not_join_a_cell() -> None:
    shown = render_line(b"\rZ" + "\u0301".encode() * 100)
    assert shown == "Z" + "\u0301" * 16


def test_padding_is_bounded() -> None:
    assert render_line(b"\x1b[999999999GX") == " " * (CAP - 1) + "X"
    assert len(render_line(b"x\x1b[2147483647@y\x1b[2147483647P")) <= CAP


def test_repeats_have_a_budget() -> None:
    """`ESC[4096b` thousands of times in one line is not worth thousands of lines of work."""
    shown = render_line(b"x\x1b[4096b\r" * 8000 + b"done")
    assert shown == "done" + "x" * (CAP - 4)
