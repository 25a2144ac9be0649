"""The SQLite file behind the log: schema, insertion in batches, reading, verification.

Apart from `log.py` so that everything which touches SQLite is in one place and is imported
only when the first event is written. One `Store` is one connection, used by one thread.

Invariants, held by the database itself:
  - rows are never updated or deleted (triggers); `REPLACE` would delete without firing a delete
    trigger (lang_conflict.html), so an insert must carry exactly the next number;
  - numbers have no gaps, and sqlite_sequence remembers the highest, so a cut-off end shows.

Several processes may append: the write lock is taken before the chain's end is read
(`BEGIN IMMEDIATE`). With WAL and `synchronous=NORMAL` a killed process loses nothing that was
committed, and a power cut at most the last commits, never the file (sqlite.org/wal.html).
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing

import msgspec

from sandboxd.events.chain import GENESIS, Row, broken_links, link
from sandboxd.events.kinds import Event, StoredEvent

SCHEMA_VERSION = 1
BUSY_MS = 5_000
_MAGIC = b"SQLite format 3\0"

_SCHEMA = """
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
CREATE TRIGGER events_only_append BEFORE INSERT ON events
    WHEN NEW.seq != (SELECT coalesce(max(seq), 0) + 1 FROM events)
    BEGIN SELECT RAISE(ABORT, 'events are append-only: not the next number'); END;
"""
_TRIGGERS = ("events_never_delete", "events_never_update", "events_only_append")
_COLUMNS = "seq, at_us, kind, session_id, run_id, payload, hash"

Pending = tuple[int, str, str | None, str | None, str]
"""at_us, kind, session_id, run_id, payload: a row that has no number yet."""


class UnusableLog(Exception):
    """The file cannot serve as a log; the message says why."""


class Store:
    """A writing connection. Raises `sqlite3.Error`, `OSError` or `UnusableLog`."""

    def __init__(self, path: str) -> None:
        """Open the log, creating file (0600) and folder (0700) where they are missing."""
        self._path = path
        self._identity = _claim_file(path)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            _prepare(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def is_in_place(self) -> bool:
        """Whether the open file is still the one at the path: not removed, not replaced."""
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def append(self, batch: Sequence[Pending]) -> None:
        """Store the whole batch in one transaction, or raise and store nothing of it."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            seq, previous = self._end_of_chain()
            self._connection.executemany(
                f"INSERT INTO events ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                _chained(seq, previous, batch),
            )
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself rolls back when the disk is full
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._connection.close()

    def _end_of_chain(self) -> tuple[int, bytes]:
        found = self._connection.execute(
            "SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        return found or (0, GENESIS)


def read_events(
    path: str, *, session_id: str | None, run_id: str | None, limit: int
) -> list[StoredEvent]:
    """The newest `limit` matching events, oldest first; none when there is no log yet."""
    if not os.path.exists(path):
        return []
    wanted = {"session_id": session_id, "run_id": run_id}
    given = {column: value for column, value in wanted.items() if value is not None}
    where = " AND ".join(f"{column} = :{column}" for column in given) or "1"
    query = f"SELECT {_COLUMNS} FROM events WHERE {where} ORDER BY seq DESC LIMIT :limit"
    with closing(_reader(path)) as connection:
        rows = connection.execute(query, {**given, "limit": limit}).fetchall()
    return [_stored(*row) for row in reversed(rows)]


def problems(path: str) -> list[str]:
    """Everything wrong with the log at `path`, a sentence each; empty when it is intact."""
    if not os.path.exists(path):
        return []
    try:
        with closing(_reader(path)) as connection:
            return [
                *_wrong_schema(connection),
                *broken_links(_rows(connection)),
                *_cut_off(connection),
            ]
    except (sqlite3.Error, UnusableLog) as error:
        return [f"the log cannot be read: {error}"]


def _claim_file(path: str) -> tuple[int, int]:
    """Make sure the file exists and that nobody else can read it; SQLite's side files inherit.

    Returns its device and inode. Never through a link, which could point the log at another file of the user's.
    """
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnusableLog(f"{path} is not a file")
        if os.read(descriptor, len(_MAGIC)) not in (b"", _MAGIC):  # SQLite overwrites tiny files
            raise UnusableLog(f"{path} is not a log")
        if found.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
        return found.st_dev, found.st_ino
    finally:
        os.close(descriptor)


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA journal_size_limit = 4194304")
    if _version(connection) == 0:
        _create_schema(connection)
    version = _version(connection)
    if version != SCHEMA_VERSION:
        raise UnusableLog(f"its schema version is {version}, this program writes {SCHEMA_VERSION}")


def _create_schema(connection: sqlite3.Connection) -> None:
    """Under the write lock and only if still absent: another process may be first."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection) == 0:
            if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise UnusableLog("the file is another program's database")
            for statement in _statements(_SCHEMA):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """Single statements, because `executescript` commits first and would drop the lock."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if statement.strip() and sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _chained(
    seq: int, previous: bytes, batch: Sequence[Pending]
) -> Iterator[tuple[int, int, str, str | None, str | None, str, bytes]]:
    for pending in batch:
        seq += 1
        row: Row = (seq, *pending)
        previous = link(previous, row)
        yield (*row, previous)


def _reader(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        connection.execute("PRAGMA query_only = ON")
        if _version(connection) > SCHEMA_VERSION:
            raise UnusableLog("it was written by a newer version of sandboxd")
    except BaseException:
        connection.close()
        raise
    return connection


def _stored(
    seq: int,
    at_us: int,
    kind: str,
    session_id: str | None,
    run_id: str | None,
    payload: str,
    digest: bytes,
) -> StoredEvent:
    return StoredEvent(
        seq=seq,
        at=at_us / 1e6,
        kind=kind,
        session_id=session_id,
        run_id=run_id,
        event=_decoded(payload),
        hash=digest.hex(),
    )


def _decoded(payload: str) -> Event | None:
    try:
        return msgspec.json.decode(payload, type=Event)
    except msgspec.MsgspecError:
        return None


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[Row, bytes]]:
    for *row, digest in connection.execute(f"SELECT {_COLUMNS} FROM events ORDER BY seq"):
        seq, at_us, kind, session_id, run_id, payload = row
        yield (seq, at_us, kind, session_id, run_id, payload), digest


def _wrong_schema(connection: sqlite3.Connection) -> Iterator[str]:
    """Triggers that were dropped or rewritten: whoever did that may have changed rows unseen."""
    found = dict(
        connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    )
    written = {name: text for text in _statements(_SCHEMA) for name in _TRIGGERS if name in text}
    for name in _TRIGGERS:
        if name not in found:
            yield f"the trigger {name} is gone"
        elif found[name] != written[name].strip().removesuffix(";"):
            yield f"the trigger {name} was changed"


def _cut_off(connection: sqlite3.Connection) -> Iterator[str]:
    last, highest = connection.execute(
        "SELECT (SELECT coalesce(max(seq), 0) FROM events),"
        " (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events')"
    ).fetchone()
    if last < highest:
        yield f"events {last + 1} to {highest} are missing at the end"
