"""Between the pipeline and a person: what they are shown, and what their answer means to the run.

Apart from the pipeline so that the order of things there stays on a screen; nothing here waits,
decides or records.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from sandboxd import network, sessions
from sandboxd.decide import consequences
from sandboxd.decide.decision import (
    decide,
    is_refused,
    is_remembered,
    keys_to_remember,
    may_remember,
    to_leave,
)
from sandboxd.errors import ApprovalDenied
from sandboxd.model import (
    Action,
    ApprovalAsk,
    ApprovalReply,
    Decision,
    EscalationAsk,
    ExecRequest,
    Policy,
    Tier,
    Verdict,
)
from sandboxd.proposals import Inputs, Violation
from sandboxd.sessions import Session


@dataclass(frozen=True)
class Proposed:
    """One command that is about to be decided: everything that the decision depends on."""

    session: Session
    request: ExecRequest
    verdict: Verdict
    policy: Policy
    tier: Tier
    run_id: str
    command: str
    cwd: str
    escalation: EscalationAsk | None = None
    violations: tuple[Violation, ...] = ()
    """What the rules have against it."""

    def decide(self) -> Decision:
        """The decision as the session stands now; leaving the sandbox is asked about always, unless
        a rule refuses the command."""
        if self.escalation is not None and not is_refused(self.violations):
            return to_leave(self.policy, self.escalation.denial.rule)
        return decide(
            self.verdict,
            self.policy,
            self.tier,
            approve=self.request.approve,
            approved=self._approved,
            approved_hosts=known_hosts(self.session, self.policy, self.verdict),
            violations=self.violations,
        )

    @property
    def _approved(self) -> Collection[str]:
        shared = self.session.shared
        return shared.approved.get(self.scope, ()) if shared.approved else ()

    def inputs(self) -> Inputs:
        """What the decision depends on beside verdict, grounds and violations, for the record."""
        return Inputs(
            approve=self.request.approve,
            tier=self.tier.name,
            has_kernel=self.tier.kernel,
            remembered=is_remembered(self.verdict, self._approved),
            known_hosts=tuple(sorted(known_hosts(self.session, self.policy, self.verdict))),
            leaving=self.escalation.denial.rule if self.escalation is not None else None,
        )

    @property
    def scope(self) -> str:
        """What an approval holds in beside its key: the tier, and whatever the request adds to the
        profile. What was approved in a strong tier is asked again in a weaker one."""
        asked = self.request
        added = (asked.allow_hosts, asked.publish, asked.env_pass)
        return self.tier.name if not any(added) else f"{self.tier.name} {added!r}"

    @property
    def joining_key(self) -> str | None:
        """What questions must have in common to be one question; None: this one stands alone."""
        if not self._may_remember or self.verdict.approval_key is None:
            return None
        return f"{self.session.id} {self.scope} {self.verdict.approval_key}"

    def question(self, decision: Decision) -> ApprovalAsk:
        """What the person is shown. Looks at the file system, so it belongs into a thread."""
        verdict = self.verdict
        return ApprovalAsk(
            request_id="",
            command=self.command,
            verdict=verdict,
            tier=self.tier,
            writes=verdict.write_paths,
            hosts=verdict.hosts,
            creates=consequences.creates(verdict.write_paths),
            loses=consequences.loses(verdict),
            marks=consequences.deciding(verdict),
            reasons=decision.reasons,
            may_remember=self._may_remember and decision.mode != "ask-all",
            session_id=self.session.id,
            workspace=self.session.workspace,
            cwd=self.cwd,
            escalation=self.escalation,
        )

    @property
    def _may_remember(self) -> bool:
        is_allowed = self.escalation is None and may_remember(self.verdict)
        return is_allowed and all(one.may_remember for one in self.violations)

    def accepted(self, decision: Decision, reply: ApprovalReply) -> Decision:
        """The decision after the answer; an answer `session` is kept. Raises ApprovalDenied."""
        if reply.answer in ("deny", "stop"):
            raise denied(reply)
        if reply.answer == "session" and self._may_remember:
            keys = keys_to_remember(self.verdict)
            sessions.remember(self.session, self.scope, keys, self.verdict.hosts)
        return msgspec.structs.replace(decision, action=Action.ALLOW, approved_by="person")


def known_hosts(session: Session, policy: Policy, verdict: Verdict) -> set[str]:
    """Hosts of this verdict that need no asking: approved for the session, or named by the profile."""
    if not verdict.hosts:
        return set()
    approved = session.shared.approved_hosts.intersection(verdict.hosts)
    return approved | network.named(policy, verdict.hosts)


def denied(reply: ApprovalReply) -> ApprovalDenied:
    """The refusal that carries a person's no, and their reason, to the model."""
    said = "a person said no" + (f": {reply.reason}" if reply.reason else "")
    hint = "do not try the same command again; ask what to do instead"
    if reply.answer == "stop":
        said += " (and to stop here)"
        hint = "end your turn now: do nothing more until the person has spoken"
    return ApprovalDenied(said, hint=hint, data={"answer": reply.answer, "reason": reply.reason})
