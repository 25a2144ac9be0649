"""One launched run from its first byte to its last: pipes, output, input, time limit, ending.

A module beside the pipeline because it is the one place where the launcher's child and the
output's pumps meet. It knows nothing of verdicts, decisions or events.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass

from sandboxd.errors import Fault
from sandboxd.model import Captured, Exit, LaunchPlan
from sandboxd.output.capture import Capture
from sandboxd.output.pump import Pump
from sandboxd.spawn.launcher import Child, Launcher
from sandboxd.spawn.waiting import Sight, State, Tty, pipe_state, terminal_state

GRACE_S = 1.0
"""Between SIGTERM and SIGKILL when the time is over."""
ABANDON_S = 5.0
"""How long a caller's cancellation waits for the tree to be dead."""
LOOK_S = 0.005
"""Between two looks at whether a slow reader has caught up."""
DRAIN_S = 1.0
"""How long the pipes may stay open after the last process is gone (a descriptor passed on)."""

QUIET_S = 0.05
"""How long nothing must come before the output of an ended leader counts as whole."""

WATCH_S = 0.25
"""How soon a command that waits for input is noticed; looks become rarer while nothing changes."""


@dataclass(frozen=True)
class Outcome:
    """How it went. With `merge` or a pty there is `output`, else `stdout` and `stderr`."""

    exit: Exit
    duration_s: float
    timed_out: bool
    cancelled: bool
    stdout: Captured | None
    stderr: Captured | None
    output: Captured | None
    refused: tuple[str, ...] = ()
    """Unix sockets that the run was not connected to."""
    hit: str | None = None
    """The bound of its control group that it reached: `memory`, `processes` or `cpu`."""
    cwd: str | None = None
    """Where it stood at its end, as it saw that itself; None where nobody looked."""


