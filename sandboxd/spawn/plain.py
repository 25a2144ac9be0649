"""The child side where Linux's means are missing (macOS): a zygote and an init in POSIX alone.

It speaks the protocol of `zygote` and `init`, so the launcher notices no difference. What confines
the run is in the plan's own command (`sandbox-exec`); here are only session, limits, waiting and
ending. Facts it depends on, by reading:

 1. There is no end-of-file on a datagram socket pair: that the daemon is gone shows in getppid(2).
 2. There is no subreaper and no pid namespace. A run is ended by its process group and by a walk
    over its descendants, remembered while their parents live; who leaves both unseen stays.
 3. A pid that was seen is killed later only while its session is still the one seen with it.
 4. A terminal's master reads EIO or end-of-file once the last slave is closed: both end it.
 5. ru_maxrss is in bytes on macOS and in KiB elsewhere.
 6. A datagram on macOS holds 2,048 bytes by default: larger requests travel in a file.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket
import array
import fcntl
import marshal
import os
import resource
import select
import sys
import termios
import time

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from sandboxd.spawn import reports
from sandboxd.spawn.reports import SetUpFailed, drain, ignore_signal, kill, send, wakeup_pipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Request = dict[str, Any]

IS_MACOS = os.uname().sysname == "Darwin"
TICK_MS = 200
"""How often it is looked whether the daemon lives and who descends from whom."""
DRAIN_S = 0.2
SWEEP_S = 5.0
MAX_MESSAGE = 64 * 1024
MAX_FDS = 16
MEMFD = b"memfd"
INLINE_MAX = 1_500
"""See fact 6."""
DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def children(pid: int) -> list[int]:
    """Direct children of a process."""
    if IS_MACOS:
        from sandboxd.system import darwin

        return darwin.children(pid)
    return reports.children(pid)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    queue = children(pid)
    while queue:
        below = queue.pop()
        found.append(below)
        queue += children(below)
    return found


class Zygote:
    """Receives requests, forks an init for each, reaps them."""

    def __init__(self, channel: _socket.socket) -> None:
        self.channel = channel
        self.daemon = os.getppid()
        self.runs: dict[int, int] = {}
        self.wakeup_read, self.wakeup_write = wakeup_pipe()

    def serve(self) -> None:
        signal.set_wakeup_fd(self.wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, ignore_signal)
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        poll.register(self.wakeup_read, select.POLLIN)
        while os.getppid() == self.daemon:  # fact 1
            for fd, _ in poll.poll(TICK_MS):
                if fd == self.wakeup_read:
                    drain(self.wakeup_read)
                    self.reap()
                elif not self.receive():
                    return self.end_all()
        return self.end_all()

    def receive(self) -> bool:
        """Handle one request; False when the daemon is gone."""
        try:
            data, fds = receive(self.channel)
        except OSError:
            return False
        if not data:
            return False
        if data == MEMFD:
            file = fds.pop()
            data = os.pread(file, os.fstat(file).st_size, 0)
            os.close(file)
        request: Request = marshal.loads(data)
        if "kill" in request:
            self.end(request["id"])
        elif "remask" not in request:
            self.start(request, fds)
        for fd in fds:
            os.close(fd)
        return True

    def start(self, request: Request, fds: list[int]) -> None:
        pid = os.fork()
        if pid == 0:
            self.channel.close()
            run_init(request, fds)
        self.runs[pid] = request["id"]
        send(self.channel, (request["id"], "cloned", pid))

    def end(self, run_id: int) -> None:
        """The last resort for an init that does not obey."""
        for pid, known in self.runs.items():
            if known == run_id:
                for doomed in (*descendants(pid), pid):
                    kill(doomed)

    def end_all(self) -> None:
        for run_id in list(self.runs.values()):
            self.end(run_id)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            run_id = self.runs.pop(pid, None)
            if run_id is not None:
                send(self.channel, (run_id, "reaped", status))


def receive(channel: _socket.socket) -> tuple[bytes, list[int]]:
    """One message and the descriptors that came with it."""
    size = _socket.CMSG_SPACE(MAX_FDS * 4)
    data, ancillary, _, _ = channel.recvmsg(MAX_MESSAGE, size)
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, list(fds)


def run_init(request: Request, fds: list[int]) -> NoReturn:
    """Everything one run's init does; whatever happens, it exits here."""
    try:
        control = _socket.socket(fileno=fds.pop())
        try:
            Init(request, fds[:3], control).run()
        except SetUpFailed as failure:
            send(control, failure.report)
        except OSError as error:
            send(control, ("failed", "init", error.errno or 0, str(error.filename or "")))
    finally:
        os._exit(70)


