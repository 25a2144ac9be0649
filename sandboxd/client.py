"""Python clients of a server: `Client` (blocking) and `AsyncClient`.

Both return the model's structs and raise the very classes of `errors.py`; every method is written once
(`protocol/calls.py`, `protocol/terminal_calls.py`), and this module holds the blocking one. A `Client` belongs to one thread and needs no event
loop. When the connection is lost the call that was on its way raises DaemonUnreachable, because nobody
knows how far it got; the next call connects again, to the same session.

    with Client.connect(workspace="/src/project") as client:       # a running daemon
        result = client.exec("make test", approve="mutating", on_output=print)

    with Client.spawn(["ssh", "host", "sandboxd", "serve", "--stdio"], workspace="/src/project") as client:
        with client.stream("make", approve="mutating") as run:      # a server of our own, over there
            for piece in run:
                print(*piece.lines or (), sep="\\n")
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TypeVar, Unpack

from msgspec import Struct, structs

from sandboxd.async_client import AsyncClient, AsyncRun
from sandboxd.client_files import Files
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
from sandboxd.protocol.blocking import Blocking, blocking
from sandboxd.protocol.dialing import Dialed, Opening, OpenOptions, by_command, to_socket
from sandboxd.protocol.lines import LineSplitter
from sandboxd.protocol.terminal_calls import (
    AsyncTerminal,
    AsyncTerminalCalls,
    StartOptions,
    Terminal,
)

__all__ = ["AsyncClient", "AsyncRun", "AsyncTerminal", "Client", "Run", "Terminal"]

RECEIVE_BYTES = 262144

T = TypeVar("T", bound=Struct)


class _Answers(AsyncTerminalCalls):
    """The asynchronous self of a blocking client: its `call` has the answer when it returns."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(
        self, method: str, params: Struct, result: type[T], on_output: OnOutput | None = None
    ) -> T:
        return self._client.call(method, params, result, on_output)