class Supervised:
    """A running command and what a caller may do to it (a `RunControl`)."""

    def __init__(
        self,
        captures: dict[str, Capture],
        on_output: Callable[[str, bytes], None],
        has_room: Callable[[], bool] | None = None,
    ) -> None:
        """`has_room` says whether the reader of the output keeps up; while it does not, the
        command is held back. Without it the reader is never waited for."""
        self._captures = captures
        self._on_output = on_output
        self._has_room = has_room
        self._child: Child | None = None
        self._stdin: int | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_cancelled = False
        self._is_timed_out = False
        self._timer: asyncio.TimerHandle | None = None
        self._begun = 0.0
        self._pumps: list[Pump] = []
        self._is_at_line_start = True
        self._watching: asyncio.Future[None] | None = None
        self.master: int | None = None
        """Our side of the run's pty while it lasts."""

    # -- what the caller may do

    async def write(self, data: bytes) -> None:
        """Write to its stdin; returns when the pipe has taken all of it, or nobody reads any more."""
        view = memoryview(data)
        while view and self._stdin is not None:
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await self._stdin_writable(self._stdin)
            except OSError:
                self._drop_stdin()
        if data:
            self._is_at_line_start = data.endswith((b"\n", b"\r"))

    def close_stdin(self) -> None:
        """No more input: its stdin is closed, or on a pty the end-of-file character typed (twice
        where a line has been begun, because the first one only hands that over)."""
        if self._stdin is None or self._stdin != self.master:
            self._drop_stdin()
            return
        with contextlib.suppress(OSError, termios.error):
            end = termios.tcgetattr(self.master)[6][termios.VEOF]
            os.write(self.master, end if self._is_at_line_start else end * 2)

    def _drop_stdin(self) -> None:
        fd, self._stdin = self._stdin, None
        if fd is not None:
            asyncio.get_running_loop().remove_writer(fd)
            if fd != self.master:
                os.close(fd)
        self._wake_writer()

    async def _stdin_writable(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        self._writer = loop.create_future()
        loop.add_writer(fd, self._wake_writer)
        try:
            await self._writer
        finally:
            if self._stdin == fd:
                loop.remove_writer(fd)

    def _wake_writer(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def resize(self, cols: int, rows: int) -> None:
        """Tell the run's pty its new size; the foreground gets SIGWINCH. Nothing without a pty."""
        if self.master is not None:
            size = struct.pack("HHHH", rows, cols, 0, 0)
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def watch(self, told: Callable[[str, bool], None]) -> None:
        """Be told when it stops by job control (`stopped`) and, while its input is open, when it
        comes to wait for that or goes on (a `State`, and whether it reads a password)."""
        self.child.on_stop(lambda _: told("stopped", False))
        if self._stdin is not None:
            self._watching = asyncio.ensure_future(self._watch_input(told))

    async def _watch_input(self, told: Callable[[str, bool], None]) -> None:
        last, pause_s = Sight(State.RUNNING), WATCH_S
        while self._stdin is not None and not self.child.is_done:
            await asyncio.sleep(pause_s)
            sight = await self._look()
            if sight == last:
                pause_s = min(2 * pause_s, 8 * WATCH_S)
                continue
            await asyncio.sleep(WATCH_S / 4)
            if sight == await self._look():  # not between two pieces of input
                last, pause_s = sight, WATCH_S
                told(sight.state.value, sight.is_password)

    async def _look(self) -> Sight:
        """What it does about its input: waits for it, polls it, or neither."""
        stdin, master = self._stdin, self.master
        if stdin is None:
            return Sight(State.RUNNING)
        if master is None:
            sight = await asyncio.to_thread(pipe_state, stdin, self.child.pid)
        else:
            sight = await asyncio.to_thread(self._look_at_pty, master)
        if sight.state is State.AT_PROMPT:
            return Sight(State.POLLS_INPUT)
        if sight.state is State.UNKNOWN:
            return Sight(State.RUNNING)
        return Sight(sight.state, sight.is_password)

    def _look_at_pty(self, master: int) -> Sight:
        try:
            return terminal_state(master, Tty.of(master), self.child.pid)
        except OSError:
            return Sight(State.UNKNOWN)

    def signal(self, number: int) -> None:
        if self._child is not None:
            self._child.signal(number)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._child is not None:
            self._child.kill()

    # -- its life

    @property
    def child(self) -> Child:
        """What the launcher started; only after `start`."""
        assert self._child is not None
        return self._child

    async def start(
        self,
        launcher: Launcher,
        plan: LaunchPlan,
        *,
        has_stdin: bool,
        groups: tuple[int, ...] = (),
    ) -> None:
        """Launch the plan on fresh pipes, and on a pty where it has one, in these control groups.
        Raises LaunchFailed; nothing is left open then."""
        on_pty = plan.pty.fds if plan.pty is not None else ()
        with contextlib.ExitStack() as stack:
            stdin = self._make_stdin(has_stdin and 0 not in on_pty, stack)
            stdout, stderr = self._make_outputs(on_pty, stack)
            self._begun = time.monotonic()
            try:
                self._child = await launcher.launch(plan, (stdin, stdout, stderr), groups)
                if plan.pty is not None:
                    self._take_pty(self._child, reads=0 in on_pty)
            except BaseException:
                self._close_ends()
                raise
        if self._is_cancelled:
            self._child.kill()

    def _take_pty(self, child: Child, *, reads: bool) -> None:
        master = child.take_master()
        if master < 0:
            child.kill()
            raise Fault("the run's terminal was not handed over")
        self.master = os.dup(master)
        self._pump(master, "output")
        if reads:
            self._stdin = self.master

    def _make_stdin(self, has_stdin: bool, stack: contextlib.ExitStack) -> int:
        if not has_stdin:
            fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            return fd
        theirs, self._stdin = os.pipe()
        os.set_blocking(self._stdin, False)
        stack.callback(os.close, theirs)
        return theirs

    def _make_outputs(
        self, on_pty: tuple[int, ...], stack: contextlib.ExitStack
    ) -> tuple[int, int]:
        """What becomes stdout and stderr; a placeholder where the pty does."""
        if not on_pty and "output" in self._captures:
            both = self._make_output("output", stack)
            return both, both
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        stack.callback(os.close, nothing)
        stdout, stderr = (
            nothing if number in on_pty else self._make_output(name, stack)
            for number, name in ((1, "stdout"), (2, "stderr"))
        )
        return stdout, stderr

    def _make_output(self, name: str, stack: contextlib.ExitStack) -> int:
        read_end, write_end = os.pipe()
        stack.callback(os.close, write_end)
        self._pump(read_end, name)
        return write_end

    def _pump(self, fd: int, name: str) -> None:
        self._pumps.append(Pump(fd, [self._captures[name].feed, self._live(name)]))
        if self._has_room is not None:
            self._pumps[-1].add_sink(self._pacing(self._pumps[-1]))

    def _pacing(self, pump: Pump) -> Callable[[bytes], None]:
        """A sink that pauses its pump while the reader has no room."""
        loop = asyncio.get_running_loop()

        def look(_: bytes = b"") -> None:
            if self._has_room is None or self._has_room():
                pump.resume()
            else:
                pump.pause()
                loop.call_later(LOOK_S, look)

        return look

    def _live(self, name: str) -> Callable[[bytes], None]:
        def forward(chunk: bytes) -> None:
            self._on_output(name, chunk)

        return forward

    async def left(self, timeout_s: float | None) -> Outcome | None:
        """How it looks when its leader has ended and others go on; None when nobody does. From then
        on its output is captured and not handed on. See `outcome` for time and cancellation."""
        if timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self._time_is_over)
        try:
            ended = await self.child.left()
            if ended is None:
                return None
            for pump in self._pumps:
                await pump.drained(QUIET_S)
        except asyncio.CancelledError:
            await self._abandon()
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
        self._on_output = lambda _name, _chunk: None
        self._has_room = None
        return self._outcome(ended, {name: c.snapshot() for name, c in self._captures.items()})

    async def outcome(self, timeout_s: float | None) -> Outcome:
        """Wait for the end, by itself, by time, or by `cancel`. When the surrounding task is
        cancelled the tree is killed first."""
        if timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self._time_is_over)
        try:
            ended = await self.child.wait()
            await self._drain()
        except asyncio.CancelledError:
            await self._abandon()
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._close_ends()
        return self._outcome(ended, {name: c.finish() for name, c in self._captures.items()})

    def _outcome(self, ended: Exit, captured: dict[str, Captured]) -> Outcome:
        return Outcome(
            exit=ended,
            duration_s=round(time.monotonic() - self._begun, 4),
            timed_out=self._is_timed_out,
            cancelled=self._is_cancelled,
            stdout=captured.get("stdout"),
            stderr=captured.get("stderr"),
            output=captured.get("output"),
            refused=tuple(self.child.refused),
            cwd=self.child.cwd,
        )

    def _time_is_over(self) -> None:
        """SIGTERM to the group, then, after GRACE_S, the end of the tree."""
        if not self.child.is_done and not self._is_cancelled:
            self._is_timed_out = True
            self.child.signal(signal.SIGTERM)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(GRACE_S, self.child.kill)

    async def _abandon(self) -> None:
        """The caller is gone: nothing of the run may be left when we go too."""
        self.child.kill()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.child.wait(), ABANDON_S)

    async def _drain(self) -> None:
        """Every writer is dead, so end-of-file is there or a step away."""
        for pump in self._pumps:
            if not pump.is_at_end:
                await pump.drained(DRAIN_S)

    def _close_ends(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._drop_stdin()
        master, self.master = self.master, None
        if master is not None:
            os.close(master)
        for pump in self._pumps:
            pump.close()
