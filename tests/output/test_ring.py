"""Head, tail, and true counts of what lies between."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.model import Captured
from sandboxd.output.renderer import render
from sandboxd.output.ring import Ring
from tests.output.streams import cut_streams, streams

MARKER = re.compile(r"\[(\d+) bytes, (\d+) lines omitted[^\n]*\]\n")


def captured(pieces: list[bytes], head: int = 32768, tail: int = 32768) -> Captured:
    ring = Ring(head, tail)
    for piece in pieces:
        ring.feed(piece)
    return ring.snapshot()


def numbered(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(1, count + 1))


def test_what_fits_is_whole_and_has_no_marker() -> None:
    data = b"x" * 200 + b"\n"
    shown = captured([data * 200])
    assert shown == Captured(text=data.decode() * 200, total_bytes=40200, total_lines=200)


def test_the_marker_names_bytes_and_lines_and_how_to_read_them() -> None:
    ring = Ring(40, 40)
    ring.feed(numbered(1000))
    shown = ring.snapshot("abc")
    head = "line 1\nline 2\nline 3\nline 4\nline 5\n"
    tail = "line 997\nline 998\nline 999\nline 1000\n"
    assert shown.omitted_lines == 1000 - 5 - 4
    assert shown.omitted_bytes == len(numbered(1000)) - len(head) - len(tail)
    assert shown.text == (
        f"{head}[{shown.omitted_bytes} bytes, 991 lines omitted; read them with "
        f'output.read {{"output_id": "abc", "from_line": 6, "count": 991}}]\n{tail}'
    )


def test_the_named_range_is_the_omitted_middle() -> None:
    data = numbered(50_000)
    shown = captured([data[at : at + 1000] for at in range(0, len(data), 1000)], 500, 700)
    head, tail = MARKER.split(shown.text)[0], MARKER.split(shown.text)[-1]
    lines = data.splitlines(keepends=True)
    first = head.count("\n")
    middle = b"".join(lines[first : first + shown.omitted_lines])
    assert head.encode() + middle + tail.encode() == data
    assert len(middle) == shown.omitted_bytes


def test_without_a_spill_the_marker_promises_nothing() -> None:
    shown = captured([numbered(1000)], 40, 40)
    assert "output.read" not in shown.text
    assert MARKER.search(shown.text)


def test_budgets_are_of_rendered_text() -> None:
    """Padding cannot blow the head up, and colour does not use it up."""
    padded = captured([b"\x1b[4000Gx\n" * 100], 32768, 32768)
    assert len(padded.text) <= 32768 * 2 + 100
    coloured = captured([b"\x1b[38;5;200mword\x1b[0m\n" * 2000], 32768, 32768)
    assert coloured.text == "word\n" * 2000


def test_a_progress_bar_of_megabytes_is_one_line() -> None:
    frames = b"".join(b"\r%3d%%|%s|" % (n // 200, b"#" * (n // 400)) for n in range(20_000))
    shown = captured([frames[at : at + 4096] for at in range(0, len(frames), 4096)])
    assert shown.text == render(frames)
    assert (shown.omitted_bytes, shown.total_bytes) == (0, len(frames))


@pytest.mark.parametrize("tail", [0, 1, 100])
@pytest.mark.parametrize("head", [0, 1, 100])
def test_any_budget_keeps_true_counts(head: int, tail: int) -> None:
    shown = captured([numbered(500)], head, tail)
    assert (shown.total_bytes, shown.total_lines) == (len(numbered(500)), 500)
    around = MARKER.split(shown.text)
    lines = around[0].count("\n") + around[-1].count("\n")
    assert lines + shown.omitted_lines == 500
    assert len(around[0]) <= head + len("[+99]\n")
    assert len(around[-1]) <= tail + len("[+99]\n")


def test_a_line_longer_than_the_budget_is_cut_and_counted_not_dropped() -> None:
    assert captured([b"x" * 300 + b"\nlast"], 100, 100).text == "x" * 100 + "[+200]\nlast"
    assert captured([b"y" * 300], 0, 50).text == "y" * 50 + "[+250]"


def test_the_end_survives_a_flood() -> None:
    shown = captured([b"noise\n" * 1000] * 500 + [b"FAILED: the reason\n"])
    assert shown.text.endswith("noise\nFAILED: the reason\n")
    assert len(shown.text) < 70_000


def test_an_incomplete_last_line_is_shown_as_it_stands() -> None:
    assert captured([b"done\nPassword: "]).text == "done\nPassword: "


def test_snapshots_may_be_taken_at_any_time() -> None:
    """A snapshot changes nothing: watching a stream gives the same end as not watching it."""
    rng = random.Random(1)
    watched, alone = Ring(300, 300), Ring(300, 300)
    for _ in range(400):
        chunk = rng.choice((numbered(3), b"\r50%", b"\x1b[2A\x1b[Kup\n", b"part", b"\xe2\x82"))
        watched.feed(chunk)
        watched.snapshot()
        alone.feed(chunk)
    assert watched.snapshot() == alone.snapshot()


@settings(max_examples=200)
@given(cut_streams(), st.sampled_from((0, 5, 60, 32768)), st.sampled_from((0, 5, 60, 32768)))
def test_any_cut_gives_the_same_capture(
    case: tuple[bytes, list[bytes]], head: int, tail: int
) -> None:
    data, pieces = case
    assert captured(pieces, head, tail) == captured([data], head, tail)


@settings(max_examples=200)
@given(streams, st.integers(0, 80), st.integers(0, 80))
def test_counts_never_exceed_the_source(data: bytes, head: int, tail: int) -> None:
    shown = captured([data], head, tail)
    assert (shown.total_bytes, shown.total_lines) == (len(data), data.count(b"\n"))
    assert 0 <= shown.omitted_bytes <= len(data)
    assert 0 <= shown.omitted_lines <= data.count(b"\n")


@settings(max_examples=100)
@given(
    st.lists(
        st.text(
            st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Mn", "Me", "Cf")),
            max_size=30,
        ),
        max_size=80,
    ),
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(1, 50),
)
def test_head_omitted_and_tail_are_the_input(
    lines: list[str], head: int, tail: int, size: int
) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    shown = captured([data[at : at + size] for at in range(0, len(data), size)], head, tail)
    if "[+" in shown.text:  # a single line was larger than a budget
        return
    before, after = MARKER.split(shown.text)[0], MARKER.split(shown.text)[-1]
    if not shown.omitted_bytes:
        assert shown.text.encode() == data
        return
    start, end = len(before.encode()), len(data) - len(after.encode())
    assert data.startswith(before.encode())
    assert data.endswith(after.encode())
    assert (shown.omitted_bytes, shown.omitted_lines) == (
        end - start,
        data.count(b"\n", start, end),
    )


def test_pruning_keeps_counts_exact() -> None:
    """Many megabytes in every kind of line, so that the tail is pruned raw and rendered."""
    rng = random.Random(2)
    kinds = (
        numbered(500),
        b"\x1b[31mred\x1b[0m\x1b[40Gcolumn\n" * 50,
        b"".join(b"\r%d%%" % n for n in range(3000)) + b"\n",
        b"w" * 5000 + b"\n",
        b"one\ntwo\n\x1b[2A\x1b[Jthree\n" * 5,
    )
    ring = Ring()
    size = count = 0
    for _ in range(600):
        chunk = rng.choice(kinds)
        size += len(chunk)
        count += chunk.count(b"\n")
        ring.feed(chunk)
    shown = ring.snapshot()
    assert (shown.total_bytes, shown.total_lines) == (size, count)
    assert 0 < shown.omitted_bytes < size
    assert 60_000 < len(shown.text) < 66_000


def test_binary_output_is_counted_and_not_shown() -> None:
    data = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + random.Random(4).randbytes(300_000)
    ring = Ring()
    ring.feed(b"cat picture.png\n")
    ring.feed(data)
    ring.feed(b"\nconvert: error: bad header\n")
    shown = ring.snapshot("id1")
    omitted = shown.omitted_bytes
    assert ring.is_binary
    assert shown.text == (
        f"cat picture.png\n[{omitted} bytes, {shown.omitted_lines} lines of binary output not "
        f'shown; read them with output.read {{"output_id": "id1", "raw": true}}]\n'
        "convert: error: bad header\n"
    )
    shown_bytes = len(b"cat picture.png\nconvert: error: bad header\n")
    assert omitted + shown_bytes == shown.total_bytes == len(data) + 44


@given(st.lists(st.integers(0, 4000), max_size=4))
def test_binary_is_recognised_however_it_is_cut(borders: list[int]) -> None:
    data = b"text before\n" + random.Random(4).randbytes(4000) + b"\nthe end\n"
    cuts = sorted(borders)
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert captured(pieces) == captured([data])
    assert captured(pieces).text.startswith("text before\n[")


def test_names_separated_by_nul_are_text() -> None:
    data = b"".join(b"./src/file-%d.py\0" % number for number in range(150))
    shown = captured([data])
    assert shown.text == data.replace(b"\0", b"").decode()
    assert not shown.omitted_bytes


@pytest.mark.parametrize(
    ("head", "tail", "shown", "omitted"),
    [
        (2, 3, (2, 3), 495),
        (0, 1, (0, 1), 499),
        (1, 0, (1, 0), 499),
        (0, 0, (0, 0), 500),
        (250, 250, (250, 250), 0),
        (500, 0, (500, 0), 0),
        (9999, 9999, (500, 0), 0),
    ],
)
def test_head_and_tail_may_be_bounded_in_lines(
    head: int, tail: int, shown: tuple[int, int], omitted: int
) -> None:
    for size in (7, 1000, 10_000):
        ring = Ring(head_lines=head, tail_lines=tail)
        data = numbered(500)
        for at in range(0, len(data), size):
            ring.feed(data[at : at + size])
        captured = ring.snapshot()
        assert captured.omitted_lines == omitted
        first, *last = MARKER.split(captured.text)
        lines = data.decode().splitlines(keepends=True)
        assert first == "".join(lines[: shown[0] if omitted else 500])
        assert not last or last[-1] == "".join(lines[500 - shown[1] :])


@settings(max_examples=200)
@given(cut_streams(), st.integers(0, 6), st.integers(0, 6))
def test_bounds_in_lines_do_not_depend_on_the_cut(
    case: tuple[bytes, list[bytes]], head: int, tail: int
) -> None:
    data, pieces = case

    def seen(parts: list[bytes]) -> Captured:
        ring = Ring(head_lines=head, tail_lines=tail)
        for part in parts:
            ring.feed(part)
        return ring.snapshot()

    assert seen(pieces) == seen([data])
    assert seen([data]).total_lines == data.count(b"\n")
