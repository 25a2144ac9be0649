"""The `terminal.*` methods of both Python clients.

A module of its own because terminals are a part of the protocol of their own. Terminals belong to the session and outlive the client
that started them, so every method names its terminal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

from msgspec import convert

from sandboxd.errors import DaemonUnreachable, RunUnknown
from sandboxd.model import Approve, Limits
from sandboxd.protocol import messages as m
from sandboxd.protocol.blocking import Blocking, blocking
from sandboxd.protocol.calls import AsyncCalls


class StartOptions(TypedDict, total=False):
    """What `terminal_start` takes by name, as in `command.exec`."""

    terminal_id: str
    cwd: str
    env: Mapping[str, str | None]
    env_pass: Sequence[str]
    cols: int
    rows: int
    profile: str
    tier: str
    min_tier: str
    approve: Approve
    timeout_s: float
    limits: Limits
    allow_hosts: Sequence[str]
    publish: Sequence[int]


class AsyncTerminalCalls(AsyncCalls):
    """Terminals. Each method raises the refusal that the server answers with."""

    async def terminal_start(
        self,
        command: str | Sequence[str] | None = None,
        **options: Unpack[StartOptions],
    ) -> m.TerminalStarted:
        """Start text for bash, an argument vector, or a shell (None); returns once it runs."""
        return await self.call("terminal.start", _start(command, options), m.TerminalStarted)

    async def terminal_write(
        self,
        terminal_id: str,
        text: str | None = None,
        *,
        keys: Sequence[str] | None = None,
        approve: Approve = "none",
    ) -> None:
        """Type text as it is, or keys by name; a line that a shell would run is judged first."""
        await self.call("terminal.write", _typed(terminal_id, text, keys, approve), m.Done)

    async def terminal_read(self, terminal_id: str, *, wait_s: float = 0.0) -> m.TerminalReading:
        """What came since the last read and what the program does; waits until it needs input."""
        params = m.TerminalRead(terminal_id=terminal_id, wait_s=wait_s)
        return await self.call("terminal.read", params, m.TerminalReading)

    async def terminal_resize(self, terminal_id: str, cols: int, rows: int) -> None:
        params = m.TerminalResize(terminal_id=terminal_id, cols=cols, rows=rows)
        await self.call("terminal.resize", params, m.Done)

    async def terminal_kill(self, terminal_id: str, signal: str | None = None) -> None:
        """End its whole tree, or send a signal to what is in its foreground."""
        params = m.TerminalKill(terminal_id=terminal_id, signal=signal)
        await self.call("terminal.kill", params, m.Done)

    async def terminals(self) -> tuple[m.TerminalEntry, ...]:
        """The terminals of this session."""
        return (await self.call("terminal.list", m.Empty(), m.TerminalListing)).terminals


class AsyncTerminal:
    """One terminal. It outlives the client; as a context manager it ends with the block."""

    def __init__(self, calls: AsyncTerminalCalls, started: m.TerminalStarted) -> None:
        self._calls = calls
        self.id = started.terminal_id
        self.tier = started.tier
        self.verdict = started.verdict

    async def write(
        self,
        text: str | None = None,
        *,
        keys: Sequence[str] | None = None,
        approve: Approve = "none",
    ) -> None:
        """Type text as it is, or keys by name (`enter`, `ctrl-c`)."""
        await self._calls.terminal_write(self.id, text, keys=keys, approve=approve)

    async def read(self, wait_s: float = 0.0) -> m.TerminalReading:
        """What came since the last read; waits until the program needs input, at most `wait_s`."""
        return await self._calls.terminal_read(self.id, wait_s=wait_s)

    async def resize(self, cols: int, rows: int) -> None:
        await self._calls.terminal_resize(self.id, cols, rows)

    async def kill(self, signal: str | None = None) -> None:
        """End its whole tree, or send a signal to what is in its foreground."""
        await self._calls.terminal_kill(self.id, signal)

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(RunUnknown, DaemonUnreachable):
            await self.kill()


class Terminal(Blocking[AsyncTerminal]):
    """The same, blocking."""

    def __init__(self, calls: AsyncTerminalCalls, started: m.TerminalStarted) -> None:
        self._calls = AsyncTerminal(calls, started)
        self.id = started.terminal_id
        self.tier = started.tier
        self.verdict = started.verdict

    write = blocking(AsyncTerminal.write)
    read = blocking(AsyncTerminal.read)
    resize = blocking(AsyncTerminal.resize)
    kill = blocking(AsyncTerminal.kill)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RunUnknown, DaemonUnreachable):
            self.kill()


def _start(command: str | Sequence[str] | None, options: StartOptions) -> m.TerminalStart:
    is_text = isinstance(command, str)
    given = {"command": command} if is_text else {"argv": command}
    return convert({**options, **given}, m.TerminalStart)


def _typed(
    terminal_id: str, text: str | None, keys: Sequence[str] | None, approve: Approve
) -> m.TerminalWrite:
    named = tuple(keys) if keys is not None else None
    return m.TerminalWrite(terminal_id=terminal_id, text=text, keys=named, approve=approve)