class Client(Blocking[AsyncTerminalCalls]):
    """A blocking client for one thread; use `connect`, `spawn`, or hand in a connected socket."""

    def __init__(
        self, connected: socket.socket | Dialed, *, approver: Approver | None = None
    ) -> None:
        self._dialed: Dialed | None = (
            connected if isinstance(connected, Dialed) else Dialed(connected)
        )
        self._opening: Opening | None = None
        self._approver = approver
        self._lines = LineSplitter()
        self._ready: list[bytes | None] = []
        self._number = 0
        self._open: dict[wire.RequestId, wire.Response | wire.Failure | None] = {}
        """The calls that are on their way, and their answers once they have come."""
        self._outputs: dict[str, OnOutput] = {}
        self._listening: dict[int, str] = {}
        """By call: the run whose output somebody hears."""
        self._calls = _Answers(self)
        self.session: m.Initialized | None = None

    @classmethod
    def connect(
        cls,
        socket_name: str | None = None,
        **options: Unpack[OpenOptions],
    ) -> Client:
        """Connect to a running daemon and open a session there.

        Raises DaemonUnreachable, and whatever the daemon says to `initialize`.
        """
        return cls._opened(Opening.of(to_socket(socket_name), options))

    @classmethod
    def spawn(
        cls,
        command: Sequence[str] | None = None,
        **options: Unpack[OpenOptions],
    ) -> Client:
        """Start a server of our own, which ends with this client: here, or by a command that leads to
        `sandboxd serve --stdio` elsewhere (then name the workspace as it is called over there).

        Raises DaemonUnreachable when it cannot be started or ends at once.
        """
        return cls._opened(Opening.of(by_command(command), options))

    @classmethod
    def _opened(cls, how: Opening) -> Client:
        client = cls(how.dial(), approver=how.approver)
        client._opening = how
        try:
            client.initialize(how.params)
        except BaseException:
            client.close()
            raise
        return client

    def initialize(self, params: m.Initialize) -> m.Initialized:
        self.session = self.call("initialize", params, m.Initialized)
        return self.session

    exec = blocking(AsyncTerminalCalls.exec)
    run = blocking(AsyncTerminalCalls.run)
    classify = blocking(AsyncTerminalCalls.classify)
    assess = blocking(AsyncTerminalCalls.assess)
    write = blocking(AsyncTerminalCalls.write)
    terminate = blocking(AsyncTerminalCalls.terminate)
    read_output = blocking(AsyncTerminalCalls.read_output)
    sessions = blocking(AsyncTerminalCalls.sessions)
    close_session = blocking(AsyncTerminalCalls.close_session)
    approvals = blocking(AsyncTerminalCalls.approvals)
    answer = blocking(AsyncTerminalCalls.answer)
    tiers = blocking(AsyncTerminalCalls.tiers)
    show_profile = blocking(AsyncTerminalCalls.show_profile)
    explain = blocking(AsyncTerminalCalls.explain)
    status = blocking(AsyncTerminalCalls.status)
    terminal_start = blocking(AsyncTerminalCalls.terminal_start)
    terminal_write = blocking(AsyncTerminalCalls.terminal_write)
    terminal_read = blocking(AsyncTerminalCalls.terminal_read)
    terminal_resize = blocking(AsyncTerminalCalls.terminal_resize)
    terminal_kill = blocking(AsyncTerminalCalls.terminal_kill)
    terminals = blocking(AsyncTerminalCalls.terminals)

    def terminal(
        self, command: str | Sequence[str] | None = None, **options: Unpack[StartOptions]
    ) -> Terminal:
        """Start a terminal; as a context manager it ends with the block."""
        return Terminal(self._calls, self.terminal_start(command, **options))

    def stream(self, command: str | Sequence[str], **options: Unpack[ExecOptions]) -> Run:
        """Start a command whose output is iterated over; `result` is there at the end."""
        return Run(self, exec_request(command, **options))

    @property
    def files(self) -> Files:
        """Read, write, edit, copy, patch, list, glob, grep, undo."""
        return Files(self._calls)

    def call(
        self, method: str, params: Struct, result: type[T], on_output: OnOutput | None = None
    ) -> T:
        """One call of any row of the table; answers what the server asks meanwhile."""
        number = self.begin(method, params, on_output)
        try:
            return self.finish(number, result)
        finally:
            self._outputs.pop(self._listening.pop(number, ""), None)

    def begin(self, method: str, params: Struct, on_output: OnOutput | None = None) -> int:
        """Send a call; `finish` has its answer."""
        if method != "initialize":
            self._reconnect()
        self._number += 1
        self._open[self._number] = None
        if on_output is not None and isinstance(params, ExecRequest):
            params = with_id(params)
            self._outputs[params.run_id or ""] = on_output
            self._listening[self._number] = params.run_id or ""
        self._send(wire.encode_request(self._number, method, params))
        return self._number

    def finish(self, number: int, result: type[T]) -> T:
        """Wait for the answer to a call. Whatever interrupts the waiting ends the call first."""
        try:
            while self._open[number] is None:
                self.step()
            answer = self._open[number]
        except SandboxdError:
            raise
        except BaseException:
            self._send(wire.encode_notification("cancel", m.Cancel(id=number)))
            with contextlib.suppress(SandboxdError):
                while self._open.get(number, wire.NO_PARAMS) is None:
                    self.step()
            raise
        finally:
            self._open.pop(number, None)
        if isinstance(answer, wire.Failure):
            raise wire.error_from(answer.error)
        assert isinstance(answer, wire.Response)
        return wire.decode_body(answer.result, result)

    def is_answered(self, number: int) -> bool:
        return self._open.get(number) is not None

    def abandon(self, number: int) -> None:
        """End a call that nobody waits for any more; `finish` then has its refusal."""
        if self._open.get(number, wire.NO_PARAMS) is None:
            self._send(wire.encode_notification("cancel", m.Cancel(id=number)))

    def step(self) -> None:
        """Take one message: an answer, live output, or a question."""
        line = self._next_line()
        try:
            message = wire.decode(line)
        except wire.WireError as error:
            self._lose()
            raise Fault(f"whoever answers does not speak this protocol: {error}") from error
        if isinstance(message, wire.Request):
            self._send(answer_question(message, self._approver))
        elif isinstance(message, wire.Notification):
            output = output_of(message)
            on_output = self._outputs.get(output.run_id) if output is not None else None
            if output is not None and on_output is not None:
                on_output(output)
        elif message.id is None and isinstance(message, wire.Failure):
            raise wire.error_from(message.error)
        elif message.id in self._open:
            self._open[message.id] = message

    def forget_output(self, run_id: str) -> None:
        self._outputs.pop(run_id, None)

    def close(self) -> None:
        """Hang up; what still runs on this connection is ended by the server."""
        dialed, self._dialed, self._opening = self._dialed, None, None
        if dialed is not None:
            dialed.hang_up()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ----------------------------------------------------------------- lines

    def _reconnect(self) -> None:
        if self._dialed is not None:
            return
        if self._opening is None:
            raise DaemonUnreachable("this client is closed", hint="connect another one")
        self._dialed, self._lines = self._opening.dial(), LineSplitter()
        self.initialize(self._opening.again(self.session))

    def _lose(self) -> DaemonUnreachable:
        """The connection is gone, and with it every call that was on its way."""
        dialed, self._dialed = self._dialed, None
        if dialed is not None:
            dialed.hang_up()
        self._ready.clear()
        self._outputs.clear()
        return hung_up()

    def _send(self, line: bytes) -> None:
        # A peer that refused us has hung up: what it said is still there to be read.
        with contextlib.suppress(OSError):
            if self._dialed is not None:
                self._dialed.connected.sendall(line)

    def _next_line(self) -> bytes:
        while not self._ready:
            if self._dialed is None:
                raise hung_up()
            try:
                chunk = self._dialed.connected.recv(RECEIVE_BYTES)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise self._lose()
            self._ready = self._lines.feed(chunk)
        line = self._ready.pop(0)
        if line is None:
            raise Fault("the server sent a line over the protocol's limit")
        return line


