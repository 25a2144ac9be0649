"""Rules about what the caller knows of a file: ReadBeforeWrite, StaleWrite, ReferenceExists."""

from __future__ import annotations

from collections.abc import Iterator

from sandboxd.decide.rules.rule import Case, Rule
from sandboxd.proposals import Parameter, PathFact, Risk, Violation


class ReadBeforeWrite(Rule, frozen=True, kw_only=True):
    """A file that exists is changed only after this session has read it: a model that has not seen a
    file guesses. Calls whose content comes from disk are exempt."""

    risk: Risk = "high"

    def violations(self, case: Case) -> Iterator[Violation]:
        for parameter, fact in _changed_files(case):
            if not case.world.seen(fact.canonical or "").is_seen:
                yield self.violation(
                    self.risk,
                    f"{fact.shown} exists and has not been read in this session",
                    "read it first, then change it",
                    parameter,
                )


class StaleWrite(Rule, frozen=True, kw_only=True):
    """A file is changed only while it is still what was read."""

    risk: Risk = "high"

    def violations(self, case: Case) -> Iterator[Violation]:
        for parameter, fact in _changed_files(case):
            seen = case.world.seen(fact.canonical or "")
            if seen.is_seen and not seen.is_current:
                yield self.violation(
                    self.risk,
                    f"{fact.shown} has changed since it was read",
                    "read it again, then change it",
                    parameter,
                )


class ReferenceExists(Rule, frozen=True, kw_only=True):
    """What is to be read is there. What is to be changed need not be: it may be new."""

    risk: Risk = "high"

    def violations(self, case: Case) -> Iterator[Violation]:
        for parameter in case.call.with_role("source_path"):
            if parameter.origin != "declared":
                continue
            fact = case.world.path(parameter.value)
            if fact.canonical is None or fact.exists:
                continue
            yield self.violation(
                self.risk,
                f"{fact.shown or fact.canonical} does not exist",
                "look for its right name first",
                parameter,
            )


def _changed_files(case: Case) -> Iterator[tuple[Parameter, PathFact]]:
    """Existing files that the call would change with content of a model's making. A guessed role does
    not count: a tool that nobody declared may well only read."""
    if case.call.copies:
        return
    for parameter in case.call.with_role("path", "manifest"):
        if parameter.origin == "declared":
            fact = case.world.path(parameter.value)
            if fact.canonical is not None and fact.exists and not fact.is_folder:
                yield parameter, fact
