"""A quarter of a megabyte of anything is rendered in bounded time and memory, and the ring stays small.

The bound on time is many times what each case needs on a slow machine: it is there to catch
work that grows with the square of the input.
"""

from __future__ import annotations

import random
import time

import pytest

from sandboxd.output.renderer import BINARY_NOTE, LineRenderer, render
from sandboxd.output.ring import Ring
from tests.output.hostile import hostile

SIZE = 1 << 18
BOUND_S = 10.0


HOSTILE = hostile(SIZE)


@pytest.mark.parametrize("name", HOSTILE)
def test_it_takes_bounded_time(name: str) -> None:
    data = HOSTILE[name]
    started = time.process_time()
    shown = render(data)
    assert time.process_time() - started < BOUND_S
    rows = sum(map(data.count, (b"\n", b"\x1bD", b"\x1bE"))) + 40
    assert len(shown) <= rows * 4200 * 17


@pytest.mark.parametrize("name", HOSTILE)
def test_the_ring_keeps_true_counts_and_its_budget(name: str) -> None:
    data = HOSTILE[name]
    ring = Ring(1000, 1000)
    for at in range(0, len(data), 65536):
        ring.feed(data[at : at + 65536])
    shown = ring.snapshot()
    assert (shown.total_bytes, shown.total_lines) == (len(data), data.count(b"\n"))
    assert len(shown.text) < 2500
    assert 0 <= shown.omitted_bytes <= len(data)


@pytest.mark.parametrize("name", ["a parameter without end", "OSC without end", "broken UTF-8"])
def test_a_line_that_never_ends_costs_the_same_whatever_the_reads(name: str) -> None:
    """Each chunk is looked at once, not again with all that came before it."""
    data = HOSTILE[name][:100_000]
    renderer = LineRenderer()
    started = time.process_time()
    for at in range(len(data)):
        renderer.feed(data[at : at + 1])
    assert time.process_time() - started < BOUND_S
    assert renderer.flush() == render(data)


def test_binary_output_is_said_once_live_and_then_only_counted() -> None:
    renderer = LineRenderer()
    data = b"a picture:\nhead\x00" + random.Random(5).randbytes(8 << 20)
    begun = time.process_time()
    lines = [
        line for at in range(0, len(data), 7000) for line in renderer.feed(data[at : at + 7000])
    ]
    assert time.process_time() - begun < 2
    assert lines == ["a picture:", "head", BINARY_NOTE]
    assert renderer.hidden_bytes == len(data) - len(b"a picture:\nhead")
    assert renderer.hidden_lines == data.count(b"\n") - 1
    assert renderer.flush() == ""


def test_a_few_nuls_are_text_live_too() -> None:
    renderer = LineRenderer()
    assert renderer.feed(b"one\0two\nthr") == ["onetwo"]
    assert renderer.feed(b"ee\n\0" * 300) == ["three"] + ["ee"] * 299
    assert renderer.flush() == ""
