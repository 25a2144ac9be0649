"""A build whose lines are shown as they come, that is given up at the first error."""

from __future__ import annotations

import os
import sys

from sandboxd import Client
from sandboxd.errors import Cancelled

BUILD = "for n in 1 2 3; do echo compiling part $n; sleep 0.2; done; echo error: no part 4 >&2; sleep 60"

if __name__ == "__main__":
    with Client.spawn(workspace=os.getcwd()) as client:
        with client.stream(["bash", "-c", BUILD], approve="mutating") as run:
            for piece in run:
                for line in piece.lines or ():
                    sys.stdout.write(f"{piece.stream}: {line}\n")
                if piece.stream == "stderr":
                    break  # leaving the block ends the run and everything it has started
        try:
            run.result.exit_code  # noqa: B018  # the refusal is the point
        except Cancelled as cancelled:
            sys.stdout.write(f"ended: {cancelled.message}\n")
