"""Reading a file for a model: a range of numbered lines, strictly decoded; pictures; stubs.

What is read costs what is shown: a file that is hashed (see `ledger`) is read whole once, a larger
one is streamed line by line and never held. Reading records in the ledger what was seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from sandboxd.errors import InvalidRequest, NotText
from sandboxd.files import handles, images
from sandboxd.files.guard import Place, Scope, locate
from sandboxd.files.ledger import HASHED_BYTES, Ledger, Seen, Stamp, stamp_version
from sandboxd.files.locks import Locks
from sandboxd.files.storage import Content, read_whole
from sandboxd.files.text import BOM, bad_byte, binary_kind, decoded, numbered, shown_line
from sandboxd.files.undo import Undo
from sandboxd.model import Image

DEFAULT_LINES = 2000
MAX_TEXT = 256 * 1024
"""Bytes of lines in one reading; what follows is named, not sent."""
MAX_LONG_LINE = MAX_TEXT
PIECE = 64 * 1024
STUB = (
    "[{shown} is what you read before: nothing in it has changed since (version {version}). Go on "
    "with what you have; read another part with offset and limit; or send `again: true` to have "
    "this text once more.]"
)


@dataclass(frozen=True)
class Tools:
    """What the file tools of one session work with."""

    scope: Scope
    ledger: Ledger
    locks: Locks
    undo: Undo
    session_id: str
    sees_images: bool | None = None
    """Whether the caller's model sees pictures; None: it has not said."""


@dataclass(frozen=True)
class Reading:
    """What a read gives."""

    shown: str
    version: str
    text: str = ""
    total_lines: int | None = None
    """None when counting them would have meant reading a very large file."""
    first_line: int = 0
    last_line: int = 0
    has_more: bool = False
    is_unchanged: bool = False
    newline: str = "\n"
    image: Image | None = None
    path: str = ""
    """Canonical; for the event log."""


@dataclass
class _Range:
    """The lines that are wanted, and what has been gathered of them."""

    first: int
    count: int
    lines: list[str] = field(default_factory=list)
    size: int = 0
    has_more: bool = False

    @property
    def is_full(self) -> bool:
        return len(self.lines) >= self.count or self.size >= MAX_TEXT

    def add(self, line: str, size: int) -> None:
        self.lines.append(line)
        self.size += size


def read(
    tools: Tools,
    path: str,
    *,
    offset: int | None = None,
    limit: int | None = None,
    is_numbered: bool = True,
    again: bool = False,
) -> Reading:
    """Lines `offset` (from 1) and following, at most `limit`.

    Raises what `guard.locate` and `handles.opened` do, NotText, ImageUnseen, TooLarge (a picture),
    InvalidRequest (past the end).
    """
    _check_range(offset, limit)
    place = locate(path, tools.scope, "read")
    reading, seen = _read(tools, place, offset, limit, is_numbered, again)
    tools.ledger.record(seen)
    if not reading.is_unchanged:
        tools.ledger.delivered[(place.path, offset, limit, is_numbered)] = seen.version
    return reading


def _check_range(offset: int | None, limit: int | None) -> None:
    for name, value in (("offset", offset), ("limit", limit)):
        if value is not None and value < 1:
            raise InvalidRequest(
                f"wrong parameters: `{name}` is {value}; lines are counted from 1",
                hint=f"send a `{name}` of 1 or more, or leave it out",
                data={"parameter": name},
            )


def _read(
    tools: Tools,
    place: Place,
    offset: int | None,
    limit: int | None,
    is_numbered: bool,
    again: bool,
) -> tuple[Reading, Seen]:
    with handles.opened(place, tools.scope) as fd:
        found = os.fstat(fd)
        head = os.pread(fd, 8192, 0)
        if images.media_type(head) is not None:
            images.check(head, found.st_size, place, is_seen=tools.sees_images)
        elif found.st_size > HASHED_BYTES:
            return _stream(tools, place, fd, Stamp.of(found), head, offset, limit, is_numbered)
    content = read_whole(place, tools.scope, limit=max(found.st_size, HASHED_BYTES))
    seen = Seen(place.path, content.version, content.stamp)
    key = (place.path, offset, limit, is_numbered)
    if not again and tools.ledger.delivered.get(key) == seen.version:
        return _stub(place, seen), seen
    if images.media_type(content.data[:16]) is not None:
        image = images.image_of(content.data)
        return Reading(place.shown, seen.version, image=image, path=place.path), seen
    return _lines_of(place, content, seen, offset, limit, is_numbered), seen


def _stub(place: Place, seen: Seen) -> Reading:
    text = STUB.format(shown=place.shown, version=seen.version)
    return Reading(place.shown, seen.version, text, is_unchanged=True, path=place.path)


