"""Reading what a reply left out: the raw bytes of a run that are kept on disk.

A module of its own because the id comes from a client and names a file: it must be exactly
what we hand out, in the folder of the client's own session. Lines are counted from 1 and end at
LF; bytes from 0. One answer carries at most `PART_BYTES`.
"""

from __future__ import annotations

import base64
import os
from typing import BinaryIO

from sandboxd.errors import InvalidRequest, OutputUnknown
from sandboxd.output.renderer import render
from sandboxd.protocol.messages import OutputPart, OutputRead

PART_BYTES = 1024 * 1024
_CHUNK = 256 * 1024
_ID_LETTERS = frozenset("0123456789abcdef")


def read_part(folder: str, params: OutputRead) -> OutputPart:
    """The part that was asked for. Raises OutputUnknown and InvalidRequest."""
    _check(params)
    with _open(folder, params.output_id) as kept:
        total_lines = _count_lines(kept)
        total_bytes = kept.tell()
        if params.from_byte is not None:
            data = _bytes_from(kept, params.from_byte, params.count)
        else:
            data = _lines_from(kept, params.from_line or 1, params.count)
    return OutputPart(
        text=None if params.raw else render(data),
        bytes_b64=base64.b64encode(data).decode("ascii") if params.raw else None,
        total_bytes=total_bytes,
        total_lines=total_lines,
    )


def _check(params: OutputRead) -> None:
    if params.from_line is not None and params.from_byte is not None:
        raise _invalid("from_line", "`from_line` and `from_byte` at the same time")
    if params.from_line is not None and params.from_line < 1:
        raise _invalid("from_line", f"`from_line` is {params.from_line}; lines begin at 1")
    if params.from_byte is not None and params.from_byte < 0:
        raise _invalid("from_byte", f"`from_byte` is {params.from_byte}; bytes begin at 0")
    if params.count is not None and params.count < 0:
        raise _invalid("count", f"`count` is {params.count}")


def _invalid(name: str, told: str) -> InvalidRequest:
    return InvalidRequest(
        f"wrong parameters: {told}", hint="see docs/protocol.md", data={"parameter": name}
    )


def _open(folder: str, output_id: str) -> BinaryIO:
    try:
        if not output_id or not _ID_LETTERS.issuperset(output_id):
            raise FileNotFoundError
        path = os.path.join(folder, f"{output_id}.raw")
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise OutputUnknown(
            f"this session keeps no output {output_id!r}",
            hint="use the output_id of a result of this session; small outputs are not kept, and the oldest make room",
        ) from error


def _count_lines(kept: BinaryIO) -> int:
    count = 0
    while chunk := kept.read(_CHUNK):
        count += chunk.count(b"\n")
    return count


def _bytes_from(kept: BinaryIO, start: int, count: int | None) -> bytes:
    kept.seek(start)
    return kept.read(PART_BYTES if count is None else min(count, PART_BYTES))


def _lines_from(kept: BinaryIO, first: int, count: int | None) -> bytes:
    """Whole lines, as many as asked for and as fit; one that does not fit is cut."""
    kept.seek(0)
    for _ in range(first - 1):
        if not kept.readline():
            return b""
    found: list[bytes] = []
    room = PART_BYTES
    while room > 0 and (count is None or len(found) < count):
        line = kept.readline(room)
        if not line:
            break
        found.append(line)
        room -= len(line)
    return b"".join(found)
