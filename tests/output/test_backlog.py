"""Slow clients are told what they missed; nothing is skipped in silence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandboxd.output.backlog import Backlog, Batch, Cursor


def test_clients_read_at_their_own_pace() -> None:
    backlog = Backlog()
    fast, slow = Cursor(backlog), Cursor(backlog)
    backlog.append(["one", "two"])
    assert fast.take() == Batch(["one", "two"], 0, 0, 2)
    backlog.append(["three"])
    assert fast.take() == Batch(["three"], 0, 0, 3)
    assert fast.take() == Batch([], 0, 0, 3)
    assert slow.take(max_lines=2) == Batch(["one", "two"], 0, 0, 2)
    assert slow.take() == Batch(["three"], 0, 0, 3)


def test_a_client_that_never_read_is_told_lines_and_bytes_of_the_gap() -> None:
    backlog = Backlog(limit_bytes=700)
    cursor = Cursor(backlog)
    backlog.append(f"line {number}" for number in range(100))
    batch = cursor.take()
    assert batch.lines == [f"line {number}" for number in range(100 - len(batch.lines), 100)]
    assert batch.gap_lines == 100 - len(batch.lines)
    assert batch.gap_bytes == sum(len(f"line {n}\n") for n in range(batch.gap_lines))


def test_a_line_larger_than_the_limit_is_a_gap_and_not_a_leak() -> None:
    backlog = Backlog(limit_bytes=200)
    cursor = Cursor(backlog)
    backlog.append(["x" * 1000])
    assert cursor.take() == Batch([], 1, 1001, 1)


@given(
    st.lists(
        st.one_of(
            st.lists(st.text(st.characters(codec="utf-8"), max_size=9), max_size=20),
            st.integers(0, 9),
        ),
        max_size=40,
    )
)
def test_lines_and_gaps_add_up_to_everything(steps: list[list[str] | int]) -> None:
    backlog = Backlog(limit_bytes=900)
    cursor = Cursor(backlog)
    lines = size = 0
    for step in [*steps, 10_000]:
        if isinstance(step, list):
            backlog.append(step)
            continue
        batch = cursor.take(max_lines=step)
        lines += batch.gap_lines + len(batch.lines)
        size += batch.gap_bytes + sum(len(line.encode()) + 1 for line in batch.lines)
    assert (lines, size) == (backlog.total_lines, backlog.total_bytes)
