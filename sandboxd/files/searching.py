"""Looking for files and lines: list, glob, grep.

List and glob walk by checked handles, in the daemon. grep is a command of our own making that the
pipeline runs in the session's sandbox: ripgrep where the system has it, else `searcher`; this module
says which words to run and reads what they print. Nothing found is an empty answer only when the
walk was whole: what could not be looked at is named in `skipped`.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import Struct

from sandboxd.errors import Fault, InvalidRequest, SpecialFile
from sandboxd.files import handles, searcher
from sandboxd.files.guard import Place, Scope, locate, shown_as
from sandboxd.files.reading import Tools
from sandboxd.files.walking import Glob, Walk
from sandboxd.model import FileCount, FileEntry, FileKind, GrepWindow, Skipped
from sandboxd.policy import is_inside
from sandboxd.system import beneath

MAX_ENTRIES = 1000
MAX_PATHS = 1000
MAX_FILES = 200
MAX_LINES = 1000
MAX_CONTEXT = 20


@dataclass(frozen=True)
class Listing:
    shown: str
    entries: tuple[FileEntry, ...]
    total: int
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True)
class Globbed:
    paths: tuple[str, ...]
    total: int
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True)
class Search:
    """What grep looks for."""

    pattern: str
    is_content: bool = False
    context: int = 0
    ignore_case: bool = False
    is_literal: bool = False
    glob: str | None = None
    with_ignored: bool = False


@dataclass(frozen=True)
class Grepped:
    files: tuple[FileCount, ...]
    windows: tuple[GrepWindow, ...]
    total_files: int
    total_lines: int
    skipped: tuple[Skipped, ...]
    engine: Literal["ripgrep", "python"]


# --------------------------------------------------------------------------- list and glob


def list_folder(tools: Tools, path: str) -> Listing:
    """What is in a folder, folders first. Raises what `guard.locate` does; NotFound, SpecialFile."""
    place = _folder(tools.scope, path)
    entries: list[FileEntry] = []
    skipped: list[Skipped] = []
    with handles.opened_folder(place, tools.scope) as fd, os.scandir(fd) as found:
        for entry in found:
            try:
                entries.append(_entry(entry, fd))
            except OSError as error:
                skipped.append(Skipped(entry.name, error.strerror or "cannot be looked at"))
    entries.sort(key=lambda one: (one.kind != "folder", one.name))
    return Listing(place.shown, tuple(entries[:MAX_ENTRIES]), len(entries), tuple(skipped))


def _entry(entry: os.DirEntry[str], fd: int) -> FileEntry:
    found = os.stat(entry.name, dir_fd=fd, follow_symlinks=False)
    kinds: dict[int, FileKind] = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "folder",
        stat.S_IFLNK: "link",
    }
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    return FileEntry(
        name=entry.name,
        kind=kind,
        size=found.st_size if kind == "file" else None,
        target=os.readlink(entry.name, dir_fd=fd) if kind == "link" else None,
    )


def glob(tools: Tools, pattern: str, path: str, *, with_ignored: bool = False) -> Globbed:
    """Files below a folder whose path there matches, in the order of names."""
    if not pattern.strip("/"):
        raise InvalidRequest(
            "wrong parameters: `pattern` is empty",
            hint="send a pattern such as `*.py` or `src/**/test_*`",
            data={"parameter": "pattern"},
        )
    place = _folder(tools.scope, path)
    inner = pattern[len(place.path) + 1 :] if pattern.startswith(place.path + "/") else pattern
    wanted, walk = Glob(inner.removeprefix("./")), Walk(with_ignored=with_ignored)
    top, start = top_and_start(place, tools.scope)
    found = []
    with beneath.acting_as(tools.scope.owner), handles.folder_of(top, is_read=True) as fd:
        for below, _, _ in walk.files(fd, start):
            if wanted.matches(below[len(start) :].lstrip("/")):
                found.append(shown_as(os.path.join(top, below), tools.scope))
    skipped = _skipped(walk.skipped, top, tools.scope)
    return Globbed(tuple(found[:MAX_PATHS]), len(found), skipped)


def _folder(scope: Scope, path: str) -> Place:
    place = locate(path, scope, "read")
    if place.found is None:
        raise handles.not_found(place)
    if not stat.S_ISDIR(place.found.st_mode):
        raise SpecialFile(
            f"{place.shown} is a file, not a folder", hint="read it with fs.read", path=place.shown
        )
    return place


def top_and_start(place: Place, scope: Scope) -> tuple[str, str]:
    """Where ignore rules begin to count (the workspace, or the root that the place lies in), and the
    place below it."""
    top = scope.workspace if is_inside(place.path, (scope.workspace,)) else place.root
    return top, place.path[len(top.rstrip("/")) + 1 :]


def _skipped(found: list[tuple[str, str]], top: str, scope: Scope) -> tuple[Skipped, ...]:
    return tuple(
        Skipped(shown_as(os.path.normpath(os.path.join(top, path)), scope), reason)
        for path, reason in found
    )


# --------------------------------------------------------------------------- grep


class _Window(Struct):
    path: str
    first_line: int
    lines: list[str]
    matches: list[int]


class _Answer(Struct):
    """What `searcher` prints."""

    error: str | None = None
    counts: list[tuple[str, int]] = []
    total_files: int = 0
    total_lines: int = 0
    windows: list[_Window] = []
    skipped: list[tuple[str, str]] = []


@dataclass(frozen=True)
class Job:
    """A search in one place, as the sandbox sees it."""

    search: Search
    top: str
    """The folder to work in: the program's working directory."""
    start: str
    """What to search, below the top; empty: all of it."""
    is_file: bool

    def searcher_words(self, python: str) -> list[str]:
        request = {
            "top": self.top,
            "start": self.start,
            "is_file": self.is_file,
            "pattern": self.search.pattern,
            "is_content": self.search.is_content,
            "context": self.search.context,
            "ignore_case": self.search.ignore_case,
            "is_literal": self.search.is_literal,
            "glob": self.search.glob,
            "with_ignored": self.search.with_ignored,
            "max_files": MAX_FILES,
            "max_lines": MAX_LINES,
        }
        text = msgspec.json.encode(request).decode()
        return [python, "-I", "-S", os.path.abspath(searcher.__file__), text]

    def count_words(self, ripgrep: str) -> list[str]:
        """ripgrep: how many lines match in each file."""
        return [*self._words(ripgrep), "--count", "--null", "--with-filename", *self._pattern(), self.start or "."]  # fmt: skip

    def line_words(self, ripgrep: str, paths: list[str]) -> list[str]:
        """ripgrep: the lines of these files, with their contexts."""
        context = ["--context", str(self.search.context), "--null", "--line-number", "--no-heading", "--with-filename", "--max-count", str(MAX_LINES)]  # fmt: skip
        return [*self._words(ripgrep), *context, "--sort", "path", *self._pattern(), *paths]

    def _words(self, ripgrep: str) -> list[str]:
        search = self.search
        words = [ripgrep, "--no-config", "--color", "never", "--hidden", "--crlf"]
        words += ["--encoding", "none", "--no-require-git", "--no-ignore-global"]
        words += ["--glob", "!.git"]
        words += ["--glob", search.glob] if search.glob else []
        words += ["--ignore-case"] if search.ignore_case else []
        words += ["--fixed-strings"] if search.is_literal else []
        words += ["--no-ignore"] if search.with_ignored else []
        return words

    def _pattern(self) -> list[str]:
        return ["--regexp", self.search.pattern, "--"]


