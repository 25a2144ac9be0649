"""The `terminal.*` methods of both Python clients.

A module of its own because the clients differ only in how `call` waits: each has the same six
methods, and the parameters are made once. Terminals belong to the session and outlive the client
that started them, so every method names its terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypedDict, TypeVar, Unpack

from msgspec import Struct, convert

from sandboxd.model import Approve, Limits
from sandboxd.protocol import messages as m

T = TypeVar("T", bound=Struct)


class _Calling(Protocol):
    def call(self, method: str, params: Struct, result: type[T]) -> T: ...


class _AsyncCalling(Protocol):
    async def call(self, method: str, params: Struct, result: type[T]) -> T: ...


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


class TerminalCalls:
    """Terminals, blocking. Each method raises the refusal that the server answers with."""

    def terminal_start(
        self: _Calling,
        command: str | Sequence[str] | None = None,
        **options: Unpack[StartOptions],
    ) -> m.TerminalStarted:
        """Start text for bash, an argument vector, or a shell (None); returns once it runs."""
        return self.call("terminal.start", _start(command, options), m.TerminalStarted)

    def terminal_write(
        self: _Calling,
        terminal_id: str,
        text: str | None = None,
        *,
        keys: Sequence[str] | None = None,
        approve: Approve = "none",
    ) -> None:
        """Type text as it is, or keys by name; a line that a shell would run is judged first."""
        self.call("terminal.write", _typed(terminal_id, text, keys, approve), m.Done)

    def terminal_read(
        self: _Calling, terminal_id: str, *, wait_s: float = 0.0
    ) -> m.TerminalReading:
        """What came since the last read and what the program does; waits until it needs input."""
        params = m.TerminalRead(terminal_id=terminal_id, wait_s=wait_s)
        return self.call("terminal.read", params, m.TerminalReading)

    def terminal_resize(self: _Calling, terminal_id: str, cols: int, rows: int) -> None:
        params = m.TerminalResize(terminal_id=terminal_id, cols=cols, rows=rows)
        self.call("terminal.resize", params, m.Done)

    def terminal_kill(self: _Calling, terminal_id: str, signal: str | None = None) -> None:
        """End its whole tree, or send a signal to what is in its foreground."""
        params = m.TerminalKill(terminal_id=terminal_id, signal=signal)
        self.call("terminal.kill", params, m.Done)

    def terminals(self: _Calling) -> tuple[m.TerminalEntry, ...]:
        """The terminals of this session."""
        return self.call("terminal.list", m.Empty(), m.TerminalListing).terminals


class AsyncTerminalCalls:
    """The same for an event loop."""

    async def terminal_start(
        self: _AsyncCalling,
        command: str | Sequence[str] | None = None,
        **options: Unpack[StartOptions],
    ) -> m.TerminalStarted:
        """Start text for bash, an argument vector, or a shell (None); returns once it runs."""
        return await self.call("terminal.start", _start(command, options), m.TerminalStarted)

    async def terminal_write(
        self: _AsyncCalling,
        terminal_id: str,
        text: str | None = None,
        *,
        keys: Sequence[str] | None = None,
        approve: Approve = "none",
    ) -> None:
        """Type text as it is, or keys by name; a line that a shell would run is judged first."""
        await self.call("terminal.write", _typed(terminal_id, text, keys, approve), m.Done)

    async def terminal_read(
        self: _AsyncCalling, terminal_id: str, *, wait_s: float = 0.0
    ) -> m.TerminalReading:
        """What came since the last read and what the program does; waits until it needs input."""
        params = m.TerminalRead(terminal_id=terminal_id, wait_s=wait_s)
        return await self.call("terminal.read", params, m.TerminalReading)

    async def terminal_resize(self: _AsyncCalling, terminal_id: str, cols: int, rows: int) -> None:
        params = m.TerminalResize(terminal_id=terminal_id, cols=cols, rows=rows)
        await self.call("terminal.resize", params, m.Done)

    async def terminal_kill(
        self: _AsyncCalling, terminal_id: str, signal: str | None = None
    ) -> None:
        """End its whole tree, or send a signal to what is in its foreground."""
        params = m.TerminalKill(terminal_id=terminal_id, signal=signal)
        await self.call("terminal.kill", params, m.Done)

    async def terminals(self: _AsyncCalling) -> tuple[m.TerminalEntry, ...]:
        """The terminals of this session."""
        return (await self.call("terminal.list", m.Empty(), m.TerminalListing)).terminals


def _start(command: str | Sequence[str] | None, options: StartOptions) -> m.TerminalStart:
    is_text = isinstance(command, str)
    given = {"command": command} if is_text else {"argv": command}
    return convert({**options, **given}, m.TerminalStart)


def _typed(
    terminal_id: str, text: str | None, keys: Sequence[str] | None, approve: Approve
) -> m.TerminalWrite:
    named = tuple(keys) if keys is not None else None
    return m.TerminalWrite(terminal_id=terminal_id, text=text, keys=named, approve=approve)
