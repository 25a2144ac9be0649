"""The command line. `exec` takes a fast path that imports almost nothing; the rest is click.

Start-up is part of the product: an agent runs `sandboxd exec` thousands of times, so this
module and everything `exec` needs against a running daemon must not load asyncio, click, json,
msgspec, socket, bashlex or yaml (a test asserts it). No command ever ends in a traceback.
"""

from __future__ import annotations

import os
import sys

FAILED = 125
INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if words[:1] == ["exec"]:
            from sandboxd.cli.exec import main as exec_main

            return exec_main(words[1:])
        from sandboxd.cli.group import main as group_main

        return group_main(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    """One sentence for what nobody expected; SANDBOXD_DEBUG=1 shows where it happened."""
    if os.environ.get("SANDBOXD_DEBUG"):
        raise error
    from sandboxd.cli.told import tell, tell_refusal
    from sandboxd.errors import Fault, Refusal, for_model

    if isinstance(error, Refusal):
        return tell_refusal(error.to_wire())
    if isinstance(error, Fault):
        for line in for_model(error).split("\n"):
            tell(line)
    else:
        tell(f"failed: {type(error).__name__}: {error}")
        tell("this is a bug; SANDBOXD_DEBUG=1 shows where")
    return FAILED
