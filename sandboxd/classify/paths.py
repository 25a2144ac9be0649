"""Which files a patch touches: unified diffs and the Codex dialect.

One parser for everything that must know before a patch is applied. Hunks are counted line by
line, so that a removed line `-- x` (which reads `--- x`) is never taken for a header. Sources:
diff(1) and git-diff(1) "Generating patch text with -p"; the apply_patch format of Codex.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Action = Literal["add", "update", "delete", "move", "copy"]

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_CODEX = re.compile(r"\*\*\* (Add File|Update File|Delete File|Move to): (.+)")
_CODEX_BEGIN = re.compile(r"(?m)^[ \t]*+\*\*\* Begin Patch[ \t\r]*+$")
MAX_HEADER = 8192
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_LETTERS = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "v": 11, "f": 12}
_PREFIXES = ("a/", "b/", "i/", "w/", "c/", "o/")
_EXTENDED = re.compile(r"(rename|copy) (from|to) (.+)")


@dataclass(frozen=True, slots=True)
class PatchFile:
    """One file of a patch, paths as the patch names them (without the `a/` and `b/` prefixes)."""

    action: Action
    path: str
    moved_to: str | None = None


def patch_paths(text: str) -> tuple[str, ...]:
    """Every path the patch reads or writes, in order, each once; empty when it is no patch."""
    found: dict[str, None] = {}
    for file in patch_files(text):
        found[file.path] = None
        if file.moved_to is not None:
            found[file.moved_to] = None
    return tuple(found)


def patch_files(text: str) -> tuple[PatchFile, ...]:
    """The files of a patch in order; empty when the text is no patch in either dialect."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if _CODEX_BEGIN.search(text):
        return _codex_files(lines)
    return _UnifiedReader(lines).files()


def _codex_files(lines: list[str]) -> tuple[PatchFile, ...]:
    actions: dict[str, Action] = {
        "Add File": "add",
        "Update File": "update",
        "Delete File": "delete",
    }
    files: list[PatchFile] = []
    for line in lines:
        match = _CODEX.match(line.strip() if line.startswith((" ***", "\t***")) else line)
        if match is None:
            continue
        path = match[2].strip()
        if match[1] != "Move to":
            files.append(PatchFile(actions[match[1]], path))
        elif files:
            files[-1] = PatchFile("move", files[-1].path, path)
    return tuple(files)


class _UnifiedReader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._index = 0
        self._files: list[PatchFile] = []

    def files(self) -> tuple[PatchFile, ...]:
        while self._index < len(self._lines):
            line = self._lines[self._index]
            if line.startswith("diff --git "):
                self._git_section(line.removeprefix("diff --git "))
            elif line.startswith("--- ") and self._line(1).startswith("+++ "):
                self._plain_section()
            else:
                self._index += 1
        return tuple(self._files)

    def _line(self, ahead: int) -> str:
        place = self._index + ahead
        return self._lines[place] if place < len(self._lines) else ""

    def _git_section(self, header: str) -> None:
        """From `diff --git` to the next section; extended headers name what plain ones cannot."""
        self._index += 1
        old, new = _header_names(header)
        action: Action = "update"
        while self._index < len(self._lines):
            line = self._lines[self._index]
            if line.startswith("--- ") and self._line(1).startswith("+++ "):
                self._plain_section(action, old, new)
                return
            if line.startswith(("diff --git ", "@@ ")):
                break
            if line.startswith("new file mode"):
                action = "add"
            elif line.startswith("deleted file mode"):
                action = "delete"
            elif match := _EXTENDED.match(line):
                action = "move" if match[1] == "rename" else "copy"
                old, new = (
                    (_unquoted(match[3]), new) if match[2] == "from" else (old, _unquoted(match[3]))
                )
            self._index += 1
        self._add(action, old, new)

    def _plain_section(
        self, action: Action = "update", old: str | None = None, new: str | None = None
    ) -> None:
        """`---`, `+++` and the hunks that follow."""
        before = _file_name(self._lines[self._index].removeprefix("--- "))
        after = _file_name(self._line(1).removeprefix("+++ "))
        self._index += 2
        if action not in ("move", "copy"):
            before, after = _without_prefixes(before, after)
            old, new = before, after
            action = "add" if before is None else "delete" if after is None else "update"
        self._skip_hunks()
        self._add(action, old, new)

    def _skip_hunks(self) -> None:
        while match := _HUNK.match(self._line(0)):
            removed, added = (int(count) if count is not None else 1 for count in match.groups())
            self._index += 1
            while (removed > 0 or added > 0) and self._index < len(self._lines):
                mark = self._lines[self._index][:1]
                removed -= mark in ("-", " ", "")
                added -= mark in ("+", " ", "")
                self._index += 1
            while self._line(0).startswith("\\"):
                self._index += 1

    def _add(self, action: Action, old: str | None, new: str | None) -> None:
        if action in ("move", "copy") and old and new:
            self._files.append(PatchFile(action, old, new))
            return
        path = old if action == "delete" else new or old
        if path:
            moved = new if action == "update" and old and new and old != new else None
            self._files.append(PatchFile(action, old if moved and old else path, moved))


def _header_names(header: str) -> tuple[str | None, str | None]:
    """The two names of `diff --git a/x b/y`; ambiguous ones are settled by the later headers."""
    if len(header) > MAX_HEADER:
        return None, None
    if header.startswith('"') or header.endswith('"'):
        names = [_unquoted(name) for name in re.findall(r'"(?:[^"\\]|\\.)*"|\S+', header)]
        return _without_prefixes(*names) if len(names) == 2 else (None, None)
    for match in re.finditer(" ", header):
        left, right = _without_prefixes(header[: match.start()], header[match.end() :])
        if left == right:
            return left, right
    left, _, right = header.partition(" b/")
    return _without_prefixes(left, f"b/{right}") if right else (None, None)


def _file_name(field: str) -> str | None:
    """The name in a `---` or `+++` line, a timestamp after a tab taken off; None for /dev/null."""
    name = _unquoted(field) if field.startswith('"') else field.split("\t", 1)[0].rstrip()
    return None if name == "/dev/null" else name


def _without_prefixes(old: str | None, new: str | None) -> tuple[str | None, str | None]:
    """Take off `a/` and `b/` where every name that is there has such a prefix."""
    names = [name for name in (old, new) if name is not None]
    if names and all(name.startswith(_PREFIXES) for name in names):
        return (old[2:] if old else None), (new[2:] if new else None)
    return old, new


def _unquoted(field: str) -> str:
    """A name as git quotes it: C escapes, octal bytes of UTF-8."""
    match = _QUOTED.match(field)
    if match is None:
        return field
    raw = bytearray()
    position = 0
    body = match[1]
    for escape in _ESCAPE.finditer(body):
        raw += body[position : escape.start()].encode()
        raw.append(_escaped_byte(escape[1]))
        position = escape.end()
    raw += body[position:].encode()
    return raw.decode(errors="surrogateescape")


def _escaped_byte(escape: str) -> int:
    if escape.isdigit() and len(escape) == 3:
        return int(escape, 8) & 0xFF
    return _LETTERS.get(escape, ord(escape[0]) & 0xFF)
