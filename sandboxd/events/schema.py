"""The tables of one segment of the log, their version, and the way from older versions to it.

Apart from `store.py` because this is the part that may never be changed in place: a change is a new
version and a migration from the one before, so that every log ever written stays readable.

  1  events with three triggers, in one file
  2  `segment` (where in the chain this file begins), `tally` (counts beside the rows), an index

Every index is paid for by every run: only kinds that are rare are indexed (the others are found quickly
anyhow, from the newest back), and a time is found by bisection, because events are in order of time.

`tally` is derived from the rows and outside the chain; `verify` counts again and compares.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from sandboxd.events.chain import GENESIS
from sandboxd.events.tally import Tally, count_row

SCHEMA_VERSION = 2

COLUMNS = "seq, at_us, kind, session_id, run_id, payload, hash"
_EVENTS = """
CREATE TABLE events (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    at_us      INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    session_id TEXT,
    run_id     TEXT,
    payload    TEXT NOT NULL,
    hash       BLOB NOT NULL
);
CREATE INDEX events_by_session ON events (session_id, seq) WHERE session_id IS NOT NULL;
CREATE INDEX events_by_run ON events (run_id, seq) WHERE run_id IS NOT NULL;
CREATE TRIGGER events_never_update BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are append-only: no update'); END;
CREATE TRIGGER events_never_delete BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events are append-only: no delete'); END;
"""
_SEGMENT = """
CREATE TABLE segment (
    only_row      INTEGER PRIMARY KEY CHECK (only_row = 1),
    number        INTEGER NOT NULL,
    first_seq     INTEGER NOT NULL,
    previous_hash BLOB NOT NULL,
    sealed_seq    INTEGER
);
CREATE TABLE tally (
    day TEXT, session_id TEXT, kind TEXT, reason TEXT, layer TEXT, origin TEXT, count INTEGER,
    PRIMARY KEY (session_id, day, kind, reason, layer, origin)
) WITHOUT ROWID;
CREATE INDEX events_rare ON events (kind, seq)
    WHERE kind NOT IN ('verdict', 'assessment', 'decision', 'launch', 'result');
CREATE TRIGGER events_only_append BEFORE INSERT ON events
    WHEN NEW.seq != (SELECT coalesce(max(seq), (SELECT first_seq - 1 FROM segment)) + 1 FROM events)
    BEGIN SELECT RAISE(ABORT, 'events are append-only: not the next number'); END;
CREATE TRIGGER events_sealed BEFORE INSERT ON events
    WHEN (SELECT sealed_seq FROM segment) IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'events are append-only: this segment is sealed'); END;
CREATE TRIGGER segment_never_update BEFORE UPDATE ON segment
    WHEN OLD.sealed_seq IS NOT NULL OR NEW.number != OLD.number
        OR NEW.first_seq != OLD.first_seq OR NEW.previous_hash != OLD.previous_hash
    BEGIN SELECT RAISE(ABORT, 'events are append-only: a segment keeps its place'); END;
CREATE TRIGGER segment_never_delete BEFORE DELETE ON segment
    BEGIN SELECT RAISE(ABORT, 'events are append-only: a segment keeps its place'); END;
"""
COMMON = ("verdict", "assessment", "decision", "launch", "result")
"""Kinds that every run has; not in the index."""
_TRIGGERS = (
    "events_never_delete",
    "events_never_update",
    "events_only_append",
    "events_sealed",
    "segment_never_delete",
    "segment_never_update",
)
_COUNT = (
    "INSERT INTO tally (day, session_id, kind, reason, layer, origin, count)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count"
)


class UnusableLog(Exception):
    """The file cannot serve as a log; the message says why."""


def prepare(
    connection: sqlite3.Connection, number: int, first_seq: int = 1, previous: bytes = GENESIS
) -> None:
    """Make or migrate the tables. A new file becomes segment `number` at that place of the chain.

    Under the write lock, because another process may be first. Raises UnusableLog.
    """
    if version_of(connection) == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = version_of(connection)
        if found == 0:
            _create(connection, number, first_seq, previous)
        elif found == 1:
            _from_version_1(connection)
        elif found != SCHEMA_VERSION:
            raise UnusableLog(
                f"its schema version is {found}, this program writes {SCHEMA_VERSION}"
            )
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _create(connection: sqlite3.Connection, number: int, first_seq: int, previous: bytes) -> None:
    if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise UnusableLog("the file is another program's database")
    _run(connection, _EVENTS + _SEGMENT)
    connection.execute(
        "INSERT INTO segment VALUES (1, ?, ?, ?, NULL)", (number, first_seq, previous)
    )


def _from_version_1(connection: sqlite3.Connection) -> None:
    """Rows stay as they are; what version 1 did not say about failures is inferred for the counts."""
    connection.execute("DROP TRIGGER events_only_append")
    _run(connection, _SEGMENT)
    connection.execute("INSERT INTO segment VALUES (1, 1, 1, ?, NULL)", (GENESIS,))
    add_counts(connection, counted(connection))


def counted(connection: sqlite3.Connection) -> Tally:
    """The counts, made anew from every row."""
    tally: Tally = {}
    answers: dict[str, dict[str, str]] = {}
    rows = connection.execute(
        "SELECT at_us, kind, session_id, run_id, payload FROM events ORDER BY seq"
    )
    for row in rows:
        count_row(tally, row, answers)
    return tally


def add_counts(connection: sqlite3.Connection, tally: Tally) -> None:
    connection.executemany(_COUNT, ((*key, count) for key, count in tally.items()))


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def wrong_triggers(connection: sqlite3.Connection) -> Iterator[str]:
    """Triggers that were dropped or rewritten: whoever did that may have changed rows unseen."""
    found = dict(
        connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    )
    written = {
        name: text
        for text in _statements(_EVENTS + _SEGMENT)
        for name in _TRIGGERS
        if f"CREATE TRIGGER {name} " in text
    }
    for name in _TRIGGERS:
        if name not in found:
            yield f"the trigger {name} is gone"
        elif found[name] != written[name].strip().removesuffix(";"):
            yield f"the trigger {name} was changed"


def _run(connection: sqlite3.Connection, script: str) -> None:
    for statement in _statements(script):
        connection.execute(statement)


def _statements(script: str) -> Iterable[str]:
    """Single statements, because `executescript` commits first and would drop the lock."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if statement.strip() and sqlite3.complete_statement(statement):
            yield statement
            statement = ""
