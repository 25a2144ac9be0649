"""Every command but `exec`, by click; loaded only when one of them is called.

Each command lives in the module named beside it, so that `sandboxd --help` loads none of them.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys

import click

from sandboxd import __version__
from sandboxd.cli.told import tell

USAGE = 2
FAILED = 125
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""What only a write to a standard descriptor says without a file's name."""

_COMMANDS = {
    "exec": ("running", "Run one command, confined."),
    "classify": ("judging", "Say what a command would do."),
    "explain": ("judging", "Say what a command would do, and why, part by part."),
    "serve": ("serving", "Run the daemon."),
    "approve": ("approving", "Answer what runs ask, in this terminal."),
    "terminal": ("terminals", "Terminals that outlive the call."),
    "assess": ("assessing", "Say what the rules have against a tool call."),
    "events": ("events", "Look at the event log, follow it, check it."),
    "replay": ("replaying", "Judge a recorded session again under other rules."),
    "report": ("reporting", "Write a session as one page."),
    "stats": ("counting", "How calls ended, and whose the failures were."),
    "file": ("filing", "Guarded files: read, write, edit, copy, patch, list, glob, grep, undo."),
    "service": ("service", "Start the daemon with your login, when it is needed."),
    "status": ("inspecting", "Ask the daemon how it is."),
    "profile": ("profiles", "Show, check and explain what a run may touch."),
    "doctor": ("inspecting", "Try every tier on this host."),
    "verify": ("verifying", "Try to break out of every tier on this host."),
    "completion": ("completing", "Print a shell's completion script."),
    "man": ("manual", "Write the manual pages."),
    "schema": ("inspecting", "Print the protocol's schema."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"sandboxd.cli.{_COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, told) in _COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sandboxd")
def group() -> None:
    """The gate beneath a coding agent's tools: judge, confine, run, answer honestly."""


def main(words: list[str]) -> int:
    """Run one command line; returns the exit code."""
    if sys.stdout is None:  # closed by the caller
        if words[:1] != ["serve"]:
            tell("cannot write the output: it is closed")
            return FAILED
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for as long as the process
    try:
        code = group.main(args=words, prog_name="sandboxd", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return USAGE
    except click.UsageError as error:
        return _misused(error)
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except click.ClickException as error:
        tell(error.format_message())
        return USAGE
    except BrokenPipeError:
        _drop_output()
        return 0
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        _drop_output()
        tell(f"cannot write the output: {error.strerror}")
        return FAILED
    return code if isinstance(code, int) else 0


def _drop_output() -> None:
    """What is still buffered goes nowhere: the interpreter would try again at its end, and complain."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _misused(error: click.UsageError) -> int:
    tell(error.format_message())
    command = error.ctx.command_path if error.ctx else "sandboxd"
    tell(f"hint: {command} --help")
    return USAGE
