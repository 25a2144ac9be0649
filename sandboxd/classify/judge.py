"""The judge: grades every command of a reading and makes one verdict of all grades.

A compound is as bad as its worst part. Besides the tables' grades it weighs what only the whole
text shows: functions that shadow a name, the folder after each `cd`, program names that a run
could have planted, the request's environment, and what may be remembered.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sandboxd.classify.approval_key import shared_part, unit_key, whole_key
from sandboxd.classify.context import Context, Probes
from sandboxd.classify.grading import GradeFacts, grade
from sandboxd.classify.reading import Reading, Unit
from sandboxd.classify.tables import Tables
from sandboxd.model import (
    DESTRUCTIVE,
    MUTATING,
    READ_ONLY,
    Assignment,
    CommandClass,
    Grade,
    Part,
    Reason,
    SimpleCommand,
    Span,
    Verdict,
    Word,
    worst,
)

MAX_REASONS = 20
_MAX_FOLDERS = 4
_MAX_FOLLOWED = 500
"""Units; in a longer text any command may run in any folder, which is stricter and quicker."""
_MAX_DIRECTORY = 4096
_BUILTIN_WRAPPERS = frozenset(("builtin", "command", "exec"))
_STATEFUL = frozenset(
    [
        "alias",
        "bind",
        "complete",
        "compopt",
        "declare",
        "dirs",
        "disown",
        "enable",
        "eval",
        "export",
        "getopts",
        "hash",
        "let",
        "local",
        "mapfile",
        "popd",
        "pushd",
        "read",
        "readarray",
        "readonly",
        "set",
        "shift",
        "shopt",
        "source",
        "trap",
        "typeset",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        ".",
    ]
)
_KEEPS_OR_WRAPS = _STATEFUL | _BUILTIN_WRAPPERS | {"printf"}
_LOOPS = frozenset(("for", "while", "until", "select", "function"))

Folders = tuple[str | None, ...]
"""Where a command may run: every possibility; None stands for any folder."""


class _Graded(Struct, frozen=True):
    """One unit with the grades of its commands."""

    unit: Unit
    grades: list[Grade]
    class_: CommandClass
    directory: str
    """The folder as the approval key covers it."""


class _Tally:
    """What is collected over all commands of a text."""

    __slots__ = (
        "hosts",
        "is_cacheable",
        "is_git_reader",
        "parts",
        "programs",
        "read_paths",
        "reasons",
        "write_paths",
    )

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.reasons: list[tuple[CommandClass, Reason]] = []
        self.read_paths: list[str] = []
        self.write_paths: list[str] = []
        self.hosts: list[str] = []
        self.programs: list[str] = []
        self.is_cacheable = True
        self.is_git_reader = False

    def add(self, class_: CommandClass, rule: str, message: str, span: Span | None) -> None:
        if class_ is not READ_ONLY:
            self.reasons.append((class_, Reason(rule, message, span)))

    def sorted_reasons(self) -> tuple[Reason, ...]:
        if len(self.reasons) == 1:
            return (self.reasons[0][1],)
        ordered = sorted(self.reasons, key=lambda pair: -pair[0].severity)
        return tuple(dict.fromkeys([reason for _, reason in ordered]))[:MAX_REASONS]


Nested = Callable[[str, str | None, Context, int, Probes], Verdict]
"""Classifies text inside a command: the text, its folder, and what the text around it had."""


class Judge:
    """Judges one text. `classify_nested` reads shell text found inside a command."""

    __slots__ = (
        "_callable",
        "_classify_nested",
        "_context",
        "_depth",
        "_facts",
        "_functions",
        "_probes",
        "_span",
        "_tables",
        "_tally",
    )

    def __init__(
        self,
        tables: Tables,
        context: Context,
        probes: Probes,
        depth: int,
        classify_nested: Nested,
    ) -> None:
        self._tables = tables
        self._context = context
        self._probes = probes
        self._depth = depth
        self._classify_nested = classify_nested
        self._tally = _Tally()
        self._functions: frozenset[str] = frozenset()
        self._callable: set[str] = set()
        self._facts: dict[str | None, GradeFacts] = {}
        self._span: Span = (0, 0)
        """Where the command being graded stands; text found inside it has no place of its own."""

    def verdict(self, text: str, reading: Reading, *, is_executed: bool = False) -> Verdict:
        """The verdict on a reading; `is_executed` says that no shell looks the names up."""
        self._functions = reading.functions
        graded = self._graded_units(text, reading)
        overlay = class_ = self._overlay_class() if self._context.environment else READ_ONLY
        self._facts.clear()  # they point back here, and a circle waits for the garbage collector
        for item in graded:
            if item.class_.severity > class_.severity:
                class_ = item.class_
        if is_executed:
            for command in reading.units[0].commands:
                class_ = worst([class_, self._program_class([command.words[0].text], command.span)])
        tally = self._tally
        is_cacheable = class_ is not DESTRUCTIVE and tally.is_cacheable
        whole, units = self._keys(reading, graded) if is_cacheable else (None, ())
        is_reader = class_ is READ_ONLY
        return Verdict(
            class_=class_,
            parsed=True,
            cacheable=is_cacheable,
            reasons=tally.sorted_reasons() if tally.reasons else (),
            parts=tuple(tally.parts),
            read_paths=_once(tally.read_paths) if is_reader and tally.read_paths else (),
            write_paths=_once(tally.write_paths) if tally.write_paths else (),
            hosts=_once(tally.hosts) if tally.hosts else (),
            programs=_once(tally.programs) if tally.programs else (),
            approval_key=whole,
            unit_keys=units if overlay is READ_ONLY else (),
            exit_meaning=_exit_meaning(graded),
            git_hardening=is_reader and tally.is_git_reader,
        )

    # ------------------------------------------------------------------ units

    def _graded_units(self, text: str, reading: Reading) -> list[_Graded]:
        directory = self._context.cwd
        units = reading.units
        folders: Folders = (directory,) if len(units) <= _MAX_FOLLOWED else (None,)
        graded: list[_Graded] = []
        for index, unit in enumerate(units, 1):
            item = self._graded(text, unit, folders, directory)
            graded.append(item)
            if index < len(units):
                folders, directory = self._moved(item, folders, directory, units[index].connector)
            if unit.defines and unit.connector == ";" and not unit.is_background:
                self._callable.add(unit.defines)
        return graded

    def _graded(self, text: str, unit: Unit, folders: Folders, directory: str) -> _Graded:
        commands = unit.commands
        if len(folders) == 1:
            facts = self._facts_in(folders[0])
            grades = [self._grade_with(command, facts) for command in commands]
        else:
            grades = [self._grade(command, folders) for command in commands]
        if len(grades) > 1 and any(map(_moves, grades)):
            folders = self._all_folders(unit, grades, folders)
            grades = [self._grade(command, folders) for command in commands]
        class_ = READ_ONLY
        for command, one in zip(commands, grades, strict=True):
            weighed = self._weigh(text, command, one)
            if weighed.severity > class_.severity:
                class_ = weighed
        for notice in unit.notices:
            self._tally.add(notice.class_, notice.rule, notice.message, notice.span)
            class_ = worst((class_, notice.class_))
        return _Graded(unit, grades, class_, directory)

    def _weigh(self, text: str, command: SimpleCommand, one: Grade) -> CommandClass:
        """Enter a command's grade into the tally; its class with its program's origin."""
        span = command.span
        tally = self._tally
        written = text[span[0] : span[1]]
        tally.parts.append(Part(span, written, one.class_, one.rule, one.reason))
        if one.parts:
            tally.parts += one.parts
        if one.read_paths:
            tally.read_paths += one.read_paths
        if one.write_paths:
            tally.write_paths += one.write_paths
        if one.hosts:
            tally.hosts += one.hosts
        if one.programs:
            tally.programs += one.programs
        tally.is_cacheable &= one.is_cacheable
        tally.is_git_reader |= one.is_git_reader
        if one.class_ is not READ_ONLY:
            tally.reasons.append((one.class_, Reason(one.rule, one.reason, span)))
            return one.class_
        for name in one.programs:
            if self._probes.plantable(name) is not None:
                return self._program_class(one.programs, span)
        return READ_ONLY

    def _program_class(self, programs: Sequence[str], span: Span) -> CommandClass:
        class_ = READ_ONLY
        for name in programs:
            why = self._probes.plantable(name)
            if why is not None:
                class_ = MUTATING
                self._tally.add(class_, "program-writable", why, span)
        return class_

    # ------------------------------------------------------------------ one command

    def _grade(self, command: SimpleCommand, folders: Folders) -> Grade:
        """The worst grade over all folders the command may run in."""
        if len(folders) == 1:
            return self._grade_in(command, folders[0])
        grades = [self._grade_in(command, folder) for folder in folders]
        chosen = max(grades, key=lambda one: one.class_.severity)
        if len(grades) > 1 and any(g.read_paths != chosen.read_paths for g in grades):
            return replace(chosen, read_paths=())
        return chosen

    def _grade_in(self, command: SimpleCommand, folder: str | None) -> Grade:
        return self._grade_with(command, self._facts_in(folder))

    def _grade_with(self, command: SimpleCommand, facts: GradeFacts) -> Grade:
        self._span = command.span
        found = grade(command, facts)
        if self._functions and command.words and command.words[0].text in self._functions:
            return self._function_call(command, found, facts)
        return found

    def _facts_in(self, folder: str | None) -> GradeFacts:
        facts = self._facts.get(folder)
        if facts is None:
            facts = self._facts[folder] = GradeFacts(
                cwd=folder,
                home=self._context.home,
                exists=self._probes.exists,
                git_defines_programs=self._probes.git_defines_programs,
                depth=self._depth,
                grade_text=lambda text: self._nested(text, folder),
                tables=self._tables,
                git_folders=self._probes.git_folders,
            )
        return facts

    def _function_call(self, command: SimpleCommand, found: Grade, facts: GradeFacts) -> Grade:
        """A call of a function of this text: its body was graded where it is defined."""
        name = command.words[0].text
        if found.rule == "unknown-command" and name in self._callable:
            stand_in = Word(text=":", span=command.words[0].span)
            return grade(replace(command, words=(stand_in, *command.words[1:])), facts)
        if found.class_ is not READ_ONLY:
            return found
        return replace(
            found,
            class_=MUTATING,
            rule="function-shadows",
            reason=f"this text defines a function {name}, so the name is not the known command",
            read_paths=(),
            changes_meaning=True,
        )

    def _nested(self, text: str, folder: str | None) -> Verdict:
        """A verdict on text inside a command; its spans become the command's own."""
        span = self._span
        verdict = self._classify_nested(text, folder, self._context, self._depth, self._probes)
        parts = tuple(replace(part, span=span) for part in verdict.parts)
        return replace(verdict, parts=parts)

    # ------------------------------------------------------------------ folders

    def _all_folders(self, unit: Unit, grades: Sequence[Grade], folders: Folders) -> Folders:
        """Where the commands of a compound may run when some of them are `cd`."""
        if self._functions or not _LOOPS.isdisjoint(unit.tokens):
            return (None,)
        found = folders
        for one in grades:
            if one.changes_directory_to is not None:
                found = _union(found, _stepped(found, one.changes_directory_to))
            elif _moves(one):
                return (None,)
        return found

    def _moved(
        self, item: _Graded, folders: Folders, directory: str, follows: str
    ) -> tuple[Folders, str]:
        """Where the next unit may run, and how the approval key names that folder."""
        targets: list[str] = []
        for one in item.grades:
            if one.changes_directory_to:
                targets.append(one.changes_directory_to)
            elif _moves(one):
                return (None,), directory
        if not targets or item.unit.is_background:
            return folders, directory
        if item.unit.is_plain and follows == "&&":
            moved = _stepped(folders, targets[0])
            return moved, _shortened(os.path.normpath(os.path.join(directory, targets[0])))
        if self._functions:
            return (None,), directory
        for target in targets:
            folders = _union(folders, _stepped(folders, target))
        return folders, _shortened(f"{directory}\0perhaps\0{targets[-1]}")

    # ------------------------------------------------------------------ environment and keys

    def _overlay_class(self) -> CommandClass:
        """The request's environment, graded like assignment prefixes."""
        overlay = self._context.environment
        if self._depth:
            return READ_ONLY
        place = (0, 0)
        assignments = tuple(
            Assignment(name=name, value=Word(text=value or "", span=place))
            for name, value in overlay.items()
        )
        command = SimpleCommand(words=(Word(text=":", span=place),), assignments=assignments)
        found = self._grade_in(command, self._context.cwd)
        self._tally.add(
            found.class_, "environment", f"the request's environment: {found.reason}", None
        )
        return found.class_

    def _keys(
        self, reading: Reading, graded: Sequence[_Graded]
    ) -> tuple[str | None, tuple[str, ...]]:
        context = self._context
        overlay = context.environment
        shared = shared_part(
            context.profile,
            context.shell,
            tuple(sorted(overlay.items())) if overlay else (),
            context.stdin_digest,
        )
        covered = [(one.unit.connector, one.directory, one.unit.tokens) for one in graded]
        whole = whole_key(shared, covered)
        asked = [index for index, one in enumerate(graded) if one.class_ is not READ_ONLY]
        if not asked or self._is_only_whole(reading, graded):
            return whole, ()
        return whole, tuple(dict.fromkeys([unit_key(shared, covered[index]) for index in asked]))

    def _is_only_whole(self, reading: Reading, graded: Sequence[_Graded]) -> bool:
        """Whether something before the last unit changes what later units mean."""
        if reading.only_whole or self._functions:
            return True
        return len(graded) > 1 and any(_changes_meaning(item) for item in graded[:-1])


