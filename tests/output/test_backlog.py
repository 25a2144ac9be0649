"""Slow clients are told what they missed; nothing is skipped in silence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandboxd.output.backlog import Backlog, Batch, Cursor, Place
from sandboxd.output.pieces import Piece, raw_piece


def raw(*lines: str) -> Piece:
    return raw_piece("".join(f"{line}\n" for line in lines).encode())


def edited(text: str, n_bytes: int, n_lines: int) -> Piece:
    return Piece(n_bytes, n_lines, None, text + "\n")


def test_clients_read_at_their_own_pace() -> None:
    backlog = Backlog()
    fast, slow = Cursor(backlog), Cursor(backlog)
    backlog.append([raw("one", "two")])
    assert fast.take() == Batch(["one", "two"], 0, 0, Place(2, 8))
    backlog.append([raw("three")])
    assert fast.take() == Batch(["three"], 0, 0, Place(3, 14))
    assert fast.take() == Batch([], 0, 0, Place(3, 14))
    assert slow.take(max_lines=1) == Batch(["one"], 0, 0, Place(1, 4))
    assert slow.take(max_lines=1) == Batch(["two"], 0, 0, Place(2, 8))
    assert slow.take() == Batch(["three"], 0, 0, Place(3, 14))


def test_lines_are_shown_as_a_person_sees_them_and_counted_as_they_came() -> None:
    backlog = Backlog()
    cursor = Cursor(backlog)
    backlog.append([raw("\x1b[1mbold\x1b[0m"), edited("100%", 500, 0), raw_piece(b"no end")])
    assert cursor.take() == Batch(["bold", "100%", "no end"], 0, 0, Place(3, 13 + 500 + 6))


def test_a_client_that_never_read_is_told_lines_and_bytes_of_the_gap() -> None:
    backlog = Backlog(limit_bytes=700)
    cursor = Cursor(backlog)
    backlog.append(raw(f"line {number}") for number in range(100))
    batch = cursor.take()
    assert batch.lines == [f"line {number}" for number in range(100 - len(batch.lines), 100)]
    assert batch.lines
    assert batch.gap_lines == 100 - len(batch.lines)
    assert batch.gap_bytes == sum(len(f"line {n}\n") for n in range(batch.gap_lines))


def test_a_client_left_behind_in_the_middle_of_a_piece_is_told_the_rest_of_it() -> None:
    backlog = Backlog(limit_bytes=400)
    cursor = Cursor(backlog)
    backlog.append([raw("one", "two", "three")])
    assert cursor.take(max_lines=1).lines == ["one"]
    backlog.append([raw("x" * 250)])
    assert cursor.take() == Batch(["x" * 250], 2, 10, Place(4, 14 + 251))


def test_a_piece_larger_than_the_limit_is_a_gap_and_not_a_leak() -> None:
    backlog = Backlog(limit_bytes=200)
    cursor = Cursor(backlog)
    backlog.append([raw("x" * 1000)])
    assert cursor.take() == Batch([], 1, 1001, Place(1, 1001))


_words = st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=9)
_pieces = st.one_of(
    st.lists(_words, min_size=1, max_size=20).map(lambda lines: raw(*lines)),
    st.builds(edited, _words, st.integers(1, 99), st.integers(0, 3)),
)


@given(st.lists(st.one_of(st.lists(_pieces, max_size=5), st.integers(0, 9)), max_size=40))
def test_lines_and_gaps_add_up_to_everything(steps: list[list[Piece] | int]) -> None:
    backlog = Backlog(limit_bytes=900)
    cursor = Cursor(backlog)
    lines = n_bytes = 0
    before = Place(0, 0)
    for step in [*steps, 10_000]:
        if isinstance(step, list):
            backlog.append(step)
            continue
        batch = cursor.take(max_lines=step)
        lines += batch.gap_lines + len(batch.lines)
        n_bytes += batch.gap_bytes
        assert batch.place.byte >= before.byte + batch.gap_bytes
        before = batch.place
    assert (lines, before) == (backlog.end.line, backlog.end)
