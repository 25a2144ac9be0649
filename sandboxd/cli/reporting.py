"""`sandboxd report`: one session as one page."""

from __future__ import annotations

import os
import time

import click
import msgspec

from sandboxd import __version__
from sandboxd.cli.reaching import reach
from sandboxd.client import Client
from sandboxd.errors import SessionUnknown
from sandboxd.events.answers import EventEntry, EventPage
from sandboxd.events.kinds import Event
from sandboxd.events.statistics import Statistics
from sandboxd.protocol.event_messages import ChangeListing, EventChanges, EventQuery, StatsQuery
from sandboxd.report.collect import Story, collect
from sandboxd.report.page import FileDiff, page

PAGE = 5000


@click.command("report")
@click.argument("session")
@click.option("--html", "target", metavar="FILE", required=True, help="Where the page goes.")
@click.option("--socket", metavar="PATH", help="The daemon's socket.")
@click.option("--no-daemon", is_flag=True, help="Use the engine in this process.")
@click.option("--json", "is_json", is_flag=True, help="Say in JSON where it went.")
def report_command(
    session: str, target: str, socket: str | None, no_daemon: bool, is_json: bool
) -> int:
    """Write SESSION as one HTML page that needs nothing from elsewhere: its calls over time, what was
    judged, asked, denied and changed, and whose the failures were."""
    with reach(socket, no_daemon=no_daemon) as client:
        entries = _entries(client, session)
        if not entries:
            raise SessionUnknown(
                f"the event log knows no session {session!r}",
                hint="`sandboxd stats` lists sessions; older ones may have been let go",
            )
        stats = client.call("stats", StatsQuery(session_id=session), Statistics)
        story = collect(session, _events(entries))
        files = _diffs(client, story)
    text = page(
        story,
        stats,
        files,
        made_at=time.time(),
        last_hash=entries[-1].hash,
        version=__version__,
    )
    with open(target, "w", encoding="utf-8", errors="replace", opener=_private) as file:
        file.write(text)
    if is_json:
        told = {"file": os.path.abspath(target), "calls": len(story.calls)}
        click.echo(msgspec.json.encode(told).decode())
    else:
        click.echo(f"{len(story.calls)} calls in {target}")
    return 0


def _private(path: str, flags: int) -> int:
    """The page holds what commands printed: it is the user's alone until they say otherwise."""
    return os.open(path, flags, 0o600)


def _entries(client: Client, session: str) -> list[EventEntry]:
    found: list[EventEntry] = []
    has_more = True
    while has_more:
        after = found[-1].seq if found else 0
        query = EventQuery(session_id=session, after_seq=after, limit=PAGE)
        answer = client.call("event.query", query, EventPage)
        found += answer.events
        has_more = answer.has_more
    return found


def _events(entries: list[EventEntry]) -> list[tuple[float, Event]]:
    """What this version understands of them."""
    found = []
    for entry in entries:
        try:
            found.append((entry.at, msgspec.json.decode(entry.event, type=Event)))
        except msgspec.MsgspecError:
            continue
    return found


def _diffs(client: Client, story: Story) -> list[FileDiff]:
    """Every file that a file operation changed, with its difference while what it replaced is kept."""
    asked = EventChanges(session_id=story.session_id, workspace=story.workspace)
    listing = client.call("event.changes", asked, ChangeListing)
    kept = {(one.change_id, one.path): one for one in listing.changes}
    found = []
    for touched in (one for call in story.calls for one in call.files):
        if touched.operation in READERS:
            continue
        for path in touched.paths:
            known = kept.get((touched.change_id or "", path))
            found.append(
                FileDiff(
                    path=path.removeprefix(story.workspace + "/"),
                    operation=touched.operation,
                    at=touched.at,
                    diff=known.diff if known is not None else None,
                    added=known.added if known is not None else 0,
                    removed=known.removed if known is not None else 0,
                    note=known.note if known is not None else "",
                )
            )
    return found


READERS = ("fs.read", "fs.list", "fs.glob", "fs.grep")
"""Operations that change nothing."""
