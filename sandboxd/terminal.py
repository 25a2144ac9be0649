"""A terminal: one run on a pty that outlives the call which started it.

A module of its own beside the pipeline: here its output becomes rows, its state is looked at, and
it ends when nobody has used it for a while. It knows nothing of verdicts beyond carrying them. What the program prints never waits for a reader.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from sandboxd.errors import Overloaded, RunUnknown
from sandboxd.keys import Line
from sandboxd.model import ExecRequest, LaunchPlan, Policy, Result, Verdict
from sandboxd.output.backlog import Backlog, Cursor
from sandboxd.output.pieces import Piece
from sandboxd.output.rows import LiveRows
from sandboxd.spawn import waiting
from sandboxd.spawn.waiting import Sight, State, Tty
from sandboxd.supervise import Supervised

IDLE_S = 3600.0
"""A terminal that nobody has read, typed into or resized for so long is ended."""
SETTLE_S = 0.06
"""What must have passed without output or input before a look counts."""
MAX_WAIT_S = 60.0
TYPE_WITHIN_S = 5.0
BACKLOG_BYTES = 1 << 20
Attached = Callable[[bytes], None]


@dataclass
class ShellState:
    """What was typed at the shell in a terminal, as far as later lines depend on it."""

    line: Line = field(default_factory=Line)
    is_leftover: bool = False
    """The line was typed at a program: a part that it has not read becomes the shell's."""
    changes: list[str] = field(default_factory=list)
    """Lines that changed what later ones mean: functions, aliases, variables, options."""
    is_opaque: bool = False
    """A line that could not be read was let through: nothing later can be taken for harmless."""


@dataclass(frozen=True)
class Reading:
    """What a reader is told."""

    lines: tuple[str, ...]
    live: tuple[str, ...]
    state: str
    is_password: bool
    exit_code: int | None
    gap_lines: int
    gap_bytes: int
    has_printed: bool
    """Anything at all since it started."""


