"""What grading needs of one table entry, worked out once when a command of it is first met.

Apart from entries (what a table says) and grading (what one command does): an entry never
changes, so its checks are looked up, its own class is worded and its shape is named here, and
not again for each command.
"""

from __future__ import annotations

from msgspec import Struct

from sandboxd.classify.arguments import Given
from sandboxd.classify.checks import CHECKS, Check
from sandboxd.classify.entries import Entry
from sandboxd.classify.findings import NOTHING, Finding
from sandboxd.model import DESTRUCTIVE, MUTATING, READ_ONLY

HARMLESS_KINDS = ("", "path", "text", "number")
"""Words of these kinds neither name a file to read nor have any effect."""


class Plan(Struct, frozen=True):
    """One entry, made ready for grading."""

    switches: dict[str, tuple[Given, ...]]
    """Words that give options without values, as they are read. Clusters (`-la`) join them when
    they are first read, a bounded number of them."""
    own: Finding
    """The class of the entry itself, whatever the words are."""
    standing: Finding
    """What holds of every run: answers in the exit code, hosts, that git only reads."""
    checks: tuple[Check, ...]
    has_demands: bool
    """Something must be given, or every word must be literal, for a plain read."""
    alike: str | None
    """The kind of all operands, when any number of one kind may stand there."""
    ignores_operands: bool


def plan_for(entry: Entry) -> Plan:
    """The plan of an entry."""
    slots = entry.operands
    is_alike = len(slots) == 1 and slots[0].many and not entry.script_flags
    is_git_reader = entry.is_git and entry.class_ is READ_ONLY
    has_standing = bool(entry.exit_meaning or entry.hosts or is_git_reader)
    rule = entry.rule if entry.class_ is READ_ONLY and "." in entry.rule else ""
    return Plan(
        switches={
            name: (Given(name, flag),)
            for name, flag in entry.flags.items()
            if name != "--" and (flag.kind is None or flag.is_optional)
        },
        own=_own_class(entry),
        standing=Finding(
            rule=rule,
            exit_meaning=entry.exit_meaning,
            hosts=entry.hosts,
            is_git_reader=is_git_reader,
        )
        if has_standing
        else NOTHING,
        checks=tuple(CHECKS[name] for name in entry.checks),
        has_demands=bool(entry.requires or entry.is_network),
        alike=slots[0].kind if is_alike else None,
        ignores_operands=entry.style == "none" and bool(entry.checks),
    )


def _own_class(entry: Entry) -> Finding:
    name = entry.rule.replace(".", " ")
    if entry.class_ is DESTRUCTIVE:
        reason = entry.reason or f"{name} deletes, or does what cannot be undone"
        return Finding(DESTRUCTIVE, reason, entry.rule)
    if entry.class_ is MUTATING:
        return Finding(MUTATING, entry.reason or f"{name} can change files or state", entry.rule)
    return NOTHING
