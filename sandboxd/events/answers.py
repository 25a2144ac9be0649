"""What questions to the log are answered with, also on the wire; no SQLite here.

A module of its own because the protocol's table names these types, and whoever reads them need not
load what makes them.
"""

from __future__ import annotations

from msgspec import Raw, Struct


class Wanted(Struct, frozen=True, kw_only=True):
    """Which events; what is None or empty does not restrict."""

    session_id: str | None = None
    run_id: str | None = None
    kinds: tuple[str, ...] = ()
    since: float | None = None
    """Seconds since the epoch; events at or after it."""
    until: float | None = None
    after_seq: int | None = None
    """Only events behind this number, the oldest of them first in line."""
    before_seq: int | None = None
    limit: int = 1000


class EventEntry(Struct, frozen=True, kw_only=True):
    """An event as the log holds it."""

    seq: int
    """1, 2, 3, ... without gaps over the whole log."""
    at: float
    """Seconds since the epoch."""
    kind: str
    session_id: str | None
    run_id: str | None
    event: Raw
    """The event itself, the bytes that `hash` covers."""
    hash: str
    """sha256(hash before it + JSON of [seq, at in microseconds, kind, session_id, run_id, event as text])."""


class EventPage(Struct, frozen=True, kw_only=True):
    """Events, oldest first."""

    events: tuple[EventEntry, ...]
    has_more: bool
    """There are more in the direction that was asked for."""


class Verification(Struct, frozen=True, kw_only=True):
    """What reading the whole log again has found."""

    problems: tuple[str, ...]
    """Everything wrong, a sentence each; empty when the log is intact."""
    segments: int = 0
    events: int = 0
    first_seq: int | None = None
    """Over 1 when the oldest segments were let go."""
    last_seq: int | None = None
    last_hash: str | None = None
    """Keep it elsewhere: a log that was computed anew cannot end in it."""
