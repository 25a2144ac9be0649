"""The ladder of an edit: where in a file is the text that a model named, and what stands there.

Strategies in a fixed order, each named in the result; the first that finds something decides. All
but `exact` find what a model gets wrong when it copies: line ends, the numbers that a reading shows,
blanks at line ends and between words, typographic punctuation, indentation. A match is a span of the
file; what is outside of it stays byte for byte. A match far larger than what was named is passed
over, and the next strategy still runs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sandboxd.errors import AmbiguousMatch, FileRefusal, InvalidRequest, NoMatch, OversizedMatch
from sandboxd.files.text import lines_of, numbered, shown_line

MAX_MATCHES = 5
"""Places that a refusal shows; all of them are counted."""
SLACK = 200
"""Characters by which a match may be larger than twice what was named."""
MAX_COMPARED = 20_000
"""Lines in which the nearest one is looked for."""


@dataclass(frozen=True)
class Match:
    """One place: the half-open span in the text, and what to put there."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True)
class Matched:
    """Where the text stands, and by which strategy it was found."""

    strategy: str
    matches: tuple[Match, ...]


@dataclass(frozen=True)
class Edit:
    """One replacement as it was asked for."""

    old_text: str
    new_text: str
    replace_all: bool = False


Finder = Callable[[str, Edit], Iterator[Match]]


def applied(text: str, edit: Edit, shown: str) -> tuple[str, str] | FileRefusal | InvalidRequest:
    """The text after one edit and the strategy that found it, or the refusal."""
    found = find(text, edit, shown)
    if not isinstance(found, Matched):
        return found
    parts: list[str] = []
    position = 0
    for match in found.matches:
        parts += [text[position : match.start], match.replacement]
        position = match.end
    parts.append(text[position:])
    return "".join(parts), found.strategy


def find(text: str, edit: Edit, shown: str) -> Matched | FileRefusal | InvalidRequest:
    """The places to replace. AmbiguousMatch, OversizedMatch, NoMatch as values, with real lines."""
    if edit.old_text == edit.new_text:
        return InvalidRequest(
            "wrong parameters: `old_text` and `new_text` are the same, so nothing would change",
            hint="send the text as it should become in `new_text`",
            data={"parameter": "new_text"},
        )
    oversized: list[Match] = []
    for strategy, finder in LADDER:
        matches = list(finder(text, edit))
        fitting = [match for match in matches if not _is_oversized(match, edit)]
        oversized += [match for match in matches if _is_oversized(match, edit)]
        if len(fitting) > 1 and not edit.replace_all:
            return _ambiguous(text, fitting, strategy, shown)
        if fitting:
            return Matched(strategy, tuple(fitting))
    return _oversized(text, oversized, edit, shown) if oversized else _missing(text, edit, shown)


def _is_oversized(match: Match, edit: Edit) -> bool:
    return match.end - match.start > 2 * len(edit.old_text) + SLACK


# --------------------------------------------------------------------------- the strategies


def _exact(text: str, edit: Edit) -> Iterator[Match]:
    start = text.find(edit.old_text)
    while start >= 0:
        end = start + len(edit.old_text)
        yield Match(start, end, edit.new_text)
        start = text.find(edit.old_text, end)


def _by_pattern(pattern: str, text: str, new_text: str) -> Iterator[Match]:
    """Every place that the pattern matches; line ends of the replacement follow the place's."""
    if not pattern:
        return
    whole = "\r\n" if "\r\n" in text[:65536] else "\n"
    for found in re.finditer(pattern, text):
        if found.end() > found.start():
            newline = _newline(found[0]) or whole
            yield Match(found.start(), found.end(), with_newlines(new_text, newline))


def _newline(text: str) -> str | None:
    """The line end that a piece of text has."""
    if "\n" not in text:
        return None
    return "\r\n" if "\r\n" in text else "\n"


def with_newlines(text: str, newline: str) -> str:
    """The text with every line end of this kind."""
    text = text.replace("\r\n", "\n")
    return text if newline == "\n" else text.replace("\n", newline)


def _line_endings(text: str, edit: Edit) -> Iterator[Match]:
    lines = edit.old_text.replace("\r\n", "\n").split("\n")
    if len(lines) == 1 and "\r" not in edit.old_text:
        return iter(())
    return _by_pattern(r"\r?\n".join(map(re.escape, lines)), text, edit.new_text)


