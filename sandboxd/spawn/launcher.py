"""The daemon's side of spawning: owns the zygote, hands it launch plans, hears how runs end.

asyncio lives here so that the zygote needs none. A run is over when its init has reported that no
process but itself is left (wait4(2) says ECHILD, and every orphan is its child); where init could
not say so, when the zygote has reaped it. The zygote's `reaped` also ends the bookkeeping.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from sandboxd.errors import Fault, SandboxdError
from sandboxd.model import Exit, LaunchPlan, Usage
from sandboxd.spawn import plain, zygote
from sandboxd.spawn.init import HAND_OUT
from sandboxd.spawn.requests import request_of
from sandboxd.system import posix

START_S = 30.0
"""From the clone until init has said that the program runs."""
OBEY_S = 2.0
"""How long an init may take to end its run before it is killed itself."""


MAX_HANDED = 128
"""Descriptors that init hands over with one message, at most."""
_CLOEXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class LaunchFailed(SandboxdError):
    """A step between clone and exec failed: its name, the errno, the path it was about."""

    def __init__(self, stage: str, error: int, path: str) -> None:
        super().__init__(f"{stage}: {os.strerror(error) if error else 'failed'} {path}".strip())
        self.stage = stage
        self.errno = error
        self.path = path


class Child:
    """One run: its init's pid on the host, orders to it, and how it ended."""

    def __init__(self, control: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self._control = control
        self._started: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[Exit] = loop.create_future()
        self._left: asyncio.Future[Exit] = loop.create_future()
        self._report: tuple[int, tuple[float, float, int], int] | None = None
        self._failure: LaunchFailed | None = None
        self._last_resort: Callable[[], None] | None = None
        self._namespaces: list[int] = []
        self._handed_out = asyncio.Event()
        self._network: list[tuple[str, int]] = []
        self.unreachable: list[bytes] = []
        self.refused: list[str] = []
        """Unix sockets that init did not connect the run to."""
        """Socket addresses that the run's own routes refused, each once."""
        self.cwd: str | None = None
        """Where the leader stood at its end, as the run sees it; where the plan has it told."""
        self._master = -1
        self._is_abandoned = False
        self._stopped_by: int | None = None
        self._on_stop: Callable[[int], None] | None = None
        loop.add_reader(control.fileno(), self._on_control)

    async def started(self) -> None:
        """Wait until the program runs. Raises LaunchFailed when it never will."""
        await asyncio.shield(self._started)

    async def wait(self) -> Exit:
        """Wait until nothing of the run is left. Raises Fault when init broke or was killed."""
        return await asyncio.shield(self._ended)

    async def left(self) -> Exit | None:
        """Wait until its leader has ended: how, or None when nothing else of the run is left then.
        Only where the plan keeps what outlives the leader."""
        await asyncio.wait({self._left, self._ended}, return_when=asyncio.FIRST_COMPLETED)
        return None if self._ended.done() else self._left.result()

    @property
    def is_done(self) -> bool:
        return self._ended.done()

    def signal(self, number: int) -> None:
        """Send a signal to the leader's process group; nothing happens when it is gone."""
        self._order(number)

    def kill(self) -> None:
        """End the whole tree now; an init that does not obey is killed itself after a while."""
        self._order(0)
        if self._last_resort is not None and not self.is_done:
            asyncio.get_running_loop().call_later(OBEY_S, self._insist)

    def _insist(self) -> None:
        if self._last_resort is not None and not self.is_done:
            self._last_resort()

    def _order(self, number: int) -> None:
        with contextlib.suppress(OSError):
            self._control.send(bytes([number]))

    def _on_control(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, 4096, MAX_HANDED, _CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            return
        self._hear(data, fds)

    def _hear(self, data: bytes, fds: list[int]) -> None:
        """One message from init, and the descriptors that came with it."""
        kind, *rest = marshal.loads(data)
        if kind == "started":
            self._resolve_started()
        elif kind == "failed":
            self._failed(LaunchFailed(*rest))
        elif kind == "ended":
            self._report = (rest[0], rest[1], rest[2])
            if rest[3]:  # wait4(2) said ECHILD: of the run only init is left, and it is leaving
                self._resolve_started()
                self._resolve_ended(_exit(*self._report))
        elif kind == "left":
            self._resolve_started()
            self._left.set_result(_exit(rest[0], rest[1], rest[2]))
        elif kind == "unreachable":
            self.unreachable.append(rest[0])
        elif kind == "refused":
            self.refused.append(os.fsdecode(rest[0]))
        elif kind == "network":
            self._network += zip(rest[0], fds, strict=True)
        elif kind == "namespaces":
            self._namespaces += fds
            self._handed_out.set()
        elif kind == "pty":
            (self._master,) = fds
        elif kind == "cwd":
            self.cwd = os.fsdecode(rest[0])
        elif kind == "stopped":
            self._stopped_by = rest[0]
            if self._on_stop is not None:
                self._on_stop(rest[0])

    async def namespaces(self) -> list[int]:
        """The run's user and mount namespaces, asked of init; none where init does not answer."""
        if not self._namespaces and not self.is_done:
            self._order(HAND_OUT)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._handed_out.wait(), OBEY_S)
        return self._namespaces

    def on_stop(self, told: Callable[[int], None]) -> None:
        """Be told the signal that stopped the program, each time, when it runs on a pty."""
        self._on_stop = told
        if self._stopped_by is not None:
            told(self._stopped_by)

    def take_master(self) -> int:
        """The master of the run's pty, from now on the caller's to close; only once, and also when
        the run has ended already: what it printed is still in there."""
        master, self._master = self._master, -1
        return master

    def take_network(self) -> list[tuple[str, int]]:
        """The sockets of the run's own network with their tags (see `spawn.network`): from now on
        the caller's to close."""
        taken, self._network = self._network, []
        return taken

    def _resolve_started(self) -> None:
        if not self._started.done():
            self._started.set_result(None)

    def _failed(self, failure: LaunchFailed) -> None:
        self._failure = failure

    def _reaped(self, init_status: int) -> None:
        """The zygote has reaped init: whatever init had to say is in the control socket."""
        while self._report is None and self._failure is None:
            try:
                data, fds, _, _ = socket.recv_fds(self._control, 4096, MAX_HANDED, _CLOEXEC)
            except OSError:
                break
            if not data:
                break
            self._hear(data, fds)
        self._finish(init_status)

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        if self._is_abandoned:
            self._close_master()
        for fd in (*self._namespaces, *(fd for _, fd in self._network)):
            os.close(fd)
        self._namespaces, self._network = [], []

    def _finish(self, init_status: int) -> None:
        self._close()
        if self._failure is not None:
            self._break(self._failure)
            return
        self._resolve_started()
        if self._report is None:
            status = init_status if os.WIFSIGNALED(init_status) else signal.SIGKILL
            self._report = (status, (0.0, 0.0, 0), 0)
        self._resolve_ended(_exit(*self._report))

    def _resolve_ended(self, ended: Exit) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)

    def _abandon(self) -> None:
        """Nobody will take what init hands over: end it."""
        self._is_abandoned = True
        self._close_master()
        self.kill()

    def _close_master(self) -> None:
        if (master := self.take_master()) >= 0:
            os.close(master)

    def _break(self, error: SandboxdError) -> None:
        if not self._started.done():
            self._close_master()
        for future in (self._started, self._ended):
            if not future.done():
                future.set_exception(error)
                future.exception()  # a caller that stopped waiting must not cause a log line


