"""Counts beside the rows, so that statistics over a million events need not read them. Pure.

A count's key is (day, session, kind, reason, layer, origin). The reason is what the event said,
word for word; layer and origin are empty where the event did not say them (older versions): they
are inferred when they are read, by the same table that serves emission.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec import Struct

from sandboxd.events.attribution import reason_of_result
from sandboxd.model import Denial

Key = tuple[str, str, str, str, str, str]
"""day (UTC), session id, kind, reason, layer, origin."""
Tally = dict[Key, int]
Counted = tuple[int, str, str | None, str | None, str]
"""at_us, kind, session_id, run_id, payload."""
OK, ANSWER = "ok", "answer"
"""Reasons of results that did not fail."""


class _Layers(Struct, frozen=True):
    reason: str = ""
    primary: str = ""
    origin: str = ""


class _Verdict(Struct, frozen=True, rename={"class_": "class"}):
    class_: str = ""
    exit_meaning: dict[str, str] = {}


class _Decision(Struct, frozen=True):
    action: str = ""
    approved_by: str | None = None


class _Tier(Struct, frozen=True):
    name: str = ""


class _Slim(Struct, frozen=True):
    """The few fields of an event's payload that are counted; msgspec skips the rest."""

    exit_code: int = 0
    signal: str | None = None
    timed_out: bool = False
    limit: str | None = None
    denial: Denial | None = None
    outcome: str | None = None
    attribution: _Layers | None = None
    code: str = ""
    origin: str = ""
    rule: str | None = None
    answer: str = ""
    verdict: _Verdict | None = None
    decision: _Decision = _Decision()
    tier: _Tier = _Tier()


_decode = msgspec.json.Decoder(_Slim, strict=False).decode


def tally_of(rows: Iterable[Counted]) -> Tally:
    """The counts of rows that this version has just made."""
    tally: Tally = {}
    for row in rows:
        count_row(tally, row, {})
    return tally


def count_row(tally: Tally, row: Counted, answers: dict[str, dict[str, str]]) -> None:
    """Count one row. `answers` remembers, over old rows in order, which exit codes of a run are
    answers: versions before 2 said so in the verdict only."""
    at_us, kind, session_id, run_id, payload = row
    try:
        slim = _decode(payload)
    except msgspec.MsgspecError:
        slim = _Slim()
    if kind == "verdict" and run_id is not None and slim.verdict is not None:
        answers[run_id] = slim.verdict.exit_meaning
    reason, layer, origin = _reason(kind, slim, answers.get(run_id or "", {}))
    key = (_day(at_us), session_id or "", kind, reason, layer, origin)
    tally[key] = tally.get(key, 0) + 1


def _reason(kind: str, slim: _Slim, answers: dict[str, str]) -> tuple[str, str, str]:
    if kind == "result":
        return _reason_of_run(slim, answers)
    said = slim.attribution or _Layers()
    if kind == "refusal":
        return said.reason or f"refusal.{slim.code}", said.primary, said.origin or slim.origin
    if kind == "fault":
        return "fault", said.primary, said.origin
    if kind == "abandoned":
        return "client_vanished", said.primary, said.origin
    return _plain_reason(kind, slim), "", ""


def _reason_of_run(slim: _Slim, answers: dict[str, str]) -> tuple[str, str, str]:
    if slim.attribution is not None:  # version 1 put a sentence where the reason is now
        said = slim.attribution
        is_named = slim.outcome is not None
        return said.reason if is_named else "protected_name", said.primary, said.origin
    if slim.outcome is not None:
        return slim.outcome, "", ""
    reason = reason_of_result(
        exit_code=slim.exit_code,
        signal=slim.signal,
        timed_out=slim.timed_out,
        limit=slim.limit,
        denial=slim.denial,
        exit_meaning=answers,
    )
    return reason or (ANSWER if slim.exit_code else OK), "", ""


def _plain_reason(kind: str, slim: _Slim) -> str:
    """What is counted of kinds that are no failures."""
    if kind == "verdict":
        return slim.verdict.class_ if slim.verdict is not None else ""
    if kind == "decision":
        by = slim.decision.approved_by
        return f"{slim.decision.action}:{by}" if by else slim.decision.action
    if kind == "assessment":
        return slim.decision.action
    if kind == "launch":
        return slim.tier.name
    if kind == "approval_answered":
        return slim.answer
    return slim.rule or "" if kind == "egress_denied" else ""


def _day(at_us: int) -> str:
    return _name_of_day(at_us // 86_400_000_000)


@lru_cache(1024)
def _name_of_day(day: int) -> str:
    try:
        return datetime.fromtimestamp(day * 86_400, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return "unknown"
