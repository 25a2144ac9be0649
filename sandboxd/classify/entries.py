"""What one command table says about one command, and how its compact spelling is read.

An `Entry` is closed: what it does not list is not known, and what is not known is never
read-only. profiles/commands/README.md explains the spelling to the people who write tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from sandboxd.model import CommandClass, worst
from sandboxd.strict_yaml import Node

if TYPE_CHECKING:
    from sandboxd.classify.plans import Plan

STYLES = ("gnu", "single", "none")
"""gnu: `-abc` is a cluster; single: `-name` is one option (find, go, terraform); none: no options."""
RUNS = ("", "command", "shell")
KINDS = ("", "file", "path", "out", "text", "url", "host", "number")


class Flag(Struct, frozen=True):
    """One known option. `kind` says what its value is; None means that it takes none."""

    name: str
    kind: str | None = None
    is_optional: bool = False
    """The value may only stand in the same word (`--color=always`, `-i.bak`)."""
    choices: frozenset[str] = frozenset()
    class_: CommandClass = CommandClass.READ_ONLY


class Slot(Struct, frozen=True):
    """One operand or a run of them, in the order of the command line."""

    kind: str
    many: bool = False


class Examples(Struct, frozen=True):
    """Command lines that prove the entry; they are run by the tests and when user tables load."""

    read_only: tuple[str, ...] = ()
    mutating: tuple[str, ...] = ()
    destructive: tuple[str, ...] = ()


_NO_EXAMPLES = Examples()


@dataclass(frozen=True)
class Entry:
    """The closed description of one command or subcommand."""

    rule: str
    class_: CommandClass = CommandClass.READ_ONLY
    reason: str = ""
    style: str = "gnu"
    flags: Mapping[str, Flag] = field(default_factory=dict)
    operands: tuple[Slot, ...] = ()
    script_flags: frozenset[str] = frozenset()
    """With one of these the first operand slot is not there (`grep -e PATTERN FILE`)."""
    is_harmless: bool = False
    """No option of this program writes or runs anything: an unknown value cannot hurt."""
    stops_at_operand: bool = False
    options_first: bool = False
    """Behind the first operand nothing is an option any more (awk, printf)."""
    subcommands: Mapping[str, Entry] = field(default_factory=dict)
    bare: CommandClass = CommandClass.MUTATING
    """The class when a subcommand is expected and none is given."""
    checks: tuple[str, ...] = ()
    runs: str = ""
    answers: frozenset[str] = frozenset()
    """A command line of exactly one of these words only prints (`--version`)."""
    requires: frozenset[str] = frozenset()
    unless_files: tuple[str, ...] = ()
    """Project files that make this program run or load what they name: with one, no plain read."""
    is_open: bool = False
    """Long options that are not listed only narrow the question that is asked of a service."""
    hosts: tuple[str, ...] = ()
    is_network: bool = False
    is_builtin: bool = False
    is_interpreter: bool = False
    is_git: bool = False
    exit_meaning: Mapping[str, str] = field(default_factory=dict)
    examples: Examples = _NO_EXAMPLES

    @cached_property
    def plan(self) -> Plan:
        """What grading needs of this entry, worked out once."""
        # Plans are written in terms of findings and checks, which are written in terms of entries.
        from sandboxd.classify.plans import plan_for

        return plan_for(self)

    def subcommand(self, name: str) -> Entry | None:
        """The entry of a subcommand: its exact name, else the longest `prefix*` that fits."""
        found = self.subcommands.get(name)
        if found is not None:
            return found
        patterns = [key for key in self.subcommands if key.endswith("*")]
        fitting = [key for key in patterns if name.startswith(key[:-1])]
        return self.subcommands[max(fitting, key=len)] if fitting else None


_KEYS = frozenset(
    [
        "extend",
        "class",
        "reason",
        "options",
        "flags",
        "mutating_flags",
        "destructive_flags",
        "sets",
        "uses",
        "inherit",
        "operands",
        "script_flags",
        "harmless",
        "stops",
        "options_first",
        "subcommands",
        "bare",
        "checks",
        "runs",
        "answers",
        "requires",
        "unless_files",
        "open",
        "hosts",
        "network",
        "builtin",
        "interpreter",
        "git",
        "exit",
        "read_only",
        "mutating",
        "destructive",
    ]
)


@dataclass(frozen=True)
class _Scope:
    """What a subcommand's entry takes over from the entries around it."""

    sets: Mapping[str, Mapping[str, Flag]] = field(default_factory=dict)
    flags: Mapping[str, Flag] = field(default_factory=dict)
    inherits: bool = False
    style: str = "gnu"
    hosts: tuple[str, ...] = ()
    unless_files: tuple[str, ...] = ()
    is_network: bool = False
    is_git: bool = False