_NUMBER = re.compile(r"[ \t]*\d+(?:\t|[ ]*[|:→][ \t]?)")


def _line_numbers(text: str, edit: Edit) -> Iterator[Match]:
    """The numbers that a reading shows were copied with the lines."""
    old = _without_numbers(edit.old_text)
    if not old or old == edit.old_text:
        return
    new = _without_numbers(edit.new_text)
    plain = Edit(old, edit.new_text if new is None else new)
    matches = list(_exact(text, plain))
    yield from matches or _line_endings(text, plain)


def _without_numbers(text: str) -> str | None:
    """The lines without their numbers; None when one that says something has none."""
    lines = text.split("\n")
    if not all(_NUMBER.match(line) for line in lines if line.strip()):
        return None
    return "\n".join(_NUMBER.sub("", line, count=1) for line in lines)


def _trailing_blanks(text: str, edit: Edit) -> Iterator[Match]:
    """Blanks at the ends of lines differ."""
    lines = [re.escape(line.rstrip(" \t\r")) for line in edit.old_text.split("\n")]
    if not any(lines):
        return iter(())
    ends = [*([r"[ \t]*+"] * (len(lines) - 1)), ""]
    if edit.old_text.rstrip(" \t\r\n") != edit.old_text.rstrip("\n"):
        ends[-1] = r"[ \t]*+"
    pieces = [line + end for line, end in zip(lines, ends, strict=True)]
    return _by_pattern(r"\r?\n".join(pieces), text, edit.new_text)


_LOOKALIKES = (
    "'‘’‚‛′`´",
    '"“”„‟″',
    "-‐‑‒–—―−",
    " \u00a0\u2002\u2003\u2009\u202f\t",
)
_CLASSES = {
    character: f"[{re.escape(members)}]" for members in _LOOKALIKES for character in members
}


def _blanks(text: str, edit: Edit) -> Iterator[Match]:
    """Blanks between words differ in number or kind; indentation is the same."""
    pattern = _blank_pattern(edit.old_text, re.escape, r" \t\u00a0")
    return _by_pattern(pattern, text, edit.new_text)


def _punctuation(text: str, edit: Edit) -> Iterator[Match]:
    """Quotes, dashes, ellipses and blanks are typographic on one side and plain on the other."""
    pattern = _blank_pattern(edit.old_text, _lookalike, _ANY_BLANK)
    return _by_pattern(pattern, text, edit.new_text)


_ANY_BLANK = r" \t\u00a0\u2002-\u200a\u202f\u3000"


def _blank_pattern(old_text: str, word: Callable[[str], str], blank: str) -> str:
    lines = []
    for line in old_text.replace("\r\n", "\n").split("\n"):
        body = line.strip(" \t")
        indentation = re.escape(line[: len(line) - len(line.lstrip(" \t"))]) if body else ""
        words = [word(part) for part in re.split(f"[{_ANY_BLANK}]+", body)]
        lines.append(indentation + f"[{blank}]++".join(words) + r"[ \t]*+")
    if not any(re.sub(r"\[.*?\]\*\+", "", line) for line in lines):
        return ""
    lines[-1] = lines[-1].removesuffix(r"[ \t]*+")
    return r"\r?\n".join(lines)


def _lookalike(word: str) -> str:
    parts = re.split(r"(\.\.\.|…)", word)
    return "".join(
        r"(?:\.\.\.|…)"
        if part in ("...", "…")
        else "".join(_CLASSES.get(character, re.escape(character)) for character in part)
        for part in parts
    )


def _indentation(text: str, edit: Edit) -> Iterator[Match]:
    """Whole lines that differ by their indentation alone, in one consistent way; the replacement
    gets the file's."""
    wanted = edit.old_text.replace("\r\n", "\n").split("\n")
    ends_line = wanted[-1] == "" and len(wanted) > 1
    wanted = wanted[:-1] if ends_line else wanted
    bodies = [line.strip() for line in wanted]
    if not any(bodies):
        return
    lines = lines_of(text)
    starts = _starts(lines)
    stripped = [line.strip() for line in lines]
    number = 0
    while number + len(bodies) <= len(lines):
        if stripped[number : number + len(bodies)] == bodies:
            there = lines[number : number + len(bodies)]
            shift = _shift(wanted, there)
            if shift is not None:
                last = there[-1] if ends_line else there[-1].rstrip("\r\n")
                end = starts[number + len(bodies) - 1] + len(last)
                newline = _newline("".join(there)) or "\n"
                fresh = with_newlines(_indented(edit.new_text, shift), newline)
                yield Match(starts[number], end, fresh)
                number += len(bodies)
                continue
        number += 1