def searcher_answer(printed: bytes, job: Job, top: str, scope: Scope) -> Grepped:
    """What `searcher` found. Raises InvalidRequest for a broken pattern."""
    try:
        answer = msgspec.json.decode(printed, type=_Answer)
    except msgspec.MsgspecError as error:
        raise Fault("the search ended without an answer") from error
    if answer.error is not None:
        raise InvalidRequest(
            f"wrong parameters: `pattern` is no regular expression: {answer.error}",
            hint="correct it, or send `literal: true` to look for the text as it is",
            data={"parameter": "pattern"},
        )

    def shown(path: str) -> str:
        return shown_as(os.path.normpath(os.path.join(top, path)), scope)

    return Grepped(
        files=tuple(FileCount(path=shown(path), count=count) for path, count in answer.counts),
        windows=tuple(
            GrepWindow(
                path=shown(one.path),
                first_line=one.first_line,
                lines=tuple(one.lines),
                matches=tuple(one.matches),
            )
            for one in _within_room(answer.windows)
        ),
        total_files=answer.total_files,
        total_lines=answer.total_lines,
        skipped=_skipped(answer.skipped, top, scope),
        engine="python",
    )


def ripgrep_counts(printed: bytes) -> list[tuple[str, int]]:
    """(path, lines) from `--count --null`, densest first."""
    counts = []
    for line in printed.split(b"\n"):  # ripgrep 13 ends its own lines as `--crlf` says, too
        path, separator, count = line.rstrip(b"\r").partition(b"\0")
        if separator and count.isdigit():
            counts.append((os.fsdecode(path).removeprefix("./"), int(count)))
    return sorted(counts, key=lambda entry: (-entry[1], entry[0]))