def read_entry(rule: str, node: Node) -> Entry:
    """The entry that `node` spells; refuses with file, line and key what it does not know."""
    return _read(rule, node, _Scope())


def _read(rule: str, node: Node, scope: _Scope) -> Entry:
    members = node.entries()
    for key, value in members.items():
        if key not in _KEYS:
            raise value.broken("this key is not known")
    sets = {**scope.sets, **_read_sets(members)}
    style = _word(members, "options", STYLES, scope.style)
    flags = _read_flags(members, sets, scope.flags)
    inherits = scope.inherits or _yes(members, "inherit")
    inner = _Scope(
        sets=sets,
        flags=flags if inherits else {},
        inherits=inherits,
        style=style,
        hosts=_words(members, "hosts") or scope.hosts,
        unless_files=_words(members, "unless_files") or scope.unless_files,
        is_network=_yes(members, "network") or scope.is_network or "hosts" in members,
        is_git=_yes(members, "git") or scope.is_git,
    )
    return Entry(
        rule=rule,
        class_=_class(members, "class", CommandClass.READ_ONLY),
        reason=_text(members, "reason"),
        style=style,
        flags=flags,
        operands=_read_slots(members),
        script_flags=frozenset(_words(members, "script_flags")),
        is_harmless=_yes(members, "harmless"),
        stops_at_operand=_yes(members, "stops") or "subcommands" in members or "runs" in members,
        options_first=_yes(members, "options_first"),
        subcommands=_read_subcommands(rule, members, inner),
        bare=_class(members, "bare", CommandClass.MUTATING),
        checks=_read_checks(members),
        runs=_word(members, "runs", RUNS, ""),
        answers=frozenset(
            _words(members, "answers") if "answers" in members else _default_answers(rule)
        ),
        requires=frozenset(_words(members, "requires")),
        unless_files=inner.unless_files,
        is_open=_yes(members, "open"),
        hosts=inner.hosts,
        is_network=inner.is_network,
        is_builtin=_yes(members, "builtin"),
        is_interpreter=_yes(members, "interpreter"),
        is_git=inner.is_git,
        exit_meaning={k: v.scalar() for k, v in _mapping(members, "exit").items()},
        examples=_read_examples(members),
    )


def _read_checks(members: Mapping[str, Node]) -> tuple[str, ...]:
    # The checks are written in terms of entries, so their names are only known at run time.
    from sandboxd.classify.checks import CHECKS

    names = _words(members, "checks")
    for name in names:
        if name not in CHECKS:
            raise members["checks"].broken(f"there is no check {name!r}")
    return names


def _default_answers(rule: str) -> tuple[str, ...]:
    return () if "." in rule else ("--help", "--version")


def _read_subcommands(rule: str, members: Mapping[str, Node], scope: _Scope) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for names, node in _mapping(members, "subcommands").items():
        for name in names.split():
            if name in found:
                raise node.broken(f"the subcommand {name!r} is given twice")
            found[name] = _named(f"{rule}.{name}", node, scope, found.get(names.split()[0]))
    return found


def _named(rule: str, node: Node, scope: _Scope, like: Entry | None) -> Entry:
    """A further name of a subcommand shares all but the rule's name with the first."""
    if like is None or like.subcommands:
        return _read(rule, node, scope)
    return replace(like, rule=rule)


def _read_examples(members: Mapping[str, Node]) -> Examples:
    def lines(key: str) -> tuple[str, ...]:
        return members[key].strings() if key in members else ()

    return Examples(lines("read_only"), lines("mutating"), lines("destructive"))


