"""The vocabulary of rules: a proposed tool call, what was seen of the world, and the judgement.

Beside `model.py` because three places share it that may not know each other: rules judge with it, the
event log records it, and the wire answers with it. No behaviour beyond small questions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from sandboxd.model import (
    ApprovalMode,
    Approve,
    EgressRules,
    NetworkMode,
)

Risk = Literal["low", "medium", "high", "critical"]
RISKS: tuple[Risk, ...] = ("low", "medium", "high", "critical")
"""In order of severity."""

Role = Literal["path", "source_path", "command", "host", "content", "manifest", "program"]
"""What a parameter means to the rules. `path` is changed, `source_path` only read; `manifest` names
several paths that are changed; `program` is found in commands, never declared."""

Door = Literal["assess", "command", "terminal", "files"]
"""Where the call came in."""


class Parameter(Struct, frozen=True, kw_only=True):
    """One value of a call with its role. Contents are never in it: their digest is."""

    name: str
    role: Role
    value: str
    origin: Literal["declared", "guessed", "command"] = "declared"
    """Whether the tool's declaration says the role, the value merely looks like it, or a command's
    text names it."""


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call that is proposed and has not run."""

    tool: str
    door: Door
    parameters: tuple[Parameter, ...] = ()
    creates: bool = False
    """It makes a new file rather than changes one, as far as its own arguments say."""
    copies: bool = False
    """Its content comes from disk and not from a model: nothing needs to have been read."""
    is_opaque: bool = False
    """There is a command in it that could not be read: what it names is not all that it may do."""
    key: str = ""
    """Digest of tool, arguments and approval given: what "the same call" means."""

    def with_role(self, *roles: Role) -> tuple[Parameter, ...]:
        return tuple(one for one in self.parameters if one.role in roles)


# --------------------------------------------------------------------------- the world


class PathFact(Struct, frozen=True, kw_only=True, tag="path"):
    """Where a path leads by the one canonical rule, and what lies there."""

    canonical: str | None
    """None when no path can be made of it; `error` says why."""
    exists: bool = False
    is_folder: bool = False
    protected: str | None = None
    """The protected name that it is or lies in."""
    shown: str = ""
    error: str | None = None


class SeenFact(Struct, frozen=True, kw_only=True, tag="seen"):
    """What this session knows of a file's content."""

    is_seen: bool
    is_current: bool = True
    """The content is still the one that was seen."""


class ScriptFact(Struct, frozen=True, kw_only=True, tag="script"):
    """The interpreters that a file's first line names (`env python3` is two); none: no script."""

    interpreters: tuple[str, ...] = ()


class RefusalsFact(Struct, frozen=True, kw_only=True, tag="refusals"):
    """How often this same call was refused in a row, and how long ago the last time was."""

    count: int
    age_s: float = 0.0


class GrantFact(Struct, frozen=True, kw_only=True, tag="grant"):
    """Whether a person has let this session reach a host."""

    is_granted: bool


Fact = PathFact | SeenFact | ScriptFact | RefusalsFact | GrantFact


class Observation(Struct, frozen=True, kw_only=True):
    """One look at the world: what was asked about, and what was found."""

    about: str
    fact: Fact


# --------------------------------------------------------------------------- the judgement


class Violation(Struct, frozen=True, kw_only=True):
    """What a rule has against a call."""

    rule: str
    risk: Risk
    message: str
    hint: str
    parameter: str | None = None
    may_remember: bool = True
    """Whether a person's yes may hold for the session."""


class Grounds(Struct, frozen=True, kw_only=True):
    """The part of a policy that rules and decisions rest on. All paths absolute."""

    profile: str
    approval: ApprovalMode
    workspace: str
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    denied: tuple[str, ...]
    private_tmp: str
    protected: tuple[str, ...] = ()
    network: NetworkMode
    egress: EgressRules
    rules: dict[str, dict[str, str | tuple[str, ...]]] = msgspec.field(default_factory=dict)
    """Options of rules as the profile writes them."""


class Inputs(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a decision depends on beside verdict, grounds and violations."""

    approve: Approve = "none"
    tier: str = ""
    has_kernel: bool = True
    remembered: bool = False
    """An approval of the session covers it."""
    known_hosts: tuple[str, ...] = ()
    """Hosts of the verdict that need no asking."""
    protected: tuple[str, ...] = ()
    """Protected names that a file operation would change."""
    leaving: str | None = None
    """It is to run again without a sandbox: the rule of the denial that offered it."""


def worst_risk(violations: Iterable[Violation]) -> Risk | None:
    """None when no rule has anything against the call."""
    return max((one.risk for one in violations), key=RISKS.index, default=None)


class Laid(Struct, frozen=True, kw_only=True):
    """Grounds with what is needed to make them anew under another profile, looking nothing up."""

    grounds: Grounds
    asked_network: NetworkMode
    """What the profile asked for; the tier may have had only its fallback."""
    variables: dict[str, str]
    hidden: tuple[str, ...] = ()
    """Denied by sandboxd itself, whatever the profile says."""
    links: dict[str, str] = msgspec.field(default_factory=dict)
    """Where those of the paths led that are links."""
