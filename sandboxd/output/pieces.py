"""Pieces of output with the source they stand for, and cutting them at line borders.

A piece is either raw lines, rendered when somebody wants to see them, or the text of one row
that was edited. Raw lines and rendered lines correspond one to one, so a cut in the text is a
cut in the source, and every count stays exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sandboxd.output.lines import least_size, render_lines

SLICE_BYTES = 1 << 14
"""Raw bytes rendered at a time where only a part may be needed."""


class Piece(NamedTuple):
    """Output in order. `n_lines` counts LFs of the source, `n_bytes` its bytes."""

    n_bytes: int
    n_lines: int
    raw: bytes | None
    text: str = ""

    def rendered(self) -> str:
        """What a person would see, LFs included."""
        return self.text if self.raw is None else render_lines(self.raw)

    def least_size(self) -> int:
        """Bytes of the text, or fewer where that is cheaper to tell."""
        size = None if self.raw is None else least_size(self.raw)
        return len(self.rendered().encode()) if size is None else size


class Shown(NamedTuple):
    """Rendered text, its size in UTF-8, and the source it stands for."""

    text: str
    size: int
    n_bytes: int
    n_lines: int


NOTHING = Shown("", 0, 0, 0)


def raw_piece(raw: bytes, n_lines: int | None = None) -> Piece:
    """`n_lines` is the number of LFs where it is known: counting costs as much as reading."""
    return Piece(len(raw), raw.count(b"\n") if n_lines is None else n_lines, raw)


def start_of_last(lines: bytes, count: int) -> int:
    """Where the last `count` lines begin (the very last may lack its LF)."""
    start = len(lines)
    for _ in range(count):
        if start <= 0:
            break
        start = lines.rfind(b"\n", 0, start - 1) + 1
    return start


def end_of_first(lines: bytes, count: int) -> int:
    """Where the first `count` lines end."""
    end = 0
    for _ in range(count):
        end = lines.find(b"\n", end) + 1 or len(lines)
    return end


def shown_lines(piece: Piece) -> int:
    """Lines that a person would count; an edited row is one, whatever of the source it stands for."""
    if piece.raw is None:
        return piece.text.count("\n") + (not piece.text.endswith("\n"))
    return piece.n_lines + (not piece.raw.endswith(b"\n"))


def first_lines(piece: Piece, count: int) -> tuple[Piece, Piece | None]:
    """The first `count` lines (at least one), and the rest."""
    if piece.raw is None or shown_lines(piece) <= count:
        return piece, None
    end = end_of_first(piece.raw, max(count, 1))
    return raw_piece(piece.raw[:end]), piece_after(piece, end)


def last_lines(piece: Piece, count: int) -> Piece | None:
    """The last `count` lines; None when that is none."""
    if count <= 0:
        return None
    if piece.raw is None or shown_lines(piece) <= count:
        return piece
    return raw_piece(piece.raw[start_of_last(piece.raw, count) :])


def piece_after(piece: Piece, n_bytes: int) -> Piece | None:
    """What of a raw piece follows its first `n_bytes`."""
    rest = (piece.raw or b"")[n_bytes:]
    return raw_piece(rest) if rest else None


def slices(piece: Piece) -> Iterator[Piece]:
    """The piece in raw slices of whole lines, oldest first."""
    raw = piece.raw
    if raw is None or len(raw) <= SLICE_BYTES:
        yield piece
        return
    start = 0
    while start < len(raw):
        end = raw.rfind(b"\n", start, start + SLICE_BYTES) + 1
        end = end or raw.find(b"\n", start) + 1 or len(raw)
        yield raw_piece(raw[start:end])
        start = end


def slices_backwards(piece: Piece) -> Iterator[Piece]:
    """The piece in raw slices of whole lines, newest first."""
    raw = piece.raw
    if raw is None or len(raw) <= SLICE_BYTES:
        yield piece
        return
    end = len(raw)
    while end > 0:
        start = raw.find(b"\n", max(end - SLICE_BYTES, 0), end - 1) + 1
        if end <= SLICE_BYTES:
            start = 0
        elif start == 0:
            start = raw.rfind(b"\n", 0, end - 1) + 1
        yield raw_piece(raw[start:end])
        end = start


def single_lines(piece: Piece) -> Iterator[Piece]:
    """Raw lines as rendered pieces of one line each."""
    if piece.raw is None:
        yield piece
        return
    texts = piece.rendered().split("\n")
    for text, raw in zip(texts[:-1], piece.raw.split(b"\n")[:-1], strict=True):
        yield Piece(len(raw) + 1, 1, None, text + "\n")


def split_start(piece: Piece, room: int, *, shorten: bool) -> tuple[Shown, Piece | None]:
    """The lines from the start that fit into `room` bytes, and the rest.

    With `shorten` a first line that does not fit is cut, `[+N]` appended, rather than left out.
    """
    text = piece.rendered()
    data = text.encode()
    if len(data) <= room:
        return Shown(text, len(data), piece.n_bytes, piece.n_lines), None
    cut = data.rfind(b"\n", 0, room) + 1 if room > 0 else 0
    if cut:
        shown = data[:cut].decode()
        return _split_raw(piece, shown, cut)
    if shorten and room > 0:
        line = _shortened(text.partition("\n")[0], room) + "\n"
        return _split_raw(piece, line, len(line.encode()))
    return NOTHING, piece


def take_end(piece: Piece, room: int, *, shorten: bool) -> Shown:
    """The lines at the end that fit into `room` bytes.

    With `shorten` a last line that does not fit is cut, `[+N]` appended, rather than left out.
    """
    text = piece.rendered()
    data = text.encode()
    if len(data) <= room:
        return Shown(text, len(data), piece.n_bytes, piece.n_lines)
    start = data.find(b"\n", len(data) - room - 1) + 1 if room > 0 else 0
    if 0 < start < len(data):
        shown = data[start:].decode()
    elif shorten and room > 0:
        end = "\n" if text.endswith("\n") else ""
        shown = _shortened(text.removesuffix("\n").rpartition("\n")[2], room) + end
    else:
        return NOTHING
    size = len(shown.encode())
    if piece.raw is None:
        return Shown(shown, size, piece.n_bytes, piece.n_lines)
    lines = shown.count("\n")
    source = start_of_last(piece.raw, lines + (not shown.endswith("\n")))
    return Shown(shown, size, len(piece.raw) - source, lines)


def _split_raw(piece: Piece, shown: str, size: int) -> tuple[Shown, Piece | None]:
    if piece.raw is None:
        return Shown(shown, size, piece.n_bytes, piece.n_lines), None
    lines = shown.count("\n")
    end = end_of_first(piece.raw, lines)
    lines = piece.raw.count(b"\n", 0, end)
    rest = piece.raw[end:]
    return Shown(shown, size, end, lines), raw_piece(rest) if rest else None


def _shortened(line: str, room: int) -> str:
    """The start of a line that is longer than `room`, and how many characters it lacks."""
    kept = line.encode()[:room].decode("utf-8", "ignore")
    return f"{kept}[+{len(line) - len(kept)}]"
