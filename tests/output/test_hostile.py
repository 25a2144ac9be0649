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

SIZE = 1 << 18
BOUND_S = 10.0


def fill(unit: str | bytes) -> bytes:
    data = unit.encode() if isinstance(unit, str) else unit
    return (data * (SIZE // len(data) + 1))[:SIZE]


HOSTILE = {
    "ESC": fill("\x1b"),
    "CSI": fill("\x1b["),
    "a parameter without end": b"\x1b[" + fill("1"),
    "parameters without end": b"\x1b[" + fill("1;"),
    "OSC without end": b"\x1b]0;" + fill("x"),
    "many OSC without end": fill("\x1b]x"),
    "DCS with ESC inside": fill("\x1bPq\x1bx"),
    "C1": fill("\u009b"),
    "CR": fill("\r"),
    "BS": fill("x\b\b"),
    "BEL": fill("\x07"),
    "LF": fill("\n"),
    "combining marks": b"Z" + fill("\u0301"),
    "wide characters": fill("你"),
    "wide frames": fill("你好\r"),
    "restart points": fill("\r\x1b[Kx"),
    "almost restart points": fill("\x1b[K\r "),
    "REP": fill("x\x1b[4096b\r"),
    "REP on lines": fill("x\x1b[4096b\n")[: SIZE // 8],
    "ICH": fill("x\r\x1b[4096@"),
    "DCH": fill("x\x1b[4096G\x1b[1P"),
    "ECH": fill("\x1b[4096Gx\r\x1b[4096X"),
    "padding": fill("\x1b[4096Gx\n")[: SIZE // 8],
    "padding and erasing": fill("\x1b[4096Gx\r\x1b[K"),
    "up": fill("\x1b[A"),
    "up and down lines": fill("x\n\x1b[A\x1b[A\n\n"),
    "rows up on lines": fill("\x1b[31Ax\n"),
    "rows down": fill("\x1b[99B\n"),
    "home and clear": fill("\x1b[H\x1b[2J"),
    "index": fill("\x1bD\x1bM\x1bE"),
    "index on wide rows": fill("\x1b[4096Gx\x1bD")[: SIZE // 8],
    "save and restore": fill("\x1b7\x1b[5C\x1b8"),
    "tabs": fill("\t\x1b[Z"),
    "broken UTF-8": fill(b"\xe2\x82"),
    "NUL": fill("x\0"),
}


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
