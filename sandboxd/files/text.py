"""Text as people and models see it: strict decoding, numbered lines, differences.

Nothing is ever replaced: bytes that are no UTF-8 are refused with their position. BOM and line ends
stay what they are in the file; only what is shown leaves them out.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from sandboxd.errors import NotText
from sandboxd.files.guard import Place
from sandboxd.model import Diff, Hunk

BOM = "\ufeff"
MAX_DIFF_LINES = 400
MAX_COMPARED_LINES = 2000
MAX_LINE = 2000
"""Characters of one shown line; the rest is counted."""
EXCERPT_LINES = 40
EXCERPT_CHARACTERS = 8000
CONTEXT = 3

_KINDS = (
    (b"\x7fELF", "an ELF program"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"PK\x03\x04", "a zip archive"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (b"\0asm", "a WebAssembly module"),
    (b"OggS", "an Ogg recording"),
    (b"ID3", "an MP3 recording"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


@dataclass(frozen=True)
class Text:
    """Decoded content; `text` is everything after the BOM, line ends as they are in the file."""

    text: str
    has_bom: bool

    @property
    def newline(self) -> str:
        """The line end that the file mostly has."""
        crlf = self.text.count("\r\n")
        return "\r\n" if crlf * 2 > self.text.count("\n") else "\n"

    def encoded(self, text: str) -> bytes:
        return ((BOM if self.has_bom else "") + text).encode("utf-8", "surrogateescape")


def decoded(data: bytes, place: Place) -> Text:
    """The content as text. Raises NotText naming what it is instead, or the first bad byte."""
    kind = binary_kind(data[:8192])
    if kind is not None:
        raise NotText(
            f"{place.shown} is {kind}, {len(data)} bytes, not text",
            hint="use a command that understands it",
            path=place.shown,
            data={"kind": kind, "bytes": len(data)},
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_byte(place, data[error.start], error.start, data.count(b"\n", 0, error.start) + 1) from error  # fmt: skip
    has_bom = text.startswith(BOM)
    return Text(text[1:] if has_bom else text, has_bom)


def bad_byte(place: Place, byte: int, offset: int, line: int) -> NotText:
    return NotText(
        f"{place.shown} is not UTF-8: byte 0x{byte:02x} at offset {offset}, line {line}",
        hint="convert it with a command (`iconv`), or read the lines before it",
        path=place.shown,
        data={"offset": offset, "line": line},
    )


def binary_kind(head: bytes) -> str | None:
    """What the beginning of a file says that it is, when it is no text."""
    for signature, kind in _KINDS:
        if head.startswith(signature):
            return kind
    return "a binary file" if b"\0" in head else None


def shown_line(line: str) -> str:
    """One line without its end, cut where it is absurdly long."""
    line = line.rstrip("\r\n")
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} [+{len(line) - MAX_LINE}]"


def numbered(lines: list[str], first: int) -> str:
    """Lines with their numbers, as `cat -n` writes them."""
    return "".join(f"{n:6}\t{shown_line(line)}\n" for n, line in enumerate(lines, first))


def excerpt(text: str, around: int | None = None) -> str:
    """Numbered lines: the whole text when it is short, else those around a line, or the first."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if len(text) <= EXCERPT_CHARACTERS and len(lines) <= 4 * EXCERPT_LINES:
        return numbered(lines, 1)
    first = max(0, (around or 1) - 1 - EXCERPT_LINES // 2)
    return numbered(lines[first : first + EXCERPT_LINES], first + 1)[: 2 * EXCERPT_CHARACTERS]


def lines_of(text: str) -> list[str]:
    """The lines with their ends; only a line feed ends one, as for every other tool."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def difference(before: str, after: str) -> Diff:
    """What changed from one text to the other."""
    old, new = lines_of(before), lines_of(after)
    first, last = _common(old, new)
    middle_old, middle_new = old[first : len(old) - last], new[first : len(new) - last]
    if not middle_old and not middle_new:
        return Diff()
    if max(len(middle_old), len(middle_new)) > MAX_COMPARED_LINES:
        return _block(old, middle_old, middle_new, first, last)
    begin, end = max(0, first - CONTEXT), max(0, last - CONTEXT)
    part_old, part_new = old[begin : len(old) - end], new[begin : len(new) - end]
    matcher = difflib.SequenceMatcher(None, part_old, part_new, autojunk=False)
    hunks = [
        _hunk(group, part_old, part_new, begin) for group in matcher.get_grouped_opcodes(CONTEXT)
    ]
    return _abridged(hunks)


def _common(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines are the same at the beginning and, beyond those, at the end."""
    most = min(len(old), len(new))
    first = 0
    while first < most and old[first] == new[first]:
        first += 1
    last = 0
    while last < most - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return first, last


def _block(
    old: list[str], middle_old: list[str], middle_new: list[str], first: int, last: int
) -> Diff:
    """One hunk for a region that is too large to be compared line by line."""
    lines = [f"-{shown_line(line)}" for line in middle_old]
    lines += [f"+{shown_line(line)}" for line in middle_new]
    hunk = Hunk(
        old_start=first + 1,
        old_lines=len(middle_old),
        new_start=first + 1,
        new_lines=len(middle_new),
        lines=tuple(lines),
    )
    return _abridged([hunk])


def _hunk(
    group: list[tuple[str, int, int, int, int]], old: list[str], new: list[str], offset: int
) -> Hunk:
    lines: list[str] = []
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [f" {shown_line(line)}" for line in old[i1:i2]]
            continue
        lines += [f"-{shown_line(line)}" for line in old[i1:i2]]
        lines += [f"+{shown_line(line)}" for line in new[j1:j2]]
    old_lines, new_lines = group[-1][2] - group[0][1], group[-1][4] - group[0][3]
    return Hunk(
        old_start=offset + group[0][1] + (1 if old_lines else 0),
        old_lines=old_lines,
        new_start=offset + group[0][3] + (1 if new_lines else 0),
        new_lines=new_lines,
        lines=tuple(lines),
    )


def _abridged(hunks: list[Hunk]) -> Diff:
    added = sum(line[0] == "+" for hunk in hunks for line in hunk.lines)
    removed = sum(line[0] == "-" for hunk in hunks for line in hunk.lines)
    kept: list[Hunk] = []
    room = MAX_DIFF_LINES
    for hunk in hunks:
        if len(hunk.lines) > room:
            break
        kept.append(hunk)
        room -= len(hunk.lines)
    return Diff(added=added, removed=removed, hunks=tuple(kept), is_abridged=len(kept) < len(hunks))


def unified(diff: Diff, name: str) -> str:
    """The difference as people know it."""
    if not diff.hunks and not diff.is_abridged:
        return ""
    lines = [f"--- {name}", f"+++ {name}"]
    for hunk in diff.hunks:
        lines.append(f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@")
        lines += hunk.lines
    if diff.is_abridged:
        lines.append(f"[{diff.added} lines added, {diff.removed} removed in all]")
    return "\n".join(lines) + "\n"
