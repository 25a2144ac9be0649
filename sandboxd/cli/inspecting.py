"""`status`, `doctor` and `schema`: what is there, what works, what is spoken."""

from __future__ import annotations

import json
import os
import sys

import click
import msgspec

from sandboxd.cli.reaching import reach
from sandboxd.cli.told import visible
from sandboxd.client import Client
from sandboxd.protocol.asking import connect_socket
from sandboxd.protocol.messages import TierStatus

_socket_option = click.option("--socket", metavar="PATH", help="The daemon's socket.")
_json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON.")


@click.command("status")
@_socket_option
@_json_option
def status_command(socket: str | None, is_json: bool) -> int:
    """Ask the running daemon for its pid, socket, sessions and runs."""
    with Client(connect_socket(socket)) as client:
        status, sessions = client.status(), client.sessions()
    if is_json:
        _print_json({**msgspec.to_builtins(status), "session_list": msgspec.to_builtins(sessions)})
        return 0
    click.echo(f"sandboxd {status.server.version}, pid {status.pid}, socket {status.socket}")
    click.echo(
        f"up {status.uptime_s:.0f} s, {status.sessions} session(s), "
        f"{status.connections} connection(s), {status.runs} running, "
        f"{status.rss_bytes // 1048576} MiB ({status.max_rss_bytes // 1048576} at most)"
    )
    click.echo(
        f"queues: {status.calls} call(s), {status.queued_bytes} byte(s) unsent, "
        f"{status.approvals} question(s) for a person; {status.open_files} open files"
    )
    for one in sessions:
        click.echo(
            f"session {one.session_id}: {visible(one.workspace)}, profile {visible(one.profile)}, "
            f"{one.clients} client(s), {one.terminals} terminal(s), idle {one.idle_s:.0f} s"
        )
    return 0


@click.command("doctor")
@_socket_option
@click.option("--no-daemon", is_flag=True, help="Use the engine in this process.")
@click.option(
    "--tools", "is_tools", is_flag=True, help="Also run git, pip, node, cc, ... in a tier."
)
@click.option("--tier", metavar="NAME", help="With --tools: run them in this tier.")
@_json_option
def doctor_command(
    socket: str | None, no_daemon: bool, is_tools: bool, tier: str | None, is_json: bool
) -> int:
    """Really run every tier of this host, strongest first, and say what would help.

    Ends with advice about settings outside sandboxd that close what a sandbox cannot.
    With --tools also a piece of ordinary work of each usual tool that is installed, in the tier
    that runs get. Exit 1 when no tier with a kernel boundary works, or a tool fails.
    """
    from sandboxd.cli.advice import advise
    from sandboxd.cli.tools import show, try_all

    if tier is not None and not is_tools:
        raise click.UsageError("--tier goes with --tools; without it every tier is tried")
    tried = []
    with reach(socket, no_daemon=no_daemon) as client:
        tiers = client.tiers()
        if not is_json:
            for rung in tiers:
                click.echo("\n".join(_rung(rung)))
        for tool in try_all(client, tier) if is_tools else ():
            tried.append(tool)
            if not is_json:
                show(tool)
    advice = advise()
    if is_json:
        value = {"tiers": msgspec.to_builtins(tiers), "advice": msgspec.to_builtins(advice)}
        _print_json({**value, "tools": msgspec.to_builtins(tried)} if is_tools else value)
    for item in () if is_json else advice:
        click.echo(f"advice: {item.command}\n  why:    {item.why}")
    has_boundary = any(rung.available and rung.tier.kernel for rung in tiers)
    return 0 if has_boundary and all(tool.works for tool in tried if tool.is_installed) else 1


def _rung(rung: TierStatus) -> list[str]:
    mark = _coloured("works", 32) if rung.available else _coloured("not here", 33)
    boundary = "kernel boundary" if rung.tier.kernel else "no kernel boundary"
    lines = [f"{rung.tier.name}: {mark} ({boundary}, tried in {rung.seconds * 1000:.0f} ms)"]
    if not rung.available:
        lines.append(f"  why:    {visible(rung.cause or 'unknown')}")
        if rung.remedy:
            lines.append(f"  remedy: {visible(rung.remedy)}")
        return lines
    lines += [f"  holds:  {visible(item)}" for item in rung.tier.enforces]
    lines += [f"  leaves: {visible(item)}" for item in rung.tier.gaps]
    return lines


def _coloured(text: str, colour: int) -> str:
    """In colour on a terminal, unless NO_COLOR is set (no-color.org)."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


@click.command("schema")
@click.option("--markdown", is_flag=True, help="Print docs/protocol.md instead.")
@click.option("--profile", is_flag=True, help="Print the schema of profiles, for editors.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON (the default).")
def schema_command(markdown: bool, profile: bool, is_json: bool) -> int:
    """Print the JSON Schema of every method of the protocol, or of a profile."""
    from sandboxd.protocol.schema import markdown_text, profile_schema_text, schema_text

    if markdown and profile:
        raise click.UsageError("--markdown and --profile exclude each other")
    text = profile_schema_text() if profile else markdown_text() if markdown else schema_text()
    click.echo(text, nl=False)
    return 0


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, separators=(",", ":")))
