"""Handlers of `terminal.*`: the terminals of a connection's session, which outlive the connection."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from sandboxd import request as request_of
from sandboxd.daemon.calls import Call, Caller
from sandboxd.daemon.handlers import Handlers
from sandboxd.daemon.running import ask_client, bytes_of, signal_number
from sandboxd.errors import InvalidRequest
from sandboxd.keys import key
from sandboxd.model import ApprovalAsk, ApprovalReply, ExecRequest, Pty
from sandboxd.pipeline import RunControl, open_terminal, type_text
from sandboxd.protocol import messages as m
from sandboxd.terminal import Reading, Terminal

if TYPE_CHECKING:
    pass

SHELL = ("bash", "--noprofile", "--norc")
"""What a terminal runs when nothing is named."""

MAX_TYPED = 262_144

NOTES = {
    "waiting_for_input": "The program reads from this terminal; nothing will change until something is typed.",
    "polls_input": "The program waits for several things, typing among them: a prompt, an editor, or a "
    "server. Reading again shows news only if something else happens.",
    "at_prompt": "The shell waits for a command; reading again will not change anything.",
    "running": "The program is busy or waits for something other than typing; reading again later may "
    "show more.",
    "unknown": "What the program does cannot be seen. If it waits for input, reading again will not "
    "change anything; if it works, it may.",
    "exited": "The program has ended; there will be no more.",
}
NOTHING_YET_NOTE = " It has printed nothing yet."
NOTHING_AT_ALL_NOTE = " It has printed nothing at all."
PASSWORD_NOTE = " It is a question whose answer is not shown, such as a password."


class Asking:
    """The channel that asks this connection's person, while a call of it lasts."""

    def __init__(self, caller: Caller, capabilities: m.Capabilities) -> None:
        self.can_approve = capabilities.approvals
        self.approves_last = capabilities.own_terminal
        self._caller = caller

    async def approve(self, ask: ApprovalAsk) -> ApprovalReply:
        return await ask_client(self._caller, ask)

    def asking(self, ask: ApprovalAsk | None, *, is_elsewhere: bool = False) -> None: ...

    def started(self, run_id: str, control: RunControl) -> None: ...

    def output(self, stream: str, chunk: bytes) -> None: ...

    def has_room(self) -> bool:
        return True


class TerminalHandlers(Handlers):
    """The part of a connection's `Service` that speaks about terminals."""

    async def terminal_start(self, call: Call, params: m.TerminalStart) -> m.TerminalStarted:
        terminal = await open_terminal(
            self._host.engine, self._session(), _request(params), self._asking()
        )
        assert terminal.plan is not None  # it runs
        assert terminal.verdict is not None
        return m.TerminalStarted(
            terminal_id=terminal.id, tier=terminal.plan.tier, verdict=terminal.verdict
        )

    async def terminal_write(self, call: Call, params: m.TerminalWrite) -> m.Done:
        text = _text_of(params)
        if len(text) > MAX_TYPED:
            raise InvalidRequest(
                f"wrong parameters: {len(text)} characters at once; {MAX_TYPED} are possible",
                hint="type them in parts, or write a file and name it",
                data={"parameter": "text"},
            )
        terminal = self._terminal(params.terminal_id)
        session = self._session()
        await type_text(self._host.engine, session, terminal, text, self._asking(), params.approve)
        return m.Done()

    async def terminal_read(self, call: Call, params: m.TerminalRead) -> m.TerminalReading:
        return _told(await self._terminal(params.terminal_id).read(params.wait_s))

    async def terminal_resize(self, call: Call, params: m.TerminalResize) -> m.Done:
        request_of.check_size(params.cols, params.rows)
        self._terminal(params.terminal_id).resize(params.cols, params.rows)
        return m.Done()

    async def terminal_kill(self, call: Call, params: m.TerminalKill) -> m.Done:
        terminal = self._terminal(params.terminal_id)
        if params.signal is not None:
            terminal.signal(signal_number(params.signal))
        else:
            await terminal.end()
        return m.Done()

    async def terminal_list(self, call: Call, params: m.Empty) -> m.TerminalListing:
        found = self._host.engine.terminals.of(self._session().id)
        return m.TerminalListing(terminals=tuple(_entry(terminal) for terminal in found))

    async def terminal_attach(self, call: Call, params: m.TerminalNamed) -> m.Done:
        terminal = self._terminal(params.terminal_id)
        gap = 0

        def pass_on(chunk: bytes) -> None:
            nonlocal gap
            if not self._caller.has_room(is_raw=True):
                gap += len(chunk)
                return
            encoded = base64.b64encode(chunk).decode("ascii")
            piece = m.TerminalOutput(terminal_id=terminal.id, bytes_b64=encoded, gap_bytes=gap)
            gap = 0
            self._caller.notify("terminal.output", piece)

        detach = terminal.attach(pass_on)
        try:
            await terminal.gone()
        finally:
            detach()
        return m.Done()

    def _terminal(self, terminal_id: str) -> Terminal:
        return self._host.engine.terminals.get(self._session().id, terminal_id)

    def _asking(self) -> Asking:
        return Asking(self._caller, self._capabilities)


