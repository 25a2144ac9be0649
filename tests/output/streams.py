"""Random terminal output for the tests of this folder: tokens, lines and cuts."""

from __future__ import annotations

import random

from hypothesis import strategies as st

TEXTS = (
    "abc",
    "xyz ",
    "hello world",
    "A",
    "0123456789",
    " ",
    "é",
    "ß",
    "█▉",
    "你",
    "好你",
    "e\u0301",
    "한",
)
PLAIN_CONTROLS = ("\r", "\b", "\b\b", "\t", "\x00", "\x07", "\x0b", "\x7f")
NUMBERS = ("", "0", "1", "2", "3", "5", "9", "12")
COLUMN_FINALS = "CDG`IZKX@Pb"
NO_EFFECT = (
    "\x1b[0m",
    "\x1b[1;31m",
    "\x1b[38:5:4m",
    "\x1b[?25l",
    "\x1b[?25h",
    "\x1b(B",
    "\x1b=",
    "\x1b[>4;1m",
    "\x1b]0;title\x07",
    "\x1b]8;;http://x/(y)\x1b\\",
    "\x1bPq\x1b\\",
    "\x1b_apc\x1b\\",
    "\x1b[1 q",
    "\x1b[\x18",
    "\x1b[3\x1a",
)
BROKEN = (
    "\x1b",
    "\x1b[",
    "\x1b[1",
    "\x1b]0;t",
    "\x1b(",
    "\x1bP",
    "\x9b",
    "\x9d",
    "\x1b[1;",
    "\x1b[\x08",
    "\x1b[3\r",
)
ROW_FINALS = "ABEFJ"


def line_token(rng: random.Random, *, broken: bool = False) -> str:
    kind = rng.random()
    if kind < 0.45:
        return rng.choice(TEXTS)
    if kind < 0.6:
        return rng.choice(PLAIN_CONTROLS)
    if kind < 0.68:
        return rng.choice(("\x1b7", "\x1b8", "\x1b[s", "\x1b[u"))
    if kind < 0.78:
        return rng.choice(NO_EFFECT)
    if broken and kind < 0.86:
        return rng.choice(BROKEN)
    return f"\x1b[{rng.choice(NUMBERS)}{rng.choice(COLUMN_FINALS)}"


def line(rng: random.Random, *, broken: bool = False, tokens: tuple[int, int] = (2, 10)) -> bytes:
    return "".join(line_token(rng, broken=broken) for _ in range(rng.randint(*tokens))).encode()


def screen(rng: random.Random, tokens: int = 40, finals: str = ROW_FINALS) -> bytes:
    """Lines among which the cursor moves up and down."""
    parts = []
    for _ in range(tokens):
        kind = rng.random()
        if kind < 0.35:
            parts.append("\n")
        elif kind < 0.5:
            parts.append(f"\x1b[{rng.choice(('', '0', '1', '2', '3'))}{rng.choice(finals)}")
        else:
            parts.append(line_token(rng))
    return "".join(parts).encode()


def cut(rng: random.Random, data: bytes, pieces: int) -> list[bytes]:
    borders = sorted(rng.randint(0, len(data)) for _ in range(pieces - 1))
    return [data[a:b] for a, b in zip([0, *borders], [*borders, len(data)], strict=True)]


_TOKENS = st.one_of(
    st.sampled_from(
        (*TEXTS, *PLAIN_CONTROLS, *NO_EFFECT, *BROKEN, "\n", "\r\n", "\r\x1b[K", "\x1b[2K\r")
    ),
    st.builds(
        "\x1b[{}{}".format,
        st.sampled_from(NUMBERS),
        st.sampled_from(COLUMN_FINALS + ROW_FINALS + "Hd"),
    ),
).map(str.encode)

streams = st.lists(st.one_of(_TOKENS, st.binary(max_size=4)), max_size=60).map(b"".join)
"""Anything a program could print, broken sequences and broken UTF-8 included."""


@st.composite
def cut_streams(
    draw: st.DrawFn, source: st.SearchStrategy[bytes] = streams
) -> tuple[bytes, list[bytes]]:
    """A stream and the same stream in pieces."""
    data = draw(source)
    borders = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return data, [data[a:b] for a, b in zip([0, *borders], [*borders, len(data)], strict=True)]
