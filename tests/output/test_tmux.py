"""tmux judges: random lines and screens end up as a person would see them there.

Left out are the few things in which tmux 3.3a differs on purpose or by omission: CHT and HPR
(not implemented there), VT and FF (they move a row down; here only LF does), C1 controls in UTF-8,
a DCS that CAN does not end, and what is printed over the second half of a wide character (tmux keeps the first).
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator

import pytest

from sandboxd.output.editor import Editor
from sandboxd.output.escapes import row_moves
from sandboxd.output.lines import render_line
from sandboxd.output.renderer import render
from tests.output import streams
from tests.output.tmux import Tmux

LINES = int(os.environ.get("TMUX_LINES", "4000"))
SCREENS = int(os.environ.get("TMUX_SCREENS", "40"))
ROWS = 32
_NOT_IN_TMUX = re.compile(
    rb"\x1b\[[^@-~\x1b]*[aI]|\x0b|\x0c|\x1bP(?!q\x1b\\)|\x1b\((?!B)|\xc2[\x80-\x9f]"
)
_WIDE = re.compile("[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3]")


@pytest.fixture(scope="module")
def tmux() -> Iterator[Tmux]:
    pane = Tmux(columns=300, rows=ROWS)
    yield pane
    pane.close()


def as_seen(text: str) -> str:
    """With blanks for tabs, as a terminal captures them, and none at the end."""
    editor = Editor()
    editor.feed(text.encode())
    return editor.text().rstrip()


def random_lines(seed: int, count: int) -> list[bytes]:
    rng = random.Random(seed)
    found: list[bytes] = []
    while len(found) < count:
        line = streams.line(rng, broken=True)
        if not _NOT_IN_TMUX.search(line) and not row_moves(line):
            found.append(line)
    return found


def test_random_lines_end_up_as_tmux_shows_them(tmux: Tmux) -> None:
    lines = random_lines(seed=20, count=LINES)
    wrong = [
        (line, ours, theirs)
        for line, theirs in zip(lines, tmux.lines(lines), strict=True)
        if (ours := as_seen(render_line(line))) != theirs
    ]
    unexplained = [case for case in wrong if not _WIDE.search(case[0].decode("utf-8", "replace"))]
    assert unexplained == []
    assert len(wrong) <= LINES // 50


def random_screens(seed: int, count: int, finals: str) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(count):
        data = streams.screen(rng, rng.choice((20, 60, 200)), finals)
        # LF resets saved columns here, and only here.
        data = re.sub(rb"\x1b[78]|\x1b\[[su]|\x0b|\x1b\[\d*[aI]", b"", data)
        yield re.sub(rb"[^\x00-\x7f]", b"", data) if rng.random() < 0.5 else _narrow(data)


def _narrow(data: bytes) -> bytes:
    return _WIDE.sub("w", data.decode("utf-8", "replace")).encode()


@pytest.mark.parametrize("finals", ["ABEF", "ABEFHd"])
def test_random_screens_end_up_as_tmux_shows_them(tmux: Tmux, finals: str) -> None:
    """Live rows as many as the screen has: every row is where the terminal has it."""
    for data in random_screens(seed=21, count=SCREENS, finals=finals):
        ours = [as_seen(row) for row in render(data).split("\n")]
        while ours and not ours[-1]:
            ours.pop()
        assert ours == tmux.screen(data), data


def scrolls(data: bytes) -> bool:
    editor = Editor(ROWS)
    for line in data.split(b"\n"):
        editor.feed(line)
        editor.linefeed()
    return bool(editor.scrolled)


@pytest.fixture(scope="module")
def tmux_without_history() -> Iterator[Tmux]:
    pane = Tmux(columns=300, rows=ROWS, history=0)
    yield pane
    pane.close()


def test_erasing_in_the_display_ends_up_as_tmux_shows_it(tmux_without_history: Tmux) -> None:
    """Without a history, into which tmux would move a screen that is erased as a whole."""
    for data in random_screens(seed=22, count=2 * SCREENS, finals="ABJHJ"):
        if not scrolls(data):
            ours = [as_seen(row) for row in render(data).split("\n")]
            while ours and not ours[-1]:
                ours.pop()
            assert ours == tmux_without_history.screen(data), data
