"""`events` and `stats` on the command line, with the engine in process."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from sandboxd.adapters import telemetry
from sandboxd.cli.counting import prometheus_text
from sandboxd.cli.events import moment
from sandboxd.events.attribution import attribute
from sandboxd.events.kinds import Finished
from sandboxd.events.log import EventLog
from sandboxd.events.statistics import statistics
from tests.events.samples import one_run, opened, refused

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventLog]:
    """A log where the command line looks for it, with three runs of two sessions."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SANDBOXD_SOCKET", "")
    log = EventLog(str(tmp_path / "state" / "sandboxd" / "events.db"))
    log.append(opened("s1"))
    for event in [*one_run("s1", "r1"), *one_run("s2", "r2", "printf '\x1b[2J'")]:
        log.append(event)
    log.append(refused("s2", "r3"))
    assert log.flush()
    yield log
    log.close()


@pytest.fixture
def cli(log: EventLog, tmp_path: Path) -> Cli:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sandboxd", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=60,
        )

    return run


def test_tail_shows_the_newest_and_no_escape_sequence(cli: Cli) -> None:
    done = cli("events", "tail", "-n", "5", "--no-daemon")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["6", "7", "8", "9", "10"]
    assert "\x1b" not in done.stdout
    assert "CWD_MISSING" in lines[-1]


def test_query_filters_and_prints_json_lines(cli: Cli) -> None:
    done = cli("events", "query", "--no-daemon", "--session", "s2", "--kind", "verdict", "--json")
    (entry,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (entry["run_id"], entry["event"]["kind"]) == ("r2", "verdict")
    assert cli("events", "query", "--no-daemon", "--until", "1d").stdout == ""
    assert cli("events", "query", "--no-daemon", "--since", "soon").returncode == 2
    unknown = cli("events", "query", "--no-daemon", "--kind", "resutl")
    assert unknown.returncode == 2
    assert "result" in unknown.stderr


def test_export_can_be_verified_without_us(cli: Cli, tmp_path: Path) -> None:
    """The documented rule, written anew: sha256(hash before + JSON of the row)."""
    done = cli("events", "export", "--no-daemon", "-o", str(tmp_path / "out.jsonl"))
    assert (done.returncode, done.stdout) == (0, "")
    previous = bytes(32)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert len(lines) == 10
    for line in lines:
        entry = json.loads(line)
        text = re.search(r'"event":(.*),"hash":"[0-9a-f]{64}"}$', line)
        assert text is not None
        row = [entry["seq"], round(entry["at"] * 1e6), entry["kind"], entry["session_id"]]
        row += [entry["run_id"], text[1]]
        encoded = json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()
        previous = hashlib.sha256(previous + encoded).digest()
        assert previous.hex() == entry["hash"]


def test_verify_finds_one_changed_row(cli: Cli, log: EventLog) -> None:
    assert cli("events", "verify", "--no-daemon").returncode == 0
    log.close()
    with sqlite3.connect(log.path) as connection:
        sql = "SELECT sql FROM sqlite_master WHERE name = 'events_never_update'"
        trigger = connection.execute(sql).fetchone()[0]
        connection.execute("DROP TRIGGER events_never_update")
        connection.execute("UPDATE events SET payload = replace(payload, 'ls', 'rm') WHERE seq = 2")
        connection.execute(trigger)
    done = cli("events", "verify", "--no-daemon", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["problems"] == ["event 2: the row or its hash was changed"]
    assert cli("events", "query", "--no-daemon").returncode == 0


def test_damaged_payload_does_not_break_the_line_protocol(cli: Cli, log: EventLog) -> None:
    log.close()
    with sqlite3.connect(log.path) as connection:
        connection.execute("DROP TRIGGER events_never_update")
        connection.execute("UPDATE events SET payload = 'no json {' || char(10) WHERE seq = 2")
    done = cli("events", "query", "--no-daemon", "--json")
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == list(range(1, 11))


def test_following_shows_what_comes_later(cli: Cli, log: EventLog, tmp_path: Path) -> None:
    words = ["events", "tail", "-f", "-n", "0", "--json", "--no-daemon"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sandboxd", *words], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert process.stdout is not None
        time.sleep(1.5)
        stop = time.monotonic() + 30
        threading.Thread(target=_append_until, args=(log, process, stop), daemon=True).start()
        entry = json.loads(process.stdout.readline())
        assert (entry["kind"], entry["session_id"]) == ("session_opened", "late")
    finally:
        process.terminate()
        process.wait(30)


def _append_until(log: EventLog, process: subprocess.Popen[str], stop: float) -> None:
    while process.poll() is None and time.monotonic() < stop:
        log.append(opened("late"))
        time.sleep(0.3)


def test_moments_are_written_as_people_write_them() -> None:
    now = 1_800_000_000.0
    assert moment("2h", now) == now - 7200
    assert moment("1700000000", now) == 1_700_000_000
    assert moment("2026-01-31T10:00:00+00:00", now) == 1769853600.0
    assert moment("2026-01-31", now) == time.mktime((2026, 1, 31, 0, 0, 0, 0, 0, -1))
    with pytest.raises(click.UsageError, match="is no time"):
        moment("yesterday", now)


# ------------------------------------------------------------------ stats


def test_stats_for_people_and_programs(cli: Cli) -> None:
    told = cli("stats", "--no-daemon").stdout
    assert told.startswith("3 calls: 2 ok, 0 answered by their exit code, 1 failed")
    assert "refusal.CWD_MISSING" in told
    found = json.loads(cli("stats", "--no-daemon", "--json", "--session", "s1").stdout)
    assert (found["calls"], found["failed"], found["unknown_share"]) == (1, 0, 0.0)
    assert cli("stats", "--no-daemon", "--since", "today").returncode == 2


def test_prometheus_text_is_well_formed() -> None:
    event = Finished(
        session_id="s",
        run_id="r",
        exit_code=1,
        duration_s=0.1,
        outcome="failed",
        attribution=attribute('odd"reason\\'),
    )
    from sandboxd.events.tally import tally_of
    from tests.events.test_attribution import rows

    text = prometheus_text(statistics(tally_of(rows(event, *one_run("s", "r")))))
    line = re.compile(r'[a-z_]+\{([a-z]+="(\\.|[^"\\])*",?)+\} \d+')
    for row in text.splitlines():
        assert row.startswith(("# HELP ", "# TYPE ")) or line.fullmatch(row), row
    assert (
        'sandboxd_failures_total{layer="unknown",origin="tool",reason="odd\\"reason\\\\"} 1' in text
    )
    assert 'sandboxd_calls_total{outcome="ok"} 1' in text


def test_opentelemetry_reaches_a_collector(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    received: list[tuple[str, bytes]] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # http.server's own name
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: Any) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    done = cli("stats", "--no-daemon", "--otel")
    server.shutdown()
    assert done.returncode == 0, done.stderr
    assert received[0][0] == "/v1/metrics"
    assert b"sandboxd.failures" in received[0][1]
    assert b"refusal.CWD_MISSING" in received[0][1]


def test_opentelemetry_is_loaded_only_when_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sandboxd.adapters.telemetry, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
    )
    assert "opentelemetry" not in done.stdout


def test_missing_extra_is_a_refusal_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandboxd.errors import PlatformUnsupported

    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with pytest.raises(PlatformUnsupported, match="not installed") as caught:
        telemetry.send(statistics({}))
    assert "sandboxd[otel]" in caught.value.hint