def _moves(one: Grade) -> bool:
    """Whether commands after this one may run in another folder (`cd`, `source`, `eval`)."""
    if one.changes_directory_to is not None:
        return True
    return one.changes_meaning and one.rule != "assignment"


def _keeps_state(command: SimpleCommand) -> bool:
    """Whether a builtin leaves something behind in the shell that later commands depend on."""
    if not command.words or command.words[0].text not in _KEEPS_OR_WRAPS:
        return False
    names = [word.text for word in command.words[:6]]
    while names and names[0] in _BUILTIN_WRAPPERS:
        names.pop(0)
    if not names:
        return False
    return names[0] in _STATEFUL or (names[0] == "printf" and "-v" in names[1:])


def _changes_meaning(item: _Graded) -> bool:
    if any(_keeps_state(command) for command in item.unit.commands):
        return True
    if item.unit.is_plain and len(item.grades) == 1:
        command = item.unit.commands[0]
        return item.grades[0].changes_meaning or bool(command.assignments and not command.words)
    for command, one in zip(item.unit.commands, item.grades, strict=True):
        if one.changes_meaning or one.changes_directory_to is not None:
            return True
        if command.assignments and not command.words:
            return True
    return False


def _shortened(directory: str) -> str:
    """A folder as keys name it: thousands of `cd` must not make thousands of long names."""
    if len(directory) <= _MAX_DIRECTORY:
        return directory
    return hashlib.sha256(directory.encode(errors="surrogateescape")).hexdigest()


def _stepped(folders: Folders, target: str) -> Folders:
    stepped: list[str | None] = []
    for folder in folders:
        if target.startswith("/"):
            stepped.append(os.path.normpath(target))
        else:
            stepped.append(
                None if folder is None else os.path.normpath(os.path.join(folder, target))
            )
    return _union((), tuple(stepped))


def _union(left: Folders, right: Folders) -> Folders:
    union = tuple(dict.fromkeys((*left, *right)))
    return (None,) if None in union or len(union) > _MAX_FOLDERS else union


def _once(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names)) if len(names) > 1 else tuple(names)


def _exit_meaning(graded: Sequence[_Graded]) -> dict[str, str]:
    """What exit codes of the last command mean, when its exit code is the text's."""
    if not graded or graded[-1].unit.is_background:
        return {}
    unit = graded[-1].unit
    if unit.last is not None and unit.last < len(graded[-1].grades):
        meaning = graded[-1].grades[unit.last].exit_meaning
        return dict(meaning) if meaning else {}
    if not unit.commands and unit.tokens and unit.tokens[0].startswith(("[[", "((")):
        return {"1": "false"}
    return {}
