"""Which keys of git's configuration make git run a program, and how to set them back.

A reader of its own instead of `git config`: git must not be run on a configuration that is under
suspicion, and setting back must keep every other byte. Syntax and keys: git-config(1), with the
keys' names compared as git does (section and key without regard to case, subsection with).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

PROGRAM_KEYS = tuple(
    re.compile(pattern)
    for pattern in (
        r"core\.(hookspath|sshcommand|editor|pager|askpass|gitproxy|alternaterefscommand)",
        r"sequence\.editor",
        r"(pager|man|browser)\..*",
        r"filter\..*\.(clean|smudge|process)",
        r"diff\.external",
        r"diff\..*\.(command|textconv)",
        r"merge\..*\.driver",
        r"(mergetool|difftool)\..*\.(cmd|path)",
        r"include(if)?\.(.*\.)?path",
        r"credential\.(.*\.)?helper",
        r"gpg\.(.*\.)?(program|defaultkeycommand)",
        r"remote\..*\.(uploadpack|receivepack|vcs)",
        r"protocol\.(.*\.)?allow",
        r"(uploadpack\.packobjectshook|interactive\.difffilter|init\.templatedir)",
        r"(tar|guitool)\..*\.(command|cmd)",
        r"trailer\..*\.(command|cmd)",
        r"sendemail\..*(smtpserver|cmd|sendmailcmd)",
    )
)
FSMONITOR = "core.fsmonitor"
BOOLEANS = ("", "true", "false", "yes", "no", "on", "off", "0", "1")
_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]', re.ASCII)
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*", re.ASCII)


class Unreadable(ValueError):
    """The text is no configuration; git would refuse it too, or read it otherwise than we do."""


@dataclass(frozen=True)
class Entry:
    """One setting with the bytes that it takes in the file."""

    key: str
    """`section.key` or `section.subsection.key`."""
    value: str
    start: int
    end: int
    header: str
    """The section's own text, to write the entry anew."""

    @property
    def runs_program(self) -> bool:
        if self.key == FSMONITOR:
            return self.value.lower() not in BOOLEANS
        if self.key.startswith("alias.") or re.fullmatch(r"submodule\..*\.update", self.key):
            return self.value.lstrip().startswith("!")
        return any(pattern.fullmatch(self.key) for pattern in PROGRAM_KEYS)


def read_entries(text: str) -> list[Entry]:
    """Every setting in order. Raises Unreadable."""
    entries: list[Entry] = []
    place, header, prefix = 0, "", ""
    while place < len(text):
        character = text[place]
        if character in " \t\r\n\ufeff":
            place += 1
        elif character in "#;":
            place = _line_end(text, place)
        elif character == "[":
            found = _SECTION.match(text, place)
            if found is None:
                raise Unreadable(f"a section header at character {place}")
            header, prefix, place = found[0], _prefix(found), found.end()
        else:
            found = _KEY.match(text, place)
            if found is None or not prefix:
                raise Unreadable(f"neither key nor section at character {place}")
            value, end = _value(text, found.end())
            entries.append(Entry(f"{prefix}.{found[1].lower()}", value, place, end, header))
            place = end
    return entries


def _prefix(section: re.Match[str]) -> str:
    name = section[1].lower()
    if section[2] is None:
        return name
    return name + "." + re.sub(r"\\(.)", r"\1", section[2])


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}


def _value(text: str, place: int) -> tuple[str, int]:
    """(value, where the entry ends): after `=` up to the end of the line, which a backslash moves."""
    if not text.startswith("=", place):
        rest = text[place : _line_end(text, place)].strip()
        if rest and rest[0] not in "#;":
            raise Unreadable(f"a key without `=` at character {place}")
        return "true", _line_end(text, place)
    place += 1
    parts: list[str] = []
    in_quotes, kept = False, 0
    while place < len(text):
        character = text[place]
        if character == "\n":
            if in_quotes:
                raise Unreadable(f"an open quote at character {place}")
            break
        if character == "\\":
            following = text[place + 1 : place + 2]
            if following == "\n":
                place += 2
                continue
            if following not in _ESCAPES:
                raise Unreadable(f"an unknown escape at character {place}")
            parts.append(_ESCAPES[following])
            kept = len(parts)
            place += 2
            continue
        if character == '"':
            in_quotes = not in_quotes
            kept = len(parts)
        elif character in "#;" and not in_quotes:
            place = _line_end(text, place)
            break
        elif in_quotes or not character.isspace():
            parts.append(character)
            kept = len(parts)
        elif parts:
            parts.append(" ")
        place += 1
    return "".join(parts[:kept]), place


def program_entries(text: str) -> list[Entry]:
    """The settings that make git run a program. Raises Unreadable."""
    return [entry for entry in read_entries(text) if entry.runs_program]


def set_back(before: str, after: str) -> tuple[str, list[str]]:
    """`after` with exactly the program settings of `before`, and the keys that were set back.

    Every other byte of `after` stays. Raises Unreadable when either cannot be read.
    """
    old, new = program_entries(before), program_entries(after)
    wanted = Counter((entry.key, entry.value) for entry in old)
    keys: list[str] = []
    pieces: list[str] = []
    place = 0
    for entry in new:
        if wanted[entry.key, entry.value] > 0:
            wanted[entry.key, entry.value] -= 1
            continue
        keys.append(entry.key)
        pieces.append(after[place : entry.start].rstrip(" \t"))
        place = entry.end
    text = "".join(pieces) + after[place:]
    for entry in old:
        if wanted[entry.key, entry.value] > 0:
            wanted[entry.key, entry.value] -= 1
            keys.append(entry.key)
            text = text.rstrip("\n") + f"\n{entry.header}\n\t{before[entry.start : entry.end]}\n"
    return text, list(dict.fromkeys(keys))
