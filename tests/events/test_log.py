"""The log as the pipeline uses it, on real SQLite files."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.events import log as log_module
from sandboxd.events.kinds import Event, EventsLost, VerdictGiven
from sandboxd.events.log import EventLog
from tests.events.samples import VERDICT, one_of_each, one_run, opened, refused


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "events.sqlite")


@pytest.fixture
def log(path: str) -> Iterator[EventLog]:
    log = EventLog(path)
    yield log
    log.close()


def test_events_come_back_in_order_with_number_time_and_owner(path: str) -> None:
    log = EventLog(path, clock=lambda: 1234.5)
    for event in one_of_each():
        log.append(event)
    stored = log.query()
    log.close()
    assert [row.event for row in stored] == one_of_each()
    assert [row.seq for row in stored] == list(range(1, len(stored) + 1))
    assert {row.at for row in stored} == {1234.5}
    assert (stored[1].kind, stored[1].session_id, stored[1].run_id) == ("verdict", "s1", "r1")
    assert len({row.hash for row in stored}) == len(stored)


def test_query_takes_session_and_run_and_keeps_the_newest(log: EventLog) -> None:
    for number in range(5):
        for event in one_run(f"s{number % 2}", f"r{number}"):
            log.append(event)
    assert {row.run_id for row in log.query(session_id="s1")} == {"r1", "r3"}
    assert len(log.query(run_id="r2")) == 4
    assert log.query(session_id="s1", run_id="r2") == []
    assert [row.seq for row in log.query(limit=3)] == [18, 19, 20]


def test_nothing_is_created_before_the_first_event(log: EventLog, path: str) -> None:
    assert log.query() == []
    assert log.verify() == []
    assert not os.path.exists(os.path.dirname(path))


def test_file_and_its_side_files_are_the_users_alone(log: EventLog, path: str) -> None:
    old = os.umask(0)
    try:
        log.append(opened("s"))
        assert log.flush()
    finally:
        os.umask(old)
    folder = Path(path).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert "events.sqlite-wal" in modes
    assert set(modes.values()) == {0o600}


def test_file_that_others_could_read_is_closed_to_them(path: str) -> None:
    os.makedirs(os.path.dirname(path))
    Path(path).touch(mode=0o644)
    log = EventLog(path)
    log.append(opened("s"))
    log.close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_closed_log_is_complete_in_one_file(path: str) -> None:
    log = EventLog(path)
    for number in range(500):
        log.append(refused("s", f"r{number}"))
    log.close()
    log.close()
    assert os.listdir(os.path.dirname(path)) == ["events.sqlite"]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (500,)


def test_log_goes_on_where_an_earlier_one_ended(path: str) -> None:
    for number in range(3):
        log = EventLog(path)
        log.append(refused("s", f"r{number}"))
        log.close()
    log = EventLog(path)
    assert [row.seq for row in log.query()] == [1, 2, 3]
    assert log.verify() == []


def test_appending_threads_lose_nothing(log: EventLog) -> None:
    def work(name: str) -> None:
        for number in range(300):
            log.append(refused(name, f"r{number}"))

    threads = [threading.Thread(target=work, args=(f"s{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        rows = log.query(session_id=f"s{number}")
        assert [row.run_id for row in rows] == [f"r{n}" for n in range(300)]
    assert log.lost == 0
    assert log.verify() == []


def test_command_that_is_not_utf8_is_kept_as_escapes(log: EventLog) -> None:
    text = b"cat \xff\xfe".decode("utf-8", "surrogateescape")
    log.append(VerdictGiven.of("s", "r", command=text, cwd="/w", verdict=VERDICT))
    event = log.query()[0].event
    assert isinstance(event, VerdictGiven)
    assert event.command == "cat \\udcff\\udcfe"
    assert log.verify() == []


def test_append_costs_far_less_than_a_run(log: EventLog) -> None:
    """A run is about 4 ms and four events; 5 % of it is 200 us. The bound leaves room for noise."""
    events = one_run("s", "r")
    log.append(opened("s"))
    log.flush()
    best = min(_seconds_for(log, events, 100) for _ in range(5))
    assert best < 200e-6
    assert log.lost == 0


def _seconds_for(log: EventLog, events: list[Event], runs: int) -> float:
    started = time.perf_counter()
    for _ in range(runs):
        for event in events:
            log.append(event)
    spent = time.perf_counter() - started
    log.flush()
    return spent / runs


# ------------------------------------------------------------------ trouble never reaches a run


def test_unwritable_place_is_counted_and_reported_once() -> None:
    reports: list[str] = []
    log = EventLog("/dev/null/state/events.sqlite", on_trouble=reports.append)
    for number in range(3):
        log.append(refused("s", f"r{number}"))
        log.flush()
    log.close()
    assert log.lost == 3
    assert len(reports) == 1
    assert "/dev/null/state/events.sqlite" in reports[0]


@pytest.mark.parametrize("content", [b"this is no database, it is a letter\n" * 40, b"x"])
def test_foreign_file_is_left_as_it_is(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path))
    Path(path).write_bytes(content)
    reports: list[str] = []
    log = EventLog(path, on_trouble=reports.append)
    log.append(opened("s"))
    log.close()
    assert Path(path).read_bytes() == content
    assert (log.lost, len(reports)) == (1, 1)
    assert len(log.verify()) == 1


def test_database_of_another_program_is_left_as_it_is(path: str) -> None:
    os.makedirs(os.path.dirname(path))
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE events (name TEXT)")
    log = EventLog(path)
    log.append(opened("s"))
    log.close()
    assert log.lost == 1
    with sqlite3.connect(path) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert tables == [("events",)]


def test_link_at_the_logs_place_is_not_followed(path: str, tmp_path: Path) -> None:
    os.makedirs(os.path.dirname(path))
    target = tmp_path / "precious"
    target.write_bytes(b"")
    os.symlink(target, path)
    log = EventLog(path)
    log.append(opened("s"))
    log.close()
    assert (log.lost, target.read_bytes()) == (1, b"")


def test_fifo_at_the_logs_place_does_not_hang(path: str) -> None:
    os.makedirs(os.path.dirname(path))
    os.mkfifo(path)
    log = EventLog(path)
    log.append(opened("s"))
    assert log.flush()
    assert log.lost == 1


def test_log_of_a_newer_version_is_not_written(path: str) -> None:
    log = EventLog(path)
    log.append(opened("s"))
    log.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    later = EventLog(path)
    later.append(opened("s"))
    assert later.flush()
    assert later.lost == 1
    assert later.verify() == [
        "the log cannot be read: it was written by a newer version of sandboxd"
    ]


def test_full_disk_loses_events_and_harms_nothing(path: str) -> None:
    """RLIMIT_FSIZE makes write(2) fail in the middle of the log as a full disk does."""
    script = """
        import resource, signal, sys
        from sandboxd.events.log import EventLog
        from tests.events.samples import refused
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        reports = []
        log = EventLog(sys.argv[1], on_trouble=reports.append)
        log.append(refused("s", "first"))
        assert log.flush()
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (240_000, hard))
        for number in range(2000):
            log.append(refused("full", f"r{number}"))
            if number % 100 == 99:
                log.flush()
        lost = log.lost
        assert 0 < lost < 2000, lost
        assert len(reports) == 1, reports
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        log.append(refused("s", "after"))
        log.close()
        assert log.lost == lost
        print(lost)
    """
    done = _python(script, path)
    lost = int(done.stdout)
    log = EventLog(path)
    assert log.verify() == []
    rows = log.query(limit=5000)
    kept = [row for row in rows if row.session_id == "full"]
    assert len(kept) == 2000 - lost
    assert rows[-1].run_id == "after"
    told = rows[-2].event
    assert isinstance(told, EventsLost)
    assert told.count == lost


def test_removed_log_is_begun_anew(log: EventLog, path: str) -> None:
    log.append(opened("before"))
    assert log.flush()
    shutil.rmtree(os.path.dirname(path))
    log.append(opened("after"))
    assert [row.session_id for row in log.query()] == ["after"]
    assert log.lost == 0


def test_locked_log_holds_up_nobody(log: EventLog, path: str) -> None:
    log.append(opened("s"))
    assert log.flush()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    started = time.perf_counter()
    for number in range(100):
        log.append(refused("s", f"r{number}"))
    assert time.perf_counter() - started < 1
    assert not log.flush(timeout_s=0.2)
    holder.execute("COMMIT")
    holder.close()
    assert len(log.query()) == 101
    assert log.lost == 0


def test_flood_beyond_the_queue_is_counted(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MAX_QUEUED", 10)
    for number in range(300):
        log.append(refused("s", f"r{number}"))
    log.flush()
    log.append(opened("s"))
    rows = log.query(limit=1000)
    told = [row.event for row in rows if isinstance(row.event, EventsLost)]
    assert log.lost > 0
    assert sum(event.count for event in told) == log.lost
    assert len(rows) - len(told) + log.lost == 301


def test_event_after_closing_is_counted_not_raised(log: EventLog) -> None:
    log.close()
    log.append(opened("s"))
    assert log.lost == 1


# ------------------------------------------------------------------ several processes, kill -9


def test_two_processes_share_one_unbroken_chain(path: str) -> None:
    script = """
        import sys
        from sandboxd.events.log import EventLog
        from tests.events.samples import refused
        log = EventLog(sys.argv[1])
        for number in range(400):
            log.append(refused(sys.argv[2], f"r{number}"))
            if number % 7 == 0:
                log.flush(60)
        log.flush(60)
        log.close()
        assert log.lost == 0, log.lost
    """
    writers = [_start(script, path, name) for name in ("a", "b")]
    for writer in writers:
        _, complaint = writer.communicate(timeout=100)
        assert writer.returncode == 0, complaint
    log = EventLog(path)
    assert log.verify() == []
    for name in ("a", "b"):
        assert [row.run_id for row in log.query(session_id=name)] == [
            f"r{number}" for number in range(400)
        ]


def test_killed_writer_loses_nothing_that_was_committed(path: str) -> None:
    script = """
        import sys
        from sandboxd.events.log import EventLog
        from tests.events.samples import refused
        log = EventLog(sys.argv[1])
        for number in range(1_000_000):
            log.append(refused("s", f"r{number}"))
            if number % 10 == 0:
                assert log.flush(60)
                print(number, flush=True)
    """
    writer = _start(script, path)
    assert writer.stdout is not None
    committed = -1
    while committed < 1000:
        committed = int(writer.stdout.readline())
    writer.kill()
    rest, _ = writer.communicate()
    committed = max([committed, *map(int, rest.split())])
    log = EventLog(path)
    assert log.verify() == []
    names = [row.run_id for row in log.query(limit=1_000_000)]
    assert names == [f"r{number}" for number in range(len(names))]
    assert len(names) > committed
    log.append(opened("next"))
    assert log.verify() == []
    log.close()


def _start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    process = _start(script, *arguments)
    out, complaint = process.communicate(timeout=100)
    assert process.returncode == 0, complaint
    return subprocess.CompletedProcess(process.args, 0, out, complaint)
