"""init: pid 1 of a run, or its subreaper. Sets the stage up, starts the leader, waits, cleans up.

Runs in a process that the zygote has cloned and never returns to the zygote's loop; `ground` is
the part of the set-up that can be done before its run is known. The order of the set-up is safety, and `zygote` numbers the facts behind it. Sources: user_namespaces(7),
capabilities(7), landlock(7), seccomp(2), PR_SET_CHILD_SUBREAPER in prctl(2).
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import resource
import select
import sys
import time

from sandboxd.spawn import network, passed, rulesets, spare, terminal
from sandboxd.spawn.connecting import Connector
from sandboxd.spawn.ground import Ground
from sandboxd.spawn.joining import Maker
from sandboxd.spawn.reports import (
    SetUpFailed,
    descendants,
    drain,
    ignore_signal,
    kill,
    send,
    wakeup_pipe,
)
from sandboxd.spawn.view import Mounts
from sandboxd.system import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    Request = dict[str, Any]
    """The launch plan as marshal carries it: str, bytes, int, None, list, tuple, dict."""

HAND_OUT = 255
"""The order to hand out the run's namespaces; the others are signal numbers, and 0."""
DRAIN_S = 0.2
"""How long processes that outlived the leader may finish by themselves before they are killed."""
SWEEP_S = 5.0
LOOK_S = 0.004
"""Between two looks at processes that are not our own children: nobody tells us of their end."""
MAX_UNREACHABLE = 32

DEFAULT_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
)


def run_init(request: Request, fds: list[int], gate: int | None) -> NoReturn:
    """Everything the init of a known run does; whatever happens, it exits here (fact 1)."""
    _never_return(lambda: _live(request, fds, Ground(request), gate))


def run_spare(prepared: Request, channel: _socket.socket) -> NoReturn:
    """The same for a run that is still to come: its request is read from `channel`."""

    def wait() -> None:
        ground = Ground(prepared)
        ground.make_ahead()
        data, fds = spare.receive(channel)
        channel.close()
        if data:
            request: Request = marshal.loads(data)
            if request["ruleset"] >= 0:
                request["ruleset"] = fds.pop()
            _live(request, fds, ground, None)

    _never_return(wait)


def _never_return(work: Callable[[], None]) -> NoReturn:
    try:
        work()
    except BaseException:
        pass
    finally:
        os._exit(70)


def _live(request: Request, fds: list[int], ground: Ground, gate: int | None) -> None:
    control = _socket.socket(fileno=fds.pop())
    try:
        init = Init(request, fds, control)
        init.set_up(ground, gate)
        init.run()
    except SetUpFailed as failure:
        send(control, failure.report)
    except OSError as error:
        send(control, ("failed", "init", error.errno or 0, str(error.filename or "")))


