"""One connection: lines in, calls as tasks, replies and bounded notifications out.

A module of its own because everything about queues and limits of one client is here. Invariants:
- nothing a client does or omits blocks another client or a run: output notifications stop at
  `LINES_ROOM` queued bytes, or `RAW_ROOM` for raw bytes (the run counts a gap), and at
  `REPLY_ROOM` we stop reading;
- at most `BURST` lines are taken before everybody else has had a turn, and with more than
  `BACKLOG_BYTES` of them waiting we stop reading: a flood waits in its sender's own buffer;
- at most `MAX_CALLS` calls and `MAX_CALL_BYTES` bytes of their lines at a time, else overload;
- when the client goes, its calls are cancelled, and with them the trees of its runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from msgspec import Raw, Struct

from sandboxd.daemon.calls import Call
from sandboxd.daemon.host import Host
from sandboxd.daemon.outbox import Outbox
from sandboxd.daemon.service import Service
from sandboxd.errors import Cancelled, Overloaded, Refusal
from sandboxd.protocol import coercion, wire
from sandboxd.protocol.lines import LineSplitter
from sandboxd.protocol.methods import BY_NAME, Direction, Method
from sandboxd.protocol.wire import RequestId, WireError

LINES_ROOM = 1024 * 1024
RAW_ROOM = 32 * 1024 * 1024
"""More, because rendered lines are for watching and raw bytes are wanted whole."""
REPLY_ROOM = RAW_ROOM + 4 * 1024 * 1024
BURST = 2
BACKLOG_BYTES = 1024 * 1024
MAX_CALLS = 512
MAX_CALL_BYTES = 4 * wire.LINE_LIMIT

T = TypeVar("T", bound=Struct)
Handler = Callable[[Call | None, Struct], Awaitable[Struct | None]]


class Connection(asyncio.Protocol):
    """The server's end of one stream of lines."""

    def __init__(
        self,
        host: Host,
        *,
        admit: Callable[[asyncio.BaseTransport], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        """`admit` raises a Refusal for a peer that may not talk to us."""
        self._host = host
        self._admit = admit
        self._on_close = on_close
        self._service = Service(host, self)
        self._ending: asyncio.Task[None] | None = None
        self._lines = LineSplitter()
        self._backlog: deque[bytes | None] = deque()
        self._backlog_bytes = 0
        self._is_taking = False
        self._calls: dict[RequestId, Call] = {}
        self._call_bytes = 0
        self._abandoned: set[RequestId] = set()
        self._questions: dict[RequestId, asyncio.Future[Raw]] = {}
        self._asked = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._output: Outbox | None = None
        self._input: asyncio.ReadTransport | None = None
        self._is_resting = False

    # ----------------------------------------------------------------- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        both = cast(asyncio.Transport, transport)
        self.attach(both, both)
        if self._admit is None:
            return
        try:
            self._admit(transport)
        except Refusal as refusal:
            self._host.report("peer refused", code=refusal.code, why=refusal.message)
            self._write(wire.encode_failure(None, refusal))
            both.close()

    def attach(self, reader: asyncio.ReadTransport, writer: asyncio.WriteTransport) -> None:
        """Use these transports: one and the same for a socket, two for stdio."""
        self._input, self._output = reader, Outbox(writer)
        self._host.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._output is None:
            return
        self._output = None
        self._backlog.clear()
        self._host.gone(self)
        for task in self._tasks:
            task.cancel()
        for question in self._questions.values():
            question.cancel()
        self._ending = asyncio.get_running_loop().create_task(self._end())
        if self._on_close is not None:
            self._on_close(self)

    async def _end(self) -> None:
        """Once every tree is dead, let go of the session."""
        await self.finished()
        self._service.ended()

    def pause_writing(self) -> None:
        if self._output is not None:
            self._output.pause()

    def resume_writing(self) -> None:
        if self._output is not None:
            self._output.resume()
            self._balance_reading(self._output)

    def _balance_reading(self, output: Outbox) -> None:
        """Read on only while the client takes our replies and we have taken what it sent."""
        is_over = output.queued_bytes >= REPLY_ROOM or self._backlog_bytes >= BACKLOG_BYTES
        if is_over is self._is_resting or self._input is None or self._input.is_closing():
            return
        self._is_resting = is_over
        if is_over:
            self._input.pause_reading()
        else:
            self._input.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._output is None or self._output.is_closing:
            return
        for line in self._lines.feed(data):
            self._backlog.append(line)
            self._backlog_bytes += len(line or b"")
        if not self._is_taking:
            self._take_some()

    def _take_some(self) -> None:
        """A few lines now, the others when everybody else has had a turn."""
        for _ in range(min(BURST, len(self._backlog))):
            line = self._backlog.popleft()
            self._backlog_bytes -= len(line or b"")
            if line is None:
                told = f"a line may have {wire.LINE_LIMIT} bytes; a longer one was skipped"
                self._complain(WireError(wire.INVALID_REQUEST, told))
            elif line.strip():
                self._take(line)
        self._is_taking = bool(self._backlog)
        if self._is_taking:
            asyncio.get_running_loop().call_soon(self._take_some)
        if self._output is not None:
            self._balance_reading(self._output)

    @property
    def queued_bytes(self) -> int:
        """What waits to be sent."""
        return self._output.queued_bytes if self._output is not None else 0

    @property
    def calls(self) -> int:
        """Calls that are being answered, or wait to be."""
        return len(self._calls) + len(self._backlog)

    def close(self) -> None:
        """Hang up, once what is queued has been sent."""
        if self._output is not None:
            self._output.close()

    async def finished(self) -> None:
        """Wait until no call is left; after `connection_lost` that means: every tree is dead."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    # ----------------------------------------------------------------- lines in

    def _take(self, line: bytes) -> None:
        try:
            message = wire.decode(line)
        except WireError as error:
            self._complain(error)
            return
        if isinstance(message, wire.Request):
            self._begin(message, len(line))
        elif isinstance(message, wire.Notification):
            self._spawn(self._notified(message))
        else:
            self._answered(message)

    def _begin(self, request: wire.Request, size: int) -> None:
        if request.id in self._calls:
            self._complain(
                WireError(
                    wire.INVALID_REQUEST,
                    f"a call with the id {request.id!r} is still running",
                    request_id=request.id,
                )
            )
        elif len(self._calls) >= MAX_CALLS or self._call_bytes + size > MAX_CALL_BYTES:
            self._host.report("overloaded", calls=len(self._calls))
            self._write(wire.encode_failure(request.id, _overload()))
        else:
            self._call_bytes += size
            task = self._spawn(self._answer(request, size))
            self._calls[request.id] = Call(request.id, task)

    def _answered(self, message: wire.Response | wire.Failure) -> None:
        question = None if message.id is None else self._questions.pop(message.id, None)
        if question is None or question.done():
            return
        if isinstance(message, wire.Response):
            question.set_result(message.result)
        else:
            question.set_exception(wire.error_from(message.error))

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ----------------------------------------------------------------- calls

    async def _answer(self, request: wire.Request, size: int) -> None:
        try:
            method = _row(request.method, Direction.REQUEST)
            params, coerced = coercion.decode_params(method, request.params)
            result = await self._handle(method, self._calls[request.id], params)
            reply = _checked(wire.encode_response(request.id, cast(Struct, result), coerced))
        except asyncio.CancelledError:
            if request.id not in self._abandoned:
                raise
            reply = wire.encode_failure(request.id, _cancelled())
        except Exception as error:
            self._report(request.method, error)
            reply = wire.encode_failure(request.id, error)
        finally:
            self._calls.pop(request.id, None)
            self._abandoned.discard(request.id)
            self._call_bytes -= size
        self._write(reply)

    async def _notified(self, notification: wire.Notification) -> None:
        try:
            method = _row(notification.method, Direction.NOTICE)
            params, _ = coercion.decode_params(method, notification.params)
            await self._handle(method, None, params)
        except Exception as error:
            self._report(notification.method, error)
            self._write(wire.encode_failure(None, error))

    def _handle(
        self, method: Method, call: Call | None, params: Struct
    ) -> Awaitable[Struct | None]:
        handler: Handler = getattr(self._service, str(method.handler))
        return handler(call, params)

    def _report(self, method: str, error: Exception) -> None:
        """What nobody expected, in the server's log; with SANDBOXD_DEBUG=1 also where it happened."""
        if isinstance(error, Refusal | WireError):
            return
        self._host.report("fault", method=method, kind=type(error).__name__)
        if os.environ.get("SANDBOXD_DEBUG"):
            traceback.print_exception(error, file=sys.stderr)

    # ----------------------------------------------------------------- the Caller side

    def has_room(self, *, is_raw: bool) -> bool:
        room = RAW_ROOM if is_raw else LINES_ROOM
        return self._output is not None and self._output.queued_bytes < room

    def notify(self, method: str, params: Struct) -> None:
        self._write(wire.encode_notification(method, params))

    async def ask(self, method: str, params: Struct, answer: type[T]) -> T:
        self._asked += 1
        number = f"server-{self._asked}"
        question: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._questions[number] = question
        self._write(wire.encode_request(number, method, params))
        try:
            return wire.decode_body(await question, answer)
        finally:
            self._questions.pop(number, None)

    def cancel_call(self, number: RequestId) -> None:
        call = self._calls.get(number)
        if call is not None:
            self._abandoned.add(number)
            call.task.cancel()

    # ----------------------------------------------------------------- lines out

    def _complain(self, error: WireError) -> None:
        self._write(wire.encode_failure(error.request_id, error))

    def _write(self, line: bytes) -> None:
        if self._output is not None:
            self._output.put(line)
            self._balance_reading(self._output)


def _row(name: str, direction: Direction) -> Method:
    method = BY_NAME.get(name)
    if method is None:
        known = ", ".join(row.name for row in BY_NAME.values() if row.handler)
        raise WireError(wire.METHOD_NOT_FOUND, f"there is no method {name!r}; there are {known}")
    if method.direction is not direction:
        raise WireError(
            wire.INVALID_REQUEST, f"{name!r} goes the other way: {method.direction.value}"
        )
    return method


def _checked(line: bytes) -> bytes:
    if len(line) > wire.LINE_LIMIT:
        raise Overloaded(
            f"the reply has {len(line)} bytes; a line may have {wire.LINE_LIMIT}",
            hint="ask for less: smaller head_bytes and tail_bytes, or a smaller count",
        )
    return line


def _overload() -> Overloaded:
    return Overloaded(
        f"this connection has {MAX_CALLS} calls or {MAX_CALL_BYTES} bytes of them running already",
        hint="wait for some of them to end and try again",
    )


def _cancelled() -> Cancelled:
    return Cancelled("the call was cancelled before anything ran", hint="send it again if needed")
