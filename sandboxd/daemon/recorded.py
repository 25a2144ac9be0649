"""Questions about the event log, answered for the wire: pages and statistics.

Apart from the service because these run in a thread: a log of a million events is read without
keeping anybody's run waiting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

import msgspec
from msgspec import Raw, structs

from sandboxd.assess.replaying import Replayed, replay
from sandboxd.errors import InvalidRequest, SessionUnknown, UnknownProfile
from sandboxd.events.answers import EventEntry, EventPage, Wanted
from sandboxd.events.kinds import KINDS, Event, StoredEvent
from sandboxd.events.replay import RecordedSession, put_together
from sandboxd.events.statistics import CALL_KINDS, MOST_SESSIONS, Statistics, statistics
from sandboxd.events.tally import Tally
from sandboxd.profiles import Profile, load_profile
from sandboxd.protocol import event_messages as em

MOST_EVENTS = 10_000
MOST_BYTES = 8 * 1024 * 1024
"""Of one page, so that it fits into a line with room to spare."""


class Log(Protocol):
    """What is asked of the engine's log here."""

    def read(self, wanted: Wanted) -> list[StoredEvent]: ...

    def tally(self, *, session_id: str | None = None, since_day: str | None = None) -> Tally: ...

    def busiest(self, kinds: tuple[str, ...], most: int, since_day: str | None = None) -> Tally: ...


def page_of(log: Log, params: em.EventQuery) -> EventPage:
    """One page of events. Raises InvalidRequest for a limit or a kind that is none."""
    if not 1 <= params.limit <= MOST_EVENTS:
        raise InvalidRequest(
            f"wrong parameters: `limit` is {params.limit}; 1 to {MOST_EVENTS} are possible",
            hint="ask for more with `after_seq` or `before_seq`",
            data={"parameter": "limit"},
        )
    unknown = [kind for kind in params.kinds if kind not in KINDS]
    if unknown:
        raise InvalidRequest(
            f"wrong parameters: there is no kind of event called {unknown[0]!r}",
            hint="one of " + ", ".join(sorted(KINDS)),
            data={"parameter": "kinds"},
        )
    wanted = Wanted(**structs.asdict(params))
    rows = log.read(structs.replace(wanted, limit=params.limit + 1))
    is_forward = params.after_seq is not None
    kept = list(_fitting(rows if is_forward else rows[::-1], params.limit))
    if not is_forward:
        kept.reverse()
    return EventPage(events=tuple(map(_entry, kept)), has_more=len(kept) < len(rows))


def _fitting(rows: list[StoredEvent], limit: int) -> Iterator[StoredEvent]:
    room = MOST_BYTES
    for number, row in enumerate(rows[:limit]):
        room -= len(row.payload) + 300
        if room < 0 and number:
            return
        yield row


def _entry(row: StoredEvent) -> EventEntry:
    return EventEntry(
        seq=row.seq,
        at=row.at,
        kind=row.kind,
        session_id=row.session_id,
        run_id=row.run_id,
        event=_json(row.payload),
        hash=row.hash,
    )


def _json(payload: str) -> Raw:
    """The payload as it is; one that somebody damaged as a JSON string, so that the line stays whole."""
    data = payload.encode("utf-8", "replace")
    try:
        if b"\n" not in data:
            return msgspec.json.decode(data, type=Raw)
    except msgspec.DecodeError:
        pass
    return Raw(msgspec.json.encode(data.decode()))


def replayed(log: Log, params: em.EventReplay) -> Replayed:
    """The session judged again. Raises SessionUnknown, UnknownProfile, ProfileBroken."""
    recorded = put_together(params.session_id, _events_of(log, params.session_id))
    if not recorded.calls and not recorded.skipped:
        raise SessionUnknown(
            f"the event log knows no call of a session {params.session_id!r}",
            hint="`sandboxd stats` lists sessions; older ones may have been let go",
        )
    profile = None if params.recorded else _profile_of(recorded, params.profile)
    return replay(recorded, profile, params.rules)


def _profile_of(recorded: RecordedSession, named: str | None) -> Profile | None:
    """The profile as it is today; None when the recorded one is no more."""
    if named is not None:
        return load_profile(named)
    try:
        return load_profile(recorded.profile)
    except UnknownProfile:
        return None


def _events_of(log: Log, session_id: str) -> Iterator[tuple[int, Event]]:
    after = 0
    while rows := log.read(Wanted(session_id=session_id, after_seq=after, limit=MOST_EVENTS)):
        for row in rows:
            event = row.event
            if event is not None:
                yield row.seq, event
        after = rows[-1].seq


def statistics_of(log: Log, params: em.StatsQuery) -> Statistics:
    """Raises InvalidRequest for a day that is none."""
    if params.since_day is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", params.since_day):
        raise InvalidRequest(
            f"wrong parameters: `since_day` is {params.since_day!r}",
            hint="write the day as YYYY-MM-DD",
            data={"parameter": "since_day"},
        )
    counts = log.tally(session_id=params.session_id, since_day=params.since_day)
    if params.session_id is not None:
        return statistics(counts)
    return statistics(counts, log.busiest(CALL_KINDS, MOST_SESSIONS, params.since_day))
