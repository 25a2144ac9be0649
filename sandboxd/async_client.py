"""The asynchronous Python client; see `client.py`, from where it is imported.

A module of its own because it alone needs an event loop. Calls may run at the same time, a task that is
cancelled ends its call on the server first, and a lost connection is dialled again by the next call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TypeVar, Unpack

from msgspec import Raw, Struct, structs

from sandboxd.client_files import AsyncFiles
from sandboxd.errors import DaemonUnreachable, Fault, SandboxdError
from sandboxd.model import ExecRequest, Result
from sandboxd.protocol import messages as m
from sandboxd.protocol import wire
from sandboxd.protocol.asking import (
    Approver,
    ExecOptions,
    OnOutput,
    answer_question,
    exec_request,
    hung_up,
    output_of,
    with_id,
)
from sandboxd.protocol.dialing import Dialed, Opening, OpenOptions, by_command, to_socket
from sandboxd.protocol.lines import LineSplitter
from sandboxd.protocol.terminal_calls import AsyncTerminal, AsyncTerminalCalls, StartOptions

RECEIVE_BYTES = 262144
CANCEL_WITHIN_S = 10.0
"""How long a cancelled call waits for its tree to be dead."""

T = TypeVar("T", bound=Struct)


class AsyncClient(AsyncTerminalCalls):
    """A client for one event loop; calls may run at the same time."""

    def __init__(self, *, approver: Approver | None = None) -> None:
        """Use `connect` or `spawn`."""
        self._approver = approver
        self._opening: Opening | None = None
        self._dialed: Dialed | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._number = 0
        self._open: dict[wire.RequestId, asyncio.Future[Raw]] = {}
        self._outputs: dict[str, OnOutput] = {}
        self._questions: set[asyncio.Task[None]] = set()
        self._dialing = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self.session = None

    @classmethod
    async def connect(
        cls,
        socket_name: str | None = None,
        **options: Unpack[OpenOptions],
    ) -> AsyncClient:
        """Connect to a running daemon and open a session; raises like `Client.connect`."""
        return await cls._opened(Opening.of(to_socket(socket_name), options))

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str] | None = None,
        **options: Unpack[OpenOptions],
    ) -> AsyncClient:
        """Start a server of our own, as `Client.spawn`."""
        return await cls._opened(Opening.of(by_command(command), options))

    @classmethod
    async def _opened(cls, how: Opening) -> AsyncClient:
        client = cls(approver=how.approver)
        client._opening = how
        try:
            await client._reconnect()
        except BaseException:
            await client.close()
            raise
        return client

    async def terminal(
        self, command: str | Sequence[str] | None = None, **options: Unpack[StartOptions]
    ) -> AsyncTerminal:
        """Start a terminal; as a context manager it ends with the block."""
        return AsyncTerminal(self, await self.terminal_start(command, **options))

    def stream(self, command: str | Sequence[str], **options: Unpack[ExecOptions]) -> AsyncRun:
        """A command whose output is iterated over (`async with`); `result` is there at the end."""
        return AsyncRun(self, exec_request(command, **options))

    @property
    def files(self) -> AsyncFiles:
        """Read, write, edit, copy, patch, list, glob, grep, undo."""
        return AsyncFiles(self)

    async def call(
        self, method: str, params: Struct, result: type[T], on_output: OnOutput | None = None
    ) -> T:
        """One call of any row of the table. Cancelling it ends the call on the server first."""
        if method != "initialize":
            await self._reconnect()
        self._number += 1
        number, run_id = self._number, ""
        if on_output is not None and isinstance(params, ExecRequest):
            params = with_id(params)
            run_id = params.run_id or ""
            self._outputs[run_id] = on_output
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            self._send(wire.encode_request(number, method, params))
            with contextlib.suppress(ConnectionError):
                if self._writer is not None:
                    await self._writer.drain()
            return wire.decode_body(await asyncio.shield(answer), result)
        except asyncio.CancelledError:
            self._send(wire.encode_notification("cancel", m.Cancel(id=number)))
            await asyncio.wait({answer}, timeout=CANCEL_WITHIN_S)
            raise
        finally:
            self._open.pop(number, None)
            self._outputs.pop(run_id, None)
            answer.cancel() if not answer.done() else answer.exception()

    async def close(self) -> None:
        """Hang up; what still runs on this connection is ended by the server."""
        self._opening = None
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
        for question in self._questions:
            question.cancel()
        await self._hang_up()

    async def _hang_up(self) -> None:
        writer, self._writer = self._writer, None
        dialed, self._dialed = self._dialed, None
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        if dialed is not None and dialed.process is not None:
            await asyncio.to_thread(dialed.hang_up)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # ----------------------------------------------------------------- lines

    async def _reconnect(self) -> None:
        if self._writer is not None:
            return
        async with self._dialing:
            if self._writer is not None:
                return
            if self._opening is None:
                raise DaemonUnreachable("this client is closed", hint="connect another one")
            self._dialed = await asyncio.to_thread(self._opening.dial)
            self._dialed.connected.setblocking(False)
            reader, self._writer = await asyncio.open_unix_connection(
                sock=self._dialed.connected, limit=wire.LINE_LIMIT
            )
            self._reading = asyncio.ensure_future(self._read(reader))
            params = self._opening.again(self.session)
            try:
                self.session = await self.call("initialize", params, m.Initialized)
            except BaseException:
                await self._hang_up()
                raise

    def _send(self, line: bytes) -> None:
        if self._writer is not None:
            self._writer.write(line)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        lost: SandboxdError = hung_up()
        lines = LineSplitter()
        try:
            while chunk := await reader.read(RECEIVE_BYTES):
                for line in lines.feed(chunk):
                    self._take(wire.decode(line or b""))
        except SandboxdError as error:
            lost = error
        except ConnectionError:
            pass  # a daemon that was killed resets the connection instead of ending it
        except wire.WireError as error:
            lost = Fault(f"the connection broke: {error}")
        open_calls = list(self._open.values())
        await self._hang_up()
        for answer in open_calls:
            if not answer.done():
                answer.set_exception(lost)

    def _take(self, message: wire.Message) -> None:
        if isinstance(message, wire.Response | wire.Failure):
            self._answered(message)
        elif isinstance(message, wire.Request):
            question = asyncio.ensure_future(self._answer(message))
            self._questions.add(question)
            question.add_done_callback(self._questions.discard)
        else:
            output = output_of(message)
            on_output = self._outputs.get(output.run_id) if output else None
            if output is not None and on_output is not None:
                on_output(output)

    def _answered(self, message: wire.Response | wire.Failure) -> None:
        if message.id is None and isinstance(message, wire.Failure):
            raise wire.error_from(message.error)
        answer = self._open.get(message.id) if message.id is not None else None
        if answer is None or answer.done():
            return
        if isinstance(message, wire.Response):
            answer.set_result(message.result)
        else:
            answer.set_exception(wire.error_from(message.error))

    async def _answer(self, question: wire.Request) -> None:
        """Ask in a thread: the approver may block on a person."""
        line = await asyncio.to_thread(answer_question, question, self._approver)
        self._send(line)


class AsyncRun:
    """A command that runs while its output is iterated over; leaving the block early ends it."""

    def __init__(self, client: AsyncClient, request: ExecRequest) -> None:
        stream = "lines" if request.stream == "none" else request.stream
        self._request = with_id(structs.replace(request, stream=stream))
        self.id = self._request.run_id or ""
        self._client = client
        self._pieces: asyncio.Queue[m.CommandOutput | None] = asyncio.Queue()
        self._task: asyncio.Task[Result] | None = None

    async def __aenter__(self) -> AsyncRun:
        run = self._client.run(self._request, self._pieces.put_nowait)
        self._task = asyncio.ensure_future(run)
        self._task.add_done_callback(lambda _: self._pieces.put_nowait(None))
        return self

    async def __aiter__(self) -> AsyncIterator[m.CommandOutput]:
        """The pieces as they come; raises the refusal that the run ends with."""
        while (piece := await self._pieces.get()) is not None:
            yield piece
        await self.result()

    async def result(self) -> Result:
        """The result; waits for the end."""
        assert self._task is not None, "use `async with client.stream(...)`"
        return await self._task

    async def write(self, data: str | bytes, *, eof: bool = False) -> None:
        """Input for it, if it was started with `stdin_open`."""
        await self._client.write(self.id, data, eof=eof)

    async def terminate(self, signal: str = "TERM") -> None:
        await self._client.terminate(self.id, signal)

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
