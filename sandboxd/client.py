"""Python clients of a running server: `Client` (blocking) and `AsyncClient`.

Both return the model's structs and raise the very classes of `errors.py`. A `Client` belongs to
one thread. Neither starts a daemon: `sandboxd serve --detach` does.

    with Client.connect(workspace="/src/project") as client:
        result = client.exec("make test", approve="mutating", on_output=print)
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from msgspec import Raw, Struct, structs

from sandboxd.errors import Fault, SandboxdError
from sandboxd.model import (
    Approve,
    ExecRequest,
    Result,
    Verdict,
)
from sandboxd.proposals import Role
from sandboxd.protocol import messages as m
from sandboxd.protocol import wire
from sandboxd.protocol.asking import (
    Approver,
    OnOutput,
    answer_question,
    assess_params,
    classify_params,
    connect_socket,
    exec_request,
    hung_up,
    opening,
    output_of,
)
from sandboxd.protocol.lines import LineSplitter
from sandboxd.protocol.terminal_calls import AsyncTerminalCalls, TerminalCalls

RECEIVE_BYTES = 262144

T = TypeVar("T", bound=Struct)


class Client(TerminalCalls):
    """A blocking client for one thread; use `connect`, or hand in a connected socket."""

    def __init__(self, connected: socket.socket, *, approver: Approver | None = None) -> None:
        self._socket = connected
        self._approver = approver
        self._lines = LineSplitter()
        self._ready: list[bytes | None] = []
        self._number = 0
        self.session: m.Initialized | None = None

    @classmethod
    def connect(
        cls,
        socket_name: str | None = None,
        *,
        workspace: str | None = None,
        cwd: str | None = None,
        profile: str | None = None,
        session_id: str | None = None,
        env: Mapping[str, str] | None = None,
        approver: Approver | None = None,
    ) -> Client:
        """Connect to a running daemon and open a session there.

        Raises DaemonUnreachable, and whatever the daemon says to `initialize`.
        """
        client = cls(connect_socket(socket_name), approver=approver)
        try:
            client.initialize(
                opening(
                    workspace=workspace,
                    cwd=cwd,
                    profile=profile,
                    session_id=session_id,
                    env=env,
                    approvals=approver is not None,
                )
            )
        except BaseException:
            client.close()
            raise
        return client

    def initialize(self, params: m.Initialize) -> m.Initialized:
        self.session = self.call("initialize", params, m.Initialized)
        return self.session

    def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        tier: str | None = None,
        min_tier: str | None = None,
        approve: Approve = "none",
        timeout_s: float | None = None,
        stdin: str | bytes | None = None,
        merge: bool = False,
        on_output: OnOutput | None = None,
    ) -> Result:
        """Run a command to its end; `on_output` receives rendered lines as they come.

        Raises the refusal the server answers with. A KeyboardInterrupt ends the run first.
        """
        request = exec_request(
            command,
            cwd=cwd,
            env=env,
            tier=tier,
            min_tier=min_tier,
            approve=approve,
            timeout_s=timeout_s,
            stdin=stdin,
            merge=merge,
        )
        return self.run(request, on_output)

    def run(self, request: ExecRequest, on_output: OnOutput | None = None) -> Result:
        """Like `exec`, with everything a request can say."""
        if on_output is not None and request.stream == "none":
            request = structs.replace(request, stream="lines")
        return self.call("command.exec", request, Result, on_output)

    def classify(
        self, command: str | Sequence[str], *, cwd: str | None = None, shell: str = "bash"
    ) -> Verdict:
        """What a command would do; runs nothing."""
        return self.call("classify", classify_params(command, cwd=cwd, shell=shell), Verdict)

    def assess(
        self,
        tool: str,
        parameters: Mapping[str, object],
        *,
        roles: Mapping[str, Role] | None = None,
        cwd: str | None = None,
    ) -> m.IntentAssessment:
        """Judge a call of the caller's own tool before it runs; touch the `paths` that come back."""
        asked = assess_params(tool, parameters, roles=roles, cwd=cwd)
        return self.call("intent.assess", asked, m.IntentAssessment)

    def tiers(self) -> tuple[m.TierStatus, ...]:
        return self.call("tier.list", m.Empty(), m.TierListing).tiers

    def status(self) -> m.Status:
        return self.call("status", m.Empty(), m.Status)

    def show_profile(self, profile: str | None = None, tier: str | None = None) -> m.ProfileShown:
        """The merged profile; with a tier its launch plan."""
        params = m.ProfileShow(profile=profile, tier=tier)
        return self.call("profile.show", params, m.ProfileShown)

    def explain(self, params: m.ProfileExplain) -> m.Explanation:
        """What would happen to a path, a host or a command; runs nothing."""
        return self.call("profile.explain", params, m.Explanation)

    def call(
        self, method: str, params: Struct, result: type[T], on_output: OnOutput | None = None
    ) -> T:
        """One call of any row of the table; answers what the server asks meanwhile."""
        self._number += 1
        number = self._number
        self._send(wire.encode_request(number, method, params))
        try:
            return wire.decode_body(self._answer_to(number, on_output), result)
        except KeyboardInterrupt:
            self._send(wire.encode_notification("cancel", m.Cancel(id=number)))
            with contextlib.suppress(SandboxdError):
                self._answer_to(number, None)
            raise

    def close(self) -> None:
        """Hang up; what still runs on this connection is ended by the server."""
        self._socket.close()

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

    def _send(self, line: bytes) -> None:
        # A peer that refused us has hung up: what it said is still there to be read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(line)

    def _answer_to(self, number: wire.RequestId, on_output: OnOutput | None) -> Raw:
        while True:
            message = wire.decode(self._next_line())
            if isinstance(message, wire.Response) and message.id == number:
                return message.result
            if isinstance(message, wire.Failure) and message.id in (number, None):
                raise wire.error_from(message.error)
            if isinstance(message, wire.Request):
                self._send(answer_question(message, self._approver))
            elif on_output is not None:
                output = output_of(message)
                if output is not None:
                    on_output(output)

    def _next_line(self) -> bytes:
        while not self._ready:
            try:
                chunk = self._socket.recv(RECEIVE_BYTES)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise hung_up()
            self._ready = self._lines.feed(chunk)
        line = self._ready.pop(0)
        if line is None:
            raise Fault("the server sent a line over the protocol's limit")
        return line


