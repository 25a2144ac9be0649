"""Patches: read whole before anything is touched, and applied to text only where every line agrees.

Two dialects: unified diffs as diff(1) and git-diff(1) write them, and the `*** Begin Patch` format of
Codex. A hunk says what stands there (context and removed lines); it is applied where exactly that
stands: at the line that it names, else in the one other place. Blanks at line ends and CR are
forgiven when nothing agrees exactly. Nothing here touches the disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Literal

from sandboxd.errors import PatchBroken, PatchMismatch
from sandboxd.files.text import lines_of, numbered, shown_line

Action = Literal["add", "update", "delete", "move", "copy"]
Mark = Literal[" ", "-", "+"]

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_CODEX_FILE = re.compile(r"\*\*\* (Add File|Update File|Delete File): (.+)")
_CODEX_MOVE = re.compile(r"\*\*\* Move to: (.+)")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_LETTERS = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "v": 11, "f": 12}
_PREFIXES = ("a/", "b/", "i/", "w/", "c/", "o/")
_NO_NEWLINE = "\\ No newline"
MAX_PATCH = 8 * 1024 * 1024


@dataclass(frozen=True)
class PatchLine:
    """One line of a hunk, without its end."""

    mark: Mark
    text: str
    ends: bool = True
    """Whether a line end follows it in the file."""


@dataclass(frozen=True)
class Hunk:
    """Neighbouring lines; `old_start` (from 1) is where they were, None where the patch says nothing."""

    lines: tuple[PatchLine, ...]
    old_start: int | None = None
    anchors: tuple[str, ...] = ()
    """Lines (Codex: after `@@`) that stand somewhere before the hunk, in this order."""
    is_at_end: bool = False

    @property
    def old(self) -> list[PatchLine]:
        return [line for line in self.lines if line.mark != "+"]


@dataclass
class FilePatch:
    """What a patch does to one file; paths as it names them, without `a/` and `b/`."""

    action: Action
    path: str
    moved_to: str | None = None
    hunks: list[Hunk] = field(default_factory=list)
    mode: int | None = None


def parse(text: str) -> list[FilePatch]:
    """Every file of the patch. Raises PatchBroken with the line that cannot be read."""
    if len(text) > MAX_PATCH:
        raise _broken(f"the patch has {len(text)} characters; {MAX_PATCH} are possible", 1)
    lines = text.split("\n")
    begin = next((n for n, line in enumerate(lines) if line.strip() == "*** Begin Patch"), None)
    files = _Codex(lines, begin + 1).files() if begin is not None else _Unified(lines).files()
    if not files:
        raise _broken("the text is no patch: no file is named in it", 1)
    return files


def _broken(why: str, line: int) -> PatchBroken:
    return PatchBroken(
        why,
        hint="send a unified diff (`--- a/x`, `+++ b/x`, `@@ -1,3 +1,4 @@`) or a `*** Begin Patch` text",
        data={"line": line},
    )


# --------------------------------------------------------------------------- Codex


class _Codex:
    """The reader of `*** Begin Patch`."""

    def __init__(self, lines: list[str], begin: int) -> None:
        self._lines = [line.removesuffix("\r") for line in lines]
        self._at = begin
        self._files: list[FilePatch] = []

    def files(self) -> list[FilePatch]:
        while self._at < len(self._lines):
            line = self._lines[self._at].strip()
            if line == "*** End Patch":
                return self._files
            match = _CODEX_FILE.match(line)
            if match is None:
                if line:
                    raise _broken(f"`{shown_line(line)}` is no part of a patch", self._at + 1)
                self._at += 1
                continue
            self._at += 1
            self._one(match[1], match[2].strip())
        raise _broken("the patch has no `*** End Patch`: it was cut short", len(self._lines))

    def _one(self, what: str, path: str) -> None:
        if what == "Delete File":
            self._files.append(FilePatch("delete", path))
        elif what == "Add File":
            self._files.append(FilePatch("add", path, hunks=[Hunk(tuple(self._added()))]))
        else:
            self._update(path)

    def _added(self) -> list[PatchLine]:
        lines: list[PatchLine] = []
        while self._at < len(self._lines) and not self._lines[self._at].startswith("*** "):
            line = self._lines[self._at]
            if not line.strip() and self._at == len(self._lines) - 1:
                break
            if not line.startswith("+"):
                raise _broken("a line of a new file begins with `+`", self._at + 1)
            lines.append(PatchLine("+", line[1:]))
            self._at += 1
        return lines

    def _update(self, path: str) -> None:
        moved = _CODEX_MOVE.match(self._lines[self._at].strip()) if self._more() else None
        if moved is not None:
            self._at += 1
        file = FilePatch("move" if moved else "update", path, moved[1].strip() if moved else None)
        while self._more() and not self._is_header():
            file.hunks.append(self._hunk())
        if not file.hunks and moved is None:
            raise _broken(f"nothing is said about {path}", self._at)
        self._files.append(file)

    def _more(self) -> bool:
        return self._at < len(self._lines)

    def _is_header(self) -> bool:
        line = self._lines[self._at].strip()
        return line.startswith("*** ") and line != "*** End of File"

    def _hunk(self) -> Hunk:
        anchors = []
        while self._more() and self._lines[self._at].startswith("@@"):
            anchor = self._lines[self._at][2:].strip()
            anchors += [anchor] if anchor else []
            self._at += 1
        lines: list[PatchLine] = []
        is_at_end = False
        while self._more() and not self._is_header() and not self._lines[self._at].startswith("@@"):
            line = self._lines[self._at]
            self._at += 1
            if line.strip() == "*** End of File":
                is_at_end = True
                break
            lines.append(_marked(line, self._at))
        if not lines:
            raise _broken("a hunk has no lines", self._at)
        return Hunk(tuple(lines), None, tuple(anchors), is_at_end)


def _marked(line: str, number: int) -> PatchLine:
    if not line:
        return PatchLine(" ", "")
    if line[0] == " ":
        return PatchLine(" ", line[1:])
    if line[0] == "-":
        return PatchLine("-", line[1:])
    if line[0] == "+":
        return PatchLine("+", line[1:])
    raise _broken(f"`{shown_line(line)}` begins with none of ` `, `-` and `+`", number)


# --------------------------------------------------------------------------- unified


class _Unified:
    """The reader of unified diffs, git's extended headers included."""

    def __init__(self, lines: list[str]) -> None:
        # When headers end in CR the whole text travelled as CRLF; else a CR belongs to the content.
        headers = [line for line in lines if line.startswith(("--- ", "+++ ", "@@ "))]
        if headers and all(line.endswith("\r") for line in headers):
            lines = [line.removesuffix("\r") for line in lines]
        self._lines = lines
        self._at = 0
        self._files: list[FilePatch] = []

    def files(self) -> list[FilePatch]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("diff --git "):
                self._git_section(line.removeprefix("diff --git "))
            elif line.startswith("--- ") and self._line(1).startswith("+++ "):
                self._plain_section(FilePatch("update", ""))
            elif line.startswith("@@ ") and _HUNK.match(line):
                raise _broken("a hunk without a file: `---` and `+++` are missing", self._at + 1)
            else:
                self._at += 1
        return self._files

    def _line(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self._lines[place] if place < len(self._lines) else ""

    def _git_section(self, header: str) -> None:
        self._at += 1
        old, new = _header_names(header)
        file = FilePatch("update", "")
        while self._at < len(self._lines):
            line = self._line()
            if line.startswith("--- ") and self._line(1).startswith("+++ "):
                self._plain_section(file)
                return
            if line.startswith(("diff --git ", "@@ ")):
                break
            old, new = self._extended(line, file, old, new)
            self._at += 1
        path = old if file.action == "delete" else new or old
        if file.action in ("move", "copy"):
            path, file.moved_to = old, new
        if not path:
            raise _broken(f"the names in `diff --git {shown_line(header)}` are unclear", self._at)
        if file.action == "update" and file.mode is None:
            raise _broken(f"nothing is said about {path}", self._at)
        file.path = path
        self._files.append(file)

    def _extended(
        self, line: str, file: FilePatch, old: str | None, new: str | None
    ) -> tuple[str | None, str | None]:
        word, _, rest = line.partition(" ")
        if line.startswith(("GIT binary patch", "Binary files ")):
            raise _broken("binary patches are not applied", self._at + 1)
        if line.startswith(("new file mode ", "new mode ")):
            file.mode = self._mode(line.rsplit(" ", 1)[1])
            file.action = "add" if word == "new" and rest.startswith("file") else file.action
        elif line.startswith("deleted file mode "):
            file.action = "delete"
        elif word in ("rename", "copy") and rest.startswith(("from ", "to ")):
            file.action = "move" if word == "rename" else "copy"
            way, _, name = rest.partition(" ")
            return (_unquoted(name), new) if way == "from" else (old, _unquoted(name))
        return old, new

    def _mode(self, text: str) -> int:
        if text not in ("100644", "100755", "100664"):
            raise _broken(f"mode {text} is no plain file's", self._at + 1)
        return 0o755 if text == "100755" else 0o644

    def _plain_section(self, file: FilePatch) -> None:
        before = _file_name(self._line().removeprefix("--- "))
        after = _file_name(self._line(1).removeprefix("+++ "))
        self._at += 2
        if file.action in ("move", "copy"):
            before, after = _without_prefixes(before, after)
            file.path, file.moved_to = before or "", after
        else:
            before, after = _without_prefixes(before, after)
            file.action = "add" if before is None else "delete" if after is None else "update"
            file.path = (before if after is None else after) or ""
        if not file.path or (file.action in ("move", "copy") and not file.moved_to):
            raise _broken("both names of a file are /dev/null", self._at)
        while match := _HUNK.match(self._line()):
            file.hunks.append(self._hunk(match))
        if not file.hunks and file.action == "update":
            raise _broken(f"nothing is said about {file.path}", self._at)
        self._files.append(file)

    def _hunk(self, match: re.Match[str]) -> Hunk:
        begin = self._at + 1
        removed, added = (int(match[n]) if match[n] is not None else 1 for n in (2, 4))
        self._at += 1
        lines: list[PatchLine] = []
        while removed > 0 or added > 0:
            if self._at >= len(self._lines):
                raise _broken("the last hunk is cut short", begin)
            if self._line().startswith(_NO_NEWLINE):
                self._end_without_newline(lines)
                continue
            line = _marked(self._line(), self._at + 1)
            removed -= line.mark != "+"
            added -= line.mark != "-"
            if removed < 0 or added < 0:
                raise _broken("a hunk has other lines than its header counts", begin)
            lines.append(line)
            self._at += 1
        if self._line().startswith(_NO_NEWLINE):
            self._end_without_newline(lines)
        return Hunk(tuple(lines), int(match[1]))

    def _end_without_newline(self, lines: list[PatchLine]) -> None:
        if lines:
            lines[-1] = replace(lines[-1], ends=False)
        self._at += 1


def _header_names(header: str) -> tuple[str | None, str | None]:
    """The two names of `diff --git a/x b/y`; ambiguous ones are settled by the later headers."""
    header = header.rstrip("\r")
    if header.startswith('"') or header.endswith('"'):
        names = [_unquoted(name) for name in re.findall(r'"(?:[^"\\]|\\.)*"|\S+', header)]
        return _without_prefixes(*names) if len(names) == 2 else (None, None)
    for match in re.finditer(" ", header[:8192]):
        left, right = _without_prefixes(header[: match.start()], header[match.end() :])
        if left == right:
            return left, right
    left, _, right = header.partition(" b/")
    return _without_prefixes(left, f"b/{right}") if right else (None, None)


def _file_name(text: str) -> str | None:
    """The name in a `---` or `+++` line, a timestamp after a tab taken off; None for /dev/null."""
    name = _unquoted(text) if text.startswith('"') else text.split("\t", 1)[0].rstrip()
    return None if name == "/dev/null" else name


def _without_prefixes(old: str | None, new: str | None) -> tuple[str | None, str | None]:
    """Take off `a/` and `b/` where every name that is there has such a prefix."""
    names = [name for name in (old, new) if name is not None]
    if names and all(name.startswith(_PREFIXES) for name in names):
        return (old[2:] if old else None), (new[2:] if new else None)
    return old, new


def _unquoted(text: str) -> str:
    """A name as git quotes it: C escapes, octal bytes of UTF-8."""
    match = _QUOTED.match(text)
    if match is None:
        return text
    raw, position, body = bytearray(), 0, match[1]
    for escape in _ESCAPE.finditer(body):
        raw += body[position : escape.start()].encode()
        letter = escape[1]
        is_octal = letter.isdigit() and len(letter) == 3
        raw.append(int(letter, 8) & 0xFF if is_octal else _LETTERS.get(letter, ord(letter) & 0xFF))
        position = escape.end()
    raw += body[position:].encode()
    return raw.decode(errors="surrogateescape")


# --------------------------------------------------------------------------- applying


def apply(text: str, file: FilePatch, shown: str) -> str:
    """The text after every hunk. Raises PatchMismatch for the first that agrees with nothing."""
    lines = lines_of(text)
    newline = "\r\n" if text.count("\r\n") * 2 > max(1, text.count("\n")) else "\n"
    result: list[str] = []
    position, shift = 0, 0
    for number, hunk in enumerate(file.hunks, 1):
        start = _place(lines, position, shift, hunk, number, shown)
        result += lines[position:start]
        fresh, used = _merged(lines, start, hunk, newline)
        result += fresh
        position = start + used
        if hunk.old_start is not None and hunk.old:
            shift = start - (hunk.old_start - 1)
    result += lines[position:]
    return "".join(result)


def _merged(lines: list[str], start: int, hunk: Hunk, newline: str) -> tuple[list[str], int]:
    """The lines that stand in a hunk's place afterwards, and how many lines of the file it used."""
    fresh: list[str] = []
    used = 0
    for line in hunk.lines:
        if line.mark == " ":
            fresh.append(lines[start + used])
        elif line.mark == "+":
            ending = newline if line.ends and not line.text.endswith("\r") else ""
            fresh.append(line.text + (ending or ("\n" if line.ends else "")))
        used += line.mark != "+"
    # What no longer is the last line needs an end of its own.
    rest = start + used < len(lines)
    for index, text in enumerate(fresh):
        is_last = index == len(fresh) - 1 and not rest
        if not text.endswith("\n") and not is_last:
            fresh[index] = text + newline
    return fresh, used


def _place(lines: list[str], position: int, shift: int, hunk: Hunk, number: int, shown: str) -> int:
    """The line (from 0) at which the hunk's old lines stand."""
    begin = _after_anchors(lines, position, hunk, number, shown)
    old = hunk.old
    if not old:
        return _for_insertion(lines, begin, shift, hunk)
    for forgiving in (False, True):
        wanted = [_key(line.text, forgiving) for line in old]
        keys = [_key(line, forgiving) for line in lines]
        if hunk.old_start is not None:
            named = hunk.old_start - 1 + shift
            if named >= position and _stands(lines, keys, wanted, named, hunk, forgiving):
                return named
        found = [
            start
            for start in range(begin, len(lines) - len(wanted) + 1)
            if keys[start] == wanted[0] and _stands(lines, keys, wanted, start, hunk, forgiving)
        ]
        if len(found) == 1 or (found and hunk.anchors):
            return found[0]
        if found:
            raise _ambiguous(lines, found, number, shown)
    raise _mismatch(lines, old, number, shown)


def _key(line: str, forgiving: bool) -> str:
    line = line.removesuffix("\n")
    return line.rstrip(" \t\r") if forgiving else line


def _stands(
    lines: list[str], keys: list[str], wanted: list[str], start: int, hunk: Hunk, forgiving: bool
) -> bool:
    end = start + len(wanted)
    if start < 0 or end > len(lines) or keys[start:end] != wanted:
        return False
    if hunk.is_at_end and end != len(lines):
        return False
    last = hunk.old[-1]
    is_last = end == len(lines)
    if not last.ends:
        return is_last and not lines[-1].endswith("\n")
    # A unified hunk says when a line has no end; the other dialect cannot.
    return hunk.old_start is None or forgiving or lines[end - 1].endswith("\n")


def _for_insertion(lines: list[str], begin: int, shift: int, hunk: Hunk) -> int:
    """Where a hunk without old lines goes: after the line it names, after its anchor, at the end."""
    if hunk.old_start is not None:
        return max(begin, min(len(lines), hunk.old_start + shift))
    return begin if hunk.anchors else len(lines)


def _after_anchors(lines: list[str], position: int, hunk: Hunk, number: int, shown: str) -> int:
    for anchor in hunk.anchors:
        keys = [line.strip() for line in lines[position:]]
        if anchor.strip() not in keys:
            raise _mismatch(lines, [PatchLine(" ", anchor)], number, shown)
        position += keys.index(anchor.strip()) + 1
    return position


def _ambiguous(lines: list[str], found: list[int], number: int, shown: str) -> PatchMismatch:
    named = ", ".join(str(start + 1) for start in found[:5])
    return PatchMismatch(
        f"hunk {number} fits {len(found)} places of {shown}: at lines {named}",
        hint="give the hunk more context lines, or the line number where it belongs",
        path=shown,
        data={"hunk": number, "count": len(found)},
    )


def _mismatch(lines: list[str], old: list[PatchLine], number: int, shown: str) -> PatchMismatch:
    wanted = next((line.text.strip() for line in old if line.text.strip()), "")
    near = next((n for n, line in enumerate(lines) if line.strip() == wanted), 0)
    first = max(0, near - 3)
    return PatchMismatch(
        f"hunk {number} does not fit {shown}: its lines do not stand there",
        hint="`data` shows the file as it is; read it again with fs.read and make the patch anew",
        path=shown,
        data={
            "hunk": number,
            "expected": [line.text for line in old][:40],
            "lines": numbered(lines[first : first + 20], first + 1),
        },
    )
