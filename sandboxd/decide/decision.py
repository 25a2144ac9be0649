"""The decision about one call: allow, ask or refuse, with every reason. Pure.

A verdict never refuses; it decides only whether a person is asked. Order: what the rules have against
it, the profile's mode, then the caller's own word in advance (`approve`), then what was approved before
in the session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from sandboxd.model import (
    Action,
    ApprovalMode,
    Approve,
    CommandClass,
    Decision,
    NetworkMode,
    Verdict,
)
from sandboxd.proposals import Risk, Violation

RISK_ACTIONS: dict[Risk, Action] = {
    "low": Action.ALLOW,  # recorded, nothing more
    "medium": Action.ASK,  # what a person, or the caller's own word, may allow
    "high": Action.REFUSE,  # the caller can put it right
    "critical": Action.REFUSE,  # nothing makes this call right
}
"""What a rule's violation of each risk means. The worst one decides."""


class Basis(Protocol):
    """The part of a policy that a decision rests on."""

    @property
    def approval(self) -> ApprovalMode: ...
    @property
    def network(self) -> NetworkMode: ...
    @property
    def writable(self) -> tuple[str, ...]: ...
    @property
    def private_tmp(self) -> str: ...
    @property
    def protected(self) -> tuple[str, ...]: ...


class Boundary(Protocol):
    """The part of a tier that a decision rests on."""

    @property
    def name(self) -> str: ...
    @property
    def kernel(self) -> bool: ...


def decide(
    verdict: Verdict,
    policy: Basis,
    tier: Boundary,
    *,
    approve: Approve,
    approved: Collection[str],
    approved_hosts: Collection[str],
    violations: Sequence[Violation] = (),
) -> Decision:
    """`ask` means that somebody must be asked before the run; `approved` holds approval keys of the
    scope that the run would have."""
    against = [one.message for one in violations if RISK_ACTIONS[one.risk] is Action.REFUSE]
    if against:
        return Decision(action=Action.REFUSE, mode=policy.approval, reasons=tuple(against))
    why = list(_why_ask(verdict, policy, tier, approved_hosts))
    if policy.approval != "never":
        why += [one.message for one in violations if RISK_ACTIONS[one.risk] is Action.ASK]
    if not why:
        return _allow(
            policy, [f"{verdict.class_.value} is not asked about in mode {policy.approval}"]
        )
    if _covers(approve, verdict):
        return _allow(policy, why, by="caller")
    may_remember_all = all(one.may_remember for one in violations)
    if policy.approval != "ask-all" and may_remember_all and is_remembered(verdict, approved):
        return _allow(policy, why, by="session")
    return Decision(action=Action.ASK, mode=policy.approval, reasons=tuple(why))


def is_refused(violations: Iterable[Violation]) -> bool:
    """Whether the rules alone say no."""
    return any(RISK_ACTIONS[one.risk] is Action.REFUSE for one in violations)


def to_leave(policy: Basis, rule: str) -> Decision:
    """The decision about running a stopped command again without a sandbox: a person's, always."""
    reason = f"it is to run again without a sandbox: {rule}"
    return Decision(action=Action.ASK, mode=policy.approval, reasons=(reason,))


def about_protected(decision: Decision, names: Iterable[str]) -> Decision:
    """The decision about changing protected names by a file operation: somebody's own word, each
    time; where nobody is ever asked the answer is no. What is refused already stays so."""
    if decision.action is Action.REFUSE or decision.approved_by is not None:
        return decision
    reason = f"{', '.join(names)} runs later, outside: it is asked about each time"
    action = Action.REFUSE if decision.mode == "never" else Action.ASK
    return Decision(action=action, mode=decision.mode, reasons=(reason,))


def _allow(policy: Basis, reasons: Iterable[str], by: str | None = None) -> Decision:
    return Decision(
        action=Action.ALLOW, mode=policy.approval, reasons=tuple(reasons), approved_by=by
    )


def _why_ask(
    verdict: Verdict, policy: Basis, tier: Boundary, approved_hosts: Collection[str]
) -> Iterable[str]:
    """Each reason to ask; none at all means allow."""
    mode = policy.approval
    if mode == "never":
        return
    if mode == "ask-all":
        yield "the profile asks about every command"
        return
    if not verdict.parsed:
        yield "the command cannot be read"
    elif verdict.class_ is CommandClass.DESTRUCTIVE:
        yield "the command deletes or loses something for good"
    elif verdict.class_ is CommandClass.MUTATING:
        if mode == "trust-sandbox":
            yield from _why_not_trusted(verdict, policy, tier)
        else:
            yield "the command changes something"
    new = [host for host in verdict.hosts if host not in approved_hosts]
    if new and policy.network is not NetworkMode.OFF:
        yield "the command reaches " + ", ".join(new)


def _why_not_trusted(verdict: Verdict, policy: Basis, tier: Boundary) -> Iterable[str]:
    """`trust-sandbox` lets a change pass only where the sandbox really holds it."""
    if not tier.kernel or tier.name == "landlock":
        yield f"the command changes something and tier {tier.name} does not hold all of it"
    if policy.network is NetworkMode.HOST:
        yield "the command changes something and the network is the host's"
    outside = [path for path in verdict.write_paths if not _is_inside(path, policy)]
    if outside:
        yield "the command writes outside the workspace: " + ", ".join(outside)
    later = [path for path in verdict.write_paths if is_beneath(path, policy.protected)]
    if later:
        yield "the command writes what runs later, outside: " + ", ".join(later)


def _is_inside(path: str, policy: Basis) -> bool:
    return is_beneath(path, (*policy.writable, policy.private_tmp, "/tmp", "/dev/null"))


def is_beneath(path: str, roots: Iterable[str]) -> bool:
    """Whether the path is one of the roots or lies below one."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _covers(approve: Approve, verdict: Verdict) -> bool:
    """Whether the caller's own word in advance covers this verdict."""
    if approve == "all":
        return True
    return (
        approve == "mutating" and verdict.parsed and verdict.class_ is not CommandClass.DESTRUCTIVE
    )


def is_remembered(verdict: Verdict, approved: Collection[str]) -> bool:
    """Approved as a whole, or unit by unit; destructive and unparsed never are."""
    if not may_remember(verdict):
        return False
    if verdict.approval_key is not None and verdict.approval_key in approved:
        return True
    return bool(verdict.unit_keys) and all(key in approved for key in verdict.unit_keys)


def may_remember(verdict: Verdict) -> bool:
    """Whether an answer may hold for the session: never for what destroys or cannot be read."""
    return verdict.cacheable and verdict.parsed and verdict.class_ is not CommandClass.DESTRUCTIVE


def keys_to_remember(verdict: Verdict) -> tuple[str, ...]:
    """What an answer `session` adds to the session."""
    if not may_remember(verdict):
        return ()
    whole = (verdict.approval_key,) if verdict.approval_key is not None else ()
    return (*whole, *verdict.unit_keys)
