"""A bounded log: files follow each other, the chain goes on, and what is let go is said."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sandboxd.events import segments
from sandboxd.events.answers import Wanted
from sandboxd.events.chain import GENESIS, link
from sandboxd.events.kinds import Event, SegmentBegun, kind_of
from sandboxd.events.log import EventLog, _encoded
from tests.events.samples import one_run, opened, refused


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "events.db")


def small(path: str, kept: int = 100) -> EventLog:
    return EventLog(path, segment_bytes=128 * 1024, kept_segments=kept)


def fill(log: EventLog, count: int, name: str = "s") -> None:
    for number in range(count):
        log.append(refused(name, f"r{number}"))
        if number % 50 == 49:
            assert log.flush(30)
    assert log.flush(30)


def test_full_file_is_followed_by_the_next_and_the_chain_goes_on(path: str) -> None:
    log = small(path)
    fill(log, 1200)
    assert len(segments.paths(path)) > 3
    found = log.verification()
    assert (found.problems, found.segments) == ((), len(segments.paths(path)))
    rows = log.read(Wanted(limit=10_000))
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert [row.run_id for row in rows if row.kind == "refusal"] == [f"r{n}" for n in range(1200)]
    assert found.last_hash == rows[-1].hash
    log.close()


def test_oldest_files_are_let_go_and_that_is_no_tampering(path: str) -> None:
    log = small(path, kept=2)
    fill(log, 2000)
    log.close()
    assert segments.numbers(path)[-1] > 4
    assert len(segments.numbers(path)) == 2
    size = sum(os.path.getsize(name) for name in segments.paths(path))
    assert size < 2 * 2 * 128 * 1024
    found = log.verification()
    assert found.problems == ()
    assert found.first_seq is not None
    assert found.first_seq > 1
    begun = [row.event for row in log.read(Wanted(kinds=("segment_begun",)))]
    assert isinstance(begun[-1], SegmentBegun)
    assert begun[-1].removed_through == found.first_seq - 1


@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_file_that_somebody_removed_is_missed(path: str, which: str) -> None:
    log = small(path)
    fill(log, 1200)
    log.close()
    found = segments.numbers(path)
    number = {"first": found[0], "middle": found[1], "last": found[-1]}[which]
    segments.remove(path, number)
    assert len(EventLog(path).verify()) == 1


def test_finished_file_takes_no_more_rows(path: str) -> None:
    log = small(path)
    fill(log, 600)
    log.close()
    connection = sqlite3.connect(path)
    last = connection.execute("SELECT max(seq) FROM events").fetchone()[0]
    with pytest.raises(sqlite3.IntegrityError, match="sealed"):
        connection.execute(
            "INSERT INTO events VALUES (?, 0, 'k', NULL, NULL, '{}', x'00')", (last + 1,)
        )
    with pytest.raises(sqlite3.IntegrityError, match="keeps its place"):
        connection.execute("UPDATE segment SET sealed_seq = NULL")
    connection.close()


def test_writers_that_share_a_log_change_files_together(path: str) -> None:
    script = """
        import sys
        from sandboxd.events.log import EventLog
        from tests.events.samples import refused
        log = EventLog(sys.argv[1], segment_bytes=128 * 1024, kept_segments=100)
        for number in range(800):
            log.append(refused(sys.argv[2], f"r{number}"))
            if number % 20 == 0:
                log.flush(60)
        log.close()
        assert log.lost == 0, log.lost
    """
    writers = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), path, name])
        for name in ("a", "b")
    ]
    assert [writer.wait(100) for writer in writers] == [0, 0]
    log = EventLog(path)
    assert len(segments.numbers(path)) > 3
    assert log.verify() == []
    for name in ("a", "b"):
        rows = log.read(Wanted(session_id=name, limit=5000))
        assert [row.run_id for row in rows] == [f"r{number}" for number in range(800)]


def test_crash_between_two_files_is_mended_by_the_next_writer(path: str) -> None:
    """The next file was claimed, and nothing more happened."""
    log = small(path)
    fill(log, 20)
    log.close()
    Path(segments.path_of(path, 2)).touch(mode=0o600)
    assert EventLog(path).verify() == []
    later = small(path)
    later.append(opened("after"))
    assert later.flush()
    assert later.verify() == []
    assert [row.seq for row in later.read(Wanted(after_seq=19))] == [20, 21]
    later.close()


# ------------------------------------------------------------------ questions


def test_pages_go_forward_over_files_without_gap_or_repetition(path: str) -> None:
    log = small(path)
    fill(log, 1000)
    seen: list[int] = []
    while page := log.read(Wanted(after_seq=seen[-1] if seen else 0, limit=77)):
        seen += [row.seq for row in page]
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) > 1000
    log.close()


def test_filters_can_be_put_together(path: str) -> None:
    now = [1000.0]
    log = EventLog(path, clock=lambda: now[0])
    for number in range(6):
        now[0] = 1000.0 + number
        for event in one_run(f"s{number % 2}", f"r{number}"):
            log.append(event)
    wanted = Wanted(session_id="s1", kinds=("verdict", "result"), since=1002, until=1005)
    assert [(row.run_id, row.kind) for row in log.read(wanted)] == [
        ("r3", "verdict"),
        ("r3", "result"),
    ]
    assert [row.seq for row in log.read(Wanted(before_seq=5, limit=2))] == [3, 4]
    log.close()


# ------------------------------------------------------------------ version 1


def make_version_1(path: str, events: list[Event]) -> None:
    """A log as version 1 wrote it: its own schema, word for word."""
    connection = sqlite3.connect(path)
    connection.executescript(
        """
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
PRAGMA user_version = 1;
"""
    )
    previous = GENESIS
    for seq, event in enumerate(events, 1):
        row = (seq, 0, kind_of(event), event.session_id, event.run_id, _encoded(event))
        previous = link(previous, row)
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, previous))
    connection.commit()
    connection.close()


def test_log_of_version_1_is_read_as_it_is_and_migrated_by_the_next_event(path: str) -> None:
    make_version_1(path, [*one_run("s", "r1"), refused("s", "r2")])
    log = EventLog(path)
    assert log.verify() == []
    assert len(log.query()) == 5
    before = log.tally()
    log.append(opened("later"))
    assert log.flush()
    assert log.verify() == []
    assert [row.seq for row in log.query()] == [1, 2, 3, 4, 5, 6]
    assert {key: n for key, n in log.tally().items() if key[2] != "session_opened"} == before
    log.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_counts_that_somebody_changed_are_found(path: str) -> None:
    log = EventLog(path)
    fill(log, 5)
    log.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE tally SET count = 4")
    assert EventLog(path).verify() == ["the counts beside the events do not agree with them"]