class Init:
    """pid 1 of the run, or its subreaper: sets up, starts the leader, waits, cleans up."""

    def __init__(self, request: Request, fds: list[int], control: _socket.socket) -> None:
        self.request = request
        self.stdio = fds[:3]
        self.groups = fds[3:]
        """`cgroup.procs` of the control groups to join."""
        self.control = control
        self.has_pid_namespace = "pid" in request["namespaces"]
        self.leader = 0
        self.maker: Maker | None = None
        """Who made the namespaces that we have entered; None when they are our own, or the host's."""
        self.slave = -1
        """Our side of the run's pty; none without one."""
        self.passed: dict[int, int] = {}
        self.unreachable: set[bytes] = set()
        self.status: int | None = None
        self.is_empty = False
        """No process of the run is left."""
        self.connector: Connector | None = None
        self.user_s = self.system_s = 0.0
        self.max_rss_kib = 0

    # -- set-up, in the only order that is safe

    def set_up(self, ground: Ground, gate: int | None) -> None:
        self.join_groups()
        has_mounts = "mount" in self.request["namespaces"]
        mounts = Mounts(self.request["mounts"]) if has_mounts else None
        if self.request["maker"] is not None:
            self.maker = Maker(self.request["maker"])
        ground.make(gate)
        if mounts is not None:
            mounts.build(ground.private)
        if self.maker is not None:
            self.join(self.maker, ground)
        network.hand_out(ground.sockets, self.control)
        if self.request["pty"] is not None:
            cols, rows, _ = self.request["pty"]
            self.slave = terminal.make(cols, rows, self.control)
        try:
            os.chdir(self.request["cwd"])
        except OSError as error:
            raise SetUpFailed("cwd", error.errno or 0, self.request["cwd"]) from None
        if self.request["drop_privileges"]:
            linux.drop_capabilities()
            linux.no_new_privs()

    def join_groups(self) -> None:
        """Before anything of the run is made, a helper's processes included."""
        try:
            for fd in self.groups:
                os.write(fd, b"0\n")
                os.close(fd)
        except OSError as error:
            raise SetUpFailed("limit", error.errno or 0) from None

    def join(self, maker: Maker, ground: Ground) -> None:
        """Have the namespaces made and enter them; the network between, while we may change it."""
        maker.start(self.control)
        maker.enter()
        ground.make_network()
        maker.settle()
        ground.drop_bounding_set()

    def hand_out_namespaces(self) -> None:
        """Let the daemon have covers mended from outside: nobody but us could give it these, once
        we are no longer dumpable and our children are not to be trusted."""
        fds = list(self.maker.outer if self.maker is not None else ())
        fds = fds or [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "mnt")]
        rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
        ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)]
        self.control.sendmsg([marshal.dumps(("namespaces",))], ancillary)
        for fd in fds:
            os.close(fd)

    # -- life

    def run(self) -> None:
        wakeup = wakeup_pipe()
        linux.prctl(linux.PR_SET_DUMPABLE, 0)  # fact 5
        signal.signal(signal.SIGCHLD, ignore_signal)
        signal.set_wakeup_fd(wakeup[1], warn_on_full_buffer=False)
        self.passed = passed.make(self.request["passed"])
        self.poll = select.poll()
        self.poll.register(self.control.fileno(), select.POLLIN)
        self.poll.register(wakeup[0], select.POLLIN)
        self.confine()
        self.start_leader()
        if self.maker is not None:
            os.fchdir(self.maker.proc)  # where `Connector` finds the pids that it is told
        send(self.control, ("started",))
        self.attend(wakeup[0], lambda: self.status is not None)
        if self.request["keeps_background"] and self.outlived(wakeup[0]):
            send(self.control, ("left", self.status, self.usage(), self.count()))
            self.attend(wakeup[0], lambda: self.is_empty)
        survivors = self.end_survivors(wakeup[0])
        if self.helper_failed():
            raise SetUpFailed("mount.helper", 0, os.fsdecode(self.request["program"]))
        send(self.control, ("ended", self.status, self.usage(), survivors, not self.reap()))
        os._exit(0)

    def usage(self) -> tuple[float, float, int]:
        return self.user_s, self.system_s, self.max_rss_kib

    def confine(self) -> None:
        """Limits, Landlock, seccomp: on init itself, so that the leader needs no fork of Python
        (posix_spawn shares memory until execve). Nothing here is undone by what comes after."""
        request = self.request
        os.umask(request["umask"])
        stage = "landlock"
        try:
            if request["landlock"] is not None:
                is_whole = "mount" not in request["namespaces"] and self.maker is None
                proc = self.maker.proc if self.maker is not None else -1
                rulesets.enter(
                    request["landlock"], request["ruleset"], is_whole=is_whole, proc=proc
                )
            stage = "seccomp"
            if request["seccomp"] is not None:
                self.install_filter(request["seccomp"])
            stage = "rlimit"  # last: a low number of open files would break the steps above
            for name, value in request["rlimits"].items():
                _limit(getattr(resource, "RLIMIT_" + name), value)
        except OSError as error:
            raise SetUpFailed(stage, error.errno or 0, str(error.filename or "")) from None

    def start_leader(self) -> None:
        """The program, in a session and group of its own, with default signals and fds 0-2 and
        those the plan passes only (everything else of ours is close-on-exec). With a pty it is the
        foreground group of our own session instead."""
        places = {**dict(enumerate(self.stdio)), **self.passed}
        try:
            self.leader = self.start_on_pty(places) if self.slave >= 0 else self.spawn(places)
        except OSError as error:
            program = os.fsdecode(self.request["program"])
            raise SetUpFailed("exec", error.errno or 0, program) from None
        for fd in self.stdio:
            os.close(fd)

    def spawn(self, places: dict[int, int]) -> int:
        request = self.request
        return os.posix_spawn(
            request["program"],
            request["argv"],
            request["environment"],
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in places.items()],
            setsid=True,
            setsigmask=(),
            setsigdef=DEFAULT_SIGNALS,
        )

    def start_on_pty(self, places: dict[int, int]) -> int:
        request = self.request
        places = {**places, **dict.fromkeys(request["pty"][2], self.slave)}
        return terminal.start(
            request["program"],
            request["argv"],
            request["environment"],
            places,
            self.slave,
            DEFAULT_SIGNALS,
        )

    def install_filter(self, program: bytes) -> None:
        """The seccomp filter; with a listener, when connect(2) is ours to perform."""
        roots = self.request["connect_roots"]
        if roots is None:
            linux.install_filter(program)
            return
        secret = (_random_word(), _random_word())
        for placeholder, word in zip(self.request["connect_secret"], secret, strict=True):
            program = program.replace(_word(placeholder), _word(word))
        listener = linux.install_supervised_filter(program)
        is_scoped = self.request["landlock"] is not None and linux.landlock_abi() >= 6
        allows_abstract = is_scoped or self.request["network"] is not None
        proc = "." if self.maker is not None else "/proc"
        self.connector = Connector(
            listener,
            secret,
            roots,
            allows_abstract,
            self.poll,
            self.tell_unreachable,
            self.tell_refused,
            proc,
        )

    def tell_unreachable(self, address: bytes) -> None:
        """Let the daemon know what the run's own routes refused; it would never hear of it."""
        if address not in self.unreachable and len(self.unreachable) < MAX_UNREACHABLE:
            self.unreachable.add(address)
            send(self.control, ("unreachable", address))

    def tell_refused(self, path: bytes) -> None:
        """Let the daemon know which Unix socket we did not connect to: it is proof, not words."""
        if path not in self.unreachable and len(self.unreachable) < MAX_UNREACHABLE:
            self.unreachable.add(path)
            send(self.control, ("refused", path))

    def attend(self, wakeup: int, is_over: Callable[[], bool]) -> None:
        """Reap, obey, connect, until it is over."""
        connector = self.connector
        while not is_over():
            for fd, _ in self.poll.poll(connector.timeout_ms if connector else None):
                if fd == wakeup:
                    drain(wakeup)
                    self.reap()
                elif connector is None or not connector.serve(fd):
                    self.obey()
            if connector is not None and connector.retrying:
                connector.retry()

    def obey(self) -> None:
        """One order from the daemon: a signal number for the group, 0 to end it all."""
        order = self.control.recv(64)
        number = order[0] if order else 0  # fact 6
        if number == HAND_OUT:
            if self.maker is not None or "mount" in self.request["namespaces"]:
                self.hand_out_namespaces()  # else they are the host's
            return
        if number:
            try:
                os.killpg(self.group(), number)
            except ProcessLookupError:
                pass
            return
        self.kill_everything()

    def helper_said(self) -> bytes | None:
        """What the leader told of the program beneath it; None when it is the program itself."""
        number = self.request["status_fd"]
        return passed.said(self.passed[number]) if number is not None else None

    def group(self) -> int:
        """Whom signals reach: the program's process group, or what is in the foreground of the
        run's terminal. A helper's pid 1 lies in it too and ignores all but SIGKILL, because it is
        the init of a pid namespace beneath ours."""
        if self.slave >= 0 and (group := terminal.foreground(self.slave)):
            return group
        return passed.program_group(self.helper_said() or b"") or self.leader

    def helper_failed(self) -> bool:
        """Whether a helper ended by itself without having executed the program."""
        told = self.helper_said()
        return (
            told is not None
            and self.status is not None
            and os.WIFEXITED(self.status)
            and not passed.has_started_program(told)
        )

    def reap(self) -> bool:
        """Reap what is dead; False when no child at all is left. On a pty the leader's stops are
        told: whoever sits before the terminal gets it back then."""
        tells_cwd = self.request["tells_cwd"]
        flags = os.WNOHANG | (os.WUNTRACED if self.slave >= 0 or tells_cwd else 0)
        while True:
            try:
                pid, status, usage = os.wait4(-1, flags)
            except ChildProcessError:
                self.is_empty = True
                return False
            if pid == 0:
                return True
            if os.WIFSTOPPED(status):
                if pid == self.leader and tells_cwd:
                    self.tell_cwd()
                elif pid == self.leader:
                    send(self.control, ("stopped", os.WSTOPSIG(status)))
                continue
            if self.maker is not None and pid == self.maker.pid:
                continue
            self.user_s += usage.ru_utime
            self.system_s += usage.ru_stime
            self.max_rss_kib = max(self.max_rss_kib, usage.ru_maxrss)
            if pid == self.leader:
                self.status = status

    def tell_cwd(self) -> None:
        """Let the daemon know where the leader stands, which has stopped for that; it goes on."""
        proc = "." if self.maker is not None else "/proc"
        try:
            send(self.control, ("cwd", os.readlink(os.fsencode(f"{proc}/{self.leader}/cwd"))))
        except OSError:
            pass  # it has been killed meanwhile
        os.kill(self.leader, signal.SIGCONT)

    def end_survivors(self, wakeup: int) -> int:
        """Give what outlived the leader a short time to finish, then kill it; how many there were."""
        if self.maker is not None:
            return self.end_beside_pid_1(wakeup)
        if not self.outlived(wakeup):
            return 0
        survivors = self.count()
        self.kill_everything()
        return survivors

    def outlived(self, wakeup: int) -> bool:
        """Whether anything is left of the run when it has had a short time to finish."""
        poll = select.poll()
        poll.register(wakeup, select.POLLIN)
        deadline = time.monotonic() + DRAIN_S
        while self.reap():
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            poll.poll(left * 1000)
            drain(wakeup)
        return False

    def end_beside_pid_1(self, wakeup: int) -> int:
        """The same where orphans are not our children: pid 1 goes last, and the helper with it."""
        poll = select.poll()
        poll.register(wakeup, select.POLLIN)
        deadline = time.monotonic() + DRAIN_S
        while (survivors := self.count()) and time.monotonic() < deadline:
            time.sleep(LOOK_S)

        def pause() -> None:
            poll.poll(50)
            drain(wakeup)

        self.kill_everything(pause)
        return survivors

    def count(self) -> int:
        if self.has_pid_namespace or (self.maker is not None and self.maker.request["has_proc"]):
            return sum(name.isdigit() and name != "1" for name in os.listdir("/proc"))
        if self.maker is not None:  # the helper and pid 1 are no survivors
            return len(descendants()) - 2
        return len(descendants())

    def kill_everything(self, pause: Callable[[], object] = lambda: time.sleep(0.002)) -> None:
        """SIGKILL all processes of the run and reap until none is left."""
        deadline = time.monotonic() + SWEEP_S
        while time.monotonic() < deadline:
            if self.maker is not None:
                self.maker.end()
            elif self.has_pid_namespace:
                kill(-1)
            else:
                for pid in descendants():
                    kill(pid)
            if not self.reap():
                return
            pause()


def _word(value: int) -> bytes:
    return value.to_bytes(4, sys.byteorder)


def _random_word() -> int:
    """A word that no sign or zero extension of an int makes by itself."""
    while True:
        word = int.from_bytes(os.urandom(4), sys.byteorder)
        if word not in (0, 0xFFFFFFFF):
            return word


def _limit(kind: int, value: int) -> None:
    """Lower a limit; never above the hard limit we were given. Out of processor time a process is
    told by SIGXCPU, which names the reason, and killed a second later: getrlimit(2)."""
    _, hard = resource.getrlimit(kind)
    most = value + 1 if kind == resource.RLIMIT_CPU else value
    highest = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (min(value, highest), highest))
