"""The append-only log as the pipeline sees it: `append` costs microseconds and never fails.

Events go through a queue to one thread, which stores them in batches. So a run waits for no
disk, and a log that is full, locked or unwritable cannot harm it: what could not be stored is
counted, reported once, and said in the log itself when it works again. A killed process loses
at most the events of the last `BATCH_S`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from sandboxd.events.answers import Verification, Wanted
from sandboxd.events.kinds import Event, EventsLost, StoredEvent, kind_of
from sandboxd.events.segments import KEPT_SEGMENTS, SEGMENT_BYTES

if TYPE_CHECKING:
    from sandboxd.events.store import Pending, Store
    from sandboxd.events.tally import Tally

BATCH_S = 0.05
"""How long the writer gathers before it commits."""
MAX_QUEUED = 10_000
"""Beyond this events are counted as lost instead of filling memory."""
MAX_PAYLOAD = 1024 * 1024
RETRY_S = 1.0
"""How long a log that could not be opened is left alone."""
CLOSE_S = 2.0


class _Barrier:
    """Put in the queue by `flush`: everything before it has been tried."""

    def __init__(self, *, is_last: bool = False) -> None:
        self.is_last = is_last
        self.passed = threading.Event()


class EventLog:
    """An append-only log in SQLite files, opened at the first event.

    It is bounded: a file of `segment_bytes` is followed by the next one, `kept_segments` are kept.

    `on_trouble` is called at most once, from the writer's thread, with one sentence.
    """

    def __init__(
        self,
        path: str,
        *,
        on_trouble: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.time,
        segment_bytes: int = SEGMENT_BYTES,
        kept_segments: int = KEPT_SEGMENTS,
    ) -> None:
        self.path = path
        self._on_trouble = on_trouble
        self._clock = clock
        self._queue: SimpleQueue[Pending | _Barrier] = SimpleQueue()
        self._hurry = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._writer = _Writer(path, self._report, segment_bytes, kept_segments)

    @property
    def lost(self) -> int:
        """How many events could not be stored so far."""
        return self._writer.lost

    def append(self, event: Event) -> None:
        """Take the event for storing and return at once. Never raises for a log in trouble."""
        payload = _encoded(event)
        if self._is_closed or len(payload) > MAX_PAYLOAD or self._queue.qsize() >= MAX_QUEUED:
            self._writer.miss(1, "dropped: the log is closed, too slow, or the event too large")
            return
        at_us = int(self._clock() * 1e6)
        self._queue.put((at_us, kind_of(event), event.session_id, event.run_id, payload))
        if self._thread is None:
            self._start()

    def flush(self, timeout_s: float = CLOSE_S) -> bool:
        """Wait until everything appended so far was tried; False when that took too long."""
        return self._pass(_Barrier(), timeout_s)

    def query(
        self, session_id: str | None = None, run_id: str | None = None, limit: int = 1000
    ) -> list[StoredEvent]:
        """The newest `limit` events of that session and run, oldest first; see `read`."""
        return self.read(Wanted(session_id=session_id, run_id=run_id, limit=limit))

    def read(self, wanted: Wanted) -> list[StoredEvent]:
        """The events that match, oldest first.

        Sees everything appended before. Raises `sqlite3.Error` when the file is no log.
        """
        from sandboxd.events.reading import read_events

        self.flush()
        return read_events(self.path, wanted)

    def verify(self) -> list[str]:
        """Everything wrong with the stored log, a sentence each; empty when it is intact."""
        return list(self.verification().problems)

    def verification(self) -> Verification:
        """The whole log read again and held against its chain."""
        from sandboxd.events.reading import verify

        self.flush()
        return verify(self.path)

    def tally(self, *, session_id: str | None = None, since_day: str | None = None) -> Tally:
        """What has been counted, by day, kind, reason, layer and origin; of one session or of all."""
        from sandboxd.events.reading import tally

        self.flush()
        return tally(self.path, session_id=session_id, since_day=since_day)

    def busiest(self, kinds: tuple[str, ...], most: int, since_day: str | None = None) -> Tally:
        """What has been counted of the sessions with the most events of these kinds."""
        from sandboxd.events.reading import busiest

        self.flush()
        return busiest(self.path, kinds, most, since_day)

    def close(self) -> None:
        """Store what is queued, within `CLOSE_S`, and let the file go. May be called twice."""
        with self._lock:
            self._is_closed = True
        self._pass(_Barrier(is_last=True), CLOSE_S)

    def _pass(self, barrier: _Barrier, timeout_s: float) -> bool:
        thread = self._thread
        if thread is None or not thread.is_alive():
            return True
        self._queue.put(barrier)
        self._hurry.set()
        return barrier.passed.wait(timeout_s)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="sandboxd-events", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        """The writer's thread: wait for an event, gather for `BATCH_S`, store, again."""
        is_last = False
        while not is_last:
            gathered = [self._queue.get()]
            if not isinstance(gathered[0], _Barrier):
                self._hurry.wait(BATCH_S)
            self._hurry.clear()
            gathered += self._waiting()
            self._writer.store([item for item in gathered if not isinstance(item, _Barrier)])
            barriers = [item for item in gathered if isinstance(item, _Barrier)]
            is_last = any(barrier.is_last for barrier in barriers)
            if is_last:
                self._writer.close()
            for barrier in barriers:
                barrier.passed.set()

    def _waiting(self) -> list[Pending | _Barrier]:
        found: list[Pending | _Barrier] = []
        try:
            while True:
                found.append(self._queue.get_nowait())
        except Empty:
            return found

    def _report(self, message: str) -> None:
        with self._lock:
            report, self._on_trouble = self._on_trouble, None
        if report is not None:
            report(message)


