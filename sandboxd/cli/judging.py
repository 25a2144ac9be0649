"""`classify` and `explain`: what a command would do, without running anything."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click
import msgspec

from sandboxd.cli.reaching import here, reach
from sandboxd.cli.told import visible
from sandboxd.client import Client
from sandboxd.errors import SandboxdError
from sandboxd.model import CommandClass, Reason, Verdict
from sandboxd.protocol.wire import encode_plain

_WORDS = {
    CommandClass.READ_ONLY: "reads",
    CommandClass.MUTATING: "changes things",
    CommandClass.DESTRUCTIVE: "destroys things",
}


def _options(command: click.Command) -> click.Command:
    """What both commands take."""
    for decorate in (
        click.argument("words", nargs=-1, type=click.UNPROCESSED),
        click.option("-c", "text", metavar="TEXT", help="Shell text."),
        click.option("--json", "is_json", is_flag=True, help="Print the verdict as JSON."),
        click.option("--workspace", metavar="DIR", help="The folder that may be written."),
        click.option("--profile", metavar="P", help="Policy profile: a name or a file."),
        click.option("--socket", metavar="PATH", help="The daemon's socket."),
        click.option("--no-daemon", is_flag=True, help="Use the engine in this process."),
    ):
        command = decorate(command)
    return command


@_options
@click.command("classify")
@click.option(
    "--batch",
    is_flag=True,
    help="One JSON string per line on stdin, one JSON verdict per line on stdout.",
)
def classify_command(
    words: tuple[str, ...],
    text: str | None,
    is_json: bool,
    workspace: str | None,
    profile: str | None,
    socket: str | None,
    no_daemon: bool,
    batch: bool,
) -> int:
    """Say what a command would do: read_only, mutating or destructive.

    The command is -c TEXT (or one quoted argument with blanks), or an argument vector after
    --, or shell text on stdin.
    """
    if batch and (words or text is not None):
        raise click.UsageError("--batch reads its commands from stdin; name none")
    with reach(socket, no_daemon=no_daemon) as client:
        client.initialize(here(workspace, profile))
        if batch:
            return _batch(client)
        verdict = client.classify(_command(words, text))
    if is_json:
        _print_json(verdict)
    else:
        click.echo(_short(verdict))
    return 0


@_options
@click.command("explain")
def explain_command(
    words: tuple[str, ...],
    text: str | None,
    is_json: bool,
    workspace: str | None,
    profile: str | None,
    socket: str | None,
    no_daemon: bool,
) -> int:
    """Say what a command would do, and why, part by part.

    The command is -c TEXT (or one quoted argument with blanks), or an argument vector after
    --, or shell text on stdin.
    """
    with reach(socket, no_daemon=no_daemon) as client:
        client.initialize(here(workspace, profile))
        verdict = client.classify(_command(words, text))
    if is_json:
        _print_json(verdict)
    else:
        click.echo("\n".join(_explained(verdict)))
    return 0


def _command(words: tuple[str, ...], text: str | None) -> str | list[str]:
    if words and text is not None:
        raise click.UsageError("both -c TEXT and a command after it; use one of them")
    if len(words) == 1 and len(words[0].split()) > 1:
        return words[0]  # nobody means a program with a blank in its name
    if words:
        return list(words)
    if text is not None:
        return text
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError(
            "no command; write -c TEXT, or `-- CMD ARGS...`, or pipe the text in"
        )
    return sys.stdin.buffer.read().decode("utf-8", "replace")


# --------------------------------------------------------------------------- batch


def _batch(client: Client) -> int:
    """A verdict for every line; what is no command gets an unparsed one."""
    for line in _lines():
        sys.stdout.buffer.write(encode_plain(_verdict_for(client, line)))
    sys.stdout.buffer.flush()
    return 0


def _lines() -> Iterable[bytes]:
    return (line for line in sys.stdin.buffer if line.strip()) if sys.stdin else ()


def _verdict_for(client: Client, line: bytes) -> Verdict:
    try:
        text = msgspec.json.decode(line, type=str)
    except (ValueError, RecursionError) as error:
        return unparsed(f"the line is not a JSON string: {error}")
    try:
        return client.classify(text)
    except SandboxdError as error:
        return unparsed(str(error))


def unparsed(why: str) -> Verdict:
    """The verdict for what cannot be read at all."""
    return Verdict(
        class_=CommandClass.DESTRUCTIVE,
        parsed=False,
        cacheable=False,
        reasons=(Reason("unparsed", why),),
    )


# --------------------------------------------------------------------------- words


def _print_json(verdict: Verdict) -> None:
    sys.stdout.buffer.write(encode_plain(verdict))
    sys.stdout.buffer.flush()


def _short(verdict: Verdict) -> str:
    told = "; ".join(visible(reason.message) for reason in verdict.reasons)
    word = verdict.class_.value if verdict.parsed else "cannot be read"
    return f"{word}: {told}" if told else word


def _explained(verdict: Verdict) -> list[str]:
    if verdict.parsed:
        lines = [f"{verdict.class_.value}: the command {_WORDS[verdict.class_]}"]
    else:
        lines = ["cannot be read: it is asked about every time"]
    lines += [f"  because {visible(reason.message)} [{reason.rule}]" for reason in verdict.reasons]
    if verdict.parts:
        lines.append("parts:")
        lines += [
            f"  {part.class_.value:11}  {visible(part.command)}  ({visible(part.reason)})"
            for part in verdict.parts
        ]
    for title, names in (
        ("reads", verdict.read_paths),
        ("writes", verdict.write_paths),
        ("reaches", verdict.hosts),
        ("runs", verdict.programs),
    ):
        if names:
            lines.append(f"{title}: {visible(', '.join(names))}")
    remember = "may" if verdict.cacheable else "may not"
    lines.append(f"an approval {remember} be remembered for the session")
    return lines