def _request(params: m.TerminalStart) -> ExecRequest:
    if params.command is not None and params.argv is not None:
        raise InvalidRequest(
            "wrong parameters: both `command` and `argv`",
            hint="send shell text in `command`, an argument vector in `argv`, or neither for a shell",
            data={"parameter": "command"},
        )
    argv = SHELL if params.command is None and params.argv is None else params.argv
    if argv is not None and not argv:
        raise InvalidRequest("wrong parameters: `argv` is empty", hint="leave it out for a shell")
    return ExecRequest(
        command=params.command,
        argv=argv,
        run_id=params.terminal_id,
        cwd=params.cwd,
        env=params.env,
        env_pass=params.env_pass,
        profile=params.profile,
        tier=params.tier,
        min_tier=params.min_tier,
        approve=params.approve,
        timeout_s=params.timeout_s,
        stdin_open=True,
        limits=params.limits,
        allow_hosts=params.allow_hosts,
        publish=params.publish,
        pty=Pty(cols=params.cols, rows=params.rows),
    )


def _text_of(params: m.TerminalWrite) -> str:
    """What is typed: exactly one of the three ways to say it."""
    given = [value for value in (params.text, params.keys, params.bytes_b64) if value is not None]
    if len(given) != 1:
        raise InvalidRequest(
            "wrong parameters: one of `text`, `keys` and `bytes_b64` is needed",
            hint="send text as it is, or names of keys",
            data={"parameter": "text"},
        )
    if params.text is not None:
        return params.text
    if params.keys is not None:
        return "".join(key(name) for name in params.keys)
    try:
        return bytes_of(params.bytes_b64 or "").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"wrong parameters: `bytes_b64` is not UTF-8: {error.reason} at byte {error.start}",
            hint="terminals take UTF-8",
            data={"parameter": "bytes_b64"},
        ) from error


def _told(reading: Reading) -> m.TerminalReading:
    note = NOTES[reading.state] + (PASSWORD_NOTE if reading.is_password else "")
    if not reading.has_printed:
        note += NOTHING_AT_ALL_NOTE if reading.state == "exited" else NOTHING_YET_NOTE
    return m.TerminalReading(
        lines=reading.lines,
        live=reading.live,
        state=reading.state,  # type: ignore[arg-type]  # the same names
        password=reading.is_password,
        exit_code=reading.exit_code,
        gap_lines=reading.gap_lines,
        gap_bytes=reading.gap_bytes,
        note=note,
    )


def _entry(terminal: Terminal) -> m.TerminalEntry:
    return m.TerminalEntry(
        terminal_id=terminal.id,
        command=terminal.command,
        state="running" if terminal.ended_at is None else "exited",
        exit_code=terminal.result.exit_code if terminal.result is not None else None,
        cols=terminal.cols,
        rows=terminal.rows,
    )
