"""One call before the rules: what they look at is recorded first, then what they have against it.

Apart from the pipeline so that the order of things there stays on a screen. It writes no events
itself: the pipeline hands in what does.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from sandboxd.asking import Proposed
from sandboxd.assess.calls import call_of_verdict, digest_of
from sandboxd.assess.grounds import active_rules, grounds_of
from sandboxd.assess.world import Seeing, SessionWorld, Sightings, judge_host
from sandboxd.decide.decision import RISK_ACTIONS
from sandboxd.decide.rules.registry import violations_of
from sandboxd.decide.rules.rule import Case
from sandboxd.decide.rules.world import Recording
from sandboxd.errors import Refusal, RuleViolated
from sandboxd.events import kinds
from sandboxd.files.guard import Scope
from sandboxd.files.ledger import Ledger
from sandboxd.model import Action, Decision, Policy, Tier
from sandboxd.profiles import Profile, fill_in
from sandboxd.proposals import Door, Laid, ToolCall, Violation
from sandboxd.sessions import Session

SCOPE_S = 2.0
"""How long it is believed where the roots of a session really are."""
MOST_REFUSALS = 1000
COMMAND_CHARACTERS = 4096
"""Of a command in a tool call that are recorded."""
COUNTED = frozenset({"RULE_VIOLATED", "APPROVAL_DENIED", "APPROVAL_REQUIRED"})
"""Refusals that come of the call itself: sending it again changes nothing."""

Record = Callable[[kinds.Event], None]


class Eyes:
    """What the rules of all sessions look with: scopes of the canonical path rule, files seen."""

    def __init__(
        self, ledger: Callable[[Session], Ledger], clock: Callable[[], float] = time.time
    ) -> None:
        """`ledger` is the record of what a session has seen, shared with its file tools."""
        self.clock = clock
        self._ledger = ledger
        self._scopes: dict[tuple[str, str], tuple[float, Scope]] = {}
        self._writing: dict[str, set[str]] = {}

    def sightings(self, session: Session) -> Sightings:
        return Seeing(self._ledger(session), self._writing.setdefault(session.id, set()))

    def forget(self, session_id: str) -> None:
        """The session is closed."""
        self._writing.pop(session_id, None)

    def world(
        self, session: Session, policy: Policy, profile: Profile, cwd: str, grounds_id: str
    ) -> SessionWorld:
        def scope() -> Scope:
            return self._scope(session, policy, profile, cwd, grounds_id)

        return SessionWorld(session, scope, self.sightings(session), self.clock)

    def _scope(
        self, session: Session, policy: Policy, profile: Profile, cwd: str, grounds_id: str
    ) -> Scope:
        key, now = (grounds_id, cwd), time.monotonic()
        known = self._scopes.get(key)
        if known is not None and now - known[0] < SCOPE_S:
            return known[1]
        self._scopes = {name: one for name, one in self._scopes.items() if now - one[0] < SCOPE_S}
        variables = {
            "WORKSPACE": session.workspace,
            "HOME": session.home,
            "TMP": session.private_tmp,
        }
        roots = (fill_in(text, variables) for text in profile.read_roots)
        scope = Scope.of(
            policy, cwd=cwd, home=session.home, read_roots=[path for path in roots if path]
        )
        self._scopes[key] = now, scope
        return scope


@dataclass(frozen=True)
class Judged:
    """The judgement of one call, recorded."""

    assessment_id: str
    violations: tuple[Violation, ...]
    decision: Decision
    proposed: Proposed
    world: Recording
    """The eyes of this judgement: what they have seen already they do not look at again."""


def judge_command(
    eyes: Eyes, proposed: Proposed, profile: Profile, door: Door, record: Record
) -> Judged:
    """Let the rules judge a command; nothing raises."""
    session = proposed.session
    key = key_of_command(proposed) if session.shared.refusals else ""
    if key not in session.shared.refusals:
        key = ""
    call = call_of_verdict(door, "command.exec", proposed.verdict, key)
    return judge(eyes, proposed, profile, call, record)


def judge(
    eyes: Eyes,
    proposed: Proposed,
    profile: Profile,
    call: ToolCall,
    record: Record,
    *,
    is_command: bool = True,
) -> Judged:
    """Let the rules judge a call, decide, and record both; `is_command`: its verdict is recorded."""
    session, run_id = proposed.session, proposed.run_id
    grounds_id, laid = _laid(proposed.policy, profile, session, record)
    world = Recording(
        eyes.world(session, proposed.policy, profile, proposed.cwd, grounds_id),
        lambda one: record(kinds.Observed(session_id=session.id, run_id=run_id, observation=one)),
    )
    case = Case(call, laid.grounds, world, judge_host, has_kernel=proposed.tier.kernel)
    violations = violations_of(case, active_rules(laid.grounds))
    if violations:
        proposed = replace(proposed, violations=violations)
    decision = proposed.decide()
    assessment_id = run_id if call.door == "assess" else "j-" + secrets.token_hex(6)
    record(
        kinds.Assessed(
            session_id=session.id,
            run_id=run_id,
            assessment_id=assessment_id,
            grounds_id=grounds_id,
            door=call.door,
            tool=call.tool,
            key=call.key,
            call=None if is_command else call,
            command=None if is_command else _command_in(proposed),
            verdict=None if is_command else session.redactor.verdict(proposed.verdict),
            inputs=proposed.inputs(),
            violations=violations,
            decision=decision,
        )
    )
    return Judged(assessment_id, violations, decision, proposed, world)


def _command_in(proposed: Proposed) -> str | None:
    text = proposed.request.command
    return proposed.session.redactor.command(text)[:COMMAND_CHARACTERS] if text else None


def _laid(policy: Policy, profile: Profile, session: Session, record: Record) -> tuple[str, Laid]:
    grounds_id, laid = grounds_of(policy, profile, session)
    known = session.shared.recorded_grounds
    if grounds_id not in known:
        known.add(grounds_id)
        record(kinds.GroundsLaid(session_id=session.id, grounds_id=grounds_id, laid=laid))
    return grounds_id, laid


def refusal_of(violations: tuple[Violation, ...]) -> RuleViolated:
    """The refusal that the violations mean."""
    against = [one for one in violations if RISK_ACTIONS[one.risk] is Action.REFUSE]
    return RuleViolated(
        "; ".join(dict.fromkeys(one.message for one in against)),
        hint="; ".join(dict.fromkeys(one.hint for one in against)),
        rule=against[0].rule,
        data={"violations": msgspec.to_builtins(violations)},
    )


# --------------------------------------------------------------------------- tools of others

OUTSIDE = Tier(name="none", kernel=False, enforces=(), gaps=("the caller's own tool runs it",))
"""What stands behind a call that we do not run."""


def note_seen(sightings: Sightings, judged: Judged, call: ToolCall) -> None:
    """What the caller's own tool reads now counts as seen; what it may write is expected to change."""
    for one in call.with_role("source_path", "path", "manifest"):
        if one.origin != "declared":
            continue
        fact = judged.world.path(one.value)
        if fact.canonical is None or fact.is_folder:
            continue
        if one.role != "source_path":
            sightings.allow_write(fact.canonical)
        elif fact.exists:
            sightings.note(fact.canonical)


