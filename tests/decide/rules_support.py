"""A world that answers from a table, and calls as the doors make them, for tests of single rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sandboxd.assess.world import judge_host
from sandboxd.decide.rules.rule import Case, Rule
from sandboxd.model import EgressRules, NetworkMode
from sandboxd.proposals import (
    Door,
    GrantFact,
    Grounds,
    Parameter,
    PathFact,
    RefusalsFact,
    Role,
    ScriptFact,
    SeenFact,
    ToolCall,
    Violation,
)

GROUNDS = Grounds(
    profile="default",
    approval="standard",
    workspace="/w",
    readable=("/w", "/ref"),
    writable=("/w",),
    denied=("/h/.ssh",),
    private_tmp="/private",
    network=NetworkMode.OPEN,
    egress=EgressRules(),
)


@dataclass
class World:
    """Facts by what is asked about; a path is its own canonical form when nothing else is said."""

    paths: dict[str, PathFact] = field(default_factory=dict)
    files: dict[str, SeenFact] = field(default_factory=dict)
    scripts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    counts: dict[str, RefusalsFact] = field(default_factory=dict)
    granted: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def path(self, text: str) -> PathFact:
        self.asked.append(text)
        path = text if text.startswith("/") else f"/w/{text}"
        return self.paths.get(text, PathFact(canonical=path, exists=True, shown=text))

    def seen(self, canonical: str) -> SeenFact:
        return self.files.get(canonical, SeenFact(is_seen=False))

    def script(self, canonical: str) -> ScriptFact:
        return ScriptFact(interpreters=self.scripts.get(canonical, ()))

    def refusals(self, key: str) -> RefusalsFact:
        return self.counts.get(key, RefusalsFact(count=0))

    def grant(self, host: str) -> GrantFact:
        return GrantFact(is_granted=host in self.granted)


def call(door: Door = "assess", *, key: str = "", copies: bool = False, **roles: Any) -> ToolCall:
    """`call(path="x", source_path=["a", "b"])`; from a command's text where the door is one."""
    origin = "declared" if door in ("assess", "files") else "command"
    found = []
    for role, values in roles.items():
        for value in [values] if isinstance(values, str) else values:
            found.append(Parameter(name=role, role=_role(role), value=value, origin=origin))  # type: ignore[arg-type]
    return ToolCall(tool="t", door=door, parameters=tuple(found), key=key, copies=copies)


def _role(text: str) -> Role:
    return text  # type: ignore[return-value]  # the tests write roles as names


def against(rule: Rule, call: ToolCall, world: World | None = None, **more: Any) -> list[Violation]:
    """What the rule has against the call."""
    grounds = more.pop("grounds", GROUNDS)
    return list(rule.violations(Case(call, grounds, world or World(), judge_host, **more)))
