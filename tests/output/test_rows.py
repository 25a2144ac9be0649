"""Rows that a program moves back to and draws again."""

from __future__ import annotations

import random

from hypothesis import given, settings

from sandboxd.output.lines import FOLD
from sandboxd.output.renderer import LineRenderer, render
from sandboxd.output.rows import LiveRows
from tests.output.streams import cut, cut_streams, line, screen


def shown_in_pieces(rows: LiveRows, pieces: list[bytes]) -> tuple[str, int, int]:
    """Text, source bytes and source LFs of everything that the rows hand out."""
    out = [piece for part in pieces for piece in rows.feed(part)]
    out += rows.live()
    return (
        "".join(piece.rendered() for piece in out),
        sum(piece.n_bytes for piece in out),
        sum(piece.n_lines for piece in out),
    )


def streamed(pieces: list[bytes]) -> str:
    renderer = LineRenderer()
    lines = [shown for part in pieces for shown in renderer.feed(part)]
    return "".join(f"{shown}\n" for shown in lines) + renderer.flush()


def test_a_frame_drawn_again_replaces_the_last() -> None:
    frame = "\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[Gone {0}\ntwo {0}\n"
    data = "start\none 0\ntwo 0\n" + "".join(frame.format(step) for step in range(1, 50))
    assert render(data.encode()) == "start\none 49\ntwo 49\n"


def test_a_missing_or_zero_count_moves_one_row() -> None:
    assert render(b"a\nb\nc\n\x1b[0AX\n") == "a\nb\nX\n"
    assert render(b"a\nb\nc\n\x1b[AX\n") == "a\nb\nX\n"
    assert render(b"a\nb\n\x1b[2A\x1b[0BX\n") == "a\nX\n"


def test_moving_above_the_first_live_row_stops_there() -> None:
    assert render(b"a\nb\n\x1b[99AX\n") == "X\nb\n"
    data = b"".join(b"%d\n" % number for number in range(100)) + b"\x1b[99A\x1b[KX\n"
    shown = render(data).split("\n")
    assert shown.index("X") == 69  # 31 rows above the cursor's
    assert shown[68:71] == ["68", "X", "70"]


def test_erasing_below_forgets_the_rows_below() -> None:
    assert render(b"menu\n> one\n  two\n  three\n\x1b[3A\x1b[Jchosen one\n") == "menu\nchosen one\n"


def test_rows_that_were_erased_leave_no_blank_end() -> None:
    assert render(b"one\ntwo\n\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[G") == ""


def test_clearing_the_screen_and_drawing_from_the_top() -> None:
    assert render(b"old\nold\n\x1b[H\x1b[2Jnew\n") == "new\n"


def test_next_and_previous_line_go_to_column_0() -> None:
    assert render(b"aaa\nbbb\nccc\x1b[2FX\x1b[1EY\n") == "Xaa\nYbb\nccc"


def test_index_and_reverse_index_keep_the_column() -> None:
    assert render(b"aaa\nb\x1bMX") == "aXa\nb"
    assert render(b"ab\x1bDX\x1bEY") == "ab\n  X\nY"


def test_a_tab_in_a_row_that_is_only_passed_over_stays_a_tab() -> None:
    assert render(b"a\tb\nc\n\x1b[2A\x1b[1BX\n") == "a\tb\nX\n"


def test_streaming_waits_until_the_first_move() -> None:
    renderer = LineRenderer()
    assert renderer.feed(b"one\ntwo\n") == ["one", "two"]
    assert renderer.feed(b"bar 1\nbar 2\n\x1b[2A") == ["bar 1", "bar 2"]
    assert renderer.feed(b"\x1b[Kbar 3\nbar 4\n") == []
    assert renderer.live() == "bar 3\nbar 4\n"
    assert renderer.flush() == "bar 3\nbar 4\n"


def test_streaming_goes_on_after_rows_were_held_back() -> None:
    renderer = LineRenderer(live_rows=4)
    lines = renderer.feed(b"x\n\x1b[1Ay\n" + b"".join(b"%d\n" % n for n in range(10)))
    assert lines == ["x", "y", "0", "1", "2", "3", "4", "5", "6"]
    assert renderer.flush() == "7\n8\n9\n"


def test_flush_gives_the_partial_line_and_starts_anew() -> None:
    renderer = LineRenderer()
    assert renderer.feed(b"a\nb\xe2\x82") == ["a"]
    assert renderer.flush() == "b\ufffd"
    assert renderer.flush() == ""
    assert renderer.feed(b"c\n") == ["c"]


@settings(max_examples=300)
@given(cut_streams())
def test_the_same_is_shown_however_the_bytes_are_cut(case: tuple[bytes, list[bytes]]) -> None:
    data, pieces = case
    whole = shown_in_pieces(LiveRows(), [data])
    assert shown_in_pieces(LiveRows(), pieces) == whole
    assert whole[1:] == (len(data), data.count(b"\n"))


@settings(max_examples=150)
@given(cut_streams())
def test_the_same_lines_are_streamed_however_the_bytes_are_cut(
    case: tuple[bytes, list[bytes]],
) -> None:
    data, pieces = case
    assert streamed(pieces) == streamed([data])


def test_byte_by_byte_shows_the_same() -> None:
    rng = random.Random(3)
    for _ in range(150):
        data = screen(rng)
        single = [data[at : at + 1] for at in range(len(data))]
        assert shown_in_pieces(LiveRows(), single) == shown_in_pieces(LiveRows(), [data])


def test_screens_among_plain_lines_show_the_same_for_any_height() -> None:
    """Bulk lines and edited rows take turns, so every hand-over between them is crossed."""
    rng = random.Random(5)
    for _ in range(300):
        parts = [
            screen(rng) if rng.random() < 0.4 else b"plain\nb\tc\n" * rng.randint(0, 20)
            for _ in range(4)
        ]
        data, height = b"".join(parts), rng.randint(2, 32)
        whole = shown_in_pieces(LiveRows(height), [data])
        assert shown_in_pieces(LiveRows(height), cut(rng, data, 6)) == whole
        assert whole[1:] == (len(data), data.count(b"\n"))


def test_a_line_longer_than_the_fold_shows_the_same_however_it_is_cut() -> None:
    """Beyond FOLD a growing line lives in cells: sequences, strings and characters split there."""
    rng = random.Random(9)
    for _ in range(25):
        parts = [line(rng, broken=rng.random() < 0.3, tokens=(1, 6)) for _ in range(30)]
        filler = rng.choice(
            (
                b"=" * 900 + b"\r",
                b"\xe2\x96\x88" * 300 + b"\r\x1b[K",
                b"x" * 700,
                b"\x1b]0;" + b"t" * 900,
            )
        )
        data = (
            b"before\n"
            + filler.join(parts)
            + filler * (FOLD // len(filler))
            + line(rng)
            + b"\nafter\n"
        )
        whole = shown_in_pieces(LiveRows(), [data])
        assert shown_in_pieces(LiveRows(), cut(rng, data, 5)) == whole
        assert whole[1:] == (len(data), data.count(b"\n"))


def test_looking_at_live_rows_changes_nothing() -> None:
    rng = random.Random(7)
    for _ in range(100):
        data = screen(rng)
        watched, alone = LiveRows(), LiveRows()
        for at in range(0, len(data), 7):
            watched.feed(data[at : at + 7])
            watched.live()
            alone.feed(data[at : at + 7])
        assert watched.live() == alone.live()
