"""`sandboxd stats`: how calls ended and whose the failures were."""

from __future__ import annotations

import os
import sys

import click
import msgspec

from sandboxd.cli.reaching import reach
from sandboxd.cli.told import visible
from sandboxd.events.statistics import Group, Statistics
from sandboxd.protocol.event_messages import StatsQuery

BAR = 32
MOST_GROUPS = 14
_COLOURS = {
    "agent": 33,
    "harness": 31,
    "workflow": 36,
    "environment": 35,
    "provider": 34,
    "operator": 32,
    "unknown": 90,
}


@click.command("stats")
@click.option("--session", metavar="ID", help="Only this session.")
@click.option("--since", metavar="DAY", help="From this day on (YYYY-MM-DD, UTC).")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.option("--prometheus", is_flag=True, help="Print the Prometheus text format.")
@click.option("--otel", is_flag=True, help="Send them by OpenTelemetry (needs sandboxd[otel]).")
@click.option("--socket", metavar="PATH", help="The daemon's socket.")
@click.option("--no-daemon", is_flag=True, help="Use the engine in this process.")
def stats_command(
    session: str | None,
    since: str | None,
    is_json: bool,
    prometheus: bool,
    otel: bool,
    socket: str | None,
    no_daemon: bool,
) -> int:
    """How calls ended, and which layer the failures belong to: agent, harness, workflow,
    environment, provider, operator or unknown."""
    if is_json + prometheus + otel > 1:
        raise click.UsageError("--json, --prometheus and --otel exclude each other")
    query = StatsQuery(session_id=session, since_day=since)
    with reach(socket, no_daemon=no_daemon) as client:
        found = client.call("stats", query, Statistics)
    if is_json:
        click.echo(msgspec.json.encode(found).decode())
    elif prometheus:
        click.echo(prometheus_text(found), nl=False)
    elif otel:
        from sandboxd.adapters.telemetry import send

        click.echo(send(found))
    else:
        click.echo("\n".join(_lines(found)))
    return 0


# --------------------------------------------------------------------------- for people


def _lines(found: Statistics) -> list[str]:
    if not found.calls:
        return ["there are no calls in the log yet"]
    answered = f"{found.answers} answered by their exit code"
    lines = [f"{found.calls} calls: {found.ok} ok, {answered}, {found.failed} failed"]
    if found.failed:
        lines += ["", "whose failures"]
        for layer in found.layers:
            bar = _bar(layer.share, layer.layer)
            lines.append(f"  {layer.layer:<12} {bar} {layer.count:>6}  {layer.share:>6.1%}")
        lines.append(f"  {'unknown share':<12} {found.unknown_share:.1%}")
        lines += ["", "reasons"]
        lines += [
            f"  {reason.count:>6}  {reason.share:>6.1%}  {visible(reason.reason):<30} "
            f"{reason.layer}/{reason.origin}" + _inferred(reason.inferred)
            for reason in found.reasons
        ]
    lines += _groups("days (UTC)", found.days[-MOST_GROUPS:])
    lines += _groups("sessions", found.sessions[:MOST_GROUPS])
    for title, counts in (
        ("classes", found.classes),
        ("decisions", found.decisions),
        ("tiers", found.tiers),
    ):
        if counts:
            lines += ["", f"{title}: " + ", ".join(f"{k} {v}" for k, v in counts.items())]
    return lines


def _inferred(count: int) -> str:
    return f" ({count} inferred from an older log)" if count else ""


def _groups(title: str, groups: tuple[Group, ...]) -> list[str]:
    if not groups:
        return []
    most = max(group.calls for group in groups)
    lines = ["", title]
    for group in groups:
        bar = _split_bar(group, most)
        told = ", ".join(f"{layer} {count}" for layer, count in group.layers.items())
        lines.append(f"  {visible(group.name)[:20]:<20} {bar} {group.calls:>6}  {told}".rstrip())
    return lines


def _bar(share: float, layer: str) -> str:
    length = max(1, round(share * BAR))
    return _coloured("█" * length, _COLOURS.get(layer, 0)) + " " * (BAR - length)


def _split_bar(group: Group, most: int) -> str:
    """Calls as a bar, its failed part in colour at the end."""
    length = max(1, round(group.calls / most * BAR))
    failed = min(length, -(-group.failed * length // group.calls))
    bar = "█" * (length - failed) + _coloured("▒" * failed, 31)
    return bar + " " * (BAR - length)


def _coloured(text: str, colour: int) -> str:
    if not text or not colour or os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


# --------------------------------------------------------------------------- for Prometheus


def prometheus_text(found: Statistics) -> str:
    """The text exposition format 0.0.4."""
    lines = [
        "# HELP sandboxd_calls_total Calls that have ended, by outcome.",
        "# TYPE sandboxd_calls_total counter",
    ]
    for outcome, count in (
        ("ok", found.ok),
        ("answer", found.answers),
        ("failed", found.failed),
    ):
        lines.append(f'sandboxd_calls_total{{outcome="{outcome}"}} {count}')
    lines += [
        "# HELP sandboxd_failures_total Failed calls, by layer, origin and reason.",
        "# TYPE sandboxd_failures_total counter",
    ]
    lines += [
        f'sandboxd_failures_total{{layer="{_label(reason.layer)}",origin="{_label(reason.origin)}",'
        f'reason="{_label(reason.reason)}"}} {reason.count}'
        for reason in found.reasons
    ]
    for name, label, told, counts in (
        ("verdicts", "class", "Verdicts, by class.", found.classes),
        ("decisions", "decision", "Decisions, and by whose word.", found.decisions),
        ("launches", "tier", "Runs that were launched, by tier.", found.tiers),
        ("events", "kind", "Events in the log, by kind.", found.kinds),
    ):
        lines += [f"# HELP sandboxd_{name}_total {told}", f"# TYPE sandboxd_{name}_total counter"]
        lines += [
            f'sandboxd_{name}_total{{{label}="{_label(key)}"}} {count}'
            for key, count in counts.items()
        ]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
