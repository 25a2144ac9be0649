"""`sandboxd events`: look at the log, follow it, check it, hand it on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import BinaryIO

import click
import msgspec

from sandboxd.cli.event_lines import line_of
from sandboxd.cli.reaching import reach
from sandboxd.client import Client
from sandboxd.events.answers import EventEntry, EventPage, Verification
from sandboxd.protocol import event_messages as em
from sandboxd.protocol import messages as m
from sandboxd.protocol.wire import encode_plain

FOLLOW_S = 0.25
PAGE = 1000
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.group("events")
def events_command() -> None:
    """What was asked, judged, decided, launched, and how it ended: the event log."""


def _reaching(command: Callable[..., int]) -> Callable[..., int]:
    """Options of every subcommand."""
    for decorate in (
        click.option("--socket", metavar="PATH", help="The daemon's socket."),
        click.option("--no-daemon", is_flag=True, help="Use the engine in this process."),
    ):
        command = decorate(command)
    return command


def _filtering(command: Callable[..., int]) -> Callable[..., int]:
    for decorate in (
        click.option("--session", metavar="ID", help="Only this session."),
        click.option("--run", metavar="ID", help="Only this run or terminal."),
        click.option("--kind", multiple=True, metavar="KIND", help="Only this kind; repeatable."),
        click.option("--since", metavar="WHEN", help="From then on: 2026-01-31, 10:30 or 2h."),
        click.option("--until", metavar="WHEN", help="Before then."),
    ):
        command = decorate(command)
    return command


def _query(
    session: str | None,
    run: str | None,
    kind: tuple[str, ...],
    since: str | None,
    until: str | None,
) -> em.EventQuery:
    return em.EventQuery(
        session_id=session,
        run_id=run,
        kinds=kind,
        since=moment(since, time.time()) if since else None,
        until=moment(until, time.time()) if until else None,
    )


@events_command.command("tail")
@click.option("-n", "count", type=click.IntRange(0, 10_000), default=20, help="How many.")
@click.option("-f", "--follow", "is_following", is_flag=True, help="Go on as events come.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object per line.")
@_filtering
@_reaching
def tail(
    count: int,
    is_following: bool,
    is_json: bool,
    socket: str | None,
    no_daemon: bool,
    **filters: object,
) -> int:
    """The newest events; with -f also those to come, until Ctrl-C."""
    query = _query(**filters)  # type: ignore[arg-type]  # click's names are the parameters'
    with reach(socket, no_daemon=no_daemon) as client:
        last = _last_number(client)
        if count:
            newest = msgspec.structs.replace(query, limit=count, before_seq=last + 1)
            _print(_page(client, newest).events, is_json=is_json)
        while is_following:
            for entry in _forward(client, msgspec.structs.replace(query, after_seq=last)):
                _print((entry,), is_json=is_json)
                last = entry.seq
            sys.stdout.flush()
            time.sleep(FOLLOW_S)
    return 0


@events_command.command("query")
@click.option("--limit", type=click.IntRange(1, 10_000), default=1000, help="The newest so many.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object per line.")
@_filtering
@_reaching
def query(limit: int, is_json: bool, socket: str | None, no_daemon: bool, **filters: object) -> int:
    """The events that match, oldest first."""
    wanted = msgspec.structs.replace(_query(**filters), limit=limit)  # type: ignore[arg-type]
    with reach(socket, no_daemon=no_daemon) as client:
        _print(_page(client, wanted).events, is_json=is_json)
    return 0


@events_command.command("export")
@click.option("-o", "--output", "target", type=click.File("wb"), default="-", metavar="FILE")
@_filtering
@_reaching
def export(target: BinaryIO, socket: str | None, no_daemon: bool, **filters: object) -> int:
    """Every event that matches as a line of JSON, with its hash, to stdout or a file."""
    wanted = msgspec.structs.replace(_query(**filters), after_seq=0)  # type: ignore[arg-type]
    with reach(socket, no_daemon=no_daemon) as client:
        for entry in _forward(client, wanted):
            target.write(encode_plain(entry))
    return 0


@events_command.command("verify")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@_reaching
def verify(is_json: bool, socket: str | None, no_daemon: bool) -> int:
    """Read the whole log again and hold it against its hash chain. Exit 1 when something is wrong."""
    with reach(socket, no_daemon=no_daemon) as client:
        found = client.call("event.verify", m.Empty(), Verification)
    if is_json:
        click.echo(msgspec.json.encode(found).decode())
        return 1 if found.problems else 0
    for problem in found.problems:
        click.echo(f"WRONG: {problem}")
    if not found.events:
        click.echo("there are no events yet")
        return 1 if found.problems else 0
    told = "" if found.first_seq == 1 else f" (those before {found.first_seq} were let go)"
    click.echo(f"{found.events} events in {found.segments} file(s){told}")
    click.echo(f"the newest is {found.last_seq}, its hash {found.last_hash}")
    if not found.problems:
        click.echo("intact; keep that hash elsewhere and it proves everything before it")
    return 1 if found.problems else 0


# --------------------------------------------------------------------------- pages


def _page(client: Client, query: em.EventQuery) -> EventPage:
    return client.call("event.query", query, EventPage)


def _forward(client: Client, query: em.EventQuery) -> Iterator[EventEntry]:
    """Every event behind `after_seq`, page by page."""
    has_more = True
    while has_more:
        page = _page(client, msgspec.structs.replace(query, limit=PAGE))
        yield from page.events
        has_more = page.has_more
        if page.events:
            query = msgspec.structs.replace(query, after_seq=page.events[-1].seq)


def _last_number(client: Client) -> int:
    newest = _page(client, em.EventQuery(limit=1)).events
    return newest[-1].seq if newest else 0


def _print(entries: tuple[EventEntry, ...], *, is_json: bool) -> None:
    for entry in entries:
        if is_json:
            sys.stdout.buffer.write(encode_plain(entry))
        else:
            click.echo(line_of(entry))
    sys.stdout.flush()


def moment(text: str, now: float) -> float:
    """A point in time as people write it: `90s`, `2h` or `3d` ago, `10:30` today, a date, a date
    and time (local unless it says otherwise), seconds since the epoch. Raises click.UsageError."""
    if text[-1:] in _UNITS and text[:-1].isdigit():
        return now - int(text[:-1]) * _UNITS[text[-1]]
    if text.isdigit() and len(text) > 8:
        return float(text)
    if len(text) in (4, 5) and ":" in text:
        today = datetime.fromtimestamp(now).strftime("%Y-%m-%d")
        text = f"{today} {text.zfill(5)}"
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(
            f"{text!r} is no time; write 2026-01-31, 2026-01-31T10:30, 10:30 or 2h"
        ) from error
    return found.timestamp() if found.tzinfo is None else found.astimezone(UTC).timestamp()
