"""`exec` as `sandboxd --help` knows it; the command itself never comes through click."""

from __future__ import annotations

import click

from sandboxd.cli.exec import main


@click.command(
    "exec",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def exec_command(words: tuple[str, ...]) -> int:
    return main(list(words))
