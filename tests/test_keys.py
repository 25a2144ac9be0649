"""What typing makes of a shell's line: nothing that runs is missed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.errors import InvalidRequest
from sandboxd.keys import Line, follow, key


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("enter", "\r"),
        ("ctrl-c", "\x03"),
        ("C-c", "\x03"),
        ("^C", "\x03"),
        ("Ctrl_D", "\x04"),
        ("up", "\x1b[A"),
        ("f12", "\x1b[24~"),
        ("alt-x", "\x1bx"),
        ("M-X", "\x1bX"),
        ("x", "x"),
        ("ü", "ü"),
    ],
)
def test_keys_have_names(name: str, sent: str) -> None:
    assert key(name) == sent


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no key 'hyper-q'"):
        key("hyper-q")


@pytest.mark.parametrize(
    ("text", "entered", "line"),
    [
        ("ls", [], Line("ls")),
        ("ls\n", [Line("ls")], Line()),
        ("ls\rpwd\r", [Line("ls"), Line("pwd")], Line()),
        ("\n\n", [], Line()),
        ("rx\x7fm y\n", [Line("rm y")], Line()),
        ("rm x\x15ls\n", [Line("ls")], Line()),
        ("rm x\x03ls\n", [Line("ls")], Line()),
        ("ls \\\n-l\n", [Line("ls \\"), Line("ls \\\n-l")], Line()),
        ("l\t\n", [Line("l", is_readable=False)], Line()),
        ("\x1b[A\n", [Line("", is_readable=False)], Line()),
        ("rm x\x0f", [Line("rm x", is_readable=False)], Line("rm x", is_readable=False)),
        ("rm x\x1bq", [Line("rm x", is_readable=False)], Line("rm xq", is_readable=False)),
    ],
)
def test_lines_are_followed(text: str, entered: list[Line], line: Line) -> None:
    typed = follow(Line(), text)
    assert (list(typed.entered), typed.line) == (entered, line)


@given(st.text(max_size=40), st.integers(0, 40))
def test_typing_in_two_parts_is_typing_at_once_unless_a_key_is_cut(text: str, cut: int) -> None:
    if "\x1b" in text:
        return
    first = follow(Line(), text[:cut])
    second = follow(first.line, text[cut:])
    whole = follow(Line(), text)
    assert (first.entered + second.entered, second.line) == (whole.entered, whole.line)


@given(st.text(max_size=30))
def test_an_unreadable_line_is_never_taken_for_a_readable_one(text: str) -> None:
    """Only Ctrl-C and entering begin a line that is known."""
    typed = follow(Line("ls", is_readable=False), text.replace("\x03", ""))
    if typed.entered:
        assert not typed.entered[0].is_readable
    elif not any(end in text for end in "\r\n"):
        assert not typed.line.is_readable
