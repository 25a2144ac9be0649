"""The child side of spawning: one small process that clones, confines and reaps every run.

It is executed as `python -I -S zygote.py FD`, starts before the daemon has threads or a heap,
and stays single-threaded and tiny: forking a daemon with 1 GiB of heap costs 14-23 ms and
would run Python in a copy of a multi-threaded process. It imports only C modules and
`sandboxd.system.linux`, because each import is paid by every run's page tables.

The parts:

    daemon --run, 4 fds--> zygote --clone(NEW*)--> init --posix_spawn--> program (the leader)
       ^                     |                       |
       +------- reaped ------+                       |
       +------- started / failed / ended (control) --+

One init may be made ahead of its run and wait for it (`spare`).

*init* is pid 1 of the run's pid namespace, or (tiers without one) a subreaper beside it. It
sets the stage up, waits for the leader, and reports over the run's own control socket. The
zygote only says `reaped` once init is gone, and only then is nothing of the run left: the kernel
ends a pid namespace before its init can be waited for, and without a namespace init kills
until wait4(2) says ECHILD.

Facts this code depends on, each learnt by breaking it:
 1. A child that fails between clone and exec must `_exit`; returning would run the loop twice.
 2. A non-dumpable process finds its /proc/self/uid_map owned by root: dumpable comes first.
 3. Landlock forbids every later mount call; seccomp would too. Both come last.
 4. pid 1 ignores signals whose action is the default and must reap: hence a real init.
 5. init is non-dumpable, else its children forge the status through /proc/1/mem.
 6. A control socket at end-of-file means that the daemon is gone: kill everything.
 7. Trees are copied (open_tree) before the view is made read-only, so that a writable root
    keeps its own flags, and are attached to a descriptor, so that a swapped path cannot win.
 8. Linux counts the recursive read-only flag as locked for nested namespaces: only seccomp
    keeps the run from making those; we never rely on the flag alone.

Sources: clone(2), user_namespaces(7), mount_setattr(2), capabilities(7), landlock(7),
seccomp(2), PR_SET_CHILD_SUBREAPER in prctl(2).
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` brings enum and functools
import _socket
import gc
import marshal
import os
import select
import sys
import time

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from sandboxd.spawn import network, spare
from sandboxd.spawn.ground import write_file
from sandboxd.spawn.init import run_init, run_spare
from sandboxd.spawn.remask import run_remask
from sandboxd.spawn.reports import (
    SetUpFailed,
    children,
    descendants,
    drain,
    ignore_signal,
    kill,
    namespace_stage,
    send,
    wakeup_pipe,
)
from sandboxd.spawn.rulesets import Ready
from sandboxd.system import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Request = dict[str, Any]
    """The launch plan as marshal carries it: str, bytes, int, None, list, tuple, dict."""

KEEP_SPARE = "spare"
"""The argument by which a zygote keeps an init ready."""
INLINE_MAX = 60_000
"""Larger requests travel in a memfd: a SEQPACKET datagram is bounded by the socket buffer."""
SWEEP_S = 5.0
SPARE_MS = 5
"""Without a request for this long a spare is made, also while runs live."""


class HostMounts:
    """Whether what is mounted where has changed: poll(2) of /proc/PID/mountinfo, proc(5)."""

    def __init__(self) -> None:
        self.poll = select.poll()
        try:
            self.poll.register(os.open("/proc/self/mountinfo", os.O_RDONLY), select.POLLPRI)
        except OSError:
            self.are_watched = False
        else:
            self.are_watched = True
            self.have_changed()  # what happened before is not news

    def have_changed(self) -> bool:
        """Since it was asked last."""
        return bool(self.poll.poll(0)) or not self.are_watched


class Zygote:
    """Receives requests, clones inits, reaps them. Never touches a run's files itself."""

    def __init__(self, channel: _socket.socket) -> None:
        self.channel = channel
        self.runs: dict[int, int] = {}
        self.helpers: dict[int, tuple[int, int]] = {}
        """Short-lived children that cover a run's names again: (run, number of the request)."""
        self.ready = Ready()
        self.spares = spare.Spares()
        self.networks = network.Prepared()
        self.mounts = HostMounts()
        self.has_reaped = False
        """Whether a run has ended since the last one began: no better time for a spare."""
        self.wakeup_read, self.wakeup_write = wakeup_pipe()

    def serve(self) -> None:
        signal.set_wakeup_fd(self.wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, ignore_signal)
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        poll.register(self.wakeup_read, select.POLLIN)
        gc.freeze()
        gc.disable()
        while True:
            events = poll.poll(self.patience_ms())
            if not events:
                self.make_ready()
            for fd, _ in events:
                if fd == self.wakeup_read:
                    drain(self.wakeup_read)
                    self.reap()
                elif not self.receive():
                    return

    def patience_ms(self) -> int | None:
        """How long nothing must happen until something is made ready for the next run."""
        if self.ready.wanted is not None:
            return 0
        if self.spares.wanted is not None:
            return 0 if self.has_reaped else SPARE_MS
        return None

    def make_ready(self) -> None:
        if self.ready.wanted is not None:
            self.ready.make()
        else:
            self.make_spare()

    def receive(self) -> bool:
        """Handle one request; False when the daemon is gone."""
        data, fds = spare.receive(self.channel, INLINE_MAX + 4096)
        if not data:
            return False
        request: Request = _load(data, fds)
        run_id = request["id"]
        if "kill" in request:
            self.kill_init(run_id)
            return True
        if "remask" in request:
            self.start_remask(request, fds)
            return True
        if self.mounts.have_changed():
            self.spares.drop()
            self.ready.drop()
        shares = "mount" not in request["namespaces"] and not request["is_joined"]
        request["ruleset"] = ready = self.ready.take(request["landlock"], is_whole=shares)
        request["private"] = [kind for kind, _, _ in request["mounts"] if kind in ("proc", "dev")]
        self.spares.want(request)
        self.has_reaped = False
        try:
            pid = self.start_init(request, fds)
        except SetUpFailed as failure:
            send(self.channel, (run_id, *failure.report))
        else:
            self.runs[pid] = run_id
            send(self.channel, (run_id, "cloned", pid))
        finally:
            for fd in [*fds, *([ready] if ready >= 0 else [])]:
                os.close(fd)
        return True

    def start_init(self, request: Request, fds: list[int]) -> int:
        """An init for this run: the one made ahead, or a new one. Raises SetUpFailed."""
        data = marshal.dumps(request)
        taken = self.spares.take(request) if len(data) <= spare.MAX_REQUEST else None
        if taken is not None:
            pid, channel = taken
            ready = [request["ruleset"]] if request["ruleset"] >= 0 else []
            if spare.hand_over(channel, data, [*fds, *ready]):
                return pid
        request["netlink"] = self.networks.of(request["network"])
        return _clone_init(request, fds, self.spares)

    def make_spare(self) -> None:
        """An init like the last, for a run like the last."""
        prepared, self.spares.wanted = self.spares.wanted, None
        if prepared is None or self.spares.is_ready_for(prepared):
            return
        ours, theirs = spare.pair()
        ready = {**prepared, "netlink": self.networks.of(prepared["network"])}
        try:
            pid = linux.clone(_flags(prepared))
            if pid == 0:
                ours.close()
                self.spares.let_go()
                run_spare(ready, theirs)
        except OSError:
            ours.close()
            return  # the run will meet the same error and report it
        finally:
            theirs.close()
        self.spares.put(pid, ours, prepared)

    def start_remask(self, request: Request, fds: list[int]) -> None:
        number = request["number"]
        try:
            pid = linux.clone(0)
        except OSError:
            send(self.channel, (request["id"], "remasked", number, 70))
        else:
            if pid == 0:
                run_remask(request["remask"], fds)
            self.helpers[pid] = (request["id"], number)
        finally:
            for fd in fds:
                os.close(fd)

    def kill_init(self, run_id: int) -> None:
        """The last resort for an init that does not obey (a run without a pid namespace can stop
        its init): its processes become ours, and `reap` ends them."""
        for pid, known in self.runs.items():
            if known == run_id:
                kill(pid)

    def reap(self) -> None:
        while True:
            try:
                pid, status, _ = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            run_id = self.runs.pop(pid, None)
            if run_id is not None:
                self.has_reaped = True
                if os.WIFSIGNALED(status):
                    self.end_orphans()
                send(self.channel, (run_id, "reaped", status))
            elif pid == self.spares.pid:
                self.spares.let_go()
            elif pid in self.helpers:
                run_id, number = self.helpers.pop(pid)
                send(self.channel, (run_id, "remasked", number, status))
        self.end_orphans()

    def end_orphans(self) -> None:
        """Kill whoever is ours and neither an init nor a helper, until nobody is: their init was
        killed, and where it had no pid namespace its processes became our children."""
        deadline = time.monotonic() + SWEEP_S
        while time.monotonic() < deadline:
            orphans = [pid for pid in children() if not self.knows(pid)]
            if not orphans:
                return
            for pid in orphans:
                for doomed in (*descendants(pid), pid):
                    kill(doomed)
            for pid in orphans:
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)

    def knows(self, pid: int) -> bool:
        return pid in self.runs or pid in self.helpers or pid == self.spares.pid


