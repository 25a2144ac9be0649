"""Leaving the sandbox: what a stopped run is offered, and how the same command may run without it.

Apart from the pipeline so that the order of things there stays on a screen. Evidence first: words alone
offer nothing. Then a token, then a person, always; then the command starts again from the beginning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from sandboxd import evidence, reply
from sandboxd.confine.tier import Mechanism
from sandboxd.decide.escalation import Escalations, Offer, binding
from sandboxd.engine import Engine
from sandboxd.errors import ApprovalRequired
from sandboxd.model import (
    EscalationAsk,
    ExecRequest,
    Invocation,
    LaunchPlan,
    NetworkMode,
    Policy,
    Result,
)
from sandboxd.sessions import Session


@dataclass(frozen=True)
class Leaving:
    """A command whose token was good: it runs without a sandbox if a person lets it."""

    escalations: Escalations
    token: str
    offer: Offer
    tier: str
    opened: tuple[str, ...]
    """Names that are protected in the sandbox: this run may change them."""

    @property
    def ask(self) -> EscalationAsk:
        return EscalationAsk(denial=self.offer.denial, tier=self.tier, ran=self.offer.ran)

    @contextlib.contextmanager
    def kept_unless_asked(self) -> Iterator[None]:
        """The token is spent by asking, not by finding nobody to ask."""
        try:
            yield
        except ApprovalRequired:
            self.escalations.give_back(self.token, self.offer)
            raise


def redeem(
    engine: Engine, session: Session, request: ExecRequest, policy: Policy, cwd: str, tier: str
) -> Leaving | None:
    """Spend the request's token, if it has one. Raises EscalationRefused."""
    if request.escalation is None:
        return None
    bound_to = _bound_to(session, request, cwd, tier)
    offer = engine.escalations.redeem(request.escalation, bound_to)
    return Leaving(engine.escalations, request.escalation, offer, tier, policy.protected)


def without_sandbox(policy: Policy) -> Policy:
    """The policy of a run that nothing confines: what it names would only be an untrue word."""
    return msgspec.structs.replace(
        policy, protected=(), pinned=(), denied=(), own=(), network=NetworkMode.HOST
    )


async def weighed(
    engine: Engine,
    session: Session,
    request: ExecRequest,
    result: Result,
    *,
    rung: Mechanism,
    invocation: Invocation,
    policy: Policy,
) -> Result:
    """The result of a run that the sandbox may have stopped: with the grade of its evidence, and a token
    where that is more than words."""
    denial = result.denial
    assert denial is not None  # `may_be_escalated` said so
    if denial.evidence in ("text", "policy"):
        outside = await engine.unconfined()
        before = denial
        denial = await evidence.confirmed(
            denial,
            reply.excerpt(result),
            result.cwd,
            inside=_probing(rung, invocation, policy),
            outside=_probing(outside, invocation, policy),
            run=engine.run_plan,
        )
        if denial is before:
            return result
    bound_to = _bound_to(session, request, result.cwd, rung.name)
    token = engine.escalations.offer(bound_to, denial, reply.how_far(result))
    return reply.with_denial(result, msgspec.structs.replace(denial, escalation=token))


def _probing(rung: Mechanism, invocation: Invocation, policy: Policy) -> evidence.Plan:
    def plan(program: str, arguments: tuple[str, ...]) -> LaunchPlan:
        env = {"PATH": "/usr/bin:/bin"}
        changed = msgspec.structs.replace(
            invocation, program=program, argv=arguments, environment=env, has_terminal=False
        )
        return rung.plan(changed, policy, ())

    return plan


def _bound_to(session: Session, request: ExecRequest, cwd: str, tier: str) -> str:
    return binding(session.id, request, cwd=cwd, environment=session.environment, tier=tier)
