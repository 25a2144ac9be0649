"""The report of a session: what it shows, that hostile output stays text, and how a browser takes it."""

from __future__ import annotations

import http.server
import re
import shutil
import struct
import subprocess
import threading
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sandboxd.events.attribution import attribute
from sandboxd.events.kinds import (
    Abandoned,
    ApprovalAnswered,
    ApprovalAsked,
    Assessed,
    DecisionMade,
    EgressDenied,
    Event,
    Finished,
    Launched,
    VerdictGiven,
    kind_of,
)
from sandboxd.events.log import _encoded
from sandboxd.events.statistics import statistics
from sandboxd.events.tally import tally_of
from sandboxd.model import Action, Decision, Denial
from sandboxd.proposals import Violation
from sandboxd.report.collect import Story, collect
from sandboxd.report.page import FileDiff, page
from tests.events.samples import DECISION, TIER, VERDICT, one_of_each, one_run, opened, refused

HOSTILE = "</pre><script>document.title='owned'</script><img src=%s/img onerror=alert(1)>\x1b[31m"


def hostile_run(address: str) -> list[Event]:
    text = HOSTILE % address
    return [
        VerdictGiven(session_id="s", run_id="h", command=text, cwd="/w", verdict=VERDICT),
        ApprovalAsked(session_id="s", run_id="h", reasons=(text,), tier="namespaces"),
        ApprovalAnswered(session_id="s", run_id="h", answer="once", reason=text),
        DecisionMade(
            session_id="s",
            run_id="h",
            decision=Decision(
                action=Action.ALLOW, mode="standard", reasons=(text,), approved_by="person"
            ),
        ),
        Launched(session_id="s", run_id="h", tier=TIER, program=text, cwd=text),
        EgressDenied(session_id="s", run_id="h", host=text, rule=text, hint=text),
        Finished(
            session_id="s",
            run_id="h",
            exit_code=7,
            duration_s=1.5,
            stdout_bytes=5000,
            stdout_end=text,
            stderr_bytes=3,
            stderr_end="no!",
            denial=Denial(evidence="proxy", rule=text, host="x", hint=text),
            outcome="failed",
            attribution=attribute("denial.proxy"),
        ),
    ]


def events_of(address: str = "http://127.0.0.1:9") -> list[tuple[float, Event]]:
    assessed = Assessed(
        session_id="s",
        run_id="j-1",
        assessment_id="j-1",
        grounds_id="g",
        door="assess",
        tool="Bash",
        command="rm -rf /",
        verdict=VERDICT,
        violations=(Violation(rule="WriteScope", risk="high", message="not that", hint="h"),),
        decision=Decision(action=Action.REFUSE, mode="standard", reasons=("not that",)),
    )
    events = [
        opened("s"),
        *one_run("s", "r1"),
        *hostile_run(address),
        assessed,
        refused("s", "r3"),
        Abandoned(session_id="s", run_id="r4"),
    ]
    return [(1_800_000_000.0 + number, event) for number, event in enumerate(events)]


def html_of(events: list[tuple[float, Event]], files: tuple[FileDiff, ...] = ()) -> str:
    story = collect("s", events)
    rows = [
        (int(at * 1e6), kind_of(event), event.session_id, event.run_id, _encoded(event))
        for at, event in events
    ]
    stats = statistics(tally_of(rows))
    return page(story, stats, files, made_at=1.8e9, last_hash="ab" * 32, version="0.0")


FILES = (
    FileDiff(
        path="a.py",
        operation="fs.edit",
        at=1.8e9,
        diff="--- a.py\n+++ a.py\n@@ -1 +1 @@\n-<old>\n+new\n",
        added=1,
        removed=1,
    ),
    FileDiff(path="b.py", operation="fs.write", at=1.8e9, diff=None),
)


class Shape(HTMLParser):
    """Whether every element is closed by its own end, and which scripts and addresses there are."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag in ("details", "pre", "span", "script", "main", "ul", "dl", "svg", "div"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("details", "pre", "span", "script", "main", "ul", "dl", "svg", "div"):
            assert self.open.pop() == tag


def test_page_is_well_formed_and_loads_nothing() -> None:
    shape = Shape()
    shape.feed(html_of(events_of(), FILES))
    assert shape.open == []
    assert shape.scripts == 1
    assert all(address.startswith("#") for address in shape.addresses)


@pytest.mark.parametrize(
    "told",
    [
        "ls -l",
        "by person",
        "denial.proxy",
        "CWD_MISSING",
        "the client vanished",
        "WriteScope",
        "rm -rf /",
        "no!",
        "namespaces",
        "the end of 5,000 bytes",
        "a.py",
        "no longer kept",
        "&lt;old&gt;",
        "Questions to a person",
        "environment",
    ],
)
def test_page_tells(told: str) -> None:
    assert told in html_of(events_of(), FILES)


def test_every_kind_of_event_can_be_told() -> None:
    assert "Session" in html_of([(1.8e9, event) for event in one_of_each()])


def test_session_without_calls_is_said_to_be_one() -> None:
    assert "Nothing was called" in html_of([(1.8e9, opened("s"))])
    assert collect("s", []) == Story("s")


def test_terminal_shows_each_line_that_was_judged() -> None:
    events: list[Event] = []
    for text in ("cd src", "make", "ls"):
        events.append(
            VerdictGiven(session_id="s", run_id="t", command=text, cwd="/w", verdict=VERDICT)
        )
        events.append(DecisionMade(session_id="s", run_id="t", decision=DECISION))
    text = html_of([(1.8e9, event) for event in events])
    assert "and 2 more" in text
    assert text.count("<pre>") == 3


# ------------------------------------------------------------------ in a real browser


def chromium(*words: str) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program is not None, "this machine has no chromium"
    return subprocess.run(
        [
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1200,1400",
            "--virtual-time-budget=2000",
            *words,
        ],
        capture_output=True,
        timeout=90,
    )


def colours(png: bytes) -> int:
    """How many different pixels a screenshot has (RGB or RGBA, 8 bits)."""
    width, _, _, kind = struct.unpack(">IIBB", png[16:26])
    step = {2: 3, 6: 4}[kind]
    data = b"".join(
        png[
            match.end() : match.end()
            + struct.unpack(">I", png[match.start() - 4 : match.start()])[0]
        ]
        for match in re.finditer(b"IDAT", png)
    )
    raw = zlib.decompressobj().decompress(data)
    line = width * step + 1
    return len({raw[at : at + step] for at in range(1, len(raw) - step, step) if at % line})


def test_chromium_shows_it_without_a_request_and_without_running_what_a_command_printed(
    tmp_path: Path,
) -> None:
    """What a command printed is on the page as text; the page's own script opens what is linked."""
    asked: list[str] = []

    class Listening(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # http.server's own name
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *words: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Listening)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place, shot = tmp_path / "report.html", tmp_path / "shot.png"
    place.write_text(html_of(events_of(f"http://127.0.0.1:{server.server_port}"), FILES))
    address = f"file://{place}#call-2"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = chromium(profile, "--dump-dom", address)
    dom = done.stdout.decode()
    assert "<title>Session s</title>" in dom, done.stderr
    assert re.search(r'<details class="card call failed" id="call-2"[^>]*open', dom)
    assert chromium(profile, f"--screenshot={shot}", address).returncode == 0
    server.shutdown()
    assert asked == []
    assert colours(shot.read_bytes()) > 50
