"""The stored log refuses to be changed, and shows it when it was changed all the same."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sandboxd.events.log import EventLog
from tests.events.samples import one_run, refused

_ROW = "(seq, at_us, kind, session_id, run_id, payload, hash)"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A closed log of ten events."""
    place = str(tmp_path / "events.sqlite")
    log = EventLog(place)
    for event in [*one_run("s", "r1"), *one_run("s", "r2"), refused("s", "r3"), refused("t", "r4")]:
        log.append(event)
    log.close()
    assert EventLog(place).verify() == []
    return place


def edit(path: str, *statements: str, lift: str = "") -> None:
    """Change the log as somebody with sqlite3 at hand would; `lift` is a trigger to put back."""
    connection = sqlite3.connect(path)
    trigger = ""
    if lift:
        found = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (lift,))
        trigger = found.fetchone()[0]
        connection.execute(f"DROP TRIGGER {lift}")
    for statement in statements:
        connection.execute(statement)
    if trigger:
        connection.execute(trigger)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET payload = '{}' WHERE seq = 3",
        "UPDATE OR REPLACE events SET seq = 2 WHERE seq = 3",
        "DELETE FROM events WHERE seq = 10",
        "DELETE FROM events",
        f"REPLACE INTO events {_ROW} VALUES (3, 0, 'k', 's', 'r', '[]', x'00')",
        f"INSERT OR REPLACE INTO events {_ROW} VALUES (10, 0, 'k', 's', 'r', '[]', x'00')",
        f"INSERT INTO events {_ROW} VALUES (99, 0, 'k', 's', 'r', '[]', x'00')",
        f"INSERT INTO events {_ROW} VALUES (NULL, 0, 'k', 's', 'r', '[]', x'00')",
    ],
)
def test_database_refuses_everything_but_the_next_row(path: str, statement: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        edit(path, statement)
    assert EventLog(path).verify() == []


@pytest.mark.parametrize(
    "change",
    [
        "payload = replace(payload, 'ls -l', 'ls -a')",
        "at_us = at_us + 1",
        "kind = 'decision'",
        "session_id = 'other'",
        "run_id = NULL",
        "hash = zeroblob(32)",
        "payload = CAST(x'ff' AS TEXT)",
        "payload = x'00'",
    ],
)
def test_changed_column_is_found_at_its_row(path: str, change: str) -> None:
    edit(path, f"UPDATE events SET {change} WHERE seq = 1", lift="events_never_update")
    assert EventLog(path).verify()[0].startswith(("event 1: ", "the log cannot be read"))


def test_one_changed_row_is_one_sentence(path: str) -> None:
    edit(path, "UPDATE events SET payload = '{}' WHERE seq = 5", lift="events_never_update")
    assert EventLog(path).verify() == ["event 5: the row or its hash was changed"]


def test_row_taken_from_the_middle_is_missed(path: str) -> None:
    edit(path, "DELETE FROM events WHERE seq IN (4, 5)", lift="events_never_delete")
    assert EventLog(path).verify() == ["events 4 to 5 are missing"]


def test_end_that_was_cut_off_is_missed(path: str) -> None:
    edit(path, "DELETE FROM events WHERE seq > 7", lift="events_never_delete")
    assert EventLog(path).verify() == ["events 8 to 10 are missing at the end"]


def test_rows_that_changed_places_are_found(path: str) -> None:
    edit(
        path,
        "UPDATE events SET seq = 100 WHERE seq = 3",
        "UPDATE events SET seq = 3 WHERE seq = 4",
        "UPDATE events SET seq = 4 WHERE seq = 100",
        lift="events_never_update",
    )
    assert EventLog(path).verify()[:2] == [
        "event 3: the row or its hash was changed",
        "event 4: the row or its hash was changed",
    ]


def test_row_put_in_without_the_chain_is_found(path: str) -> None:
    edit(path, f"INSERT INTO events {_ROW} VALUES (11, 0, 'k', 's', 'r', '[]', zeroblob(32))")
    assert EventLog(path).verify() == ["event 11: the row or its hash was changed"]


def test_lifted_trigger_is_found(path: str) -> None:
    edit(path, "DROP TRIGGER events_never_delete")
    assert EventLog(path).verify() == ["the trigger events_never_delete is gone"]


def test_weakened_trigger_is_found(path: str) -> None:
    edit(
        path,
        "DROP TRIGGER events_never_update",
        "CREATE TRIGGER events_never_update BEFORE UPDATE ON events BEGIN SELECT 1; END",
    )
    assert EventLog(path).verify() == ["the trigger events_never_update was changed"]


def test_damaged_file_is_a_sentence_and_not_a_crash(path: str) -> None:
    content = bytearray(Path(path).read_bytes())
    content[4096:8192] = b"\xaa" * 4096
    Path(path).write_bytes(content)
    found = EventLog(path).verify()
    assert len(found) >= 1


def test_query_survives_a_row_it_does_not_understand(path: str) -> None:
    edit(
        path,
        "UPDATE events SET kind = 'from_the_future', payload = '{\"kind\":\"from_the_future\"}'"
        " WHERE seq = 9",
        lift="events_never_update",
    )
    row = EventLog(path).query()[8]
    assert (row.kind, row.event) == ("from_the_future", None)
