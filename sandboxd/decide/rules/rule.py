"""What a rule is: a small frozen struct whose fields are its options, and one question.

A profile sets options under `rules: {NAME: {option: value}}`; `enabled: false` turns a rule off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec import Struct

from sandboxd.decide.rules.world import WorldProbe
from sandboxd.model import Denial
from sandboxd.proposals import Grounds, Parameter, Risk, ToolCall, Violation

JudgeHost = Callable[[str, Grounds, bool], Denial | None]
"""Whether the network rules deny a host, to a sandboxed run or to somebody on the host's own network;
pure. The egress stage's own reading of patterns."""


@dataclass(frozen=True)
class Case:
    """One call, what it is judged against, and the eyes of the rules."""

    call: ToolCall
    grounds: Grounds
    world: WorldProbe
    judge_host: JudgeHost
    has_kernel: bool = True
    """A kernel boundary stands behind the call; false where nothing else would stop it."""


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Root of rules. The class name is the rule's name."""

    enabled: bool = True

    @property
    def name(self) -> str:
        return type(self).__name__

    def violations(self, case: Case) -> Iterator[Violation]:
        """What this rule has against the call; nothing when it may go on."""
        raise NotImplementedError

    def violation(
        self,
        risk: Risk,
        message: str,
        hint: str,
        parameter: Parameter | None = None,
        *,
        may_remember: bool = True,
    ) -> Violation:
        return Violation(
            rule=self.name,
            risk=risk,
            message=message,
            hint=hint,
            parameter=parameter.name if parameter is not None else None,
            may_remember=may_remember,
        )
