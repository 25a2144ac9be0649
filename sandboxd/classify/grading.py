"""The grade of one simple command: name, options, operands, redirects and assignments together.

READ THIS FIRST in the tables' half of the classifier. `grade` finds the closed entry of the
command's name, reads the words as that program would, lets the entry's checks and small languages
add what only they can see, and takes the worst of everything. What no table knows is mutating.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from sandboxd.classify.arguments import Arguments, could_be_option, read_arguments
from sandboxd.classify.assignments import grade_prefix, grade_standing
from sandboxd.classify.entries import Entry, Slot
from sandboxd.classify.findings import (
    NOTHING,
    Context,
    Finding,
    GradeFacts,
    absolute,
    joined,
    mutating,
)
from sandboxd.classify.hosts import is_plain, url_finding
from sandboxd.classify.plans import HARMLESS_KINDS, Plan
from sandboxd.classify.redirects import grade_redirect, write_to
from sandboxd.model import (
    DESTRUCTIVE,
    READ_ONLY,
    Grade,
    SimpleCommand,
    Word,
)

__all__ = ["GradeFacts", "grade"]


def grade(command: SimpleCommand, facts: GradeFacts, is_executed: bool = False) -> Grade:
    """What the tables say about `command`. Never raises, never touches anything but `facts`.
    `is_executed` says that no shell looks its name up."""
    context = Context(command, facts, grade, is_executed)
    if not command.words:
        return _without_words(command, context)
    rule, program, whole = _of_name(command.words[0], context)
    if command.redirects or command.assignments:
        whole = joined([whole, *_surroundings(command, context)])
    return _as_grade(whole, rule, program)


def _of_name(name: Word, context: Context) -> tuple[str, tuple[str, ...], Finding]:
    """The rule, the program that PATH is searched for, and the finding."""
    text = name.text
    if not name.is_literal:
        return "name", (), mutating(f"the program {text} is only known when it runs", "name")
    if not text or text != text.strip():
        return "name", (), mutating("the program's name is not a plain word", "name")
    if "/" in text:
        return "local-program", (text,), _grade_path(context, text)
    entry = context.facts.tables.entry(text)
    if entry is None:
        return "unknown-command", (text,), mutating(f"no table knows the command {text}")
    program = () if entry.is_builtin and not context.is_executed else (text,)
    return entry.rule, program, grade_entry(entry, context.command.words[1:], context, None)


def _without_words(command: SimpleCommand, context: Context) -> Grade:
    """Redirects and assignments alone."""
    found = [grade_redirect(item, context.path) for item in command.redirects]
    found.append(grade_standing(command.assignments, context.facts.tables.variables))
    return _as_grade(joined(found), "assignment" if command.assignments else "redirect", ())


def _surroundings(command: SimpleCommand, context: Context) -> list[Finding]:
    """What the redirects and assignments around a command do."""
    found = [grade_redirect(item, context.path) for item in command.redirects]
    if command.assignments:
        name = command.words[0].text
        found.append(grade_prefix(command.assignments, name, context.facts.tables.variables))
    return found


def _as_grade(whole: Finding, rule: str, program: tuple[str, ...]) -> Grade:
    """The grade of a command whose findings are `whole`; `program` is what PATH is searched for."""
    is_reader = whole.class_ is READ_ONLY
    return Grade(
        class_=whole.class_,
        rule=whole.rule or rule,
        reason=whole.reason or "only reads",
        is_cacheable=whole.is_cacheable and whole.class_ is not DESTRUCTIVE,
        parts=whole.parts,
        read_paths=whole.read_paths if is_reader else (),
        write_paths=() if is_reader else whole.write_paths,
        hosts=_once(whole.hosts) if whole.hosts else (),
        programs=_once(whole.programs + program) if whole.programs else program,
        exit_meaning=whole.exit_meaning,
        is_git_reader=whole.is_git_reader and is_reader,
        changes_meaning=whole.changes_meaning,
        changes_directory_to=whole.changes_directory_to,
    )


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names)) if len(names) > 1 else names


def _grade_path(context: Context, path: str) -> Finding:
    """A program named by its path may be anything, and is at least as bad as its namesake."""
    own = mutating(f"{path} is named by a path, so it may be any program", "local-program")
    entry = context.facts.tables.entry(os.path.basename(path))
    if entry is None:
        return own
    return joined([own, grade_entry(entry, context.command.words[1:], context, None)])


def grade_entry(
    entry: Entry, words: Sequence[Word], context: Context, parent: Arguments | None
) -> Finding:
    """The finding for `words` (names taken off) under one closed entry."""
    if len(words) == 1 and words[0].is_literal and words[0].text in entry.answers:
        return joined([Finding(reason="only prints"), project_files(entry, context)])
    arguments = read_arguments(words, entry, parent)
    found = _findings(entry, arguments, context)
    whole = joined(found) if len(found) > 1 else found[0] if found else NOTHING
    if whole.read_paths and not arguments.is_literal and any(_shifts(word) for word in words):
        whole = structs.replace(whole, read_paths=())
    if whole.rule or parent is None:
        return whole
    return structs.replace(whole, rule=entry.rule)


def _shifts(word: Word) -> bool:
    """Whether the word could make the file behind it something else than a file to read."""
    return not word.is_literal and (word.may_split or could_be_option(word))


def _findings(entry: Entry, arguments: Arguments, context: Context) -> list[Finding]:
    plan = entry.plan
    found = [] if plan.own is NOTHING else [plan.own]
    if entry.unless_files and entry.class_ is READ_ONLY:
        found.append(project_files(entry, context))
    if arguments.given:
        _option_effects(arguments, context, found)
    if entry.subcommands:
        _subcommand(entry, plan, arguments, context, found)
        return found
    if entry.runs:
        found += _inner_command(entry, arguments, context)
    elif arguments.operands and not (entry.stops_at_operand or plan.ignores_operands):
        if plan.alike is not None and arguments.is_literal:
            _alike(plan.alike, arguments.operands, context, found)
        else:
            _operands(entry, arguments, context, found)
    for check in plan.checks:
        if (one := check(arguments, context)) is not NOTHING:
            found.append(one)
    if arguments.doubts or plan.has_demands:
        found += _doubts(entry, arguments)
    if plan.standing is not NOTHING:
        found.append(plan.standing)
    return found


def project_files(entry: Entry, context: Context) -> Finding:
    """Whether a file here or above makes the program run what a project names."""
    if not entry.unless_files:
        return NOTHING
    folder = context.facts.cwd
    if folder is None:
        return mutating("the folder, and so the project's own settings, are not known")
    while True:
        for name in entry.unless_files:
            if context.facts.exists(os.path.join(folder, name)):
                return mutating(f"{name} in {folder} can make {entry.rule} run other programs")
        if folder == os.path.dirname(folder):
            return NOTHING
        folder = os.path.dirname(folder)


def _option_effects(arguments: Arguments, context: Context, found: list[Finding]) -> None:
    rule = arguments.entry.rule
    for given in arguments.given:
        flag = given.flag
        if flag is None:
            continue
        if flag.class_ is not READ_ONLY:
            message = f"{rule.replace('.', ' ')} with {given.name} is not a plain read"
            found.append(Finding(flag.class_, message, rule))
        if given.value is not None and flag.kind not in HARMLESS_KINDS:
            found.append(_value_effect(flag.kind or "", given.value, context))


def _value_effect(kind: str, value: Word, context: Context) -> Finding:
    if kind == "out":
        return NOTHING if value.is_literal and value.text == "-" else write_to(value, context.path)
    if kind == "file":
        paths = _read(value, context)
        return Finding(read_paths=paths) if paths else NOTHING
    if kind in ("url", "host"):
        return url_finding(value)
    return NOTHING


def _read(word: Word, context: Context) -> tuple[str, ...]:
    """The file that the word names, when that is known."""
    if not word.is_literal or word.text == "-":
        return ()
    path = absolute(word.text, context.facts.cwd)
    return (path,) if path else ()


def _subcommand(
    entry: Entry, plan: Plan, arguments: Arguments, context: Context, found: list[Finding]
) -> None:
    if arguments.doubts or plan.has_demands:
        found += _doubts(entry, arguments)
    for check in plan.checks:
        if (one := check(arguments, context)) is not NOTHING:
            found.append(one)
    if not arguments.rest:
        if entry.bare is not READ_ONLY:
            name = entry.rule.replace(".", " ")
            found.append(mutating(f"{name} without a subcommand is not a plain read"))
        elif entry.is_git:
            found.append(Finding(is_git_reader=True))
        return
    name_word = arguments.rest[0]
    inner = entry.subcommand(name_word.text) if name_word.is_literal else None
    if not name_word.is_literal:
        found.append(mutating(f"the subcommand {name_word.text} is only known when it runs"))
    elif inner is None:
        found.append(mutating(f"no table knows the subcommand {name_word.text} of {entry.rule}"))
    else:
        found.append(grade_entry(inner, arguments.rest[1:], context, arguments))


def _inner_command(entry: Entry, arguments: Arguments, context: Context) -> Iterator[Finding]:
    """`timeout 5 COMMAND ...`: the slots first, then a command graded by itself."""
    words = arguments.rest[len(entry.operands) :]
    for word in () if arguments.is_literal else arguments.rest[: len(entry.operands)]:
        if not word.is_literal and (word.may_split or could_be_option(word)):
            yield mutating(f"{word.text} may become several words")
    if words:
        command = SimpleCommand(
            words=words,
            span=context.command.span,
            piped_from=context.command.piped_from,
            is_piped_to=context.command.is_piped_to,
            redirects=tuple(r for r in context.command.redirects if r.operator.startswith("<<")),
        )
        yield context.inner(command, entry.runs == "command")


def _operands(entry: Entry, arguments: Arguments, context: Context, found: list[Finding]) -> None:
    slots = entry.operands
    if slots and entry.script_flags and arguments.has(*entry.script_flags):
        slots = slots[1:]
    if len(slots) > 1 and slots[-1].kind == "out" and _names_target(arguments):
        slots = slots[:-1]
    words = arguments.operands
    if len(words) > len(slots) and not any(slot.many for slot in slots):
        name = entry.rule.replace(".", " ")
        found.append(mutating(f"{name} with the operand {words[-1].text} is not a plain read"))
    if not arguments.is_literal and _splits(words) and not _is_open_ended(slots):
        found.append(
            mutating("a word that may become several words changes which operand is which")
        )
    paths: list[str] = []
    for word, kind in _allotted(words, slots):
        if kind == "file":
            paths += _read(word, context)
        elif kind not in HARMLESS_KINDS:
            found.append(_operand_effect(kind, word, context))
    if paths:
        found.append(Finding(read_paths=tuple(paths)))


def _splits(words: Sequence[Word]) -> bool:
    return any(not word.is_literal and word.may_split for word in words)


def _alike(kind: str, words: Sequence[Word], context: Context, found: list[Finding]) -> None:
    """Any number of literal operands of one kind."""
    if kind == "file":
        cwd = context.facts.cwd
        paths = [absolute(word.text, cwd) for word in words if word.text != "-"]
        found.append(Finding(read_paths=tuple([path for path in paths if path])))
    elif kind not in HARMLESS_KINDS:
        found += [_operand_effect(kind, word, context) for word in words]


def _names_target(arguments: Arguments) -> bool:
    """`cp -t DIR FILE...`: an option takes the place of the last operand."""
    return any(item.flag is not None and item.flag.kind == "out" for item in arguments.given)


def _is_open_ended(slots: Sequence[Slot]) -> bool:
    """Several words in place of one change nothing: all that follow are read alike."""
    kinds = {slot.kind for slot in slots}
    return any(slot.many for slot in slots) and "out" not in kinds


def _allotted(words: Sequence[Word], slots: Sequence[Slot]) -> Iterable[tuple[Word, str]]:
    """Each operand with the kind of its slot; slots behind a `many` slot take the last words."""
    if len(words) <= len(slots) and not any(slot.many for slot in slots[:-1]):
        return [(word, slot.kind) for word, slot in zip(words, slots, strict=False)]
    return _spread(words, slots)


def _spread(words: Sequence[Word], slots: Sequence[Slot]) -> Iterator[tuple[Word, str]]:
    many = next((i for i, slot in enumerate(slots) if slot.many), len(slots))
    behind = len(slots) - many - 1 if many < len(slots) else 0
    for index, word in enumerate(words):
        if index < many:
            yield word, slots[index].kind
        elif behind and len(words) - index <= behind:
            yield word, slots[len(slots) - (len(words) - index)].kind
        elif many < len(slots):
            yield word, slots[many].kind


def _operand_effect(kind: str, word: Word, context: Context) -> Finding:
    if kind == "out":
        return write_to(word, context.path)
    return _value_effect(kind, word, context)


def _doubts(entry: Entry, arguments: Arguments) -> list[Finding]:
    name = entry.rule.replace(".", " ")
    found = [mutating(f"{name}: {doubt}") for doubt in arguments.doubts]
    if entry.requires and not arguments.has(*entry.requires):
        needed = " or ".join(sorted(entry.requires))
        found.append(mutating(f"{name} is only a plain read with {needed}"))
    if entry.is_network and not all(map(is_plain, arguments.words)):
        found.append(mutating("a request that is not literal may carry data out"))
    return found
