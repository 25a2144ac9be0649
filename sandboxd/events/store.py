"""Writing the log: one connection, batches in transactions, segments one after the other.

Apart from `log.py` so that SQLite is imported only when the first event is written; reading is in
`reading.py`.

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
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import msgspec

from sandboxd.events import segments
from sandboxd.events.chain import GENESIS, Row, link
from sandboxd.events.kinds import SegmentBegun, kind_of
from sandboxd.events.schema import COLUMNS, UnusableLog, add_counts, prepare
from sandboxd.events.tally import tally_of

BUSY_MS = 5_000
_MAGIC = b"SQLite format 3\0"
_MAX_MOVES = 8

Pending = tuple[int, str, str | None, str | None, str]
"""at_us, kind, session_id, run_id, payload: a row that has no number yet."""


class Store:
    """The writing side of the log at `base`. Raises `sqlite3.Error`, `OSError` or `UnusableLog`."""

    def __init__(
        self,
        base: str,
        *,
        segment_bytes: int = segments.SEGMENT_BYTES,
        kept: int = segments.KEPT_SEGMENTS,
    ) -> None:
        """Open the newest segment, creating file (0600) and folder (0700) where they are missing."""
        self._base = base
        self._segment_bytes = segment_bytes
        self._kept = max(1, kept)
        self._open(segments.newest(base))

    def _open(self, number: int, origin: tuple[int, bytes] | None = None) -> None:
        self._number = number
        self._path = segments.path_of(self._base, number)
        self._next = segments.path_of(self._base, number + 1)
        self._identity = _claim_file(self._path)
        first_seq, previous = origin or _origin_of(self._base, number)
        self._connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False
        )
        try:
            _configure(self._connection)
            prepare(self._connection, number, first_seq, previous)
            self._page_bytes = int(self._connection.execute("PRAGMA page_size").fetchone()[0])
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
        for _ in range(_MAX_MOVES):
            if self._append_here(batch):
                break
            self._connection.close()
            self._open(segments.newest(self._base))
        else:
            raise UnusableLog("its segments are finished faster than this can follow")
        if self._size() >= self._segment_bytes:
            self._begin_next()

    def _append_here(self, batch: Sequence[Pending]) -> bool:
        """False when another process has begun the next segment: nothing may follow here."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if os.path.exists(self._next):
                self._connection.execute("ROLLBACK")
                return False
            seq, previous = self._end_of_chain()
            self._connection.executemany(
                f"INSERT INTO events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                _chained(seq, previous, batch),
            )
            add_counts(self._connection, tally_of(batch))
            self._connection.execute("COMMIT")
            return True
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself rolls back when the disk is full
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._connection.close()

    def _end_of_chain(self) -> tuple[int, bytes]:
        found = self._connection.execute(_END).fetchone()
        return int(found[0]), bytes(found[1])

    def _size(self) -> int:
        pages = int(self._connection.execute("PRAGMA page_count").fetchone()[0])
        return pages * self._page_bytes

    def _begin_next(self) -> None:
        """Finish this segment and go on in the next one, which says what was let go."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            seq, previous = self._end_of_chain()
            if not os.path.exists(self._next):
                _claim_file(self._next)
                self._connection.execute("UPDATE segment SET sealed_seq = ?", (seq,))
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._connection.close()
        self._open(self._number + 1, (seq + 1, previous))
        self._let_go()

    def _let_go(self) -> None:
        """Say in the chain up to which event the oldest segments go, then remove them."""
        surplus = segments.surplus(self._base, self._kept)
        through = max((_last_seq(segments.path_of(self._base, n)) for n in surplus), default=0)
        event = SegmentBegun(number=self._number, removed_through=through)
        payload = msgspec.json.encode(event).decode()
        self._append_here([(int(time.time() * 1e6), kind_of(event), None, None, payload)])
        for number in surplus:
            segments.remove(self._base, number)


_END = (
    "SELECT seq, hash FROM events UNION ALL"
    " SELECT first_seq - 1, previous_hash FROM segment ORDER BY seq DESC LIMIT 1"
)
"""The end of the chain: the newest row, else where the segment begins."""


def _origin_of(base: str, number: int) -> tuple[int, bytes]:
    """Where a segment that has no tables yet begins: after the end of the one before it."""
    before = segments.path_of(base, number - 1)
    if number == 1 or not os.path.exists(before):
        return 1, GENESIS
    with closing(sqlite3.connect(before, isolation_level=None)) as connection:
        _configure(connection)
        prepare(connection, number - 1)
        seq, previous = connection.execute(_END).fetchone()
    return int(seq) + 1, bytes(previous)


def _last_seq(path: str) -> int:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return int(connection.execute(_END).fetchone()[0])
    except sqlite3.Error:
        return 0


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


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA journal_size_limit = 4194304")


def _chained(
    seq: int, previous: bytes, batch: Sequence[Pending]
) -> Iterator[tuple[int, int, str, str | None, str | None, str, bytes]]:
    for pending in batch:
        seq += 1
        row: Row = (seq, *pending)
        previous = link(previous, row)
        yield (*row, previous)
