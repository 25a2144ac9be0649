"""Serving the protocol: over a Unix socket, over stdio, or to one socket in this process.

A module of its own because it is the only place that ties connections to an event loop, an
engine and signals. Whatever ends the server, the order is the same: no new connections, calls
cancelled, trees dead, zygote gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import stat
from collections.abc import Callable
from typing import cast

from sandboxd.daemon.connection import Connection
from sandboxd.daemon.host import Host
from sandboxd.daemon.peers import check_peer
from sandboxd.daemon.report import Report, unreported
from sandboxd.errors import SocketUnusable
from sandboxd.pipeline import Engine

OPEN_FILES = 65536
"""Descriptors the daemon itself may have; runs keep the limits from before."""

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Server:
    """The live connections of one host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._connections: set[Connection] = set()

    def open_connection(self) -> Connection:
        """A connection for a peer from the socket, who is checked first."""
        connection = Connection(self.host, admit=self._admit, on_close=self._connections.discard)
        self._connections.add(connection)
        return connection

    def _admit(self, transport: asyncio.BaseTransport) -> None:
        connected = cast(socket.socket, transport.get_extra_info("socket"))
        check_peer(connected, self.host.engine.is_own_child)

    async def close(self) -> None:
        """Hang up on everybody and wait until their runs are dead."""
        ending = list(self._connections)
        for connection in ending:
            connection.connection_lost(None)
        await asyncio.gather(*(connection.finished() for connection in ending))


WARM_UP_S = 5.0


async def serve_socket(
    listening: socket.socket,
    path: str,
    ready: Callable[[], None],
    report: Report = unreported,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; calls `ready` once connections are answered."""
    engine = await Engine.create(socket=path, keeps_spare=True)
    try:
        raise_open_files()
        server = Server(Host(engine, socket=path, report=report))
        stopping = stop_event()
        acceptor = await asyncio.get_running_loop().create_unix_server(
            server.open_connection, sock=listening, backlog=1024
        )
        ready()
        report("listening", socket=path, pid=os.getpid())
        warming = asyncio.ensure_future(engine.warm_up())
        housekeeping = asyncio.ensure_future(engine.keep_house())
        await stopping.wait()
        report("stopping", connections=server.host.connections, runs=server.host.runs)
        housekeeping.cancel()
        acceptor.close()
        await asyncio.wait({warming}, timeout=WARM_UP_S)  # it may be starting a process
        await server.close()
    finally:
        await engine.close()


async def serve_stdio() -> None:
    """Serve one client over stdin and stdout until it closes stdin or we are told to stop."""
    engine = await Engine.create(keeps_spare=True)
    try:
        raise_open_files()
        stopping = stop_event()
        connection = Connection(Host(engine), on_close=lambda _: stopping.set())
        await _attach_stdio(connection)
        await stopping.wait()
        connection.connection_lost(None)
        await connection.finished()
    finally:
        await engine.close()


async def serve_one(connected: socket.socket, *, is_ready: Callable[[], None]) -> None:
    """Serve one client in this process (the embedded engine) until it hangs up."""
    engine = await Engine.create()
    try:
        gone = asyncio.Event()
        connection = Connection(Host(engine), on_close=lambda _: gone.set())
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, connected)
        is_ready()
        await gone.wait()
        await connection.finished()
    finally:
        await engine.close()


class _Half(asyncio.Protocol):
    """One direction of stdio; passes everything on to the connection."""

    def __init__(
        self, connection: Connection, writer: asyncio.WriteTransport | None = None
    ) -> None:
        """The reading half gets the `writer`, and attaches both before any byte can come."""
        self._connection = connection
        self._writer = writer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._writer is not None:
            self._connection.attach(cast(asyncio.ReadTransport, transport), self._writer)

    def data_received(self, data: bytes) -> None:
        self._connection.data_received(data)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


async def _attach_stdio(connection: Connection) -> None:
    """Take over fds 0 and 1; whatever else prints goes to stderr."""
    loop = asyncio.get_running_loop()
    for number, name in ((0, "stdin"), (1, "stdout")):
        if not _can_be_polled(number):
            raise SocketUnusable(
                f"{name} is neither a pipe, a socket nor a terminal",
                hint="--stdio talks to the process that started it; use --socket otherwise",
            )
    if _is_one_socket(0, 1):
        # As sshd has it. A pipe transport would take what comes in for the far end's closing.
        both = socket.socket(fileno=os.dup(0))
        both.setblocking(False)
        os.dup2(2, 1)
        await loop.connect_accepted_socket(lambda: connection, both)
        return
    source, sink = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    writer, _ = await loop.connect_write_pipe(lambda: _Half(connection), os.fdopen(sink, "wb", 0))
    await loop.connect_read_pipe(lambda: _Half(connection, writer), os.fdopen(source, "rb", 0))


def _is_one_socket(one: int, other: int) -> bool:
    first, second = os.fstat(one), os.fstat(other)
    is_same = (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
    return is_same and stat.S_ISSOCK(first.st_mode)


def _can_be_polled(number: int) -> bool:
    try:
        mode = os.fstat(number).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


def stop_event() -> asyncio.Event:
    """An event that the stop signals set; those that are ignored stay so (`nohup`)."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stopping.set)
    return stopping


def raise_open_files() -> None:
    """Allow this process many descriptors; the zygote was started before and keeps its limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