class _Writer:
    """The thread's side: owns the store, survives every trouble it has, and counts."""

    def __init__(
        self, path: str, report: Callable[[str], None], segment_bytes: int, kept: int
    ) -> None:
        self._path = path
        self._segment_bytes, self._kept = segment_bytes, kept
        self._report = report
        self._store: Store | None = None
        self._retry_at = 0.0
        self._counting = threading.Lock()
        self._untold = 0
        self._cause = ""
        self.lost = 0

    def store(self, batch: list[Pending]) -> None:
        """Store the batch, or count it as lost."""
        if not batch:
            return
        untold, confession = self._confession()
        try:
            self._opened().append([*confession, *batch])
        except Exception as error:  # whatever it is, a run must not notice
            self.miss(len(batch), str(error))
        else:
            with self._counting:
                self._untold -= untold

    def miss(self, count: int, cause: str) -> None:
        """Count events that are not stored; callable from any thread."""
        with self._counting:
            self.lost += count
            self._untold += count
            self._cause = cause
        self._report(f"events are not being stored in {self._path}: {cause}")

    def close(self) -> None:
        """Let the store go; what is committed stays committed whatever closing says."""
        if self._store is not None:
            store, self._store = self._store, None
            with suppress(Exception):
                store.close()

    def _opened(self) -> Store:
        from sandboxd.events.schema import UnusableLog
        from sandboxd.events.store import Store

        if self._store is not None and not self._store.is_in_place():
            self.close()
        if self._store is None:
            if time.monotonic() < self._retry_at:
                raise UnusableLog(self._cause)
            self._retry_at = time.monotonic() + RETRY_S
            self._store = Store(self._path, segment_bytes=self._segment_bytes, kept=self._kept)
            self._retry_at = 0.0
        return self._store

    def _confession(self) -> tuple[int, list[Pending]]:
        """The event that says how many before it are missing."""
        with self._counting:
            untold, cause = self._untold, self._cause
        if not untold:
            return 0, []
        event = EventsLost(count=untold, cause=cause)
        return untold, [(int(time.time() * 1e6), kind_of(event), None, None, _encoded(event))]


def _encoded(event: Event) -> str:
    """The event as JSON text; broken UTF-8 from a command is written as escapes."""
    try:
        return msgspec.json.encode(event).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_readable(msgspec.to_builtins(event))).decode()


def _readable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_readable(key): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    return value
