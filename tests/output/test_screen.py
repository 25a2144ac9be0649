"""What reaches a person's terminal: everything that draws, nothing that asks or forges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.output.screen import ScreenFilter

PASSED = (
    b"plain\r\n\ttext\b\x07",
    "grün ☃ 你 🔑".encode(),
    b"\x1b[1;31mred\x1b[0m",
    b"\x1b[2J\x1b[H\x1b[10;20Hx\x1b[K",
    b"\x1b[?1049h\x1b[?25l\x1b[?2004h",
    b"\x1b(0lqk\x1b(B\x1b7\x1b8\x1bM\x1b=\x1b>",
    b"\x1b[3 q",
    b"\x1b[4S\x1b[2T",
    b"\x1b[s\x1b[u",
    b"\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\",
    b"\x1b[1;24r",
    b"\x1b[!p",
)
DROPPED = (
    b"\x1b]52;c;aGVsbG8=\x07",
    b"\x1b]52;c;?\x1b\\",
    b"\x1b]0;title\x07",
    b"\x1b]2;title\x1b\\",
    b"\x1b]10;?\x07",
    b"\x1b]4;1;?\x07",
    b"\x1b]7;file:///etc\x07",
    b"\x1b]9;note\x07",
    b"\x1b]777;notify;a;b\x07",
    b"\x1b[c",
    b"\x1b[>c",
    b"\x1b[=c",
    b"\x1b[5n",
    b"\x1b[6n",
    b"\x1b[?6n",
    b"\x1b[x",
    b"\x1b[21t",
    b"\x1b[18t",
    b"\x1b[22;0;0t",
    b"\x1b[?2026$p",
    b"\x1b[?u",
    b"\x1b[>q",
    b"\x1b[1;1;1;1;1;1*y",
    b"\x1b[?1;1;0S",
    b"\x1b[4i",
    b"\x1bZ",
    b"\x05",
    b"\x1bP$qm\x1b\\",
    b"\x1bP+q544e\x1b\\",
    b"\x1bPq#0~~\x1b\\",
    b"\x1b_Gi=1;AAAA\x1b\\",
    b"\x1b^private\x1b\\",
    b"\x1bXstring\x1b\\",
    "\x9b6n".encode(),
    "\x9d52;c;?\x07".encode(),
    "\x90$qm\x1b\\".encode(),
    b"\x9b6n"[:1],
    b"\x1b[" + b"1;" * 400 + b"m",
)


@pytest.mark.parametrize("data", PASSED)
def test_what_draws_is_passed_on(data: bytes) -> None:
    assert ScreenFilter().feed(data) == data


@pytest.mark.parametrize("data", DROPPED)
def test_what_asks_or_forges_is_dropped(data: bytes) -> None:
    assert ScreenFilter().feed(b"a" + data + b"b") == b"ab"


@given(
    st.lists(st.sampled_from(PASSED + DROPPED) | st.binary(max_size=6), max_size=12),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_cuts_change_nothing(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    whole = ScreenFilter().feed(data)
    cut = ScreenFilter()
    out, position, number = b"", 0, 0
    while position < len(data):
        size = cuts[number % len(cuts)]
        out += cut.feed(data[position : position + size])
        position, number = position + size, number + 1
    assert out == whole


@given(st.lists(st.sampled_from(PASSED + DROPPED) | st.binary(max_size=8), max_size=12))
def test_filtering_again_changes_nothing(parts: list[bytes]) -> None:
    """What was let through holds nothing that would be dropped."""
    once = ScreenFilter().feed(b"".join(parts))
    assert ScreenFilter().feed(once) == once


def test_unterminated_string_holds_nothing_in_memory() -> None:
    screen = ScreenFilter()
    assert screen.feed(b"\x1b]52;c;" + b"A" * 1_000_000) == b""
    assert len(screen._held) <= 4096
    assert screen.feed(b"\x07after") == b"after"


def test_modes_that_were_left_are_undone() -> None:
    screen = ScreenFilter()
    screen.feed(b"\x1b[?1049h\x1b[?1000;1006h\x1b[?25l\x1b[?2004h\x1b[?2004l")
    assert screen.restore() == b"\x1b[?1000l\x1b[?1006l\x1b[?1049l\x1b[?25h\x1b[0m\x1b(B"
    assert ScreenFilter().restore() == b""
