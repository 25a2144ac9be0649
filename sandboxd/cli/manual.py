"""`man`: manual pages, built from the commands and their options, one page each.

Source of the format: man(7).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from sandboxd import __version__

EXIT_CODES = """The program's own; 128+n when signal n ended it; 124 time-out; 125 refused or failed; 126 not
executable; 127 not found; 2 usage."""


@click.command("man")
@click.option("--output", metavar="DIR", help="Write sandboxd*.1 there instead of printing.")
@click.argument("name", required=False)
def man_command(output: str | None, name: str | None) -> int:
    """Print the page of a command (`sandboxd man exec | man -l -`), or write all of them."""
    pages = dict(all_pages())
    if output is not None:
        os.makedirs(output, exist_ok=True)
        for page, text in pages.items():
            with open(os.path.join(output, f"{page}.1"), "w", encoding="utf-8") as file:
                file.write(text)
        click.echo(f"wrote {len(pages)} pages to {output}")
        return 0
    wanted = "sandboxd" + (f"-{name.replace(' ', '-')}" if name else "")
    if wanted not in pages:
        known = ", ".join(page.removeprefix("sandboxd-") for page in pages)
        raise click.UsageError(f"there is no page {name!r}; there are {known}")
    click.echo(pages[wanted], nl=False)
    return 0


def all_pages() -> Iterator[tuple[str, str]]:
    """Name and text of each page."""
    from sandboxd.cli.group import group

    yield from _pages(group, ["sandboxd"])


def _pages(command: click.Command, words: list[str]) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=" ".join(words))
    yield "-".join(words), _page(command, context, words)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _pages(child, [*words, name])


def _page(command: click.Command, context: click.Context, words: list[str]) -> str:
    title = "-".join(words)
    help_text = (command.help or "").replace("\b", "").strip()
    summary = help_text.split("\n\n")[0].replace("\n", " ") or command.get_short_help_str(80)
    if words[1:] == ["exec"]:
        summary = "run one command: judged, confined by the kernel, with honest output"
    lines = [
        f'.TH "{title.upper()}" 1 "" "sandboxd {__version__}" "User Commands"',
        ".SH NAME",
        f"{_roff(title)} \\- {_roff(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_roff(' '.join(words))}",
        _roff(" ".join(command.collect_usage_pieces(context))),
    ]
    lines += [".SH DESCRIPTION", *_paragraphs(help_text)] if help_text else []
    lines += [".SH OPTIONS", *_options(command, context, words)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                lines += [".TP", f".B {_roff(name)}", _roff(child.get_short_help_str(200))]
    if words[1:] == ["exec"]:
        lines += [".SH EXIT STATUS", _roff(EXIT_CODES)]
    return "\n".join(lines) + "\n"


def _options(command: click.Command, context: click.Context, words: list[str]) -> Iterator[str]:
    if words[1:] == ["exec"]:  # parsed by hand: its own help is the table
        from sandboxd.cli.options import help_text

        yield from (".nf", *map(_roff, help_text().split("Options:\n")[1].split("\n")), ".fi")
        return
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", f".B {_roff(record[0])}", _roff(record[1]))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield from (".PP", _roff(" ".join(paragraph.split())))


def _roff(text: str) -> str:
    """Text that no line of which is taken for a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        "\\&" + line if line[:1] in (".", "'") else line for line in escaped.split("\n")
    )
