"""`profile show`, `profile check` and `profile explain`: what a run may touch, and which line says so."""

from __future__ import annotations

import json
import os
import sys

import click
import msgspec

from sandboxd.cli.exec import profile_name
from sandboxd.cli.reaching import here, reach
from sandboxd.cli.told import visible
from sandboxd.protocol.messages import Explanation, ProfileExplain, ProfileShown, ProfileValue
from sandboxd.protocol.wire import encode_plain

_profile_option = click.option("--profile", metavar="P", help="A profile's name, or a file.")
_workspace_option = click.option(
    "--workspace", metavar="DIR", help="The folder that may be written."
)
_socket_option = click.option("--socket", metavar="PATH", help="The daemon's socket.")
_no_daemon_option = click.option(
    "--no-daemon", is_flag=True, help="Use the engine in this process."
)
_json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON.")


@click.group("profile", context_settings={"help_option_names": ["-h", "--help"]})
def profile_command() -> None:
    """Show, check and explain what a run may touch."""


@profile_command.command("show")
@click.argument("name", required=False)
@_profile_option
@click.option("--tier", metavar="T", help="Show the launch plan as this tier would set it up.")
@_workspace_option
@_socket_option
@_no_daemon_option
@_json_option
def show_command(
    name: str | None,
    profile: str | None,
    tier: str | None,
    workspace: str | None,
    socket: str | None,
    no_daemon: bool,
    is_json: bool,
) -> int:
    """Print the merged profile, each value with the file and line that says it.

    Without NAME: the profile that runs in this folder get.
    """
    if name and profile:
        raise click.UsageError("both NAME and --profile; use one of them")
    with reach(socket, no_daemon=no_daemon) as client:
        client.initialize(here(workspace, name or profile))
        shown = client.show_profile(tier=tier)
    if tier == "seatbelt":
        _show_seatbelt(bytes(shown.plan), is_json)
    elif is_json:
        sys.stdout.buffer.write(encode_plain(shown))
    elif tier is not None:
        click.echo(msgspec.json.format(bytes(shown.plan), indent=2).decode())
    else:
        click.echo("\n".join(_table(shown)))
    return 0


def _show_seatbelt(plan: bytes, is_json: bool) -> None:
    """The profile as text, its parameters as comments behind it; or both as one JSON object."""
    if is_json:
        sys.stdout.buffer.write(plan + b"\n")
        return
    made = msgspec.json.decode(plan)
    click.echo(made["profile_text"])
    for key, value in made["parameters"].items():
        click.echo(f"; -D{key}={visible(value)}")


def _table(shown: ProfileShown) -> list[str]:
    lines = [f"profile {visible(shown.profile)}, from"]
    lines += [f"  {visible(path)}" for path in shown.layers]
    lines.append("")
    texts = [f"{value.key}: {visible(value.value)}" for value in shown.values]
    width = min(max(map(len, texts), default=0), 60)
    for text, value in zip(texts, shown.values, strict=True):
        lines.append(f"{text:{width}}  {_place(value)}".rstrip())
    return lines


def _place(value: ProfileValue) -> str:
    place = f"{os.path.basename(value.file)}:{value.line}" if value.file else "built in"
    return f"{place}  {visible(value.why)}" if value.why else place


@profile_command.command("check")
@click.argument("file")
@_json_option
def check_command(file: str, is_json: bool) -> int:
    """Read a profile and say what is wrong with it, by file, line and key.

    A project's .sandboxd.yaml is also held against the more trusted files.
    """
    from sandboxd.network import check_hosts
    from sandboxd.profiles import PROJECT_FILE, check_file, effective_profile

    path = os.path.abspath(file)
    profile = check_file(path)
    check_hosts(profile)
    if os.path.basename(path) == PROJECT_FILE:
        effective_profile(os.environ.get("SANDBOXD_PROFILE"), os.path.dirname(path))
    if is_json:
        click.echo(json.dumps({"file": file, "layers": profile.layers}))
    else:
        click.echo(f"{visible(file)}: a profile without a fault")
    return 0


@profile_command.command("explain")
@click.option("--read", metavar="PATH", help="May a run read this?")
@click.option("--write", metavar="PATH", help="May a run write this?")
@click.option("--host", metavar="HOST", help="May a run reach this host (HOST or HOST:PORT)?")
@click.option("--command", metavar="TEXT", help="Would this shell text run unasked?")
@_profile_option
@click.option("--tier", metavar="T", help="In this tier, instead of the one that runs get.")
@_workspace_option
@_socket_option
@_no_daemon_option
@_json_option
def explain_command(
    read: str | None,
    write: str | None,
    host: str | None,
    command: str | None,
    profile: str | None,
    tier: str | None,
    workspace: str | None,
    socket: str | None,
    no_daemon: bool,
    is_json: bool,
) -> int:
    """Say what would happen, which line decides, and what to change. Runs nothing."""
    asked = [each for each in (read, write, host, command) if each is not None]
    if len(asked) != 1 or not asked[0]:
        raise click.UsageError("name one of --read, --write, --host and --command")
    params = ProfileExplain(read=read, write=write, host=host, command=command, tier=tier)
    with reach(socket, no_daemon=no_daemon) as client:
        client.initialize(here(workspace, profile_name(profile)))
        found = client.explain(params)
    if is_json:
        sys.stdout.buffer.write(encode_plain(found))
    else:
        click.echo("\n".join(_told(found)))
    return 0


def _told(found: Explanation) -> list[str]:
    lines = [f"{'yes' if found.allowed else 'no'}: {visible(found.sentence)}"]
    if found.file:
        lines.append(
            f"decided by {visible(found.file)}, line {found.line} ({visible(found.rule or '')})"
        )
    elif found.rule:
        lines.append(f"decided by {visible(found.rule)}, which no file changes")
    if found.change:
        lines.append(f"to change: {visible(found.change)}")
    lines.append(f"tier: {found.tier}")
    return lines