class Init:
    """Starts the program in a session of its own, waits, and ends what outlives it."""

    def __init__(self, request: Request, stdio: list[int], control: _socket.socket) -> None:
        self.request = request
        self.stdio = stdio
        self.control = control
        self.zygote = os.getppid()
        self.leader = 0
        self.status: int | None = None
        self.usage = (0.0, 0.0, 0)
        self.seen: dict[int, int] = {}
        """Descendants, each with its session."""
        self.slave = -1

    def run(self) -> None:
        wakeup = wakeup_pipe()
        signal.signal(signal.SIGCHLD, ignore_signal)
        signal.set_wakeup_fd(wakeup[1], warn_on_full_buffer=False)
        self.make_terminal()
        self.leader = self.start()
        send(self.control, ("started",))
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN)
        poll.register(wakeup[0], select.POLLIN)
        while self.status is None:
            events = poll.poll(TICK_MS)
            self.look()
            if os.getppid() != self.zygote:
                self.kill_everything()
            for fd, _ in events:
                if fd == wakeup[0]:
                    drain(wakeup[0])
                    self.reap()
                else:
                    self.obey()
        survivors = self.end_survivors()
        send(self.control, ("ended", self.status, self.usage, survivors, True))
        os._exit(0)

    # -- starting

    def make_terminal(self) -> None:
        if self.request["pty"] is None:
            return
        cols, rows, _ = self.request["pty"]
        master, self.slave = os.openpty()
        size = rows.to_bytes(2, sys.byteorder) + cols.to_bytes(2, sys.byteorder) + bytes(4)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, size)
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [master]).tobytes())]
        self.control.sendmsg([marshal.dumps(("pty",))], rights)
        os.close(master)

    def start(self) -> int:
        """The program; raises SetUpFailed with the step that failed."""
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(told)
            self.become_program(tell)
        os.close(tell)
        with open(told, "rb") as pipe:
            failed = pipe.read()
        if failed:
            os.waitpid(pid, 0)
            raise SetUpFailed(*marshal.loads(failed))
        for fd in self.stdio:
            os.close(fd)
        if self.slave >= 0:
            os.close(self.slave)
        return pid

    def become_program(self, tell: int) -> NoReturn:
        stage, path = "session", ""
        try:
            os.setsid()
            places = dict(enumerate(self.stdio))
            if self.slave >= 0:
                fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
                places.update(dict.fromkeys(self.request["pty"][2], self.slave))
            stage, path = "cwd", self.request["cwd"]
            os.chdir(path)
            os.umask(self.request["umask"])
            stage, path = "descriptors", ""
            self.place(places)
            stage = "rlimit"
            for name, value in self.request["rlimits"].items():
                _limit(getattr(resource, "RLIMIT_" + name), value)
            stage = "ids"
            _become(self.request["outside_ids"])
            for number in DEFAULT_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            stage, path = "exec", self.request["program"]
            os.execve(path, self.request["argv"], self.request["environment"])
        except BaseException as error:
            number = getattr(error, "errno", 0) or 0
            os.write(tell, marshal.dumps((stage, number, os.fsdecode(path))))
        finally:
            os._exit(127)

    def place(self, places: dict[int, int]) -> None:
        """fds 0 to 2, by way of copies: none of them may be overwritten before it was placed."""
        copies = {place: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for place, fd in places.items()}
        for place, copy in copies.items():
            os.dup2(copy, place, inheritable=True)

    # -- life

    def look(self) -> None:
        """Remember who descends from the leader while their parents live (fact 2)."""
        for pid in descendants(os.getpid()):
            try:
                self.seen[pid] = os.getsid(pid)
            except ProcessLookupError:
                pass

    def obey(self) -> None:
        """One order from the daemon: a signal number for the group, 0 to end it all."""
        try:
            order = self.control.recv(64)
        except OSError:
            order = b""
        number = order[0] if order else 0
        if number == 255:
            return  # there are no namespaces to hand out
        if number == 0:
            self.kill_everything()
        else:
            _signal_group(self.leader, number)

    def reap(self) -> None:
        flags = os.WNOHANG | (os.WUNTRACED if self.slave >= 0 else 0)
        try:
            pid, status, used = os.wait4(self.leader, flags)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            send(self.control, ("stopped", os.WSTOPSIG(status)))
            return
        self.status = status
        scale = 1024 if IS_MACOS else 1  # fact 5
        self.usage = (used.ru_utime, used.ru_stime, used.ru_maxrss // scale)

    def left(self) -> list[int]:
        """Who was seen and is still there, in the session that it was seen in (fact 3)."""
        found = []
        for pid, session in self.seen.items():
            try:
                if pid != self.leader and os.getsid(pid) == session:
                    found.append(pid)
            except (ProcessLookupError, PermissionError):
                pass
        return found

    def end_survivors(self) -> int:
        deadline = time.monotonic() + DRAIN_S
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.005)
        if left:
            self.kill_everything()
        return len(left)

    def kill_everything(self) -> None:
        deadline = time.monotonic() + SWEEP_S
        while time.monotonic() < deadline:
            self.look()
            _signal_group(self.leader, signal.SIGKILL)
            left = self.left()
            for pid in left:
                kill(pid)
            if self.status is None:
                self.reap()
            if not left and self.status is not None:
                return
            time.sleep(0.005)


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def _become(ids: tuple[int, int] | None) -> None:
    """The workspace's owner, when we are root."""
    if ids is None or os.getuid() != 0:
        return
    os.setgroups([])
    os.setgid(ids[1])
    os.setuid(ids[0])


def _limit(kind: int, value: int) -> None:
    """Soft and hard alike, never above what is allowed already."""
    _, hard = resource.getrlimit(kind)
    wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (wanted, wanted))


def main() -> None:
    channel = _socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    os.setsid()
    os.umask(0o077)
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Zygote(channel).serve()


if __name__ == "__main__":
    main()
