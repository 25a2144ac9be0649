"""One frozen struct for each kind of event; together they are the tagged union `Event`.

A module of its own because it is the format of the log: a kind or a field is added, never
renamed or removed, so that a log written by an older version stays readable. Add a kind by
adding one struct here and naming it in `Event`.

What is kept of a run is bounded. Command text is kept up to `COMMAND_CHARACTERS`; of output
only the last `EXCERPT_BYTES` of each stream, 2 KiB together. The environment and the contents of
files are never kept. Text passes through a `Redactor` first: the `of` of each kind takes one.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from sandboxd.errors import Fault, Refusal
from sandboxd.events.attribution import attribute, attribution_of_refusal
from sandboxd.events.redaction import NOTHING_KNOWN, Redactor
from sandboxd.model import (
    Answer,
    ApprovalAsk,
    ApprovalReply,
    Attribution,
    Captured,
    Decision,
    Denial,
    LaunchPlan,
    Result,
    Tier,
    Usage,
    Verdict,
)
from sandboxd.proposals import Door, Inputs, Laid, Observation, ToolCall, Violation

COMMAND_CHARACTERS = 65_536
EXCERPT_BYTES = 1024


class Recorded(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every event can say: whose it is. Its time and number are given by the log."""

    session_id: str | None = None
    run_id: str | None = None


class SessionOpened(Recorded, frozen=True, kw_only=True, tag="session_opened"):
    session_id: str
    workspace: str
    profile: str
    client: str | None = None
    """Name and version of the caller, when it gave them."""


class VerdictGiven(Recorded, frozen=True, kw_only=True, tag="verdict"):
    """What was asked for and what it would do."""

    session_id: str
    run_id: str | None = None
    command: str
    cwd: str
    verdict: Verdict
    is_abridged: bool = False
    """The command was longer than is kept: its end and the verdict's lists are left out."""

    @classmethod
    def of(
        cls,
        session_id: str,
        run_id: str | None,
        *,
        command: str,
        cwd: str,
        verdict: Verdict,
        redactor: Redactor = NOTHING_KNOWN,
    ) -> VerdictGiven:
        """The event for one command; the lists of a verdict grow with the text, so go with it."""
        if not redactor.is_plain(command):
            command, verdict = redactor.command(command), redactor.verdict(verdict)
        is_abridged = len(command) > COMMAND_CHARACTERS
        if is_abridged:
            command = command[:COMMAND_CHARACTERS]
            verdict = msgspec.structs.replace(
                verdict, parts=(), read_paths=(), write_paths=(), programs=(), unit_keys=()
            )
        return cls(
            session_id=session_id,
            run_id=run_id,
            command=command,
            cwd=cwd,
            verdict=verdict,
            is_abridged=is_abridged,
        )


class GroundsLaid(Recorded, frozen=True, kw_only=True, tag="grounds"):
    """What calls are judged against from now on under this name; once for a session and policy."""

    session_id: str
    grounds_id: str
    laid: Laid


class Observed(Recorded, frozen=True, kw_only=True, tag="observation"):
    """One look at the world, written before a rule used it."""

    session_id: str
    run_id: str
    observation: Observation


class Assessed(Recorded, frozen=True, kw_only=True, tag="assessment"):
    """What the rules have against a call, and the decision before anybody was asked."""

    session_id: str
    run_id: str
    assessment_id: str
    grounds_id: str
    door: Door
    tool: str
    key: str = ""
    call: ToolCall | None = None
    """None for commands: the verdict before it names everything."""
    command: str | None = None
    """The command text in such a call."""
    verdict: Verdict | None = None
    """Of calls that are no commands of ours."""
    inputs: Inputs = Inputs()
    violations: tuple[Violation, ...] = ()
    decision: Decision


class DecisionMade(Recorded, frozen=True, kw_only=True, tag="decision"):
    session_id: str
    run_id: str | None = None
    decision: Decision


class ApprovalAsked(Recorded, frozen=True, kw_only=True, tag="approval_asked"):
    """A person is about to be asked; what about is the verdict before it."""

    session_id: str
    run_id: str
    reasons: tuple[str, ...]
    tier: str

    @classmethod
    def of(cls, session_id: str, run_id: str, ask: ApprovalAsk) -> ApprovalAsked:
        return cls(session_id=session_id, run_id=run_id, reasons=ask.reasons, tier=ask.tier.name)


