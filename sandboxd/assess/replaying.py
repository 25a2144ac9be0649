"""Replay: a recorded session judged again, from the record alone, and what would differ.

Nothing is run, probed, resolved or asked: verdicts, observations and the session's approvals are the
recorded ones; rules and profile are those that are handed in. What a rule asks now and nobody looked at
then is `unknown`. Pure, so the same record gives the same answer every time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from sandboxd.assess.calls import call_of_verdict
from sandboxd.assess.grounds import active_rules, grounds_under
from sandboxd.assess.world import judge_host
from sandboxd.decide.decision import about_protected, decide, is_refused, to_leave
from sandboxd.decide.rules.registry import violations_of
from sandboxd.decide.rules.rule import Case
from sandboxd.decide.rules.world import NotRecorded, Recorded
from sandboxd.events.replay import RecordedCall, RecordedSession
from sandboxd.model import Action, Decision, Verdict
from sandboxd.profiles import Profile
from sandboxd.proposals import Grounds, Inputs, Violation

RuleOptions = dict[str, dict[str, str | tuple[str, ...]]]


class Side(Struct, frozen=True, kw_only=True):
    """One judgement of a call."""

    decision: Action
    rules: tuple[str, ...]
    """What was against it: `PathContainment (medium)`, ..."""
    reasons: tuple[str, ...]


class Difference(Struct, frozen=True, kw_only=True):
    """A call that would be judged otherwise."""

    seq: int
    """Of its assessment in the event log."""
    run_id: str
    tool: str
    command: str
    what: Literal["decision", "violations", "unknown"]
    """Another decision; the same one for other reasons; or not to be told from the record."""
    then: Side
    now: Side | None
    why: str = ""


class Replayed(Struct, frozen=True, kw_only=True):
    """A whole session judged again."""

    session_id: str
    profile: str
    """Under which it is judged now."""
    calls: int
    same: int
    skipped: int
    """Calls of which a part of the record is missing."""
    differences: tuple[Difference, ...]


def replay(
    recorded: RecordedSession, profile: Profile | None, options: RuleOptions | None
) -> Replayed:
    """Judge every call again. Without a profile under the recorded one; `options` of rules go over
    the profile's. Raises ProfileBroken for options that no rule takes."""
    found = [_compared(call, profile, options) for call in recorded.calls]
    differences = tuple(one for one in found if one is not None)
    return Replayed(
        session_id=recorded.session_id,
        profile=profile.name if profile is not None else recorded.profile,
        calls=len(recorded.calls),
        same=len(recorded.calls) - len(differences),
        skipped=recorded.skipped,
        differences=differences,
    )


def _compared(
    call: RecordedCall, profile: Profile | None, options: RuleOptions | None
) -> Difference | None:
    assessed = call.assessed
    then = _side(assessed.violations, assessed.decision)
    grounds = _grounds(call, profile, options)
    try:
        violations, decision = judged_again(call, grounds)
    except NotRecorded as unknown:
        return _difference(call, "unknown", then, None, str(unknown))
    now = _side(violations, decision)
    if now.decision is not then.decision:
        return _difference(call, "decision", then, now)
    if now.rules != then.rules or (then.decision is not Action.ALLOW and now != then):
        return _difference(call, "violations", then, now)
    return None


def _grounds(call: RecordedCall, profile: Profile | None, options: RuleOptions | None) -> Grounds:
    grounds = call.laid.grounds if profile is None else grounds_under(call.laid, profile)
    if options is None:
        return grounds
    merged = {**grounds.rules}
    for rule, values in options.items():
        merged[rule] = {**merged.get(rule, {}), **values}
    return replace(grounds, rules=merged)


def judged_again(call: RecordedCall, grounds: Grounds) -> tuple[tuple[Violation, ...], Decision]:
    """The judgement of a recorded call on these grounds. Raises NotRecorded, ProfileBroken."""
    assessed, inputs = call.assessed, call.assessed.inputs
    proposed = assessed.call
    if proposed is None:
        proposed = call_of_verdict(assessed.door, assessed.tool, call.verdict, assessed.key)
    world = Recorded(call.observations)
    case = Case(proposed, grounds, world, judge_host, has_kernel=inputs.has_kernel)
    violations = violations_of(case, active_rules(grounds))
    if inputs.leaving is not None and not is_refused(violations):
        return violations, to_leave(grounds, inputs.leaving)
    decided = decide(
        call.verdict,
        grounds,
        _Tier(inputs),
        approve=inputs.approve,
        approved=_keys(call.verdict) if inputs.remembered else (),
        approved_hosts=inputs.known_hosts,
        violations=violations,
    )
    if inputs.protected:
        decided = about_protected(decided, inputs.protected)
    return violations, decided


class _Tier:
    """The recorded tier, as far as a decision rests on it."""

    def __init__(self, inputs: Inputs) -> None:
        self.name = inputs.tier
        self.kernel = inputs.has_kernel


def _keys(verdict: Verdict) -> tuple[str, ...]:
    return tuple(filter(None, (verdict.approval_key, *verdict.unit_keys)))


def _side(violations: Iterable[Violation], decision: Decision) -> Side:
    return Side(
        decision=decision.action,
        rules=tuple(f"{one.rule} ({one.risk})" for one in violations),
        reasons=decision.reasons,
    )


def _difference(
    call: RecordedCall,
    what: Literal["decision", "violations", "unknown"],
    then: Side,
    now: Side | None,
    why: str = "",
) -> Difference:
    return Difference(
        seq=call.seq,
        run_id=call.assessed.run_id,
        tool=call.assessed.tool,
        command=call.command,
        what=what,
        then=then,
        now=now,
        why=why,
    )