class Terminal:
    """One terminal of one session."""

    def __init__(self, terminal_id: str, request: ExecRequest, command: str) -> None:
        self.id = terminal_id
        self.request = msgspec.structs.replace(request, run_id=terminal_id)
        self.command = command
        self.cols = request.pty.cols if request.pty else 80
        self.rows = request.pty.rows if request.pty else 24
        self.verdict: Verdict | None = None
        self.plan: LaunchPlan | None = None
        self.policy: Policy | None = None
        self.result: Result | None = None
        self.task: asyncio.Task[None] | None = None
        self.shell = ShellState()
        self.typing = asyncio.Lock()
        self.ended_at: float | None = None
        self._run: Supervised | None = None
        self._tty: Tty | None = None
        self._live = LiveRows()
        self._backlog = Backlog(BACKLOG_BYTES)
        self._cursor = Cursor(self._backlog)
        self._has_printed = False
        self._attached: list[Attached] = []
        self._changed = asyncio.Event()
        self._last_stir = self._last_use = time.monotonic()
        self._idle: asyncio.TimerHandle | None = None

    # -- the run's side

    def judged(self, verdict: Verdict, plan: LaunchPlan, policy: Policy) -> None:
        """It is about to start."""
        self.verdict, self.plan, self.policy = verdict, plan, policy

    def started(self, run: Supervised) -> None:
        self._run = run
        if run.master is not None:
            try:
                self._tty = Tty.of(run.master)
            except OSError:
                pass  # it has ended already
        self._watch_idle()

    def output(self, chunk: bytes) -> None:
        self._has_printed = True
        self._last_stir = time.monotonic()
        self._backlog.append(self._live.feed(chunk))
        for attached in tuple(self._attached):
            attached(chunk)
        self._changed.set()

    def ended(self, result: Result | None) -> None:
        """Nothing is left of it; what was live is final."""
        self.result = result
        self.ended_at = time.monotonic()
        pieces = self._live.live()
        text = "".join(piece.rendered() for piece in pieces)
        if text:
            n_bytes = sum(piece.n_bytes for piece in pieces)
            n_lines = sum(piece.n_lines for piece in pieces)
            self._backlog.append([Piece(n_bytes, n_lines, None, text)])
        self._live = LiveRows()
        self._run = None
        if self._idle is not None:
            self._idle.cancel()
        self._changed.set()

    # -- the user's side

    @property
    def is_alive(self) -> bool:
        return self._run is not None

    async def read(self, wait_s: float) -> Reading:
        """Rows since the last read, the live ones, and what the program does; waits until it needs
        input or has ended, at most `wait_s`."""
        deadline = time.monotonic() + min(max(wait_s, 0.0), MAX_WAIT_S)
        self._touch()
        sight = await self._settled(deadline)
        self._touch()
        batch = self._cursor.take()
        live = "".join(piece.rendered() for piece in self._live.live())
        ended = self.ended_at is not None
        return Reading(
            lines=tuple(batch.lines),
            live=tuple(_lines(live)),
            state="exited" if ended else sight.state.value,
            is_password=sight.is_password and not ended,
            exit_code=self.result.exit_code if self.result is not None else None,
            gap_lines=batch.gap_lines,
            gap_bytes=batch.gap_bytes,
            has_printed=self._has_printed,
        )

    async def _settled(self, deadline: float) -> Sight:
        """Look until two looks in a row agree that it waits, with nothing stirring in between."""
        before: Sight | None = None
        while True:
            sight = await self.look()
            left = deadline - time.monotonic()
            quiet_s = time.monotonic() - self._last_stir
            needs = sight.state not in (State.RUNNING, State.UNKNOWN)
            if not self.is_alive or left <= 0 or (needs and sight == before and quiet_s > SETTLE_S):
                return sight
            before = sight if quiet_s > SETTLE_S else None
            self._changed.clear()
            pause_s = SETTLE_S if needs else 5 * SETTLE_S
            try:
                await asyncio.wait_for(self._changed.wait(), min(left, pause_s))
            except TimeoutError:
                continue
            await asyncio.sleep(min(left, SETTLE_S / 3))

    async def look(self) -> Sight:
        """What its foreground does right now."""
        run = self._run
        if run is None or run.master is None or self._tty is None:
            return Sight(State.UNKNOWN)
        return await asyncio.to_thread(waiting.terminal_state, run.master, self._tty, run.child.pid)

    async def shells(self) -> set[str]:
        """Names of the interactive shells among its processes."""
        run = self._run
        return await asyncio.to_thread(waiting.shells, run.child.pid) if run else set()

    def shell_folder(self) -> str | None:
        """The working directory of its innermost interactive shell."""
        return waiting.shell_folder(self._run.child.pid) if self._run is not None else None

    async def write(self, data: bytes) -> None:
        """Type bytes. Raises RunUnknown when nobody is there to read them any more, Overloaded
        when its buffer is full and nobody reads."""
        run = self._living()
        self._touch()
        self._last_stir = time.monotonic()
        try:
            await asyncio.wait_for(run.write(data), TYPE_WITHIN_S)
        except TimeoutError:
            raise Overloaded(
                f"the program in terminal {self.id} does not read; a part of {len(data)} bytes was typed",
                hint="wait until it reads, or interrupt it with the key ctrl-c",
            ) from None

    def resize(self, cols: int, rows: int) -> None:
        self._living().resize(cols, rows)
        self.cols, self.rows = cols, rows
        self._touch()

    def signal(self, number: int) -> None:
        self._living().signal(number)

    def cancel(self) -> None:
        """Begin to end its tree."""
        if self._run is not None:
            self._run.cancel()
        elif self.task is not None and self.ended_at is None:
            self.task.cancel()

    async def end(self) -> None:
        """End its tree; returns when nothing of it is left."""
        self.cancel()
        if self.task is not None:
            await asyncio.wait({self.task})

    def attach(self, attached: Attached) -> Callable[[], None]:
        """Hear every byte from now on, until what is returned is called."""
        self._attached.append(attached)
        return lambda: self._attached.remove(attached)

    async def gone(self) -> None:
        """Wait for its end."""
        while self.ended_at is None:
            self._changed.clear()
            await self._changed.wait()

    def _living(self) -> Supervised:
        if self._run is None:
            raise RunUnknown(
                f"terminal {self.id} has ended",
                hint="`terminal.read` tells how; start another with `terminal.start`",
            )
        return self._run

    # -- idleness

    def _touch(self) -> None:
        self._last_use = time.monotonic()

    def _watch_idle(self) -> None:
        left = self._last_use + IDLE_S - time.monotonic()
        if left <= 0 and self._run is not None:
            self._run.cancel()
            return
        self._idle = asyncio.get_running_loop().call_later(max(left, 1.0), self._watch_idle)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []
