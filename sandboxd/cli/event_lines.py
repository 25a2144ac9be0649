"""One event as one line for a person: when, whose, what."""

from __future__ import annotations

from datetime import datetime

import msgspec

from sandboxd.cli.told import visible
from sandboxd.events.answers import EventEntry
from sandboxd.events.kinds import (
    Abandoned,
    ApprovalAnswered,
    ApprovalAsked,
    Assessed,
    DecisionMade,
    EgressDenied,
    Event,
    EventsLost,
    Faulted,
    Finished,
    GroundsLaid,
    Launched,
    Observed,
    Refused,
    SegmentBegun,
    SessionOpened,
    VerdictGiven,
)

WIDTH = 160


def line_of(entry: EventEntry) -> str:
    """`10:30:00.123  s-1f2e  r-9a8b  verdict   read_only  ls -l`."""
    when = datetime.fromtimestamp(entry.at).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    whose = f"{_short(entry.session_id)}  {_short(entry.run_id)}"
    what = " ".join(visible(told_of(entry)).split())
    return f"{entry.seq:>7}  {when}  {whose}  {entry.kind:<14}  {what}"[: WIDTH + 80].rstrip()


def _short(name: str | None) -> str:
    return (name or "-")[:12].ljust(12)


def told_of(entry: EventEntry) -> str:
    """What happened, in a few words; a kind that this version does not know as it is."""
    try:
        event = msgspec.json.decode(entry.event, type=Event)
    except msgspec.MsgspecError:
        return bytes(entry.event).decode("utf-8", "replace")[:WIDTH]
    return _told(event)


def _told(event: Event) -> str:
    match event:
        case SessionOpened():
            return f"{event.workspace} under profile {event.profile}"
        case VerdictGiven():
            word = event.verdict.class_.value if event.verdict.parsed else "unparsed"
            return f"{word}  {event.command[:WIDTH]}"
        case GroundsLaid():
            return f"{event.grounds_id} of profile {event.laid.grounds.profile}"
        case Observed():
            fact = msgspec.to_builtins(event.observation.fact)
            told = ", ".join(f"{key} {value}" for key, value in fact.items() if value)
            return f"{event.observation.about}: {told}"
        case Assessed():
            against = "; ".join(f"{one.rule} ({one.risk})" for one in event.violations)
            return f"{event.tool}: {event.decision.action.value}  {against or 'no rule against it'}"
        case DecisionMade():
            by = f" by {event.decision.approved_by}" if event.decision.approved_by else ""
            return f"{event.decision.action.value}{by}: {'; '.join(event.decision.reasons)}"
        case ApprovalAsked():
            return f"asked: {'; '.join(event.reasons)}"
        case ApprovalAnswered():
            return event.answer + (f": {event.reason}" if event.reason else "")
        case Launched():
            return f"{event.program} in tier {event.tier.name}"
        case Finished():
            return _ended(event)
        case EgressDenied():
            return f"{event.host} ({event.rule})"
        case Refused():
            return f"{event.code}: {event.message}"
        case Faulted():
            return event.message
        case Abandoned():
            return "the client vanished"
        case EventsLost():
            return f"{event.count} events before this one could not be stored: {event.cause}"
        case SegmentBegun():
            return f"file {event.number}; events up to {event.removed_through} were let go"
        case _:
            return ""


def _ended(event: Finished) -> str:
    said = f"exit {event.exit_code}" + (f" ({event.signal})" if event.signal else "")
    said += f" after {event.duration_s:.3f} s"
    if event.attribution is not None:
        said += f"  {event.attribution.primary}: {event.attribution.reason}"
    return said
