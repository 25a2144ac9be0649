"""The grade of one simple command: name, options, operands, redirects and assignments together.

READ THIS FIRST in the tables' half of the classifier. `grade` finds the closed entry of the
command's name, reads the words as that program would, lets the entry's checks and small languages
add what only they can see, and takes the worst of everything. What no table knows is mutating.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from msgspec import structs

from sandboxd.classify.arguments import Arguments, could_be_option, read_arguments
from sandboxd.classify.assignments import grade_prefix, grade_standing
from sandboxd.classify.checks import CHECKS
from sandboxd.classify.entries import Entry, Slot
from sandboxd.classify.findings import (
    NOTHING,
    Context,
    Finding,
    GradeFacts,
    destructive,
    joined,
    mutating,
)
from sandboxd.classify.hosts import is_plain, url_finding
from sandboxd.classify.redirects import grade_redirect, write_to
from sandboxd.model import (
    DESTRUCTIVE,
    MUTATING,
    READ_ONLY,
    Grade,
    SimpleCommand,
    Word,
)

__all__ = ["GradeFacts", "grade"]


def grade(command: SimpleCommand, facts: GradeFacts) -> Grade:
    """What the tables say about `command`. Never raises, never touches anything but `facts`."""
    return _grade(command, facts, False)


def _grade(command: SimpleCommand, facts: GradeFacts, is_executed: bool) -> Grade:
    context = Context(command, facts, _grade, is_executed)
    found = [grade_redirect(item, context.path) for item in command.redirects]
    if not command.words:
        found.append(grade_standing(command.assignments, facts.tables.variables))
        return _as_grade(joined(found), "assignment" if command.assignments else "redirect", ())
    if command.assignments:
        name = command.words[0].text
        found.append(grade_prefix(command.assignments, name, facts.tables.variables))
    rule, program, finding = _grade_words(context)
    return _as_grade(joined([finding, *found]) if found else finding, rule, program)


def _as_grade(whole: Finding, rule: str, program: tuple[str, ...]) -> Grade:
    """The grade of a command whose findings are `whole`; `program` is what PATH is searched for."""
    programs = whole.programs + program
    is_reader = whole.class_ is READ_ONLY
    return Grade(
        class_=whole.class_,
        rule=whole.rule or rule,
        reason=whole.reason or "only reads",
        is_cacheable=whole.is_cacheable and whole.class_ is not DESTRUCTIVE,
        parts=whole.parts,
        read_paths=whole.read_paths if is_reader else (),
        write_paths=whole.write_paths,
        hosts=_once(whole.hosts),
        programs=_once(programs),
        exit_meaning=dict(whole.exit_meaning),
        is_git_reader=whole.is_git_reader and is_reader,
        changes_meaning=whole.changes_meaning,
        changes_directory_to=whole.changes_directory_to,
    )


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names)) if len(names) > 1 else names


def _grade_words(context: Context) -> tuple[str, tuple[str, ...], Finding]:
    """The rule, the program that PATH is searched for, and the finding."""
    name = context.command.words[0]
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
    whole = joined(_findings(entry, arguments, context))
    if whole.read_paths and not arguments.is_literal and any(_shifts(word) for word in words):
        whole = structs.replace(whole, read_paths=())
    if whole.rule or parent is None:
        return whole
    return structs.replace(whole, rule=entry.rule)


def _shifts(word: Word) -> bool:
    """Whether the word could make the file behind it something else than a file to read."""
    return not word.is_literal and (word.may_split or could_be_option(word))


def _findings(entry: Entry, arguments: Arguments, context: Context) -> Iterator[Finding]:
    if entry.class_ is not READ_ONLY:
        yield _own_class(entry)
    if entry.unless_files:
        yield project_files(entry, context)
    if arguments.given:
        yield from _option_effects(arguments, context)
    if entry.subcommands:
        yield from _subcommand(entry, arguments, context)
        return
    if entry.runs:
        yield from _inner_command(entry, arguments, context)
    elif arguments.operands and not entry.stops_at_operand:
        yield from _operands(entry, arguments, context)
    for name in entry.checks:
        yield CHECKS[name](arguments, context)
    if arguments.doubts or entry.requires or entry.is_network:
        yield from _doubts(entry, arguments)
    is_git_reader = entry.is_git and entry.class_ is READ_ONLY
    if entry.exit_meaning or entry.hosts or is_git_reader:
        yield Finding(
            exit_meaning=entry.exit_meaning, hosts=entry.hosts, is_git_reader=is_git_reader
        )


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


def _own_class(entry: Entry) -> Finding:
    name = entry.rule.replace(".", " ")
    if entry.class_ is DESTRUCTIVE:
        return destructive(
            entry.reason or f"{name} deletes, or does what cannot be undone", entry.rule
        )
    if entry.class_ is MUTATING:
        return mutating(entry.reason or f"{name} can change files or state", entry.rule)
    return NOTHING


def _option_effects(arguments: Arguments, context: Context) -> Iterator[Finding]:
    rule = arguments.entry.rule
    for given in arguments.given:
        flag = given.flag
        if flag is None:
            continue
        if flag.class_ is not READ_ONLY:
            yield Finding(
                flag.class_, f"{rule.replace('.', ' ')} with {given.name} is not a plain read", rule
            )
        if given.value is not None:
            yield _value_effect(flag.kind or "", given.value, context)


def _value_effect(kind: str, value: Word, context: Context) -> Finding:
    if kind == "out":
        return NOTHING if value.is_literal and value.text == "-" else write_to(value, context.path)
    if kind == "file" and value.is_literal and value.text != "-":
        return _read(value, context)
    if kind in ("url", "host"):
        return url_finding(value)
    return NOTHING


def _read(word: Word, context: Context) -> Finding:
    if not word.is_literal or word.text == "-":
        return NOTHING
    path = context.path(word.text)
    return Finding(read_paths=(path,)) if path else NOTHING


def _subcommand(entry: Entry, arguments: Arguments, context: Context) -> Iterator[Finding]:
    yield from _doubts(entry, arguments)
    for name in entry.checks:
        yield CHECKS[name](arguments, context)
    if not arguments.rest:
        if entry.bare is not READ_ONLY:
            yield mutating(
                f"{entry.rule.replace('.', ' ')} without a subcommand is not a plain read"
            )
        elif entry.is_git:
            yield Finding(is_git_reader=True)
        return
    name_word = arguments.rest[0]
    if not name_word.is_literal:
        yield mutating(f"the subcommand {name_word.text} is only known when it runs")
        return
    inner = entry.subcommand(name_word.text)
    if inner is None:
        yield mutating(f"no table knows the subcommand {name_word.text} of {entry.rule}")
        return
    yield grade_entry(inner, arguments.rest[1:], context, arguments)


def _inner_command(entry: Entry, arguments: Arguments, context: Context) -> Iterator[Finding]:
    """`timeout 5 COMMAND ...`: the slots first, then a command graded by itself."""
    words = arguments.rest[len(entry.operands) :]
    for word in arguments.rest[: len(entry.operands)]:
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


def _operands(entry: Entry, arguments: Arguments, context: Context) -> Iterator[Finding]:
    if entry.style == "none" and entry.checks:
        return
    slots = list(entry.operands)
    if len(slots) == 1 and slots[0].many and arguments.is_literal and not entry.script_flags:
        yield from _alike(slots[0].kind, arguments.operands, context)
        return
    if slots and arguments.has(*entry.script_flags):
        slots = slots[1:]
    if len(slots) > 1 and slots[-1].kind == "out" and _names_target(arguments):
        slots.pop()
    words = arguments.operands
    if len(words) > len(slots) and not any(slot.many for slot in slots):
        yield mutating(
            f"{entry.rule.replace('.', ' ')} with the operand {words[-1].text} is not a plain read"
        )
    if any(not w.is_literal and w.may_split for w in words) and not _is_open_ended(slots):
        yield mutating("a word that may become several words changes which operand is which")
    for word, kind in _allotted(words, slots):
        yield _operand_effect(kind, word, context)


def _alike(kind: str, words: Sequence[Word], context: Context) -> Iterator[Finding]:
    """Any number of literal operands of one kind."""
    if kind == "file":
        paths = [context.path(word.text) for word in words if word.text != "-"]
        yield Finding(read_paths=tuple(path for path in paths if path))
    elif kind not in ("", "path", "text", "number"):
        for word in words:
            yield _operand_effect(kind, word, context)


def _names_target(arguments: Arguments) -> bool:
    """`cp -t DIR FILE...`: an option takes the place of the last operand."""
    return any(item.flag is not None and item.flag.kind == "out" for item in arguments.given)


def _is_open_ended(slots: Sequence[Slot]) -> bool:
    """Several words in place of one change nothing: all that follow are read alike."""
    kinds = {slot.kind for slot in slots}
    return any(slot.many for slot in slots) and "out" not in kinds


def _allotted(words: Sequence[Word], slots: Sequence[Slot]) -> Iterator[tuple[Word, str]]:
    """Each operand with the kind of its slot; slots behind a `many` slot take the last words."""
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
    if kind == "file":
        return _read(word, context)
    if kind == "out":
        return write_to(word, context.path)
    return _value_effect(kind, word, context)


def _doubts(entry: Entry, arguments: Arguments) -> Iterator[Finding]:
    for doubt in arguments.doubts:
        yield mutating(f"{entry.rule.replace('.', ' ')}: {doubt}")
    if entry.requires and not arguments.has(*entry.requires):
        needed = " or ".join(sorted(entry.requires))
        yield mutating(f"{entry.rule.replace('.', ' ')} is only a plain read with {needed}")
    if entry.is_network and not all(is_plain(word) for word in arguments.words):
        yield mutating("a request that is not literal may carry data out")