class ApprovalAnswered(Recorded, frozen=True, kw_only=True, tag="approval_answered"):
    """What they said; a question that ends without an answer is a refusal."""

    session_id: str
    run_id: str
    answer: Answer
    reason: str | None = None

    @classmethod
    def of(cls, session_id: str, run_id: str, reply: ApprovalReply) -> ApprovalAnswered:
        reason = excerpt(NOTHING_KNOWN.text(reply.reason)) if reply.reason else None
        return cls(session_id=session_id, run_id=run_id, answer=reply.answer, reason=reason)


class Escalated(Recorded, frozen=True, kw_only=True, tag="escalated"):
    """A person let the command run without a sandbox, after this had stopped it."""

    session_id: str
    run_id: str
    tier: str
    denial: Denial

    @classmethod
    def of(cls, session_id: str, run_id: str, tier: str, denial: Denial) -> Escalated:
        return cls(session_id=session_id, run_id=run_id, tier=tier, denial=without_token(denial))


def without_token(denial: Denial) -> Denial:
    """A token is never written down."""
    return msgspec.structs.replace(denial, escalation=None)


class Launched(Recorded, frozen=True, kw_only=True, tag="launch"):
    """The program was handed to the launcher under this tier."""

    session_id: str
    run_id: str
    tier: Tier
    program: str
    cwd: str
    namespaces: tuple[str, ...] = ()

    @classmethod
    def of(cls, session_id: str, run_id: str, plan: LaunchPlan) -> Launched:
        return cls(
            session_id=session_id,
            run_id=run_id,
            tier=plan.tier,
            program=plan.program,
            cwd=plan.cwd,
            namespaces=plan.namespaces,
        )


class Finished(Recorded, frozen=True, kw_only=True, tag="result"):
    """How the run ended. Both excerpts are cut to `EXCERPT_BYTES` however they are given."""

    session_id: str
    run_id: str
    exit_code: int
    signal: str | None = None
    timed_out: bool = False
    duration_s: float
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    stdout_end: str = ""
    stderr_end: str = ""
    survivors: int = 0
    usage: Usage = Usage()
    limit: str | None = None
    denial: Denial | None = None
    outcome: Literal["ok", "answer", "failed"] | None = None
    """None in logs of schema version 1."""
    attribution: Attribution | None = None
    unconfined: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "stdout_end", excerpt(self.stdout_end))
        force_setattr(self, "stderr_end", excerpt(self.stderr_end))

    @classmethod
    def of(cls, session_id: str, result: Result, redactor: Redactor = NOTHING_KNOWN) -> Finished:
        """The event for a finished run; merged output counts as stdout."""
        out, err = result.stdout or result.output, result.stderr
        return cls(
            session_id=session_id,
            run_id=result.run_id,
            exit_code=result.exit_code,
            signal=result.signal,
            timed_out=result.timed_out,
            duration_s=result.duration_s,
            stdout_bytes=_size(out),
            stderr_bytes=_size(err),
            stdout_end=_end(out, redactor),
            stderr_end=_end(err, redactor),
            survivors=result.survivors,
            usage=result.usage,
            limit=result.limit,
            denial=without_token(result.denial) if result.denial else None,
            outcome=_outcome(result),
            unconfined=result.unconfined,
            attribution=result.attribution,
        )


class EgressDenied(Recorded, frozen=True, kw_only=True, tag="egress_denied"):
    """The relay refused a host to a run; each host and rule once a run."""

    session_id: str
    run_id: str
    host: str
    rule: str
    hint: str

    @classmethod
    def of(cls, session_id: str, run_id: str, denial: Denial) -> EgressDenied:
        return cls(
            session_id=session_id,
            run_id=run_id,
            host=excerpt(denial.host or ""),
            rule=excerpt(denial.rule),
            hint=excerpt(denial.hint or ""),
        )


class FilesTouched(Recorded, frozen=True, kw_only=True, tag="files"):
    """A file operation was carried out: which files it read or changed, never what is in them."""

    session_id: str
    run_id: str
    operation: str
    paths: tuple[str, ...]
    versions: tuple[str | None, ...] = ()
    """What became of each path that was changed, or was read; None: it was removed."""
    change_id: str | None = None


