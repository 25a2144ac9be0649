"""One run of one client: live output outwards, input, signals and cancellation inwards.

Live output never blocks: when the client reads too slowly, whole pieces are left out and
counted, and the next piece (or the end) says how much is missing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import signal
from typing import cast

from sandboxd.daemon.calls import Call, Caller
from sandboxd.errors import InvalidRequest, RunUnknown
from sandboxd.model import ApprovalAsk, ApprovalReply, ExecRequest
from sandboxd.output.renderer import LineRenderer
from sandboxd.pipeline import RunControl
from sandboxd.protocol.messages import (
    ApprovalResolved,
    Capabilities,
    CommandOutput,
    CommandState,
    CommandWrite,
    RunState,
    StreamName,
)

ANNOUNCE_S = 0.05
"""How long a run that nobody follows may last before its state is told."""


async def ask_client(caller: Caller, ask: ApprovalAsk) -> ApprovalReply:
    """Ask the person behind a client; it is told when the question needs no answer any more."""
    try:
        return await caller.ask("approval.request", ask, ApprovalReply)
    except asyncio.CancelledError:
        caller.notify("approval.resolved", ApprovalResolved(request_id=ask.request_id))
        raise


class LiveStream:
    """One stream of a run on its way to the client."""

    def __init__(self, caller: Caller, run_id: str, name: StreamName, *, is_raw: bool) -> None:
        self._caller = caller
        self._run_id = run_id
        self._name: StreamName = name
        self._renderer = None if is_raw else LineRenderer()
        self._gap_bytes = 0
        self._gap_lines = 0

    def feed(self, chunk: bytes) -> None:
        if self._renderer is None:
            self._offer(len(chunk), chunk.count(b"\n"), raw=chunk)
        elif lines := self._renderer.feed(chunk):
            self._offer(len(chunk), len(lines), lines=lines)
        elif not self._has_room():
            self._gap_bytes += len(chunk)

    def finish(self) -> None:
        """Send the unfinished last line, and a gap that nothing followed."""
        rest = self._renderer.flush() if self._renderer else None
        if self._renderer is not None:
            self._gap_bytes += self._renderer.hidden_bytes
            self._gap_lines += self._renderer.hidden_lines
        if rest:
            self._send(lines=tuple(rest.removesuffix("\n").split("\n")))
        elif self._gap_bytes:
            self._send()

    def _has_room(self) -> bool:
        return self._caller.has_room(is_raw=self._renderer is None)

    def _offer(
        self, size: int, lines_in: int, *, raw: bytes | None = None, lines: list[str] | None = None
    ) -> None:
        if not self._has_room():
            self._gap_bytes += size
            self._gap_lines += lines_in
        elif raw is not None:
            self._send(raw=base64.b64encode(raw).decode("ascii"))
        elif lines is not None:
            self._send(lines=tuple(lines))

    def _send(self, *, raw: str | None = None, lines: tuple[str, ...] | None = None) -> None:
        piece = CommandOutput(
            run_id=self._run_id,
            stream=self._name,
            lines=lines,
            bytes_b64=raw,
            gap_bytes=self._gap_bytes,
            gap_lines=self._gap_lines,
        )
        self._gap_bytes = self._gap_lines = 0
        self._caller.notify("command.output", piece)


class ClientRun:
    """The channel between one `command.exec` call and the pipeline (a `RunChannel`)."""

    def __init__(
        self, caller: Caller, call: Call, request: ExecRequest, capabilities: Capabilities
    ) -> None:
        self.can_approve = capabilities.approvals
        self.approves_last = capabilities.own_terminal
        self.run_id = request.run_id
        self._caller = caller
        self._call = call
        self._stream = request.stream
        self._is_followed = request.stream != "none" or request.stdin_open
        self._announcing: asyncio.TimerHandle | None = None
        self._is_announced = False
        self._control: RunControl | None = None
        self._is_started = asyncio.Event()
        self._input_order = asyncio.Lock()
        self._streams: dict[str, LiveStream] = {}
        self._early: list[tuple[str, bytes]] = []
        self._is_asking = False
        self._is_cancelled = False

    async def approve(self, ask: ApprovalAsk) -> ApprovalReply:
        return await ask_client(self._caller, ask)

    def asking(self, ask: ApprovalAsk | None, *, is_elsewhere: bool = False) -> None:
        self._is_asking = ask is not None
        if self._is_cancelled and ask is not None:
            self._caller.cancel_call(self._call.id)
        elif ask is not None and is_elsewhere:
            told = CommandState(
                run_id=self.run_id or "",
                state="waiting_for_approval",
                request_id=ask.request_id,
            )
            self._caller.notify("command.state", told)

    def started(self, run_id: str, control: RunControl) -> None:
        self.run_id = run_id
        self._control = control
        self._is_started.set()
        if self._is_followed:
            self._announce()
        else:  # one wake-up of the client fewer for a command that is over at once
            loop = asyncio.get_running_loop()
            self._announcing = loop.call_later(ANNOUNCE_S, self._announce)
        for stream, chunk in self._early:
            self.output(stream, chunk)
        self._early.clear()
        control.watch(self._state_changed)
        if self._is_cancelled:
            control.cancel()

    def _announce(self) -> None:
        self._is_announced = True
        self._tell("running")

    def _state_changed(self, state: str, is_password: bool) -> None:
        self._tell(cast(RunState, state), is_password=is_password)

    def _tell(self, state: RunState, *, is_password: bool = False) -> None:
        if self.run_id is not None:
            told = CommandState(run_id=self.run_id, state=state, password=is_password)
            self._caller.notify("command.state", told)

    def output(self, stream: str, chunk: bytes) -> None:
        if self._stream == "none":
            return
        if self._control is None or self.run_id is None:
            # A fast program's first bytes can overtake the news that it has started.
            self._early.append((stream, chunk))
            return
        live = self._streams.get(stream)
        if live is None:
            is_raw = self._stream == "raw"
            live = LiveStream(self._caller, self.run_id, cast(StreamName, stream), is_raw=is_raw)
            self._streams[stream] = live
        live.feed(chunk)

    def has_room(self) -> bool:
        return self._caller.has_room(is_raw=False)

    def ended(self) -> None:
        """Send what is still held back; called once, before the call is answered."""
        for live in self._streams.values():
            live.finish()
        if self._announcing is not None:
            self._announcing.cancel()
        if self._is_announced:
            self._tell("exited")
        self._is_started.set()

    async def write(self, params: CommandWrite) -> None:
        """Pass input on; answered when the pipe has taken it. Writes keep their order."""
        data = _input_of(params)
        async with self._input_order:
            await self._is_started.wait()
            control = self._running()
            if data:
                await control.write(data)
            if params.eof:
                control.close_stdin()

    async def terminate(self, name: str) -> None:
        number = signal_number(name)
        await self._is_started.wait()
        self._running().signal(number)

    async def resize(self, cols: int, rows: int) -> None:
        await self._is_started.wait()
        self._running().resize(cols, rows)

    def cancel(self) -> None:
        """End the run, or abandon the call while a person is being asked.

        In between, the program may be running although nobody has said so yet: then it is ended
        as soon as that is known, so that what it did is told.
        """
        self._is_cancelled = True
        if self._control is not None:
            self._control.cancel()
        elif self._is_asking:
            self._caller.cancel_call(self._call.id)

    def _running(self) -> RunControl:
        if self._control is None:
            raise RunUnknown(
                "the command ended before it was started",
                hint="see the answer to its command.exec call",
            )
        return self._control


def _input_of(params: CommandWrite) -> bytes:
    if params.text is not None and params.bytes_b64 is not None:
        raise InvalidRequest(
            "wrong parameters: `text` and `bytes_b64` at the same time",
            hint="send one of them",
            data={"parameter": "text"},
        )
    if params.text is not None:
        return params.text.encode("utf-8")
    return bytes_of(params.bytes_b64 or "")


def bytes_of(bytes_b64: str) -> bytes:
    """Raises InvalidRequest when it is not base64."""
    try:
        return binascii.a2b_base64(bytes_b64, strict_mode=True)
    except binascii.Error as error:
        raise InvalidRequest(
            f"wrong parameters: `bytes_b64` is not base64: {error}",
            hint="encode the bytes as RFC 4648 says, without line breaks",
            data={"parameter": "bytes_b64"},
        ) from error


def signal_number(name: str) -> int:
    """Raises InvalidRequest when there is no such signal."""
    try:
        return signal.Signals["SIG" + name.upper().removeprefix("SIG")].value
    except KeyError as error:
        raise InvalidRequest(
            f"wrong parameters: `signal`: there is no signal {name!r}",
            hint="use a name such as TERM, INT, HUP or KILL",
            data={"parameter": "signal"},
        ) from error