def _starts(lines: list[str]) -> list[int]:
    starts, position = [], 0
    for line in lines:
        starts.append(position)
        position += len(line)
    return starts


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _shift(wanted: list[str], there: list[str]) -> dict[str, str] | None:
    """Which indentation of the file stands for which of the request; None when inconsistent."""
    shift: dict[str, str] = {}
    for asked, real in zip(wanted, there, strict=True):
        if asked.strip() and shift.setdefault(_indent(asked), _indent(real)) != _indent(real):
            return None
    return shift


def _indented(text: str, shift: dict[str, str]) -> str:
    """Each line with the file's indentation for the longest known part of its own."""
    fresh = []
    known = sorted(shift, key=len, reverse=True)
    for line in text.split("\n"):
        own = _indent(line)
        base = next((indent for indent in known if own.startswith(indent)), None)
        if not line.strip() or base is None:
            fresh.append(line if base is None else line.strip(" \t"))
        else:
            fresh.append(shift[base] + own[len(base) :] + line[len(own) :])
    return "\n".join(fresh)


LADDER: tuple[tuple[str, Finder], ...] = (
    ("exact", _exact),
    ("line_endings", _line_endings),
    ("line_numbers", _line_numbers),
    ("trailing_blanks", _trailing_blanks),
    ("blanks", _blanks),
    ("punctuation", _punctuation),
    ("indentation", _indentation),
)


# --------------------------------------------------------------------------- the refusals


def _ambiguous(text: str, matches: list[Match], strategy: str, shown: str) -> AmbiguousMatch:
    lines = [text.count("\n", 0, match.start) + 1 for match in matches[:MAX_MATCHES]]
    named = ", ".join(map(str, lines)) + (", ..." if len(matches) > MAX_MATCHES else "")
    return AmbiguousMatch(
        f"the text to replace stands {len(matches)} times in {shown}: at lines {named}",
        hint="name more of the lines around the one that is meant, or send `replace_all: true`",
        path=shown,
        data={"count": len(matches), "strategy": strategy, "lines": _real_lines(text, lines)},
    )


def _real_lines(text: str, numbers: list[int]) -> list[str]:
    lines = text.split("\n")
    return [f"{number}: {shown_line(lines[number - 1])}" for number in numbers]


def _oversized(text: str, matches: list[Match], edit: Edit, shown: str) -> OversizedMatch:
    largest = max(match.end - match.start for match in matches)
    lines = [text.count("\n", 0, match.start) + 1 for match in matches[:MAX_MATCHES]]
    return OversizedMatch(
        f"what is like the text to replace in {shown} has {largest} characters where "
        f"{len(edit.old_text)} were named, at line {lines[0]}",
        hint="read those lines with fs.read and name them exactly",
        path=shown,
        data={"count": len(matches), "lines": _real_lines(text, lines)},
    )


def _missing(text: str, edit: Edit, shown: str) -> NoMatch:
    near = nearest_line(text, edit.old_text)
    data: dict[str, object] = {"count": 0}
    hint = "read the file again with fs.read and copy the text from there"
    if near is not None:
        lines = text.split("\n")
        first = max(0, near - 3)
        data["nearest"] = numbered(lines[first : near + 6], first + 1)
        hint = f"the nearest is at line {near + 1}, see `data`; copy the text from there"
    if edit.new_text.strip() and edit.new_text in text:
        hint = "`new_text` is in the file already: perhaps this edit has been made; " + hint
    return NoMatch(
        f"the text to replace is not in {shown}",
        hint=hint,
        path=shown,
        data=data,
    )


def nearest_line(text: str, wanted: str) -> int | None:
    """The line (from 0) that is most like the first line of `wanted` that says something."""
    key = next((line.strip() for line in wanted.split("\n") if line.strip()), "")
    if not key:
        return None
    best, best_ratio = None, 0.6
    matcher = difflib.SequenceMatcher(None, "", key[:200], autojunk=False)
    for number, line in enumerate(text.split("\n", MAX_COMPARED)[:MAX_COMPARED]):
        body = line.strip()[:200]
        if body == key:
            return number
        matcher.set_seq1(body)
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best, best_ratio = number, ratio
    return best
