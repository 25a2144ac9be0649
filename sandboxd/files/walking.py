"""Walking a folder as a version control system sees it: names, patterns, and what is ignored.

By descriptors, so that a folder that becomes a link meanwhile leads nowhere. Shared by fs.glob, in
the daemon, and by `searcher`, inside a sandbox: only the standard library is imported. Patterns are
matched segment by segment, so no pattern takes long. Source of the ignore rules: gitignore(5).
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

IGNORE_FILES = (".gitignore", ".ignore")
MAX_IGNORE_BYTES = 1024 * 1024
MAX_DEPTH = 128
MAX_SKIPPED = 100
MAX_ALTERNATIVES = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Pattern:
    """One glob pattern: segments between slashes; `**` stands for any number of them."""

    segments: tuple[re.Pattern[str] | None, ...]

    @classmethod
    def of(cls, text: str) -> Pattern:
        parts = [part for part in text.split("/") if part not in ("", ".")]
        return cls(tuple(None if part == "**" else _segment(part) for part in parts))

    def matches(self, path: str) -> bool:
        """Whether the whole of a relative path matches."""
        names = path.split("/")
        reached = {0}
        for name in names:
            reached = self._skips(reached)
            following = set()
            for place in reached:
                if place >= len(self.segments):
                    continue
                segment = self.segments[place]
                if segment is None:
                    following.add(place)
                elif segment.match(name):
                    following.add(place + 1)
            reached = following
            if not reached:
                return False
        return len(self.segments) in self._skips(reached)

    def _skips(self, reached: set[int]) -> set[int]:
        """`**` may stand for nothing."""
        found = set(reached)
        for place in sorted(reached):
            while place < len(self.segments) and self.segments[place] is None:
                place += 1
                found.add(place)
        return found


def _segment(text: str) -> re.Pattern[str]:
    """One segment; a backslash takes the next character as it is."""
    plain = re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] != "]" else "[]]", text)
    return re.compile(fnmatch.translate(plain))


class Glob:
    """What fs.glob and the `glob` of fs.grep take: alternatives in braces, any depth without a slash."""

    def __init__(self, text: str) -> None:
        anywhere = "/" not in text.strip("/")
        self._patterns = [
            Pattern.of(f"**/{one}" if anywhere else one) for one in alternatives(text)
        ]

    def matches(self, path: str) -> bool:
        return any(pattern.matches(path) for pattern in self._patterns)


def alternatives(text: str) -> list[str]:
    """`a.{b,c}` as `a.b` and `a.c`; at most MAX_ALTERNATIVES."""
    found = [text]
    while len(found) < MAX_ALTERNATIVES:
        expanded: list[str] = []
        for one in found:
            match = re.search(r"\{([^{}]*,[^{}]*)\}", one)
            if match is None:
                expanded.append(one)
            else:
                expanded += [one[: match.start()] + part + one[match.end() :] for part in match[1].split(",")]  # fmt: skip
        if expanded == found:
            break
        found = expanded
    return found[:MAX_ALTERNATIVES]


# --------------------------------------------------------------------------- ignore files


@dataclass
class _Rule:
    is_negated: bool
    folders_only: bool
    name: re.Pattern[str] | None
    """For a rule without a slash: matched against the last name."""
    path: Pattern | None


class Rules:
    """The rules of one ignore file; `base` is its folder, relative to the top of the walk."""

    def __init__(self, text: str, base: str) -> None:
        self._base = base
        self._rules = [rule for line in text.splitlines() if (rule := _rule(line))]
        self._are_names = all(rule.name and not rule.is_negated for rule in self._rules)
        names = [r.name.pattern for r in self._rules if r.name and not r.folders_only]
        every = [rule.name.pattern for rule in self._rules if rule.name]
        self._files = re.compile("|".join(names) or r"(?!)")
        self._folders = re.compile("|".join(every) or r"(?!)")

    def verdict(self, path: str, name: str, is_folder: bool) -> bool | None:
        """True: ignored, False: explicitly not, None: nothing is said."""
        if self._are_names:
            return True if (self._folders if is_folder else self._files).match(name) else None
        inner = path[len(self._base) + 1 :] if self._base else path
        for rule in reversed(self._rules):
            if rule.folders_only and not is_folder:
                continue
            hit = rule.name.match(name) if rule.name else rule.path and rule.path.matches(inner)
            if hit:
                return not rule.is_negated
        return None


def _rule(line: str) -> _Rule | None:
    """One line of an ignore file; None for a comment or nothing."""
    if line.startswith("#"):
        return None
    line = line if line.endswith("\\ ") else line.rstrip(" \t\r")
    is_negated = line.startswith("!")
    line = line[1:] if is_negated else line
    line = line[1:] if line.startswith(("\\#", "\\!")) else line
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    if not line:
        return None
    try:
        if "/" not in line:
            return _Rule(is_negated, folders_only, _segment(line), None)
        return _Rule(is_negated, folders_only, None, Pattern.of(line))
    except re.error:
        return None


# --------------------------------------------------------------------------- the walk


@dataclass
class Walk:
    """A walk below a folder. `top` is where ignore rules begin to count."""

    with_ignored: bool = False
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def files(self, top_fd: int, start: str) -> Iterator[tuple[str, str, int]]:
        """(path below the top, name, descriptor of its folder) of every plain file below `start`, a
        path below the top (empty: the top itself), in the order of names."""
        rules: list[Rules] = []
        fd = os.dup(top_fd)
        try:
            base = ""
            if not self.with_ignored:
                self._add(rules, fd, ".git/info/exclude", "")
            for part in [part for part in start.split("/") if part]:
                self._add_all(rules, fd, base)
                step = os.open(part, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = step
                base = f"{base}/{part}" if base else part
            yield from self._below(fd, base, rules, 0)
        finally:
            os.close(fd)

    def _below(
        self, fd: int, base: str, rules: list[Rules], depth: int
    ) -> Iterator[tuple[str, str, int]]:
        own = list(rules)
        self._add_all(own, fd, base)
        try:
            with os.scandir(fd) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            self._skip(base or ".", error)
            return
        for entry in entries:
            path = f"{base}/{entry.name}" if base else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_folder and not entry.is_file(follow_symlinks=False):
                continue
            if not self.with_ignored and _is_ignored(own, path, entry.name, is_folder):
                continue
            if not is_folder:
                yield path, entry.name, fd
            elif entry.name != ".git" and depth < MAX_DEPTH:
                yield from self._enter(fd, entry.name, path, own, depth)

    def _enter(
        self, fd: int, name: str, path: str, rules: list[Rules], depth: int
    ) -> Iterator[tuple[str, str, int]]:
        try:
            inner = os.open(name, _FOLDER, dir_fd=fd)
        except OSError as error:
            self._skip(path, error)
            return
        try:
            yield from self._below(inner, path, rules, depth + 1)
        finally:
            os.close(inner)

    def _skip(self, path: str, error: OSError) -> None:
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append((path, error.strerror or type(error).__name__))

    def _add_all(self, rules: list[Rules], fd: int, base: str) -> None:
        if not self.with_ignored:
            for name in IGNORE_FILES:
                self._add(rules, fd, name, base)

    def _add(self, rules: list[Rules], fd: int, name: str, base: str) -> None:
        try:
            file_fd = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd
            )
        except OSError:
            return
        try:
            text = os.read(file_fd, MAX_IGNORE_BYTES).decode("utf-8", "replace")
        except OSError:
            return
        finally:
            os.close(file_fd)
        rules.append(Rules(text, base))


def _is_ignored(rules: list[Rules], path: str, name: str, is_folder: bool) -> bool:
    """The nearest file that says something decides."""
    for one in reversed(rules):
        verdict = one.verdict(path, name, is_folder)
        if verdict is not None:
            return verdict
    return False
