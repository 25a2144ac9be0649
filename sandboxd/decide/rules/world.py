"""`WorldProbe`: the only way a rule sees files, hosts, the session's past or time.

A rule that looked by itself could not be replayed, and would judge another path than the tool touches.
`Recording` writes each observation down before the rule gets it; `Recorded` answers from what was
written down and looks at nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from sandboxd.proposals import (
    Fact,
    GrantFact,
    Observation,
    PathFact,
    RefusalsFact,
    ScriptFact,
    SeenFact,
)

F = TypeVar("F", PathFact, SeenFact, ScriptFact, RefusalsFact, GrantFact)


class NotRecorded(Exception):
    """A replay asked for something that nobody looked at when it was recorded."""

    def __init__(self, question: str, about: str) -> None:
        super().__init__(f"{question} of {about!r} was not looked at when this was recorded")


class WorldProbe(Protocol):
    """What can be asked. Paths in, facts out; nothing raises but what makes judging impossible."""

    def path(self, text: str) -> PathFact:
        """Where `text` leads, by the one canonical path rule of the file tools."""

    def seen(self, canonical: str) -> SeenFact:
        """Whether this session has seen the file, and as what it is now."""

    def script(self, canonical: str) -> ScriptFact:
        """Which interpreters the file's first line names."""

    def refusals(self, key: str) -> RefusalsFact:
        """How often the call of this key was refused in a row."""

    def grant(self, host: str) -> GrantFact:
        """Whether a person let this session reach the host."""


class Recording:
    """Asks another probe, each question once, and has every answer recorded before it is used."""

    def __init__(self, world: WorldProbe, record: Callable[[Observation], None]) -> None:
        self._world = world
        self._record = record
        self._known: dict[tuple[str, str], Fact] = {}

    def path(self, text: str) -> PathFact:
        return self._ask("path", text, self._world.path)

    def seen(self, canonical: str) -> SeenFact:
        return self._ask("seen", canonical, self._world.seen)

    def script(self, canonical: str) -> ScriptFact:
        return self._ask("script", canonical, self._world.script)

    def refusals(self, key: str) -> RefusalsFact:
        return self._ask("refusals", key, self._world.refusals)

    def grant(self, host: str) -> GrantFact:
        return self._ask("grant", host, self._world.grant)

    def _ask(self, question: str, about: str, look: Callable[[str], F]) -> F:
        found = self._known.get((question, about))
        if found is not None:
            return found  # type: ignore[return-value]  # the question decides the kind of fact
        fact = look(about)
        self._record(Observation(about=about, fact=fact))
        self._known[question, about] = fact
        return fact


class Recorded:
    """Answers from observations only. Raises NotRecorded."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        self._facts = {(type(one.fact), one.about): one.fact for one in observations}

    def path(self, text: str) -> PathFact:
        return self._find(PathFact, text)

    def seen(self, canonical: str) -> SeenFact:
        return self._find(SeenFact, canonical)

    def script(self, canonical: str) -> ScriptFact:
        return self._find(ScriptFact, canonical)

    def refusals(self, key: str) -> RefusalsFact:
        return self._find(RefusalsFact, key)

    def grant(self, host: str) -> GrantFact:
        return self._find(GrantFact, host)

    def _find(self, kind: type[F], about: str) -> F:
        found = self._facts.get((kind, about))
        if not isinstance(found, kind):
            raise NotRecorded(kind.__name__.removesuffix("Fact").lower(), about)
        return found
