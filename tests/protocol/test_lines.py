"""Lines come out whole however the bytes were cut, and over-long ones are skipped, not kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandboxd.protocol.lines import LineSplitter

lines_of_bytes = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")))


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces, position = [], 0
    for size in sizes:
        pieces.append(data[position : position + size])
        position += size
    return [*pieces, data[position:]]


@given(lines_of_bytes, st.lists(st.integers(0, 20)), st.integers(1, 40))
def test_the_same_lines_however_the_bytes_are_cut(
    lines: list[bytes], sizes: list[int], limit: int
) -> None:
    splitter = LineSplitter(limit)
    data = b"".join(line + b"\n" for line in lines)
    got = [line for piece in cut(data, sizes) for line in splitter.feed(piece)]
    assert got == [line if len(line) < limit else None for line in lines]
    assert not splitter.has_partial_line


def test_an_endless_line_is_not_buffered() -> None:
    splitter = LineSplitter(limit=1000)
    for _ in range(10_000):
        assert splitter.feed(b"x" * 100) == []
    kept = sum(len(piece) for piece in splitter._pending)
    assert kept < 1000
    assert splitter.feed(b"\nnext\n") == [None, b"next"]


def test_a_partial_line_is_known_of() -> None:
    splitter = LineSplitter()
    splitter.feed(b"half")
    assert splitter.has_partial_line