def main() -> None:
    channel = _socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    os.setsid()
    os.umask(0o077)
    os.chdir("/")
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    if os.getuid() == 0:
        try:
            os.setgroups([])
        except PermissionError:
            pass  # root without capabilities: inside a sandbox or a container
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the daemon ends us by closing the channel
    made = Zygote(channel)
    made.spares.is_kept = sys.argv[2:] == [KEEP_SPARE] and made.mounts.are_watched
    made.serve()


def _load(data: bytes, fds: list[int]) -> Request:
    """The request itself, or the one in the memfd that came as the last descriptor."""
    if data == b"memfd":
        memfd = fds.pop()
        try:
            data = os.pread(memfd, os.fstat(memfd).st_size, 0)
        finally:
            os.close(memfd)
    request: Request = marshal.loads(data)
    return request


def _flags(request: Request) -> int:
    flags = 0
    for name in request["namespaces"]:
        flags |= linux.NAMESPACE_FLAGS[name]
    return flags


def _clone_init(request: Request, fds: list[int], spares: spare.Spares) -> int:
    """Clone the run's init; in the child never return."""
    flags = _flags(request)
    outside = request["outside_ids"]
    maps_from_here = (
        outside is not None and outside[0] != os.getuid() and flags & linux.CLONE_NEWUSER
    )
    gate = os.pipe() if maps_from_here else None
    try:
        pid = linux.clone(flags)
    except OSError as error:
        raise SetUpFailed(namespace_stage(request, "clone"), error.errno or 0) from None
    if pid == 0:
        spares.let_go()
        run_init(request, fds, gate[0] if gate else None)
    if gate:
        _write_foreign_maps(pid, request, gate)
    return pid


def _write_foreign_maps(pid: int, request: Request, gate: tuple[int, int]) -> None:
    """Root maps the run to the workspace's owner; only a parent with the capability may."""
    try:
        for name, inside, outside in zip(
            ("uid", "gid"), request["inside_ids"], request["outside_ids"], strict=True
        ):
            write_file(f"/proc/{pid}/{name}_map", f"{inside} {outside} 1\n")
        os.write(gate[1], b"1")
    except OSError:
        pass  # the child reads end-of-file and reports the failed stage
    finally:
        os.close(gate[0])
        os.close(gate[1])


if __name__ == "__main__":
    main()
