"""What the server tells its operator: one line for each thing that happens to the server itself.

A module of its own because it is neither the event log (what runs did, kept for ever) nor an answer to
a client. With `--log-json` each line is an object with `time`, `event` and what belongs to it.
"""

from __future__ import annotations

import json
import os
import time
from typing import Protocol


class Report(Protocol):
    """Hears of something; never raises, never blocks for long."""

    def __call__(self, event: str, /, **about: str | int | float | None) -> None: ...


def unreported(event: str, /, **about: str | int | float | None) -> None:
    """Nobody wants to know."""


def as_json(event: str, /, **about: str | int | float | None) -> None:
    """A JSON object on a line of stderr; a reader that has gone is no reason to end."""
    line = json.dumps({"time": round(time.time(), 3), "event": event, **about})
    try:
        os.write(2, line.encode("ascii") + b"\n")
    except OSError:
        return