def _lines_of(
    place: Place,
    content: Content,
    seen: Seen,
    offset: int | None,
    limit: int | None,
    is_numbered: bool,
) -> Reading:
    """A range of a file that is in memory; only the range has to be text."""
    raw = content.data.split(b"\n")
    if raw and not raw[-1]:
        raw.pop()
    first = offset or 1
    if first > max(len(raw), 1):
        raise _past_the_end(place, first, len(raw))
    if offset is None and limit is None:
        decoded(content.data, place)
    wanted = _Range(first, limit or DEFAULT_LINES)
    _refuse_binary(content.data[:8192], raw[first - 1 : first - 1 + wanted.count], place)
    position = sum(map(len, raw[: first - 1])) + first - 1
    for number, line in enumerate(raw[first - 1 :], first):
        if wanted.is_full:
            wanted.has_more = True
            break
        wanted.add(_decoded_line(line, place, number, position), len(line) + 1)
        position += len(line) + 1
    newline = "\r\n" if b"\r\n" in content.data[:65536] else "\n"
    return _reading(place, seen, wanted, len(raw), is_numbered, newline)


def _refuse_binary(head: bytes, lines: list[bytes], place: Place) -> None:
    kind = binary_kind(head.split(b"\0", 1)[0]) or (
        "a binary file" if any(b"\0" in line for line in lines) else None
    )
    if kind is not None:
        size = place.found.st_size if place.found else 0
        raise NotText(
            f"{place.shown} is {kind}, {size} bytes, not text",
            hint="use a command that understands it",
            path=place.shown,
            data={"kind": kind, "bytes": size},
        )


def _decoded_line(line: bytes, place: Place, number: int, position: int) -> str:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_byte(place, line[error.start], position + error.start, number) from error
    text = text.removesuffix("\r")
    return text.removeprefix(BOM) if number == 1 else text


def _past_the_end(place: Place, offset: int, total: int) -> InvalidRequest:
    return InvalidRequest(
        f"wrong parameters: `offset` is {offset} and {place.shown} has {total} lines",
        hint="send a smaller `offset`, or leave it out",
        path=place.shown,
        data={"parameter": "offset", "total_lines": total},
    )


def _reading(
    place: Place, seen: Seen, wanted: _Range, total: int | None, is_numbered: bool, newline: str
) -> Reading:
    if is_numbered:
        text = numbered(wanted.lines, wanted.first)
    else:
        text = "".join(shown_line(line) + "\n" for line in wanted.lines)
    return Reading(
        place.shown,
        seen.version,
        text,
        total,
        wanted.first if wanted.lines else 0,
        wanted.first + len(wanted.lines) - 1 if wanted.lines else 0,
        wanted.has_more,
        newline=newline,
        path=place.path,
    )


# --------------------------------------------------------------------------- large files


def _stream(
    tools: Tools,
    place: Place,
    fd: int,
    stamp: Stamp,
    head: bytes,
    offset: int | None,
    limit: int | None,
    is_numbered: bool,
) -> tuple[Reading, Seen]:
    """A range of a file that is never held in memory."""
    seen = Seen(place.path, stamp_version(stamp), stamp)
    wanted = _Range(offset or 1, limit or DEFAULT_LINES)
    number, position = 0, 0
    for line in _raw_lines(fd):
        number += 1
        if wanted.is_full:
            wanted.has_more = True
            break
        if number >= wanted.first:
            _refuse_binary(head, [line], place)
            wanted.add(_decoded_line(line, place, number, position), len(line) + 1)
        position += len(line) + 1
    if number < wanted.first:
        raise _past_the_end(place, wanted.first, number)
    newline = "\r\n" if b"\r\n" in head else "\n"
    return _reading(place, seen, wanted, None, is_numbered, newline), seen


def _raw_lines(fd: int) -> Iterator[bytes]:
    """Lines without their ends; of one that is absurdly long, its beginning, cut between characters."""
    rest, dropping = b"", False
    while piece := os.read(fd, PIECE):
        *lines, rest_of_piece = piece.split(b"\n")
        for line in lines:
            if not dropping:
                yield rest + line
            rest, dropping = b"", False
        if dropping:
            continue
        rest += rest_of_piece
        if len(rest) > MAX_LONG_LINE:
            yield rest.decode("utf-8", "ignore").encode()
            rest, dropping = b"", True
    if rest:
        yield rest


# --------------------------------------------------------------------------- commands


def observe(tools: Tools, path: str, *, before_ns: int) -> bool:
    """Record a file that a read-only command has shown: only when it has not changed since
    `before_ns` (the command may have shown an older content) and the name is plain."""
    try:
        place = locate(path, tools.scope, "read")
        if ".." in path.split("/") and place.path != os.path.realpath(path):
            return False  # `link/../x`: the command has read another file
        content = read_whole(place, tools.scope)
    except Exception:
        return False
    if content.found.st_ctime_ns >= before_ns:
        return False
    tools.ledger.record(Seen(place.path, content.version, content.stamp))
    return True