def _exit(status: int, usage: tuple[float, float, int], survivors: int) -> Exit:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = 128 + number if number is not None else os.waitstatus_to_exitcode(status)
    user_s, system_s, max_rss_kib = usage
    return Exit(
        code=code,
        signal=number,
        survivors=survivors,
        usage=Usage(user_s=user_s, system_s=system_s, max_rss_bytes=max_rss_kib * 1024),
    )


class Launcher:
    """Starts runs through one zygote; starts the zygote itself, and again when it died."""

    def __init__(self, *, keeps_spare: bool = False, program: str | None = None) -> None:
        """`keeps_spare`: make an init ready for the next run; for one who starts many. `program` is
        the child side in place of the one for this system."""
        self._program = program or (plain.__file__ if posix.IS_MACOS else zygote.__file__)
        is_plain = self._program == plain.__file__
        self._inline_max = plain.INLINE_MAX if is_plain else zygote.INLINE_MAX
        self._keeps_spare = keeps_spare
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._children: dict[int, Child] = {}
        self._cloned: dict[int, asyncio.Future[int]] = {}
        self._remasked: dict[int, asyncio.Future[bool]] = {}
        self._next_id = 1
        self._sending = asyncio.Lock()
        self.start_limit_s = START_S

    @property
    def zygote_pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def running(self) -> int:
        return len(self._children)

    def start(self) -> None:
        """Start the zygote. Early: before the daemon has threads or a large heap."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, posix.ZYGOTE_SOCKET_KIND)
        spare = [zygote.KEEP_SPARE] if self._keeps_spare else []
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", self._program, str(theirs.fileno()), *spare],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={},
            )
        ours.setblocking(False)
        self._channel = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._on_message)

    async def close(self) -> None:
        """Kill every run and stop the zygote; returns when both are gone."""
        for child in list(self._children.values()):
            child.kill()
        for child in list(self._children.values()):
            with contextlib.suppress(SandboxdError, TimeoutError):
                await asyncio.wait_for(child.wait(), 10)
        self._lose_zygote()

    async def launch(
        self, plan: LaunchPlan, stdio: tuple[int, int, int], groups: tuple[int, ...] = ()
    ) -> Child:
        """Start the plan with these three descriptors (they stay the caller's to close), in the
        control groups whose `cgroup.procs` are open as `groups`.

        Returns once the program runs. Raises LaunchFailed when a step failed, Fault when the
        zygote is broken.
        """
        if self._channel is None:
            self.start()
        ours, theirs = socket.socketpair(socket.AF_UNIX, posix.ZYGOTE_SOCKET_KIND)
        ours.setblocking(False)
        run_id = self._next_id
        self._next_id += 1
        child = Child(ours)
        child._last_resort = lambda: self._kill_init(run_id)
        self._children[run_id] = child
        cloned: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._cloned[run_id] = cloned
        try:
            with theirs:
                await self._send(request_of(run_id, plan), [*stdio, *groups, theirs.fileno()])
            child.pid = await cloned
            await self._wait_for_start(child)
        except asyncio.CancelledError:
            child._abandon()
            raise
        finally:
            self._cloned.pop(run_id, None)
        return child

    async def _wait_for_start(self, child: Child) -> None:
        """A run without a pid namespace can stop its init before that has said a word."""
        try:
            await asyncio.wait_for(child.started(), self.start_limit_s)
        except TimeoutError:
            child.kill()
            with contextlib.suppress(SandboxdError):
                await child.wait()
            raise LaunchFailed("start", errno.ETIMEDOUT, "") from None

    async def remask(self, child: Child, steps: Sequence[tuple[str, str]]) -> bool:
        """Cover names of a living run again after the host has replaced them: (`pin`, `readonly`
        or `blank`, path). False when something stays bare, or the run has no mounts of its own."""
        fds = await child.namespaces()
        if len(fds) != 2 or child.is_done:
            return False
        number = self._next_id
        self._next_id += 1
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._remasked[number] = done
        order = {"id": 0, "number": number, "remask": list(steps)}
        try:
            await self._send(marshal.dumps(order), list(fds))
            return await done
        finally:
            del self._remasked[number]

    async def _send(self, request: bytes, fds: list[int]) -> None:
        memfd = -1
        if len(request) > self._inline_max:
            memfd = posix.anonymous_file(request)
            request, fds = b"memfd", [*fds, memfd]
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        try:
            async with self._sending:
                while True:
                    channel = self._channel
                    if channel is None:
                        raise Fault("the process that starts runs has died; try again")
                    try:
                        channel.sendmsg([request], ancillary)
                        return
                    except BlockingIOError:
                        await _writable(channel)
                    except OSError as error:
                        if error.errno == errno.ENOBUFS or error.errno == errno.ETOOMANYREFS:
                            await asyncio.sleep(0.005)  # too many descriptors in flight: unix(7)
                            continue
                        self._lose_zygote()
                        raise Fault("the process that starts runs has died; try again") from error
        finally:
            if memfd >= 0:
                os.close(memfd)

    def _kill_init(self, run_id: int) -> None:
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(marshal.dumps({"id": run_id, "kill": True}))

    def _on_message(self) -> None:
        while self._channel is not None:
            try:
                data = self._channel.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose_zygote()
                return
            self._handle(*marshal.loads(data))

    def _handle(self, run_id: int, kind: str, *rest: Any) -> None:
        if kind == "remasked":
            number, status = rest
            if (remasked := self._remasked.get(number)) is not None and not remasked.done():
                remasked.set_result(status == 0)
            return
        child = self._children.get(run_id)
        if child is None:
            return
        cloned = self._cloned.get(run_id)
        if kind == "cloned":
            if cloned is not None and not cloned.done():
                cloned.set_result(rest[0])
        elif kind == "failed":
            del self._children[run_id]
            failure = LaunchFailed(*rest)
            child._failed(failure)
            child._finish(0)
            if cloned is not None and not cloned.done():
                cloned.set_exception(failure)
        elif kind == "reaped":
            del self._children[run_id]
            child._reaped(rest[0])

    def _lose_zygote(self) -> None:
        """The zygote is gone or must go: end every run through its own control socket."""
        channel, self._channel = self._channel, None
        if channel is not None:
            asyncio.get_running_loop().remove_reader(channel.fileno())
            channel.close()
        fault = Fault("the process that starts runs has died; the run was ended")
        for cloned in self._cloned.values():
            if not cloned.done():
                cloned.set_exception(fault)
        for child in self._children.values():
            child._close()
            child._break(fault)
        for remasked in self._remasked.values():
            if not remasked.done():
                remasked.set_result(False)
        self._children.clear()
        if self._process is not None:
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


async def _writable(channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(channel.fileno(), _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_writer(channel.fileno())


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