_FLAG_KEYS = {
    "flags": CommandClass.READ_ONLY,
    "mutating_flags": CommandClass.MUTATING,
    "destructive_flags": CommandClass.DESTRUCTIVE,
}


def _read_sets(members: Mapping[str, Node]) -> dict[str, Mapping[str, Flag]]:
    return {
        name: _flags_of(node.scalar(), CommandClass.READ_ONLY, node)
        for name, node in _mapping(members, "sets").items()
    }


def _read_flags(
    members: Mapping[str, Node], sets: Mapping[str, Mapping[str, Flag]], outer: Mapping[str, Flag]
) -> dict[str, Flag]:
    flags = dict(outer)
    for name in _words(members, "uses"):
        if name not in sets:
            raise members["uses"].broken(f"there is no set {name!r}")
        flags.update(sets[name])
    for key, class_ in _FLAG_KEYS.items():
        if key in members:
            flags.update(_flags_of(members[key].scalar(), class_, members[key]))
    return flags


def _flags_of(text: str, class_: CommandClass, node: Node) -> dict[str, Flag]:
    flags: dict[str, Flag] = {}
    for item in text.split():
        names, equals, value = item.partition("=")
        spec = _read_value(value, node) if equals else Flag("")
        for name in names.split(","):
            if not name.startswith(("-", "+", "(", ")", "!", ",")):
                raise node.broken(f"{name!r} is not an option")
            flags[name] = Flag(name, spec.kind, spec.is_optional, spec.choices, class_)
    return flags


def _read_value(text: str, node: Node) -> Flag:
    is_optional = text.startswith("?")
    text = text.removeprefix("?")
    if text.startswith("{") and text.endswith("}"):
        choices = frozenset(text[1:-1].split(","))
        return Flag("", kind="text", is_optional=is_optional, choices=choices)
    if text not in KINDS:
        raise node.broken(f"{text!r} is not a kind of value")
    return Flag("", kind=text or "text", is_optional=is_optional)


def _read_slots(members: Mapping[str, Node]) -> tuple[Slot, ...]:
    slots = []
    for word in _words(members, "operands"):
        kind = word.rstrip("*")
        if kind not in KINDS:
            raise members["operands"].broken(f"{kind!r} is not a kind of operand")
        slots.append(Slot(kind, word.endswith("*")))
    return tuple(slots)


def _text(members: Mapping[str, Node], key: str) -> str:
    return members[key].scalar() if key in members else ""


def _words(members: Mapping[str, Node], key: str) -> tuple[str, ...]:
    return tuple(_text(members, key).split())


def _mapping(members: Mapping[str, Node], key: str) -> dict[str, Node]:
    return members[key].entries() if key in members else {}


def _yes(members: Mapping[str, Node], key: str) -> bool:
    return _word(members, key, ("yes", "no"), "no") == "yes"


def _class(members: Mapping[str, Node], key: str, otherwise: CommandClass) -> CommandClass:
    names = tuple(kind.value for kind in CommandClass)
    return CommandClass(_word(members, key, names, otherwise.value))


def _word(members: Mapping[str, Node], key: str, allowed: tuple[str, ...], otherwise: str) -> str:
    if key not in members:
        return otherwise
    text = members[key].scalar()
    if text not in allowed:
        raise members[key].broken(f"{text!r} is none of {', '.join(filter(None, allowed))}")
    return text


def extended(old: Entry, new: Entry) -> Entry:
    """`old` with what the user's `new` adds; the class stays the worse of both."""
    subcommands = dict(old.subcommands)
    for name, entry in new.subcommands.items():
        subcommands[name] = extended(old.subcommands[name], entry) if name in subcommands else entry
    return replace(
        old,
        class_=worst((old.class_, new.class_)),
        flags={**old.flags, **new.flags},
        operands=old.operands or new.operands,
        subcommands=subcommands,
        stops_at_operand=old.stops_at_operand or bool(subcommands),
        hosts=(*old.hosts, *new.hosts),
        examples=new.examples,
    )