def densest(counts: list[tuple[str, int]]) -> list[str]:
    """The files whose lines are shown."""
    chosen, room = [], MAX_LINES
    for path, count in counts[:MAX_FILES]:
        if room <= 0:
            break
        chosen.append(path)
        room -= count
    return chosen


def ripgrep_windows(printed: bytes, order: list[str]) -> list[_Window]:
    """Windows from `--null --line-number --context`: `path NUL number : or - text`."""
    windows: dict[str, list[_Window]] = {}
    for line in printed.split(b"\n"):
        raw_path, separator, rest = line.partition(b"\0")
        if not separator:
            continue
        digits = len(rest) - len(rest.lstrip(b"0123456789"))
        number, is_match = int(rest[:digits]), rest[digits : digits + 1] == b":"
        text = rest[digits + 1 :].decode("utf-8", "replace").removesuffix("\r")
        path = os.fsdecode(raw_path).removeprefix("./")
        of_file = windows.setdefault(path, [])
        if not of_file or of_file[-1].first_line + len(of_file[-1].lines) != number:
            of_file.append(_Window(path, number, [], []))
        of_file[-1].lines.append(text[: searcher.MAX_COLUMNS])
        if is_match:
            of_file[-1].matches.append(number)
    return [window for path in order for window in windows.get(path, [])]


def ripgrep_answer(
    counts: list[tuple[str, int]],
    windows: list[_Window],
    complaints: bytes,
    top: str,
    scope: Scope,
) -> Grepped:
    """What ripgrep found, in the same words."""
    kept = _within_room(windows)
    skipped = []
    for line in complaints.decode("utf-8", "replace").splitlines():
        path, separator, reason = line.removeprefix("rg: ").rpartition(": ")
        if separator and line.startswith("rg: "):
            skipped.append((path.removeprefix("./"), reason.split(" (os error")[0]))

    def shown(path: str) -> str:
        return shown_as(os.path.normpath(os.path.join(top, path)), scope)

    return Grepped(
        files=tuple(FileCount(path=shown(path), count=count) for path, count in counts[:MAX_FILES]),
        windows=tuple(
            GrepWindow(
                path=shown(one.path),
                first_line=one.first_line,
                lines=tuple(one.lines),
                matches=tuple(one.matches),
            )
            for one in kept
        ),
        total_files=len(counts),
        total_lines=sum(count for _, count in counts),
        skipped=_skipped(skipped[:100], top, scope),
        engine="ripgrep",
    )


def _within_room(windows: list[_Window]) -> list[_Window]:
    """At most MAX_LINES matching lines."""
    kept, room = [], MAX_LINES
    for window in windows:
        if room <= 0:
            break
        kept.append(window)
        room -= len(window.matches)
    return kept
