"""What later text hides: progress bars rewritten with CR, without editing a single cell.

A flood of `\\r`-frames costs as much as its bytes are searched, because a frame that is no
longer than what follows it is never drawn. Two shortcuts, both exact:

- a *restart point* (`\\r ESC[K`, `ESC[2K \\r`, ...) empties the row and stands at column 0, so
  nothing before it matters;
- frames of one-column characters, coloured or not, each ended by CR and perhaps by EL, overlay:
  read backwards, a frame shows only where it is longer than the later ones.

Where the bytes hold anything else the answer is None and the editor does the work.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sandboxd.output.cells import CAP
from sandboxd.output.escapes import C1_BYTES, RARE_C0
from sandboxd.output.widths import has_odd

_COLOUR = re.compile(rb"\x1b\[[0-9;:]*+m")
_NOT_DROPPABLE = re.compile(rb"\x1b(?:[\]PX^_78DEM]|\[[^@-~\x1b]*+[bsuABEFHJdef])|\xc2[\x80-\x9f]")
"""What reaches beyond a restart point: strings, saved cursors, REP's budget, other rows."""
_RESTARTS = tuple(
    b"".join(pair)
    for pair in (
        *((b"\r", erase) for erase in (b"\x1b[K", b"\x1b[0K", b"\x1b[2K")),
        *((b"\x1b[2K", home) for home in (b"\r", b"\x1b[G", b"\x1b[1G", b"\x1b[0G")),
        *(
            (home, erase)
            for home in (b"\x1b[G", b"\x1b[1G", b"\x1b[0G")
            for erase in (b"\x1b[K", b"\x1b[0K", b"\x1b[2K")
        ),
    )
)
_NEAR_END = 4096
"""A flood has its last restart here; searching all of it for pairs that are absent is slow."""
_ASCII = bytes(range(0x80))


class Hidden(NamedTuple):
    """`data[:end]` amounts to this: empty the row or not, print at column 0, return to 0."""

    end: int
    clears: bool
    visible: str


def restart_point(data: bytes) -> int:
    """The end of the last restart point before which everything may be dropped, or 0."""
    if b"\x1b[" not in data:
        return 0
    best = _last_restart(data, max(len(data) - _NEAR_END, 0)) or _last_restart(data, 0)
    if best and _NOT_DROPPABLE.search(data, 0, best):
        return 0
    return best


def _last_restart(data: bytes, start: int) -> int:
    found = ((data.rfind(pair, start), len(pair)) for pair in _RESTARTS)
    return max((at + size for at, size in found if at >= 0), default=0)


def overlay(data: bytes) -> Hidden | None:
    """Frames that each begin at column 0; `data` is taken up to its last CR."""
    end = data.rfind(b"\r") + 1
    frames = data[: end - 1] if end else b""
    if not frames or _has_other_controls(frames):
        return None
    text = _plain(frames)
    return None if text is None else _overlaid(text.split("\r"), end)


def _has_other_controls(frames: bytes) -> bool:
    if b"\x08" in frames or b"\t" in frames or any(code in frames for code in RARE_C0):
        return True
    return b"\xc2" in frames and C1_BYTES.search(frames) is not None


def _plain(frames: bytes) -> str | None:
    """The frames without colour, if that is exact and each character takes one column."""
    if b"\x1b" in frames:
        stripped = b"".join(_COLOUR.split(frames)).replace(b"\x1b[0K", b"\x1b[K")
    else:
        stripped = frames
    if stripped.isascii():
        return stripped.decode("ascii")
    try:
        frames.decode()
    except UnicodeDecodeError:
        return None
    if has_odd(stripped.translate(None, _ASCII).decode("utf-8", "replace")):
        return None
    return stripped.decode()


def _overlaid(frames: list[str], end: int) -> Hidden | None:
    visible = ""
    for frame in reversed(frames):
        shown = frame.removesuffix("\x1b[K") if "\x1b" in frame else frame
        if "\x1b" in shown:
            return None
        if shown is not frame:
            return Hidden(end, True, visible + shown[len(visible) : CAP])
        if len(shown) > len(visible):
            visible += shown[len(visible) :]
    return Hidden(end, False, visible)
