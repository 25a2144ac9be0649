"""`sandboxd terminal`: start, attach to, read, type into, end and list the daemon's terminals."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec

from sandboxd.cli.reaching import ask_here, here
from sandboxd.cli.told import visible
from sandboxd.client import Client
from sandboxd.model import Approve
from sandboxd.protocol import messages as m
from sandboxd.protocol.asking import connect_socket


@click.group("terminal")
@click.option("--socket", metavar="PATH", help="The daemon's socket.")
@click.option("--workspace", metavar="DIR", help="The workspace whose terminals are meant.")
@click.option("--session", metavar="ID", help="The session; the workspace's own by default.")
@click.option("--profile", metavar="P", help="The profile of the session.")
@click.pass_context
def terminal_command(
    context: click.Context,
    socket: str | None,
    workspace: str | None,
    session: str | None,
    profile: str | None,
) -> None:
    """Terminals that outlive the call: a dev server, a REPL, an installer, a slow build.

    They live in the daemon (`sandboxd serve --detach`) and end after an hour without use.
    """
    opening = here(workspace, profile)
    if session:
        opening = msgspec.structs.replace(opening, session_id=session)
    can_ask = sys.stdin.isatty() and sys.stderr.isatty()
    capabilities = m.Capabilities(approvals=can_ask, own_terminal=True)
    context.obj = (socket, msgspec.structs.replace(opening, capabilities=capabilities))


@contextmanager
def _client(context: click.Context) -> Iterator[Client]:
    socket, opening = context.obj
    with Client(connect_socket(socket), approver=ask_here) as client:
        client.initialize(opening)
        yield client


_json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON.")
_approve_option = click.option(
    "--approve",
    type=click.Choice(["none", "mutating", "all"]),
    default="none",
    help="Your word in advance for what would be asked.",
)
_id_argument = click.argument("terminal_id", metavar="ID")


@terminal_command.command("start", context_settings={"allow_interspersed_args": False})
@click.option("-c", "text", metavar="TEXT", help="Shell text instead of an argument vector.")
@click.option("--tier", metavar="T")
@click.option("--min-tier", metavar="T")
@click.option("--allow-host", "allow_hosts", metavar="H", multiple=True, help="Reach a host too.")
@click.option(
    "--publish",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    multiple=True,
    help="Make a port of it reachable on this host's 127.0.0.1.",
)
@click.option("--cols", type=int, metavar="N", help="Width; this terminal's, else 80.")
@click.option("--rows", type=int, metavar="N", help="Height; this terminal's, else 24.")
@_approve_option
@_json_option
@click.argument("argv", nargs=-1)
@click.pass_context
def start(
    context: click.Context,
    text: str | None,
    tier: str | None,
    min_tier: str | None,
    allow_hosts: tuple[str, ...],
    publish: tuple[int, ...],
    cols: int | None,
    rows: int | None,
    approve: Approve,
    is_json: bool,
    argv: tuple[str, ...],
) -> int:
    """Start one and print its id; without a command, bash."""
    if text is not None and argv:
        raise click.UsageError("give -c TEXT or a command, not both")
    here_cols, here_rows = _size()
    params = m.TerminalStart(
        command=text,
        argv=argv or None,
        cwd=os.getcwd(),
        tier=tier,
        min_tier=min_tier,
        approve=approve,
        allow_hosts=allow_hosts,
        publish=publish,
        cols=here_cols if cols is None else cols,
        rows=here_rows if rows is None else rows,
    )
    with _client(context) as client:
        started = client.call("terminal.start", params, m.TerminalStarted)
    _print(started, is_json, started.terminal_id)
    return 0


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1)
    except (OSError, ValueError):
        return 80, 24
    return (size.columns, size.lines) if size.columns and size.lines else (80, 24)


@terminal_command.command("read")
@click.option(
    "--wait", "wait_s", type=float, default=0.0, metavar="S", help="Wait for input or end."
)
@_json_option
@_id_argument
@click.pass_context
def read(context: click.Context, wait_s: float, is_json: bool, terminal_id: str) -> int:
    """Print what has come since the last read, and on stderr what the program does."""
    params = m.TerminalRead(terminal_id=terminal_id, wait_s=wait_s)
    with _client(context) as client:
        reading = client.call("terminal.read", params, m.TerminalReading)
    if is_json:
        _print(reading, True, "")
        return 0
    if reading.gap_lines:
        click.echo(f"[{reading.gap_lines} lines, {reading.gap_bytes} bytes made room]", err=True)
    for line in (*reading.lines, *reading.live):
        click.echo(line)
    code = f", exit code {reading.exit_code}" if reading.exit_code is not None else ""
    click.echo(f"[{reading.state}{code}] {reading.note}", err=True)
    return 0


@terminal_command.command("write")
@click.option("--key", "keys", multiple=True, metavar="NAME", help="A key by name, after the text.")
@click.option("--enter", is_flag=True, help="Press enter at the end.")
@_approve_option
@_id_argument
@click.argument("text", required=False)
@click.pass_context
def write(
    context: click.Context,
    keys: tuple[str, ...],
    enter: bool,
    approve: Approve,
    terminal_id: str,
    text: str | None,
) -> int:
    """Type TEXT, then keys. A line that a shell would run is judged like a command."""
    names = [*(text or ""), *keys, *(["enter"] if enter else [])]
    if not names:
        raise click.UsageError("nothing to type: give TEXT, --key or --enter")
    params = m.TerminalWrite(terminal_id=terminal_id, keys=tuple(names), approve=approve)
    with _client(context) as client:
        client.call("terminal.write", params, m.Done)
    return 0


@terminal_command.command("kill")
@click.option("--signal", metavar="NAME", help="Send this to its foreground instead.")
@_id_argument
@click.pass_context
def kill(context: click.Context, signal: str | None, terminal_id: str) -> int:
    """End it and everything it has started."""
    params = m.TerminalKill(terminal_id=terminal_id, signal=signal)
    with _client(context) as client:
        client.call("terminal.kill", params, m.Done)
    return 0


@terminal_command.command("list")
@_json_option
@click.pass_context
def list_(context: click.Context, is_json: bool) -> int:
    """The terminals of the session."""
    with _client(context) as client:
        listing = client.call("terminal.list", m.Empty(), m.TerminalListing)
    if is_json:
        _print(listing, True, "")
        return 0
    for entry in listing.terminals:
        ended = f"exited {entry.exit_code}" if entry.state == "exited" else entry.state
        click.echo(f"{entry.terminal_id}  {ended}  {visible(entry.command)}")
    return 0


@terminal_command.command("attach")
@_id_argument
@click.pass_context
def attach(context: click.Context, terminal_id: str) -> int:
    """Sit down before it: keys go in, what it prints comes out; Ctrl-] leaves it running."""
    from sandboxd.cli.attaching import attach_to

    socket, opening = context.obj
    return attach_to(socket, msgspec.to_builtins(opening), terminal_id)


def _print(value: msgspec.Struct, is_json: bool, text: str) -> None:
    wire = json.dumps(msgspec.to_builtins(value), separators=(",", ":")) if is_json else text
    click.echo(wire)
