"""The events of one session put together into calls, in the order in which they began. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sandboxd.events.kinds import (
    Abandoned,
    ApprovalAnswered,
    ApprovalAsked,
    Assessed,
    DecisionMade,
    EgressDenied,
    Escalated,
    Event,
    Faulted,
    Finished,
    GroundsLaid,
    Launched,
    Observed,
    Refused,
    SessionOpened,
    VerdictGiven,
)
from sandboxd.model import Attribution


@dataclass
class Asked:
    """One question to a person."""

    at: float
    reasons: tuple[str, ...]
    answered_at: float | None = None
    answer: str = "no answer"
    reason: str | None = None


@dataclass
class Line:
    """One thing that was judged in a call: a terminal has several."""

    at: float
    text: str
    kind: str
    """The class; `unparsed` where nothing could be read."""
    assessed: Assessed | None = None
    decided: DecisionMade | None = None


@dataclass
class Call:
    """Everything that is known of one run, terminal, file operation or assessed tool call."""

    run_id: str
    at: float
    lines: list[Line] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    launched: Launched | None = None
    finished: Finished | None = None
    refused: Refused | None = None
    faulted: Faulted | None = None
    egress: list[EgressDenied] = field(default_factory=list)
    is_escalated: bool = False
    is_abandoned: bool = False
    files: list[TouchedFiles] = field(default_factory=list)
    ended_at: float = 0.0

    @property
    def door(self) -> str:
        known = next((line.assessed for line in self.lines if line.assessed is not None), None)
        return known.door if known is not None else "command"

    @property
    def tool(self) -> str:
        known = next((line.assessed for line in self.lines if line.assessed is not None), None)
        return known.tool if known is not None else "command.exec"

    @property
    def kind(self) -> str:
        """The worst class of its lines."""
        order = ("", "read_only", "mutating", "destructive", "unparsed")
        return max((line.kind for line in self.lines), key=order.index, default="")

    @property
    def attribution(self) -> Attribution | None:
        for event in (self.finished, self.refused, self.faulted):
            if event is not None and event.attribution is not None:
                return event.attribution
        return Abandoned(session_id="", run_id="").attribution if self.is_abandoned else None

    @property
    def outcome(self) -> str:
        """`ok`, `answer`, `failed`, `refused`, `judged` (a tool of the caller's), `running`."""
        if self.refused is not None:
            return "refused"
        if self.faulted is not None or self.is_abandoned:
            return "failed"
        if self.finished is not None:
            return self.finished.outcome or ("ok" if self.finished.exit_code == 0 else "failed")
        if self.door == "assess":
            last = self.lines[-1].assessed if self.lines else None
            is_no = last is not None and last.decision.action.value == "refuse"
            return "refused" if is_no else "judged"
        return "ok" if self.files else "running"

    @property
    def decision(self) -> str:
        """The last decision, and whose word it was: `allow`, `allow by person`, `refuse by person`, ..."""
        if self.refused is not None and self.refused.code == "APPROVAL_DENIED":
            return "refuse by person"
        if not self.lines:
            return "refuse" if self.refused is not None else ""
        line = self.lines[-1]
        if line.decided is not None:
            by = line.decided.decision.approved_by
            return line.decided.decision.action.value + (f" by {by}" if by else "")
        return line.assessed.decision.action.value if line.assessed is not None else ""


@dataclass(frozen=True)
class TouchedFiles:
    """Files that an operation read or changed."""

    at: float
    operation: str
    paths: tuple[str, ...]
    change_id: str | None


@dataclass
class Story:
    """One session."""

    session_id: str
    workspace: str = ""
    profile: str = ""
    calls: list[Call] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0


def collect(session_id: str, events: Iterable[tuple[float, Event]]) -> Story:
    """The session's calls from its events, oldest first."""
    story = Story(session_id)
    calls: dict[str, Call] = {}
    for at, event in events:
        story.began = story.began or at
        story.ended = at
        if isinstance(event, SessionOpened):
            story.workspace, story.profile = event.workspace, event.profile
        elif event.run_id is not None and not isinstance(event, GroundsLaid):
            if event.run_id not in calls:
                calls[event.run_id] = Call(event.run_id, at)
                story.calls.append(calls[event.run_id])
            _take(calls[event.run_id], at, event)
    return story


def _take(call: Call, at: float, event: Event) -> None:
    call.ended_at = at
    match event:
        case VerdictGiven():
            kind = event.verdict.class_.value if event.verdict.parsed else "unparsed"
            call.lines.append(Line(at, event.command, kind))
        case Assessed():
            if event.call is not None or not call.lines:
                shown = f"{event.tool}  {_arguments(event)}"
                kind = event.verdict.class_.value if event.verdict is not None else ""
                call.lines.append(Line(at, shown, kind))
            call.lines[-1].assessed = event
        case DecisionMade():
            if call.lines:
                call.lines[-1].decided = event
        case Observed():
            call.observed.append(event)
        case ApprovalAsked():
            call.asked.append(Asked(at, event.reasons))
        case ApprovalAnswered():
            if call.asked:
                last = call.asked[-1]
                last.answered_at, last.answer, last.reason = at, event.answer, event.reason
        case Launched():
            call.launched = event
        case Finished():
            call.finished = event
        case Refused():
            call.refused = event
        case Faulted():
            call.faulted = event
        case EgressDenied():
            call.egress.append(event)
        case Escalated():
            call.is_escalated = True
        case Abandoned():
            call.is_abandoned = True
        case _:
            _take_files(call, at, event)


def _take_files(call: Call, at: float, event: Event) -> None:
    """File operations, by what their event says."""
    operation, paths = getattr(event, "operation", None), getattr(event, "paths", None)
    if isinstance(operation, str) and isinstance(paths, tuple):
        change_id = getattr(event, "change_id", None)
        call.files.append(TouchedFiles(at, operation, paths, change_id))


def _arguments(event: Assessed) -> str:
    parameters = event.call.parameters if event.call is not None else ()
    shown = [
        f"{one.name}={one.value}"
        for one in parameters
        if one.origin != "command" and one.role != "content"
    ]
    return " ".join([*shown, event.command or ""]).strip()
