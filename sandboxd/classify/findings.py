"""What grading one simple command collects, and what it is handed to grade with.

A module of its own because the small languages, the wrappers and the tables all speak in these
values and must not know each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from sandboxd.classify.tables import Tables
from sandboxd.model import (
    DESTRUCTIVE,
    MUTATING,
    READ_ONLY,
    CommandClass,
    Grade,
    Part,
    SimpleCommand,
    Verdict,
    worst,
)

MAX_DEPTH = 4
"""A wrapper inside a wrapper ... inside a wrapper: deeper than this is not looked into."""


def _no_repository(folder: str) -> tuple[str, str] | None:
    return None


class GradeFacts(Struct, frozen=True):
    """What the verdict may depend on beyond the text of the command."""

    cwd: str | None
    """The folder the command runs in; None after a `cd` to a non-literal."""
    home: str
    exists: Callable[[str], bool]
    git_defines_programs: Callable[[str], bool]
    """Whether the repository around this folder configures programs that git would run."""
    depth: int
    grade_text: Callable[[str], Verdict]
    """Grades shell text (`sh -c TEXT`, `eval`, `trap`) one level deeper."""
    tables: Tables
    git_folders: Callable[[str], tuple[str, str] | None] = _no_repository
    """The git folder of the repository around this folder, and the one that its worktrees share."""


NO_MEANING: Mapping[str, str] = MappingProxyType({})


class Finding(Struct, frozen=True, gc=False):
    """One fact about a command. Findings add up: the worst class wins, lists are joined."""

    class_: CommandClass = READ_ONLY
    reason: str = ""
    rule: str = ""
    """Overrides the entry's rule when this finding decides."""
    is_cacheable: bool = True
    parts: tuple[Part, ...] = ()
    read_paths: tuple[str, ...] = ()
    write_paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    exit_meaning: Mapping[str, str] = NO_MEANING
    is_git_reader: bool = False
    changes_meaning: bool = False
    changes_directory_to: str | None = None


NOTHING = Finding()


def mutating(reason: str, rule: str = "") -> Finding:
    return Finding(MUTATING, reason, rule)


def destructive(reason: str, rule: str = "") -> Finding:
    return Finding(DESTRUCTIVE, reason, rule)


def joined(findings: Iterable[Finding]) -> Finding:
    """All findings as one; class, reason and rule are those of the first worst one."""
    found = [finding for finding in findings if finding is not NOTHING]
    if len(found) < 2:
        return found[0] if found else NOTHING
    return _gathered(found)


def _leader(found: Sequence[Finding]) -> Finding:
    """The first of the worst findings."""
    leader = found[0]
    for finding in found:
        if finding.class_.severity > leader.class_.severity:
            leader = finding
    return leader


def _gathered(found: Sequence[Finding]) -> Finding:
    """Several findings as one; most of their fields are empty, so only the others are touched."""
    leader = _leader(found)
    reason, is_cacheable = leader.reason, True
    is_git_reader = changes_meaning = False
    parts: list[Part] = []
    read_paths: list[str] = []
    write_paths: list[str] = []
    hosts: list[str] = []
    programs: list[str] = []
    exit_meaning: Mapping[str, str] = NO_MEANING
    folder: str | None = None
    for one in found:
        reason = reason or one.reason
        if one.parts:
            parts += one.parts
        if one.read_paths:
            read_paths += one.read_paths
        if one.write_paths:
            write_paths += one.write_paths
        if one.hosts:
            hosts += one.hosts
        if one.programs:
            programs += one.programs
        if one.exit_meaning:
            exit_meaning = {**exit_meaning, **one.exit_meaning}
        is_cacheable = is_cacheable and one.is_cacheable
        is_git_reader = is_git_reader or one.is_git_reader
        changes_meaning = changes_meaning or one.changes_meaning
        folder = one.changes_directory_to or folder
    return Finding(
        leader.class_,
        reason,
        leader.rule,
        is_cacheable,
        tuple(parts),
        tuple(read_paths),
        tuple(write_paths),
        tuple(hosts),
        tuple(programs),
        exit_meaning,
        is_git_reader,
        changes_meaning,
        folder,
    )


def at_least(finding: Finding, class_: CommandClass, reason: str) -> Finding:
    """The finding, raised to `class_` when it is milder."""
    if finding.class_.severity >= class_.severity:
        return finding
    return replace(finding, class_=class_, reason=reason, rule="")


class Context(Struct, frozen=True):
    """One command being graded: the command itself, the facts, and the way to grade inner ones."""

    command: SimpleCommand
    facts: GradeFacts
    grade: Callable[[SimpleCommand, GradeFacts, bool], Grade]
    """Grades an inner command; the last argument says that it is executed, not run by the shell."""
    is_executed: bool = False
    """Looked up on PATH even when bash has a builtin of the name (`xargs echo`)."""

    def path(self, text: str) -> str | None:
        """The absolute path that `text` names for this command; None when the folder is unknown."""
        return absolute(text, self.facts.cwd)

    def inner(self, command: SimpleCommand, is_executed: bool) -> Finding:
        """The finding for a command found inside this one; too deep is not looked into."""
        if self.facts.depth >= MAX_DEPTH:
            return Finding(
                DESTRUCTIVE,
                "commands are nested too deeply to be read",
                "depth",
                is_cacheable=False,
            )
        facts = replace(self.facts, depth=self.facts.depth + 1)
        return from_grade(self.grade(command, facts, is_executed), command)

    def text(self, text: str) -> Finding:
        """The finding for shell text found inside this command."""
        if self.facts.depth >= MAX_DEPTH:
            return destructive("commands are nested too deeply to be read", "depth")
        return from_verdict(self.facts.grade_text(text))


def absolute(text: str, cwd: str | None) -> str | None:
    if text.startswith("/"):
        return text
    if not cwd:
        return None
    if text in (".", "./"):
        return cwd
    inside = text.removeprefix("./").lstrip("/")
    return cwd + inside if cwd.endswith("/") else f"{cwd}/{inside}"


def from_grade(grade: Grade, command: SimpleCommand) -> Finding:
    """An inner command's grade as a finding of the outer one, with the inner one as a part."""
    part = Part(
        span=(command.words[0].span[0], command.words[-1].span[1])
        if command.words
        else command.span,
        command=" ".join(word.text for word in command.words),
        class_=grade.class_,
        rule=grade.rule,
        reason=grade.reason,
    )
    return Finding(
        class_=grade.class_,
        reason=grade.reason,
        rule=grade.rule,
        is_cacheable=grade.is_cacheable,
        parts=(part, *grade.parts),
        read_paths=grade.read_paths,
        write_paths=grade.write_paths,
        hosts=grade.hosts,
        programs=grade.programs,
        exit_meaning=grade.exit_meaning,
        is_git_reader=grade.is_git_reader,
        changes_meaning=grade.changes_meaning,
        changes_directory_to=grade.changes_directory_to,
    )


def from_verdict(verdict: Verdict) -> Finding:
    """A verdict about inner shell text as a finding of the command that runs the text."""
    reason = verdict.reasons[0] if verdict.reasons else None
    return Finding(
        class_=verdict.class_ if verdict.parsed else worst((verdict.class_, DESTRUCTIVE)),
        reason=reason.message if reason else "",
        rule=reason.rule if reason else "",
        is_cacheable=verdict.cacheable,
        parts=verdict.parts,
        read_paths=verdict.read_paths,
        write_paths=verdict.write_paths,
        hosts=verdict.hosts,
        programs=verdict.programs,
        exit_meaning=verdict.exit_meaning,
        is_git_reader=verdict.git_hardening,
    )
