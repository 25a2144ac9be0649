"""THE list of rules.

To add a rule: write its class, add one line to `RULES`. Its options are its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from sandboxd.decide.rules.containment import ManifestContainment, PathContainment, WriteScope
from sandboxd.decide.rules.freshness import ReadBeforeWrite, ReferenceExists, StaleWrite
from sandboxd.decide.rules.reaching import ExecInterpreter, NetworkHost, RepeatLimit
from sandboxd.decide.rules.rule import Case, Rule
from sandboxd.proposals import Violation

RULES: tuple[type[Rule], ...] = (
    PathContainment,
    ManifestContainment,
    WriteScope,
    ReferenceExists,
    ReadBeforeWrite,
    StaleWrite,
    NetworkHost,
    ExecInterpreter,
    RepeatLimit,
)
"""In the order in which violations are told."""

Options = Mapping[str, Mapping[str, str | tuple[str, ...]]]


class BrokenOptions(ValueError):
    """Options that no rule has, or values that an option cannot take; `rule` names whose."""

    def __init__(self, rule: str, complaint: str) -> None:
        super().__init__(complaint)
        self.rule = rule
        self.key = f"rules.{rule}"


def rules_with(options: Options) -> tuple[Rule, ...]:
    """The rules that are on, with their options. Raises BrokenOptions."""
    if not options:
        return _rules(())
    frozen = tuple(
        (name, tuple(sorted((key, _frozen(value)) for key, value in given.items())))
        for name, given in sorted(options.items())
    )
    return _rules(frozen)


def _frozen(value: str | tuple[str, ...] | list[str]) -> str | tuple[str, ...]:
    return value if isinstance(value, str) else tuple(value)


@lru_cache(64)
def _rules(
    options: tuple[tuple[str, tuple[tuple[str, str | tuple[str, ...]], ...]], ...],
) -> tuple[Rule, ...]:
    given = {name: dict(values) for name, values in options}
    known = {kind.__name__ for kind in RULES}
    for name in given:
        if name not in known:
            raise BrokenOptions(
                name, f"there is no such rule; there are {', '.join(sorted(known))}"
            )
    made = (_made(kind, given.get(kind.__name__, {})) for kind in RULES)
    return tuple(rule for rule in made if rule.enabled)


def _made(kind: type[Rule], values: Mapping[str, object]) -> Rule:
    try:
        return msgspec.convert(dict(values), kind, strict=False)
    except msgspec.ValidationError as error:
        raise BrokenOptions(kind.__name__, str(error)) from error


def violations_of(case: Case, rules: tuple[Rule, ...]) -> tuple[Violation, ...]:
    """Everything that the rules have against the call."""
    return tuple(violation for rule in rules for violation in rule.violations(case))