class Refused(Recorded, frozen=True, kw_only=True, tag="refusal"):
    """An expected no, as the caller saw it. The refusal's `data` may hold output: not kept."""

    code: str
    origin: str
    message: str
    hint: str
    path: str | None = None
    rule: str | None = None
    evidence: str | None = None
    attribution: Attribution | None = None

    @classmethod
    def of(
        cls,
        session_id: str | None,
        run_id: str | None,
        refusal: Refusal,
        redactor: Redactor = NOTHING_KNOWN,
    ) -> Refused:
        return cls(
            session_id=session_id,
            run_id=run_id,
            code=refusal.code,
            origin=refusal.origin,
            message=excerpt(redactor.text(refusal.message)),
            hint=excerpt(redactor.text(refusal.hint)),
            path=refusal.path,
            rule=refusal.rule,
            evidence=refusal.evidence,
            attribution=attribution_of_refusal(refusal.code, refusal.origin),
        )


class Faulted(Recorded, frozen=True, kw_only=True, tag="fault"):
    """Our machinery failed. The cause's kind is kept for whoever mends it, not its text."""

    message: str
    cause: str | None = None
    attribution: Attribution | None = None

    @classmethod
    def of(cls, session_id: str | None, run_id: str | None, fault: Fault) -> Faulted:
        cause = fault.__cause__
        return cls(
            session_id=session_id,
            run_id=run_id,
            message=excerpt(str(fault)),
            cause=type(cause).__name__ if cause else None,
            attribution=attribute("fault"),
        )


class Abandoned(Recorded, frozen=True, kw_only=True, tag="abandoned"):
    """The caller vanished during the call; what ran was killed."""

    session_id: str
    run_id: str
    attribution: Attribution = attribute("client_vanished")


class SegmentBegun(Recorded, frozen=True, kw_only=True, tag="segment_begun"):
    """Written by the log itself when it goes on in another file."""

    number: int
    removed_through: int = 0
    """Events up to this one were let go, because the log had grown to its bound."""


class EventsLost(Recorded, frozen=True, kw_only=True, tag="events_lost"):
    """Written by the log itself: this many events before it could not be stored."""

    count: int
    cause: str


Event = (
    SessionOpened
    | VerdictGiven
    | GroundsLaid
    | Observed
    | Assessed
    | ApprovalAsked
    | ApprovalAnswered
    | DecisionMade
    | Escalated
    | Launched
    | Finished
    | EgressDenied
    | FilesTouched
    | Refused
    | Faulted
    | Abandoned
    | EventsLost
    | SegmentBegun
)


KINDS = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Event))
"""The names of all kinds."""


class StoredEvent(Struct, frozen=True, kw_only=True):
    """An event as the log holds it."""

    seq: int
    """1, 2, 3, ... without gaps over the whole log."""
    at: float
    """Seconds since the epoch, when it was appended."""
    kind: str
    session_id: str | None
    run_id: str | None
    hash: str
    """Hexadecimal; see `sandboxd.events.chain`."""
    payload: str
    """The event as JSON, exactly as the chain covers it."""

    @property
    def event(self) -> Event | None:
        """None when this version does not understand the row (a newer kind, or a damaged one)."""
        try:
            return msgspec.json.decode(self.payload, type=Event)
        except msgspec.MsgspecError:
            return None


def kind_of(event: Event) -> str:
    """The tag under which the event is stored and queried."""
    return str(type(event).__struct_config__.tag)


def excerpt(text: str) -> str:
    """The end of the text, at most `EXCERPT_BYTES` as UTF-8, cut between characters."""
    if len(text) * 4 <= EXCERPT_BYTES:
        return text
    tail = text[-EXCERPT_BYTES:].encode("utf-8", "backslashreplace")[-EXCERPT_BYTES:]
    return tail.decode("utf-8", "ignore")


REDACTED_CHARACTERS = 4096
"""Of the end of a stream is looked through for secrets before it is cut: a cut one has no shape."""


def _end(stream: Captured | None, redactor: Redactor) -> str:
    return excerpt(redactor.text(stream.text[-REDACTED_CHARACTERS:])) if stream else ""


def _outcome(result: Result) -> Literal["ok", "answer", "failed"]:
    if result.attribution is not None:
        return "failed"
    return "answer" if result.exit_code else "ok"


def _size(stream: Captured | None) -> int:
    return stream.total_bytes if stream else 0