class Run:
    """A command that runs while its output is iterated over; leaving the block early ends it."""

    def __init__(self, client: Client, request: ExecRequest) -> None:
        """It starts here."""
        stream = "lines" if request.stream == "none" else request.stream
        request = with_id(structs.replace(request, stream=stream))
        self.id = request.run_id or ""
        self._client = client
        self._pieces: list[m.CommandOutput] = []
        self._result: Result | SandboxdError | None = None
        self._number = client.begin("command.exec", request, self._pieces.append)

    def __iter__(self) -> Iterator[m.CommandOutput]:
        """The pieces as they come; raises the refusal that the run ends with."""
        while self._result is None or self._pieces:
            while self._pieces:
                yield self._pieces.pop(0)
            if self._result is None and self._client.is_answered(self._number):
                self._end()
            elif self._result is None:
                self._client.step()

    @property
    def result(self) -> Result:
        """The result; waits for the end, and drops what was not iterated over."""
        return self._end()

    def write(self, data: str | bytes, *, eof: bool = False) -> None:
        """Input for it, if it was started with `stdin_open`."""
        self._client.write(self.id, data, eof=eof)

    def terminate(self, signal: str = "TERM") -> None:
        self._client.terminate(self.id, signal)

    def _end(self) -> Result:
        if isinstance(self._result, SandboxdError):
            raise self._result
        if self._result is None:
            try:
                self._result = self._client.finish(self._number, Result)
            except SandboxdError as error:
                self._result = error
                raise
            finally:
                self._client.forget_output(self.id)
        return self._result

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self._result is None:
            self._client.abandon(self._number)
            with contextlib.suppress(SandboxdError):
                self._end()
