"""What all connections of one server share: the engine, its counters, and what status says."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sandboxd import __version__
from sandboxd.errors import Overloaded
from sandboxd.model import ExecRequest, Result
from sandboxd.pipeline import Engine, RunChannel, run_command
from sandboxd.protocol.messages import ServerInfo, Status

MAX_RUNS = 512
"""Runs at one time, over all connections; one more is refused as overload."""

if TYPE_CHECKING:
    from sandboxd.sessions import Session

    Run = Callable[[Engine, Session, ExecRequest, RunChannel], Awaitable[Result]]

SERVER = ServerInfo(name="sandboxd", version=__version__)


class Host:
    """One engine and who is using it right now."""

    def __init__(
        self, engine: Engine, *, run: Run = run_command, socket: str | None = None
    ) -> None:
        self.engine = engine
        self.run = run
        self.socket = socket
        self.connections = 0
        self.runs = 0
        self._started = time.monotonic()

    def begin_run(self) -> None:
        """Count one more run; raises Overloaded when there are too many. Pair with `end_run`."""
        if self.runs >= MAX_RUNS:
            raise Overloaded(
                f"{MAX_RUNS} commands are running already",
                hint="wait for one of them to end and try again",
            )
        self.runs += 1

    def end_run(self) -> None:
        self.runs -= 1

    def status(self) -> Status:
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return Status(
            server=SERVER,
            pid=os.getpid(),
            socket=self.socket,
            uptime_s=round(time.monotonic() - self._started, 3),
            sessions=len(self.engine.sessions()),
            connections=self.connections,
            runs=self.runs,
            max_rss_bytes=rss if os.uname().sysname == "Darwin" else rss * 1024,
        )