def canonical_paths(judged: Judged, call: ToolCall) -> dict[str, str | None]:
    """Where each path of the call leads, by the name of its parameter: what the tool should touch."""
    return {
        one.name: judged.world.path(one.value).canonical
        for one in call.with_role("path", "source_path", "manifest")
        if one.origin != "command"
    }


# --------------------------------------------------------------------------- the same call again


def key_of_command(proposed: Proposed) -> str:
    """The same command with the same word in advance, in the same place."""
    asked = proposed.request
    return digest_of(
        "command", proposed.command, proposed.cwd, asked.approve, asked.profile, asked.stdin
    )


def key_of_operation(operation: object, approve: str) -> str:
    """The same file operation with the same arguments; they are frozen values."""
    return digest_of("files", repr(operation).encode("utf-8", "replace"), approve)


def count_refusal(session: Session, key: str, refusal: Refusal, clock: Callable[[], float]) -> None:
    """Remember that this call was refused once more in a row."""
    counts = session.shared.refusals
    if refusal.code not in COUNTED:
        return
    if len(counts) >= MOST_REFUSALS:
        counts.pop(next(iter(counts)))
    counts[key] = counts.pop(key, (0, 0.0))[0] + 1, clock()


def forget_refusals(session: Session, key: str) -> None:
    """It was let through: the row is broken."""
    session.shared.refusals.pop(key, None)
