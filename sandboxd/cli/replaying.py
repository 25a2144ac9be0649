"""`sandboxd replay`: would a recorded session be decided otherwise today, or under another profile?"""

from __future__ import annotations

import os
import sys
from itertools import groupby

import click

from sandboxd.assess.replaying import Difference, Replayed
from sandboxd.cli.exec import profile_name
from sandboxd.cli.reaching import reach
from sandboxd.cli.told import visible
from sandboxd.errors import ProfileBroken
from sandboxd.protocol.event_messages import EventReplay
from sandboxd.protocol.wire import encode_plain
from sandboxd.strict_yaml import Node, read_yaml

WIDTH = 60
MAX_RULES_BYTES = 256 * 1024


@click.command("replay")
@click.argument("session")
@click.option("--profile", metavar="P", help="Judge under this profile: a name or a file.")
@click.option("--rules", metavar="FILE", help="YAML with options of rules, over the profile's.")
@click.option("--recorded", is_flag=True, help="Under the profile as it was recorded.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.option("--socket", metavar="PATH", help="The daemon's socket.")
@click.option("--no-daemon", is_flag=True, help="Use the engine in this process.")
def replay_command(
    session: str,
    profile: str | None,
    rules: str | None,
    recorded: bool,
    is_json: bool,
    socket: str | None,
    no_daemon: bool,
) -> int:
    """Judge the calls of SESSION again, from the event log alone, and print what would differ.

    Runs nothing and looks at nothing. Without options: under what the profile of then says today.
    Exit 1 on any difference, so that a recorded session can serve as a test of a policy.
    """
    if recorded and profile is not None:
        raise click.UsageError("--recorded and --profile exclude each other")
    asked = EventReplay(
        session_id=session,
        profile=profile_name(profile),
        recorded=recorded,
        rules=read_options(rules) if rules is not None else None,
    )
    with reach(socket, no_daemon=no_daemon) as client:
        found = client.call("event.replay", asked, Replayed)
    if is_json:
        sys.stdout.buffer.write(encode_plain(found))
        sys.stdout.buffer.flush()
    else:
        click.echo("\n".join(_lines(found)))
    return 1 if found.differences else 0


def read_options(path: str) -> dict[str, dict[str, str | tuple[str, ...]]]:
    """Options of rules from a file, with or without `rules:` above them. Raises ProfileBroken."""
    try:
        with open(path, encoding="utf-8") as file:
            node = read_yaml(file.read(MAX_RULES_BYTES), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileBroken(
            f"{path}: cannot be read: {error}", hint="name a file with options of rules", path=path
        ) from error
    rules = node.mapping.get("rules", node)
    return {
        rule: {name: _value(value) for name, value in options.entries().items()}
        for rule, options in rules.entries().items()
    }


def _value(node: Node) -> str | tuple[str, ...]:
    return node.scalar() if node.items is None else node.strings()


def _lines(found: Replayed) -> list[str]:
    told = f"{found.calls} calls under profile {found.profile}: {found.same} the same"
    lines = [told + (f", {len(found.differences)} otherwise" if found.differences else "")]
    if found.skipped:
        lines.append(f"{found.skipped} more cannot be judged: a part of their record is missing")
    for what, group in groupby(sorted(found.differences, key=_order), key=lambda one: one.what):
        lines += ["", _TITLES[what]]
        for one in group:
            lines += _told(one)
    return lines


_TITLES = {
    "decision": "decided otherwise",
    "violations": "the same decision, for other reasons",
    "unknown": "not to be told: what the rules ask now was not looked at then",
}


def _order(one: Difference) -> tuple[int, int]:
    return list(_TITLES).index(one.what), one.seq


def _told(one: Difference) -> list[str]:
    command = " ".join(visible(one.command).split())
    shown = command if len(command) <= WIDTH else command[: WIDTH - 1] + "…"
    now = one.now.decision.value if one.now is not None else "?"
    change = f"{one.then.decision.value:>6} -> {_coloured(now, one)}"
    lines = [f"  {one.seq:>7}  {change}  {shown}"]
    if one.now is None:
        return [*lines, f"           {visible(one.why)}"]
    gone = [rule for rule in one.then.rules if rule not in one.now.rules]
    new = [rule for rule in one.now.rules if rule not in one.then.rules]
    lines += [f"           + {rule}" for rule in new] + [f"           - {rule}" for rule in gone]
    if not new and not gone:
        lines += [f"           now: {visible(reason)}" for reason in one.now.reasons]
    return lines


def _coloured(text: str, one: Difference) -> str:
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return f"{text:<6}"
    order = ["allow", "ask", "refuse"]
    is_stricter = text in order and order.index(text) > order.index(one.then.decision.value)
    return f"\x1b[{31 if is_stricter else 32}m{text:<6}\x1b[0m"
