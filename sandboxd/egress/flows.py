"""Carrying bytes both ways between two sockets, and counting who is under way.

A flow is driven by the event loop's readiness alone: one recv and one send for each chunk through a
buffer that all flows of a run share, nothing is read while the other side is not taking. The end of
one direction is passed on (half-close), a reset is passed on as a reset. Memory is bounded: one
shared buffer, and at most one chunk held for each direction that is blocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Callable, Coroutine

CHUNK = 256 * 1024
MAX_CONNECTIONS = 1024
"""At once, for one run; further ones wait in the kernel's backlog."""
IDLE_S = 3600.0
SWEEP_S = 60.0
ACCEPT_AT_ONCE = 64
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PAUSE_S = 0.1


def reset(connection: socket.socket) -> None:
    """Close so that the other side sees ECONNRESET and not an orderly end."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Connections:
    """Everything of one run that is under way: tasks, their number, their idle time."""

    def __init__(self, *, maximum: int = MAX_CONNECTIONS, idle_s: float = IDLE_S) -> None:
        self.loop = asyncio.get_running_loop()
        self.buffer = memoryview(bytearray(CHUNK))
        self.maximum = maximum
        self.idle_s = idle_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows: set[Flow] = set()
        self._acceptors: list[Acceptor] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self.is_closed = False

    @property
    def count(self) -> int:
        return len(self._tasks)

    @property
    def is_full(self) -> bool:
        return len(self._tasks) >= self.maximum

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run the work of one connection; it counts until it ends."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if self._sweeping is None:
            self._sweeping = self.loop.call_later(min(SWEEP_S, self.idle_s / 2), self._sweep)

    def accept_from(
        self,
        listener: socket.socket,
        handle: Callable[[socket.socket], Coroutine[None, None, None]],
    ) -> None:
        """Hand every connection that arrives at `listener` (ours from now on) to `handle`."""
        acceptor = Acceptor(self, listener, handle)
        self._acceptors.append(acceptor)
        acceptor.resume()

    async def carry(self, near: socket.socket, far: socket.socket, first: bytes = b"") -> None:
        """Carry bytes both ways until both have ended; `first` goes to `far` before all else, which
        may still be connecting. Both
        sockets stay the caller's to close; raises OSError when one side was reset or idle."""
        flow = Flow(self, near, far)
        self._flows.add(flow)
        try:
            await flow.run(first)
        finally:
            self._flows.discard(flow)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the handlers answer OSErrors; nothing else may fill the log
        if not self.is_closed:
            for acceptor in self._acceptors:
                acceptor.resume()

    def _sweep(self) -> None:
        oldest = self.loop.time() - self.idle_s
        for flow in list(self._flows):
            if flow.touched < oldest:
                flow.fail(OSError(errno.ETIMEDOUT, "idle"))
        delay = min(SWEEP_S, self.idle_s / 2)
        self._sweeping = self.loop.call_later(delay, self._sweep) if self._tasks else None

    async def close(self) -> None:
        """End everything; returns when every socket is closed."""
        self.is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for acceptor in self._acceptors:
            acceptor.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Acceptor:
    """One listening socket, read only while there is room."""

    def __init__(
        self,
        connections: Connections,
        listener: socket.socket,
        handle: Callable[[socket.socket], Coroutine[None, None, None]],
    ) -> None:
        self.connections = connections
        self.listener = listener
        self.handle = handle
        self._is_reading = False
        listener.setblocking(False)

    def resume(self) -> None:
        if not self._is_reading and not self.connections.is_full and self.listener.fileno() >= 0:
            self._is_reading = True
            self.connections.loop.add_reader(self.listener.fileno(), self._accept)

    def pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self.connections.loop.remove_reader(self.listener.fileno())

    def close(self) -> None:
        self.pause()
        self.listener.close()

    def _accept(self) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            if self.connections.is_full:
                self.pause()
                return
            try:
                near, _ = self.listener.accept()
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    self.pause()
                    self.connections.loop.call_later(PAUSE_S, self.resume)
                return
            near.setblocking(False)
            self.connections.spawn(self.handle(near))


class Flow:
    """Two halves that end together."""

    def __init__(self, connections: Connections, near: socket.socket, far: socket.socket) -> None:
        self.loop = connections.loop
        self.buffer = connections.buffer
        self.near, self.far = near, far
        self.touched = self.loop.time()
        self.far_answered = False
        """Whether `far` is surely connected."""
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.halves = (Half(self, near, far), Half(self, far, near))

    async def run(self, first: bytes) -> None:
        for side in (self.near, self.far):
            with contextlib.suppress(OSError):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.halves[0].start(first)
            self.halves[1].start()
            await self.ended
        finally:
            for half in self.halves:
                half.stop()

    def half_ended(self) -> None:
        if all(half.is_ended for half in self.halves) and not self.ended.done():
            self.ended.set_result(None)

    def fail(self, error: OSError) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)


class Half:
    """One direction: what `source` sends goes to `sink`."""

    def __init__(self, flow: Flow, source: socket.socket, sink: socket.socket) -> None:
        self.flow = flow
        self.source = source
        self.sink = sink
        self.held = b""
        self.is_reading = self.is_writing = self.is_ended = False

    def start(self, first: bytes = b"") -> None:
        self.held = first
        if first:
            self.flush()
        else:
            self.resume()

    def resume(self) -> None:
        self.is_reading = True
        self.flow.loop.add_reader(self.source.fileno(), self.read)

    def read(self) -> None:
        flow = self.flow
        try:
            count = self.source.recv_into(flow.buffer)
            flow.touched = flow.loop.time()
            flow.far_answered |= self.source is flow.far
            if count == 0:
                self.stop_reading()
                self.end()
                return
            chunk = flow.buffer[:count]
            sent = self.send(chunk)
            flow.far_answered |= sent > 0
        except BlockingIOError:
            return
        except OSError as error:
            flow.fail(error)
            return
        if sent < count:
            self.held = bytes(chunk[sent:])
            self.stop_reading()
            self.is_writing = True
            flow.loop.add_writer(self.sink.fileno(), self.flush)

    def end(self) -> None:
        """Pass the end on; to a sink that is still connecting once it is there, because shutdown(2)
        would break that off."""
        if self.flow.far_answered or self.sink is not self.flow.far:
            self.is_ended = True
            self.sink.shutdown(socket.SHUT_WR)
            self.flow.half_ended()
            return
        self.flow.far_answered = self.is_writing = True
        self.flow.loop.add_writer(self.sink.fileno(), self.flush)

    def send(self, chunk: memoryview | bytes) -> int:
        try:
            return self.sink.send(chunk)
        except BlockingIOError:
            return 0

    def flush(self) -> None:
        """Send what is held; read on when all of it is gone."""
        try:
            self.held = self.held[self.send(self.held) :]
        except OSError as error:
            self.flow.fail(error)
            return
        self.flow.touched = self.flow.loop.time()
        if not self.held:
            self.stop_writing()
            self.resume()
        elif not self.is_writing:
            self.is_writing = True
            self.flow.loop.add_writer(self.sink.fileno(), self.flush)

    def stop_reading(self) -> None:
        if self.is_reading:
            self.is_reading = False
            self.flow.loop.remove_reader(self.source.fileno())

    def stop_writing(self) -> None:
        if self.is_writing:
            self.is_writing = False
            self.flow.loop.remove_writer(self.sink.fileno())

    def stop(self) -> None:
        self.stop_reading()
        self.stop_writing()
