"""Recorded programs end up as tmux shows them, whatever the size of the reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.output.renderer import render
from sandboxd.output.ring import Ring
from tests.output.tmux import Tmux

CAPTURED = Path(__file__).parent.parent / "captured"
RECORDINGS = {path.stem: path.read_bytes() for path in sorted(CAPTURED.glob("*.raw"))}
FRAMES_DROPPED = {
    "git-clone": 40,
    "tqdm": 12,
    "tqdm-nested": 35,
    "rich-progress": 20,
    "alive": 15,
    "ink": 30,
    "listr2": 100,
    "ora": 50,
    "npm": 40,
}
"""Programs that draw again and again, and how many times shorter they are at least."""


@pytest.fixture(scope="module")
def tmux() -> Iterator[Tmux]:
    pane = Tmux(columns=300, rows=40)
    yield pane
    pane.close()


def as_seen(text: str) -> list[str]:
    rows = [row.expandtabs(8).rstrip() for row in text.split("\n")]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) >= 20


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_end_is_what_tmux_shows(name: str, tmux: Tmux) -> None:
    data = RECORDINGS[name]
    assert as_seen(render(data)) == tmux.screen(data.replace(b"\r\n", b"\n"))


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("size", [1, 100, 4096])
def test_the_ring_shows_the_same_for_any_read_size(name: str, size: int) -> None:
    data = RECORDINGS[name]
    ring = Ring()
    for at in range(0, len(data), size):
        ring.feed(data[at : at + size])
    shown = ring.snapshot()
    assert shown.text == render(data)
    assert (shown.omitted_bytes, shown.total_bytes) == (0, len(data))


@pytest.mark.parametrize(("name", "times"), FRAMES_DROPPED.items())
def test_frames_do_not_pile_up(name: str, times: int) -> None:
    data = RECORDINGS[name]
    assert len(render(data).encode()) * times <= len(data)
