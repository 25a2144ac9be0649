"""`sandboxd assess`: what the rules say of a tool call that something else would run."""

from __future__ import annotations

import sys

import click
import msgspec

from sandboxd.cli.reaching import here, reach
from sandboxd.cli.told import visible
from sandboxd.protocol.event_messages import IntentAssess, IntentAssessment
from sandboxd.protocol.wire import encode_plain


@click.command("assess")
@click.argument("tool")
@click.option("--parameters", metavar="JSON", help="The arguments as one JSON object; else stdin.")
@click.option("--role", "roles", multiple=True, metavar="NAME=ROLE", help="What a parameter means.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.option("--workspace", metavar="DIR", help="The folder that may be written.")
@click.option("--profile", metavar="P", help="Policy profile: a name or a file.")
@click.option("--socket", metavar="PATH", help="The daemon's socket.")
@click.option("--no-daemon", is_flag=True, help="Use the engine in this process.")
def assess_command(
    tool: str,
    parameters: str | None,
    roles: tuple[str, ...],
    is_json: bool,
    workspace: str | None,
    profile: str | None,
    socket: str | None,
    no_daemon: bool,
) -> int:
    """Judge a call of TOOL by the rules of commands and files; runs nothing.

    Roles: path, source_path, command, host, content, manifest. Exit 0 when it may go on, 1 when a
    person should be asked first or it is refused.
    """
    given = _parameters(parameters if parameters is not None else sys.stdin.read())
    asked = msgspec.convert(
        {"tool": tool, "roles": _roles(roles), "parameters": given}, IntentAssess
    )
    with reach(socket, no_daemon=no_daemon) as client:
        client.initialize(here(workspace, profile))
        found = client.call("intent.assess", asked, IntentAssessment)
    if is_json:
        sys.stdout.buffer.write(encode_plain(found))
        sys.stdout.buffer.flush()
    else:
        click.echo("\n".join(_lines(found)))
    return 0 if found.decision.value == "allow" else 1


def _parameters(text: str) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError as error:
        raise click.UsageError(f"the parameters are no JSON object: {error}") from error


def _roles(pairs: tuple[str, ...]) -> dict[str, str] | None:
    found = dict(pair.partition("=")[::2] for pair in pairs)
    known = ("path", "source_path", "command", "host", "content", "manifest")
    for name, role in found.items():
        if role not in known:
            raise click.UsageError(f"--role {name}={role}: a role is one of {', '.join(known)}")
    return found or None


def _lines(found: IntentAssessment) -> list[str]:
    risk = f", risk {found.risk}" if found.risk else ""
    lines = [f"{found.decision.value} ({found.class_.value}{risk})"]
    lines += [f"  because {visible(reason)}" for reason in found.reasons]
    for one in found.violations:
        lines.append(f"  {one.rule} ({one.risk}): {visible(one.message)}")
        lines.append(f"    hint: {visible(one.hint)}")
    lines += [
        f"  {visible(name)} is {visible(path) if path else 'no path'}"
        for name, path in found.paths.items()
    ]
    return lines
