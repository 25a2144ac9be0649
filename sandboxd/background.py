"""Runs that were answered when their leader ended, and go on: `keep_background`.

A module of its own because such a run outlives its call as a terminal does, without being one: the
call gets its result early, and the rest of the run's life (its guard, its network, its last event) is
a task here. It ends by itself, by `command.terminate`, with its session, or with the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from sandboxd.errors import Overloaded
from sandboxd.model import LeftRunning, Result
from sandboxd.spawn.reports import descendants
from sandboxd.supervise import Supervised

MAX_KEPT = 32
"""Of one session."""
_SHOWN_BYTES = 200


class Kept:
    """One such run: who waits for its early answer, and what can still be done to it."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[Result] | None = None
        self.run: Supervised | None = None

    def tell(self, result: Result, run: Supervised) -> None:
        """Its leader has ended and others have not."""
        self.run = run
        if not self.answered.done():
            self.answered.set_result(result)

    def end(self) -> None:
        """Begin to end its tree."""
        if self.run is not None:
            self.run.cancel()
        elif self.task is not None:
            self.task.cancel()


class Background:
    """What `Engine.background` is."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Kept]] = {}

    async def answered(
        self, session_id: str, run_id: str, work: Callable[[Kept], Coroutine[Any, Any, Result]]
    ) -> Result:
        """Run `work` and return its result, or what it tells early. Raises Overloaded, and what
        `work` raises before it has told anything."""
        known = self._of.setdefault(session_id, {})
        if len(known) >= MAX_KEPT:
            raise Overloaded(
                f"{MAX_KEPT} commands of this session keep something in the background already",
                hint="end one with `command.terminate`",
            )
        kept = known[run_id] = Kept()
        kept.task = asyncio.ensure_future(work(kept))
        kept.task.add_done_callback(lambda _: known.pop(run_id, None))
        try:
            await asyncio.wait({kept.answered, kept.task}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            kept.task.cancel()
            raise
        if not kept.answered.done():
            return await kept.task
        kept.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return kept.answered.result()

    def get(self, session_id: str, run_id: str) -> Kept | None:
        kept = self._of.get(session_id, {}).get(run_id)
        return kept if kept is not None and kept.run is not None else None

    def end_session(self, session_id: str) -> None:
        """Kill what the session keeps; its trees are gone a moment later."""
        for kept in list(self._of.pop(session_id, {}).values()):
            kept.end()

    async def close(self) -> None:
        """Kill all; returns when nothing is left."""
        tasks = [k.task for known in self._of.values() for k in known.values() if k.task]
        for session_id in list(self._of):
            self.end_session(session_id)
        if tasks:
            await asyncio.wait(tasks)


def left_running(run: Supervised) -> tuple[LeftRunning, ...]:
    """The processes of a run that are still there, by the host's pids."""
    found = []
    for pid in descendants(run.child.pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read(_SHOWN_BYTES).rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        if words != [b""]:  # a zombie has none
            found.append(LeftRunning(pid=pid, command=b" ".join(words).decode("utf-8", "replace")))
    return tuple(found)
