"""Reading the log: pages of events, verification over all segments, counts.

Apart from `store.py` because reading never writes: connections are `query_only`, a log that is not
there is an empty one, and a row that this version does not understand is still handed on as JSON.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing

import msgspec

from sandboxd.events import segments
from sandboxd.events.answers import Verification, Wanted
from sandboxd.events.chain import GENESIS, Row, broken_links
from sandboxd.events.kinds import SegmentBegun, StoredEvent
from sandboxd.events.schema import (
    COLUMNS,
    COMMON,
    SCHEMA_VERSION,
    counted,
    version_of,
    wrong_triggers,
)
from sandboxd.events.schema import UnusableLog as UnusableLog
from sandboxd.events.store import BUSY_MS
from sandboxd.events.tally import Key, Tally

DISORDER_US = 120_000_000
"""How far the times of processes that share a log are believed to be out of order."""


def read_events(base: str, wanted: Wanted) -> list[StoredEvent]:
    """The events that match, oldest first: the first `limit` behind `after_seq` when that is given,
    else the newest `limit`."""
    is_forward = wanted.after_seq is not None
    files = segments.paths(base)
    rows: list[tuple[object, ...]] = []
    for path in files if is_forward else reversed(files):
        left = wanted.limit - len(rows)
        if left <= 0:
            break
        order = "ASC" if is_forward else "DESC"
        with closing(_reader(path)) as connection:
            if not version_of(connection):
                continue  # it was claimed just now and has no tables
            where, values = _condition(wanted, connection)
            query = f"SELECT {COLUMNS} FROM events WHERE {where} ORDER BY seq {order} LIMIT ?"
            rows += connection.execute(query, (*values, left)).fetchall()
    return [_stored(row) for row in (rows if is_forward else reversed(rows))]


def _condition(wanted: Wanted, connection: sqlite3.Connection) -> tuple[str, tuple[object, ...]]:
    terms: list[tuple[str, object]] = []
    if wanted.session_id is not None:
        terms.append(("session_id = ?", wanted.session_id))
    if wanted.run_id is not None:
        terms.append(("run_id = ?", wanted.run_id))
    if wanted.since is not None:
        at_us = int(wanted.since * 1e6)
        terms.append(("at_us >= ?", at_us))
        terms.append(("seq >= ?", _first_at(connection, at_us - DISORDER_US)))
    if wanted.until is not None:
        at_us = int(wanted.until * 1e6)
        terms.append(("at_us < ?", at_us))
        terms.append(("seq <= ?", _first_at(connection, at_us + DISORDER_US)))
    if wanted.after_seq is not None:
        terms.append(("seq > ?", wanted.after_seq))
    if wanted.before_seq is not None:
        terms.append(("seq < ?", wanted.before_seq))
    words = [text for text, _ in terms]
    if wanted.kinds:
        words.append(f"kind IN ({', '.join('?' * len(wanted.kinds))})")
        if not set(wanted.kinds) & set(COMMON) and wanted.session_id is wanted.run_id is None:
            words.append(f"kind NOT IN ({', '.join(map(repr, COMMON))})")  # lets the index be used
    return " AND ".join(words) or "1", (*(value for _, value in terms), *wanted.kinds)


def _first_at(connection: sqlite3.Connection, at_us: int) -> int:
    """The number from which on events are not older than that, by bisection; one past the last when
    all are."""
    low, high = connection.execute("SELECT min(seq), max(seq) + 1 FROM events").fetchone()
    if low is None:
        return 0
    while low < high:
        middle = (low + high) // 2
        row = connection.execute("SELECT at_us FROM events WHERE seq >= ? LIMIT 1", (middle,))
        if row.fetchone()[0] < at_us:
            low = middle + 1
        else:
            high = middle
    return int(low)


def tally(base: str, *, session_id: str | None = None, since_day: str | None = None) -> Tally:
    """The counts of all segments, added up: of one session, or of all together (no session in the
    keys then: adding up is SQLite's work, whatever the number of sessions)."""
    total: Tally = {}
    for path in segments.paths(base):
        with closing(_reader(path)) as connection:
            is_one = session_id is not None or version_of(connection) < 2
            counts = (
                _counts(connection, session_id, since_day)
                if is_one
                else _sums(connection, since_day)
            )
            for key, count in counts:
                key = (key[0], session_id or "", *key[2:])
                total[key] = total.get(key, 0) + count
    return total


def busiest(base: str, kinds: tuple[str, ...], most: int, since_day: str | None = None) -> Tally:
    """The counts of the sessions that have the most events of these kinds; no day in the keys."""
    marks, day = ", ".join("?" * len(kinds)), since_day or ""
    totals: Counter[str] = Counter()
    files = segments.paths(base)
    for path in files:
        with closing(_reader(path)) as connection:
            if version_of(connection) >= 2:
                query = (
                    f"SELECT session_id, SUM(count) FROM tally WHERE kind IN ({marks}) AND day >= ?"
                    " GROUP BY session_id"
                )
                totals.update(dict(connection.execute(query, (*kinds, day)).fetchall()))
    chosen = [name for name, _ in totals.most_common(most)]
    found: Tally = {}
    for path in files:
        with closing(_reader(path)) as connection:
            for name in chosen if version_of(connection) >= 2 else ():
                for key, count in _counts(connection, name, since_day):
                    key = ("", *key[1:])
                    found[key] = found.get(key, 0) + count
    return found


def _sums(connection: sqlite3.Connection, since_day: str | None) -> Iterable[tuple[Key, int]]:
    rows = connection.execute(
        "SELECT day, '', kind, reason, layer, origin, SUM(count) FROM tally WHERE day >= ?"
        " GROUP BY day, kind, reason, layer, origin",
        (since_day or "",),
    )
    return [((row[0], row[1], row[2], row[3], row[4], row[5]), int(row[6])) for row in rows]


def _counts(
    connection: sqlite3.Connection, session_id: str | None, since_day: str | None
) -> Iterable[tuple[Key, int]]:
    if version_of(connection) == 0:
        return []
    if version_of(connection) == 1:  # nobody has written since: it is migrated by the next event
        found = counted(connection).items()
        return [
            (key, count)
            for key, count in found
            if session_id in (None, key[1]) and (since_day is None or key[0] >= since_day)
        ]
    terms = {"session_id = ?": session_id, "day >= ?": since_day}
    given = {text: value for text, value in terms.items() if value is not None}
    where = " AND ".join(given) or "1"
    rows = connection.execute(
        f"SELECT day, session_id, kind, reason, layer, origin, count FROM tally WHERE {where}",
        tuple(given.values()),
    )
    return [((row[0], row[1], row[2], row[3], row[4], row[5]), int(row[6])) for row in rows]


# --------------------------------------------------------------------------- verification


class _Walk:
    """Where the chain stands between two segments."""

    def __init__(self) -> None:
        self.previous = GENESIS
        self.expected = 1
        self.sealed_seq: int | None = None
        self.first_seq: int | None = None
        self.events = 0
        self.removed_through = 0


def verify(base: str) -> Verification:
    """Read every row of every segment and hold it against chain, triggers, counts and segments."""
    walk = _Walk()
    files = segments.paths(base)
    problems: list[str] = []
    for index, path in enumerate(files):
        try:
            if not os.path.getsize(path):
                continue  # claimed, nothing written yet
            with closing(_reader(path)) as connection:
                problems += _segment_problems(connection, walk, is_oldest=index == 0)
        except (OSError, sqlite3.Error, UnusableLog) as error:
            problems.append(f"the log cannot be read: {error}")
    if walk.sealed_seq is not None:
        problems.append(f"the segment behind event {walk.sealed_seq} is missing")
    if walk.first_seq is not None and walk.first_seq > max(1, walk.removed_through + 1):
        gone = f"events {walk.removed_through + 1} to {walk.first_seq - 1}"
        problems.append(f"{gone} are missing: their segments were not let go by rotation")
    return Verification(
        problems=tuple(problems),
        segments=len(files),
        events=walk.events,
        first_seq=walk.first_seq,
        last_seq=walk.expected - 1 if walk.events else None,
        last_hash=walk.previous.hex() if walk.events else None,
    )


def _segment_problems(connection: sqlite3.Connection, walk: _Walk, *, is_oldest: bool) -> list[str]:
    if version_of(connection) == 0:
        raise UnusableLog("it is not a log of sandboxd")
    first_seq, previous, sealed_seq = _place(connection)
    found: list[str] = []
    if is_oldest:
        walk.first_seq, walk.expected, walk.previous = first_seq, first_seq, previous
    elif (first_seq, previous) != (walk.expected, walk.previous):
        found.append(f"the segment that begins with event {first_seq} does not continue the chain")
        walk.expected, walk.previous = first_seq, previous
    if version_of(connection) >= 2:
        found += wrong_triggers(connection)
    found += broken_links(_rows(connection, walk), walk.previous, walk.expected)
    last = _advance(connection, walk)
    found += _cut_off(connection, last, sealed_seq)
    walk.sealed_seq = sealed_seq
    if not found and version_of(connection) >= 2:
        found += _wrong_counts(connection)
    return found


def _place(connection: sqlite3.Connection) -> tuple[int, bytes, int | None]:
    if version_of(connection) < 2:
        return 1, GENESIS, None
    row = connection.execute("SELECT first_seq, previous_hash, sealed_seq FROM segment").fetchone()
    if row is None:
        raise UnusableLog("a segment does not say where it begins")
    return int(row[0]), bytes(row[1]), row[2]


def _rows(connection: sqlite3.Connection, walk: _Walk) -> Iterator[tuple[Row, bytes]]:
    for *row, digest in connection.execute(f"SELECT {COLUMNS} FROM events ORDER BY seq"):
        seq, at_us, kind, session_id, run_id, payload = row
        walk.events += 1
        if kind == "segment_begun":
            walk.removed_through = max(walk.removed_through, _removed_through(payload))
        yield (seq, at_us, kind, session_id, run_id, payload), digest


def _removed_through(payload: str) -> int:
    try:
        return msgspec.json.decode(payload, type=SegmentBegun).removed_through
    except msgspec.MsgspecError:
        return 0


def _advance(connection: sqlite3.Connection, walk: _Walk) -> int:
    row = connection.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    if row is not None:
        walk.expected, walk.previous = int(row[0]) + 1, bytes(row[1])
    return walk.expected - 1


def _cut_off(connection: sqlite3.Connection, last: int, sealed_seq: int | None) -> Iterator[str]:
    highest = connection.execute(
        "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'"
    ).fetchone()[0]
    highest = max(highest, sealed_seq or 0)
    if last < highest:
        yield f"events {last + 1} to {highest} are missing at the end"


def _wrong_counts(connection: sqlite3.Connection) -> Iterator[str]:
    if dict(_counts(connection, None, None)) != counted(connection):
        yield "the counts beside the events do not agree with them"


# --------------------------------------------------------------------------- rows


def _reader(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        connection.execute("PRAGMA query_only = ON")
        if version_of(connection) > SCHEMA_VERSION:
            raise UnusableLog("it was written by a newer version of sandboxd")
    except BaseException:
        connection.close()
        raise
    return connection


def _stored(row: tuple[object, ...]) -> StoredEvent:
    seq, at_us, kind, session_id, run_id, payload, digest = row
    text = str(payload)
    return StoredEvent(
        seq=int(str(seq)),
        at=int(str(at_us)) / 1e6,
        kind=str(kind),
        session_id=None if session_id is None else str(session_id),
        run_id=None if run_id is None else str(run_id),
        hash=digest.hex() if isinstance(digest, bytes) else "",
        payload=text,
    )
