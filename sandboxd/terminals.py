"""The terminals of all sessions: by id, bounded, and forgotten some time after they have ended."""

from __future__ import annotations

import asyncio
import secrets
import time

from sandboxd.errors import InvalidRequest, Overloaded, RunUnknown
from sandboxd.model import ExecRequest
from sandboxd.terminal import Terminal

MAX_ALIVE = 32
"""Living terminals of one session."""
MAX_ENDED = 32
ENDED_S = 600.0
"""How long an ended terminal can still be read."""


class Terminals:
    """What `Engine.terminals` is."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Terminal]] = {}

    def add(self, session_id: str, request: ExecRequest, command: str) -> Terminal:
        """A terminal about to be started. Raises Overloaded, InvalidRequest for an id in use."""
        known = self._of.setdefault(session_id, {})
        self._sweep(known)
        if sum(terminal.ended_at is None for terminal in known.values()) >= MAX_ALIVE:
            raise Overloaded(
                f"{MAX_ALIVE} terminals are open in this session already",
                hint="end one with `terminal.kill`; see `terminal.list`",
            )
        terminal_id = request.run_id or "t-" + secrets.token_hex(6)
        if terminal_id in known:
            raise InvalidRequest(
                f"terminal {terminal_id!r} exists already", hint="choose another id, or none"
            )
        terminal = Terminal(terminal_id, request, command)
        known[terminal_id] = terminal
        return terminal

    def get(self, session_id: str, terminal_id: str) -> Terminal:
        """Raises RunUnknown."""
        terminal = self._of.get(session_id, {}).get(terminal_id)
        if terminal is None:
            raise RunUnknown(
                f"there is no terminal {terminal_id!r} in this session",
                hint="see `terminal.list`; an ended one is forgotten after a while",
            )
        return terminal

    def of(self, session_id: str) -> list[Terminal]:
        known = self._of.get(session_id, {})
        self._sweep(known)
        return list(known.values())

    def forget(self, terminal: Terminal) -> None:
        for known in self._of.values():
            if known.get(terminal.id) is terminal:
                del known[terminal.id]
                return

    def end_session(self, session_id: str) -> None:
        """Kill what the session has; its trees are gone a moment later."""
        for terminal in self._of.pop(session_id, {}).values():
            terminal.cancel()

    async def close(self) -> None:
        """Kill all; returns when nothing is left."""
        tasks = []
        for session_id in list(self._of):
            tasks += [t.task for t in self._of[session_id].values() if t.task is not None]
            self.end_session(session_id)
        if tasks:
            await asyncio.wait(tasks)

    def _sweep(self, known: dict[str, Terminal]) -> None:
        """Forget what has ended long ago, and the oldest beyond MAX_ENDED."""
        ended = [(t.ended_at, name) for name, t in known.items() if t.ended_at is not None]
        ended.sort(reverse=True)
        oldest = time.monotonic() - ENDED_S
        for number, (ended_at, name) in enumerate(ended):
            if number >= MAX_ENDED or ended_at < oldest:
                del known[name]
