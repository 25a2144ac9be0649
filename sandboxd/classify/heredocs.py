"""Here-documents: where a body ends, decided line by line as bash does it.

Apart from the structure reader because other parsers get exactly this wrong: bashlex compares
lines with the *quoted* delimiter, so real commands after the body are taken for text. A body is
literal when any part of its delimiter was quoted. Source: bash(1), "Here Documents"; bash's
`read_secondary_line`: with an unquoted delimiter, backslash-newline joins lines first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandboxd.classify.reading import Unread

_DELIMITER = re.compile(r"(?:[^\s|&;()<>'\"\\$`]|'[^'\n]*'|\"[^\"\\$`\n]*\"|\\[^\n\r])+")
_QUOTED_PIECE = re.compile(r"'([^']*)'|\"([^\"]*)\"|\\(.)")


@dataclass(slots=True, frozen=True)
class Delimiter:
    """The word after `<<` with its quotes removed."""

    text: str
    is_quoted: bool
    strips_tabs: bool
    end: int
    """Offset just after the word."""


@dataclass(slots=True, frozen=True)
class Body:
    """Offsets of a body in the text: `[start, end)`, reading goes on at `resume`."""

    start: int
    end: int
    resume: int
    is_terminated: bool


def read_delimiter(text: str, position: int, end: int, *, strips_tabs: bool) -> Delimiter:
    """Read the delimiter word at `position`; an expansion in it is not read."""
    match = _DELIMITER.match(text, position, end)
    if match is None or (match.end() < end and text[match.end()] in "$`'\"\\"):
        raise Unread("the delimiter of a here-document is not a plain word", position)
    raw = match[0]
    plain = _QUOTED_PIECE.sub(lambda piece: piece[1] or piece[2] or piece[3] or "", raw)
    is_quoted = any(mark in raw for mark in "'\"\\")
    return Delimiter(plain, is_quoted, strips_tabs, match.end())


def find_body(text: str, position: int, end: int, delimiter: Delimiter) -> Body:
    """Find the body that starts at `position` (just after a newline)."""
    line = position
    while line < end:
        stop = _line_end(text, line, end)
        joined = False
        if not delimiter.is_quoted:
            while stop < end and _ends_in_backslash(text, line, stop):
                joined = True
                stop = _line_end(text, stop + 1, end)
        content = text[line:stop]
        if delimiter.strips_tabs:
            content = content.lstrip("\t")
        if joined:
            if content.replace("\\\n", "") == delimiter.text:
                raise Unread("a here-document ends in a line that is itself continued", line)
        elif content == delimiter.text:
            return Body(position, line, min(stop + 1, end), is_terminated=True)
        line = stop + 1
    return Body(position, end, end, is_terminated=False)


def strip_tabs(body: str) -> str:
    """The body of `<<-` as the command gets it."""
    return re.sub(r"(?m)^\t+", "", body)


def _line_end(text: str, position: int, end: int) -> int:
    found = text.find("\n", position, end)
    return end if found < 0 else found


def _ends_in_backslash(text: str, start: int, stop: int) -> bool:
    count = 0
    while stop - count > start and text[stop - count - 1] == "\\":
        count += 1
    return count % 2 == 1
