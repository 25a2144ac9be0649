"""What all connections of one server share: the engine, its counters, and what status says."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import psutil

from sandboxd import __version__
from sandboxd.daemon.report import Report, unreported
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


class Client(Protocol):
    """A connection, as far as status speaks of it."""

    @property
    def queued_bytes(self) -> int: ...

    @property
    def calls(self) -> int: ...


class Host:
    """One engine and who is using it right now."""

    def __init__(
        self,
        engine: Engine,
        *,
        run: Run = run_command,
        socket: str | None = None,
        report: Report = unreported,
    ) -> None:
        """`report` hears of what an operator may want to know."""
        self.engine = engine
        self.run = run
        self.socket = socket
        self.report = report
        self.runs = 0
        self._clients: set[Client] = set()
        self._started = time.monotonic()

    @property
    def connections(self) -> int:
        return len(self._clients)

    def opened(self, client: Client) -> None:
        self._clients.add(client)
        self.report("connected", connections=self.connections)

    def gone(self, client: Client) -> None:
        self._clients.discard(client)
        self.report("disconnected", connections=self.connections)

    def begin_run(self) -> None:
        """Count one more run; raises Overloaded when there are too many. Pair with `end_run`."""
        if self.runs >= MAX_RUNS:
            self.report("overloaded", runs=self.runs)
            raise Overloaded(
                f"{MAX_RUNS} commands are running already",
                hint="wait for one of them to end and try again",
            )
        self.runs += 1

    def end_run(self) -> None:
        self.runs -= 1

    def status(self) -> Status:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        process = psutil.Process()
        sessions = self.engine.sessions()
        return Status(
            server=SERVER,
            pid=os.getpid(),
            socket=self.socket,
            uptime_s=round(time.monotonic() - self._started, 3),
            sessions=len(sessions),
            connections=self.connections,
            runs=self.runs,
            max_rss_bytes=most if os.uname().sysname == "Darwin" else most * 1024,
            rss_bytes=process.memory_info().rss,
            open_files=process.num_fds(),
            calls=sum(client.calls for client in self._clients),
            queued_bytes=sum(client.queued_bytes for client in self._clients),
            approvals=len(self.engine.approvals.pending()),
            terminals=sum(len(self.engine.terminals.of(one.id)) for one in sessions),
        )
