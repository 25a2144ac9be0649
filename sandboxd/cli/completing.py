"""`completion`: a shell's completion script, made from the commands themselves."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_SANDBOXD_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> int:
    """Print it; load it with `source <(sandboxd completion bash)`, or save it where the shell looks."""
    from sandboxd.cli.group import group

    kind = get_completion_class(shell)
    assert kind is not None  # click knows the three
    click.echo(kind(group, {}, "sandboxd", VARIABLE).source())
    return 0
