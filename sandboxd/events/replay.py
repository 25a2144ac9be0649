"""What was recorded of one session, put back together call by call; nothing is decided here.

A module of its own because it alone knows in which order the pipeline writes: grounds before what rests
on them, a verdict before its assessment, observations before the assessment that used them, a decision or
a refusal after it. Calls of one session may interleave; what belongs together has one run id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sandboxd.events.kinds import (
    Assessed,
    DecisionMade,
    Event,
    GroundsLaid,
    Observed,
    Refused,
    VerdictGiven,
)
from sandboxd.model import Decision, Verdict
from sandboxd.proposals import Laid, Observation


@dataclass
class RecordedCall:
    """One call as it was judged then."""

    seq: int
    assessed: Assessed
    verdict: Verdict
    command: str
    laid: Laid
    observations: list[Observation] = field(default_factory=list)
    decided: Decision | None = None
    """The decision after a person was asked; None when it ended in a refusal."""
    refused: str | None = None
    """The code of that refusal."""


@dataclass
class RecordedSession:
    session_id: str
    profile: str
    workspace: str
    calls: list[RecordedCall]
    skipped: int
    """Assessments of which a part is missing: let go by rotation, lost, or not understood."""


def put_together(session_id: str, events: Iterable[tuple[int, Event]]) -> RecordedSession:
    """The session's calls in the order of their assessments."""
    session = RecordedSession(session_id, "", "", [], 0)
    grounds: dict[str, Laid] = {}
    verdicts: dict[str | None, VerdictGiven] = {}
    seen: dict[str, list[Observation]] = {}
    latest: dict[str | None, RecordedCall] = {}
    for seq, event in events:
        match event:
            case GroundsLaid():
                grounds[event.grounds_id] = event.laid
                session.profile = session.profile or event.laid.grounds.profile
                session.workspace = session.workspace or event.laid.grounds.workspace
            case VerdictGiven():
                verdicts[event.run_id] = event
            case Observed():
                seen.setdefault(event.run_id, []).append(event.observation)
            case Assessed():
                call = _call(seq, event, verdicts, grounds, seen.pop(event.run_id, []))
                if call is None:
                    session.skipped += 1
                else:
                    session.calls.append(call)
                    latest[event.run_id] = call
            case DecisionMade():
                if event.run_id in latest:
                    latest[event.run_id].decided = event.decision
            case Refused():
                known = latest.get(event.run_id)
                if known is not None and known.decided is None:
                    known.refused = event.code
            case _:
                pass
    return session


def _call(
    seq: int,
    assessed: Assessed,
    verdicts: dict[str | None, VerdictGiven],
    grounds: dict[str, Laid],
    observations: list[Observation],
) -> RecordedCall | None:
    laid = grounds.get(assessed.grounds_id)
    given = verdicts.get(assessed.run_id)
    verdict = assessed.verdict or (given.verdict if given is not None else None)
    if laid is None or verdict is None:
        return None
    command = assessed.command or assessed.tool
    if assessed.verdict is None and given is not None:
        command = given.command
    return RecordedCall(seq, assessed, verdict, command, laid, observations)