class AsyncClient(AsyncTerminalCalls):
    """A client for one event loop; calls may run at the same time."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        approver: Approver | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._approver = approver
        self._number = 0
        self._calls: dict[wire.RequestId, asyncio.Future[Raw]] = {}
        self._outputs: dict[str, OnOutput] = {}
        self._questions: set[asyncio.Task[None]] = set()
        self._lost: SandboxdError | None = None
        self._reading = asyncio.ensure_future(self._read())
        self.session: m.Initialized | None = None

    @classmethod
    async def connect(
        cls,
        socket_name: str | None = None,
        *,
        workspace: str | None = None,
        cwd: str | None = None,
        profile: str | None = None,
        session_id: str | None = None,
        env: Mapping[str, str] | None = None,
        approver: Approver | None = None,
    ) -> AsyncClient:
        """Connect to a running daemon and open a session; raises like `Client.connect`."""
        connected = connect_socket(socket_name)
        connected.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=connected, limit=wire.LINE_LIMIT)
        client = cls(reader, writer, approver=approver)
        try:
            params = opening(
                workspace=workspace,
                cwd=cwd,
                profile=profile,
                session_id=session_id,
                env=env,
                approvals=approver is not None,
            )
            client.session = await client.call("initialize", params, m.Initialized)
        except BaseException:
            await client.close()
            raise
        return client

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        tier: str | None = None,
        min_tier: str | None = None,
        approve: Approve = "none",
        timeout_s: float | None = None,
        stdin: str | bytes | None = None,
        merge: bool = False,
        on_output: OnOutput | None = None,
    ) -> Result:
        """Run a command to its end; cancelling the task ends the run."""
        request = exec_request(
            command,
            cwd=cwd,
            env=env,
            tier=tier,
            min_tier=min_tier,
            approve=approve,
            timeout_s=timeout_s,
            stdin=stdin,
            merge=merge,
        )
        return await self.run(request, on_output)

    async def run(self, request: ExecRequest, on_output: OnOutput | None = None) -> Result:
        """Like `exec`, with everything a request can say."""
        if on_output is None:
            return await self.call("command.exec", request, Result)
        run_id = request.run_id or "c-" + secrets.token_hex(8)
        stream = "lines" if request.stream == "none" else request.stream
        self._outputs[run_id] = on_output
        try:
            asked = structs.replace(request, run_id=run_id, stream=stream)
            return await self.call("command.exec", asked, Result)
        finally:
            del self._outputs[run_id]

    async def classify(
        self, command: str | Sequence[str], *, cwd: str | None = None, shell: str = "bash"
    ) -> Verdict:
        """What a command would do; runs nothing."""
        return await self.call("classify", classify_params(command, cwd=cwd, shell=shell), Verdict)

    async def assess(
        self,
        tool: str,
        parameters: Mapping[str, object],
        *,
        roles: Mapping[str, Role] | None = None,
        cwd: str | None = None,
    ) -> m.IntentAssessment:
        """Judge a call of the caller's own tool before it runs; touch the `paths` that come back."""
        asked = assess_params(tool, parameters, roles=roles, cwd=cwd)
        return await self.call("intent.assess", asked, m.IntentAssessment)

    async def tiers(self) -> tuple[m.TierStatus, ...]:
        return (await self.call("tier.list", m.Empty(), m.TierListing)).tiers

    async def status(self) -> m.Status:
        return await self.call("status", m.Empty(), m.Status)

    async def call(self, method: str, params: Struct, result: type[T]) -> T:
        """One call of any row of the table."""
        if self._lost is not None:
            raise self._lost
        self._number += 1
        number = self._number
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        try:
            self._writer.write(wire.encode_request(number, method, params))
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()
            return wire.decode_body(await answer, result)
        except asyncio.CancelledError:
            self._writer.write(wire.encode_notification("cancel", m.Cancel(id=number)))
            raise
        finally:
            del self._calls[number]

    async def close(self) -> None:
        """Hang up; what still runs on this connection is ended by the server."""
        self._reading.cancel()
        for question in self._questions:
            question.cancel()
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

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

    async def _read(self) -> None:
        lost: SandboxdError = hung_up()
        lines = LineSplitter()
        try:
            while chunk := await self._reader.read(RECEIVE_BYTES):
                for line in lines.feed(chunk):
                    self._take(wire.decode(line or b""))
        except SandboxdError as error:
            lost = error
        except (ConnectionError, wire.WireError) as error:
            lost = Fault(f"the connection broke: {error}")
        self._lost = lost
        for answer in self._calls.values():
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
        answer = self._calls.get(message.id) if message.id is not None else None
        if answer is None or answer.done():
            return
        if isinstance(message, wire.Response):
            answer.set_result(message.result)
        else:
            answer.set_exception(wire.error_from(message.error))

    async def _answer(self, question: wire.Request) -> None:
        """Ask in a thread: the approver may block on a person."""
        line = await asyncio.to_thread(answer_question, question, self._approver)
        self._writer.write(line)
