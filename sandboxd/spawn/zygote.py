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
import errno
import fcntl
import gc
import marshal
import os
import resource
import select
import sys
import time

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from sandboxd.system import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Request = dict[str, Any]
    """The launch plan as marshal carries it: str, bytes, int, None, list, tuple, dict."""

INLINE_MAX = 60_000
"""Larger requests travel in a memfd: a SEQPACKET datagram is bounded by the socket buffer."""
DRAIN_S = 0.2
"""How long processes that outlived the leader may finish by themselves before they are killed."""
SWEEP_S = 5.0

DEFAULT_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
)
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DANGEROUS_PROC = (
    "sys",
    "sysrq-trigger",
    "irq",
    "bus",
    "fs",
    "acpi",
    "mtrr",
    "scsi",
    "latency_stats",
)
DEV_LINKS = (
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("pts/ptmx", "/dev/ptmx"),
)


class SetUpFailed(Exception):
    """A step of the set-up failed: its name, the errno and the path it was about."""

    def __init__(self, stage: str, error: int, path: str = "") -> None:
        self.report = ("failed", stage, error, path)


# --------------------------------------------------------------------------- the zygote


class Zygote:
    """Receives requests, clones inits, reaps them. Never touches a run's files itself."""

    def __init__(self, channel: _socket.socket) -> None:
        self.channel = channel
        self.runs: dict[int, int] = {}
        self.wakeup_read, self.wakeup_write = _wakeup_pipe()

    def serve(self) -> None:
        signal.set_wakeup_fd(self.wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        poll.register(self.wakeup_read, select.POLLIN)
        gc.freeze()
        gc.disable()
        while True:
            for fd, _ in poll.poll():
                if fd == self.wakeup_read:
                    _drain(self.wakeup_read)
                    self.reap()
                elif not self.receive():
                    return

    def receive(self) -> bool:
        """Handle one request; False when the daemon is gone."""
        data, fds = _receive(self.channel)
        if not data:
            return False
        request: Request = _load(data, fds)
        run_id = request["id"]
        if "kill" in request:
            self.kill_init(run_id)
            return True
        try:
            pid = _clone_init(request, fds)
        except SetUpFailed as failure:
            _send(self.channel, (run_id, *failure.report))
        else:
            self.runs[pid] = run_id
            _send(self.channel, (run_id, "cloned", pid))
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def kill_init(self, run_id: int) -> None:
        """The last resort for an init that does not obey (a run without a pid namespace can stop
        its init): its processes become ours, and `reap` ends them."""
        for pid, known in self.runs.items():
            if known == run_id:
                _kill(pid)

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
                _send(self.channel, (run_id, "reaped", status))
        for orphan in _children():
            # Whoever is ours and no init lost its init to a SIGKILL: it has nobody else.
            if orphan not in self.runs:
                _kill(orphan)


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
        os.setgroups([])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the daemon ends us by closing the channel
    Zygote(channel).serve()


def _ignore_signal(number: int, frame: object) -> None:
    """A handler, so that the wake-up descriptor is written."""


def _wakeup_pipe() -> tuple[int, int]:
    """A pipe for signal.set_wakeup_fd, neither end of which may block."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def _receive(channel: _socket.socket) -> tuple[bytes, list[int]]:
    space = _socket.CMSG_LEN(5 * 4)
    data, ancillary, _, _ = channel.recvmsg(
        INLINE_MAX + 4096, space, getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
    )
    fds: list[int] = []
    for level, kind, payload in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            count = len(payload) // 4
            fds += [int.from_bytes(payload[i * 4 : i * 4 + 4], sys.byteorder) for i in range(count)]
    return data, fds


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


def _send(channel: _socket.socket, message: tuple[Any, ...]) -> None:
    try:
        channel.send(marshal.dumps(message))
    except OSError:
        pass  # the reader is gone; end-of-file on our side ends us


def _children() -> list[int]:
    """Direct children, from /proc (CONFIG_PROC_CHILDREN); none when /proc is not there."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb", buffering=0) as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


# --------------------------------------------------------------------------- clone


def _clone_init(request: Request, fds: list[int]) -> int:
    """Clone the run's init; in the child never return."""
    flags = 0
    for name in request["namespaces"]:
        flags |= linux.NAMESPACE_FLAGS[name]
    outside = request["outside_ids"]
    maps_from_here = (
        outside is not None and outside[0] != os.getuid() and flags & linux.CLONE_NEWUSER
    )
    gate = os.pipe() if maps_from_here else None
    try:
        pid = linux.clone(flags)
    except OSError as error:
        raise SetUpFailed("clone", error.errno or 0) from None
    if pid == 0:
        _run_init(request, fds, gate[0] if gate else None)
    if gate:
        _write_foreign_maps(pid, request, gate)
    return pid


def _write_foreign_maps(pid: int, request: Request, gate: tuple[int, int]) -> None:
    """Root maps the run to the workspace's owner; only a parent with the capability may."""
    try:
        for name, inside, outside in zip(
            ("uid", "gid"), request["inside_ids"], request["outside_ids"], strict=True
        ):
            _write(f"/proc/{pid}/{name}_map", f"{inside} {outside} 1\n")
        os.write(gate[1], b"1")
    except OSError:
        pass  # the child reads end-of-file and reports the failed stage
    finally:
        os.close(gate[0])
        os.close(gate[1])


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


# --------------------------------------------------------------------------- init


def _run_init(request: Request, fds: list[int], gate: int | None) -> NoReturn:
    """Everything init does; whatever happens, it exits here (fact 1)."""
    try:
        control = _socket.socket(fileno=fds.pop())
        try:
            init = Init(request, fds, control)
            init.set_up(gate)
            init.run()
        except SetUpFailed as failure:
            _send(control, failure.report)
        except OSError as error:
            _send(control, ("failed", "init", error.errno or 0, str(error.filename or "")))
    except BaseException:
        pass
    finally:
        os._exit(70)


class Init:
    """pid 1 of the run, or its subreaper: sets up, starts the leader, waits, cleans up."""

    def __init__(self, request: Request, fds: list[int], control: _socket.socket) -> None:
        self.request = request
        self.stdio = fds
        self.control = control
        self.has_pid_namespace = "pid" in request["namespaces"]
        self.leader = 0
        self.status: int | None = None
        self.user_s = self.system_s = 0.0
        self.max_rss_kib = 0

    # -- set-up, in the only order that is safe

    def set_up(self, gate: int | None) -> None:
        signal.set_wakeup_fd(-1)
        os.setsid()
        if self.has_pid_namespace:
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        else:
            linux.prctl(linux.PR_SET_PDEATHSIG, 0)
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        namespaces = self.request["namespaces"]
        mounts = Mounts(self.request["mounts"]) if "mount" in namespaces else None
        if "user" in namespaces:
            self.become_inside(gate)
        elif self.request["outside_ids"] is not None:
            self.become(self.request["outside_ids"])
        if mounts is not None:
            mounts.build()
        if "net" in namespaces:
            _loopback_up()
        try:
            os.chdir(self.request["cwd"])
        except OSError as error:
            raise SetUpFailed("cwd", error.errno or 0, self.request["cwd"]) from None
        if self.request["drop_privileges"]:
            linux.drop_capabilities()
            linux.no_new_privs()

    def become_inside(self, gate: int | None) -> None:
        """Fill the user namespace's maps (fact 2) and take on the ids inside."""
        linux.prctl(linux.PR_SET_DUMPABLE, 1)
        inside, outside = self.request["inside_ids"], self.request["outside_ids"]
        if gate is None:
            try:
                _write("/proc/self/setgroups", "deny")
                _write("/proc/self/uid_map", f"{inside[0]} {outside[0]} 1\n")
                _write("/proc/self/gid_map", f"{inside[1]} {outside[1]} 1\n")
            except OSError as error:
                raise SetUpFailed("uid_map", error.errno or 0) from None
            return
        if os.read(gate, 1) != b"1":
            raise SetUpFailed("uid_map", errno.EPERM)
        os.setgroups([])
        self.become(inside)

    def become(self, ids: tuple[int, int]) -> None:
        linux.setresgid(ids[1])
        linux.setresuid(ids[0])

    # -- life

    def run(self) -> None:
        wakeup = _wakeup_pipe()
        linux.prctl(linux.PR_SET_DUMPABLE, 0)  # fact 5
        signal.signal(signal.SIGCHLD, _ignore_signal)
        signal.set_wakeup_fd(wakeup[1], warn_on_full_buffer=False)
        self.confine()
        self.start_leader()
        _send(self.control, ("started",))
        self.wait_for_leader(wakeup[0])
        survivors = self.end_survivors(wakeup[0])
        usage = (self.user_s, self.system_s, self.max_rss_kib)
        _send(self.control, ("ended", self.status, usage, survivors))
        os._exit(0)

    def confine(self) -> None:
        """Limits, Landlock, seccomp: on init itself, so that the leader needs no fork of Python
        (posix_spawn shares memory until execve). Nothing here is undone by what comes after."""
        request = self.request
        os.umask(request["umask"])
        stage = "landlock"
        try:
            if request["landlock"] is not None:
                _enter_landlock(request["landlock"])
            stage = "seccomp"
            if request["seccomp"] is not None:
                linux.install_filter(request["seccomp"])
            stage = "rlimit"  # last: a low number of open files would break the steps above
            for name, value in request["rlimits"].items():
                _limit(getattr(resource, "RLIMIT_" + name), value)
        except OSError as error:
            raise SetUpFailed(stage, error.errno or 0, str(error.filename or "")) from None

    def start_leader(self) -> None:
        """The program, in a session and group of its own, with default signals and fds 0-2 only
        (everything else of ours is close-on-exec)."""
        request = self.request
        actions = [(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in enumerate(self.stdio)]
        try:
            self.leader = os.posix_spawn(
                request["program"],
                request["argv"],
                request["environment"],
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=DEFAULT_SIGNALS,
            )
        except OSError as error:
            program = os.fsdecode(request["program"])
            raise SetUpFailed("exec", error.errno or 0, program) from None
        for fd in self.stdio:
            os.close(fd)

    def wait_for_leader(self, wakeup: int) -> None:
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN)
        poll.register(wakeup, select.POLLIN)
        while self.status is None:
            for fd, _ in poll.poll():
                if fd == wakeup:
                    _drain(wakeup)
                    self.reap()
                else:
                    self.obey()

    def obey(self) -> None:
        """One order from the daemon: a signal number for the group, 0 to end it all."""
        order = self.control.recv(64)
        number = order[0] if order else 0  # fact 6
        if number:
            try:
                os.killpg(self.leader, number)
            except ProcessLookupError:
                pass
            return
        self.kill_everything()

    def reap(self) -> bool:
        """Reap what is dead; False when no child at all is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.user_s += usage.ru_utime
            self.system_s += usage.ru_stime
            self.max_rss_kib = max(self.max_rss_kib, usage.ru_maxrss)
            if pid == self.leader:
                self.status = status

    def end_survivors(self, wakeup: int) -> int:
        """Give what outlived the leader a short time to finish, then kill it; how many there were."""
        poll = select.poll()
        poll.register(wakeup, select.POLLIN)
        deadline = time.monotonic() + DRAIN_S
        while self.reap():
            left = deadline - time.monotonic()
            if left <= 0:
                survivors = self.count()
                self.kill_everything()
                return survivors
            poll.poll(left * 1000)
            _drain(wakeup)
        return 0

    def count(self) -> int:
        if self.has_pid_namespace:
            return sum(name.isdigit() and name != "1" for name in os.listdir("/proc"))
        return len(_descendants())

    def kill_everything(self) -> None:
        """SIGKILL all processes of the run and reap until none is left."""
        deadline = time.monotonic() + SWEEP_S
        while time.monotonic() < deadline:
            if self.has_pid_namespace:
                _kill(-1)
            else:
                for pid in _descendants():
                    _kill(pid)
            if not self.reap():
                return
            time.sleep(0.002)


def _descendants() -> list[int]:
    """Every process below this one, found through /proc."""
    found: list[int] = []
    queue = _children()
    while queue:
        pid = queue.pop()
        found.append(pid)
        try:
            with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:
                queue += [int(child) for child in file.read().split()]
        except OSError:
            continue
    return found


def _limit(kind: int, value: int) -> None:
    """Lower a limit; never above the hard limit we were given."""
    _, hard = resource.getrlimit(kind)
    bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bounded, bounded))


def _enter_landlock(rules: dict[str, list[str]]) -> None:
    abi = linux.landlock_abi()
    handled = linux.landlock_rights(abi)
    ruleset = linux.landlock_create(abi)
    device = linux.LANDLOCK_WRITE_FILE | linux.LANDLOCK_READ | linux.LANDLOCK_IOCTL_DEV
    everything = handled & ~linux.LANDLOCK_IOCTL_DEV
    for kind, rights in (("read", linux.LANDLOCK_READ), ("write", everything), ("devices", device)):
        for path in rules[kind]:
            _allow_path(ruleset, path, rights & handled)
    linux.landlock_restrict(ruleset)
    os.close(ruleset)


def _allow_path(ruleset: int, path: str, rights: int) -> None:
    """Grant beneath `path`; what does not exist or cannot be reached needs no rule."""
    try:
        fd = os.open(path, linux.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_folder = os.fstat(fd).st_mode & 0o170000 == 0o040000
        linux.landlock_allow(
            ruleset, fd, rights if is_folder else rights & linux.LANDLOCK_FILE_ONLY
        )
    finally:
        os.close(fd)


# --------------------------------------------------------------------------- mounts


class Mounts:
    """The run's view of the file system, built in place without pivot_root.

    Made before the ids change: the trees are opened by the daemon's own right (the private
    temporary folder of root's daemon lies where the workspace's owner cannot walk).
    """

    def __init__(self, steps: list[tuple[str, str, str | None]]) -> None:
        self.steps = steps
        self.sources: dict[str, int] = {}
        for kind, path, source in steps:
            if kind in ("bind", "tmp", "visible"):
                self.sources[path] = self.open_folder(source or path, kind)

    def open_folder(self, path: str, kind: str) -> int:
        try:
            flags = linux.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
            return os.open(path, flags)
        except OSError as error:
            if kind == "visible":
                return -1
            raise SetUpFailed("workspace", error.errno or 0, path) from None

    def build(self) -> None:
        stage, path = "mount", "/"
        try:
            linux.mount(None, b"/", None, linux.MS_REC | linux.MS_SLAVE)
            trees = self.copy_trees()
            devices = {name: self.copy_device(name) for name in DEVICES}
            linux.mount_setattr(
                linux.AT_FDCWD,
                b"/",
                set_=linux.MOUNT_ATTR_RDONLY | linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV,
                recursive=True,
            )
            for kind, path, _ in self.steps:
                stage = kind
                if kind == "dev":
                    self.private_dev(devices)
                elif kind == "proc":
                    self.private_proc()
                elif kind in ("bind", "tmp", "visible"):
                    if path in trees:
                        self.attach(trees[path], path)
                elif kind in ("pin", "readonly"):
                    self.pin(path, linux.MOUNT_ATTR_RDONLY if kind == "readonly" else 0)
                elif kind == "blank":
                    self.blank(path)
            self.finish_dev()
        except OSError as error:
            raise SetUpFailed(f"mount.{stage}", error.errno or 0, path) from None

    def copy_trees(self) -> dict[str, int]:
        """Detached copies of the roots, taken while they still have their own flags (fact 7)."""
        trees = {}
        for kind, path, _ in self.steps:
            source = self.sources.get(path, -1)
            if kind not in ("bind", "tmp", "visible") or source < 0:
                continue
            tree = linux.open_tree(source, b"")
            flags = linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV
            if kind == "visible":
                flags |= linux.MOUNT_ATTR_RDONLY
            linux.mount_setattr(tree, b"", set_=flags, recursive=True)
            trees[path] = tree
        return trees

    def copy_device(self, name: str) -> int:
        try:
            return linux.open_tree(linux.AT_FDCWD, f"/dev/{name}".encode())
        except OSError:
            return -1

    def attach(self, tree: int, path: str) -> None:
        target = os.fsencode(path)
        try:
            linux.move_mount(tree, linux.AT_FDCWD, target)
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)  # below the private /tmp, which is ours
            linux.move_mount(tree, linux.AT_FDCWD, target)
        self.check_identity(path)

    def check_identity(self, path: str) -> None:
        """The folder now at `path` is the one opened first: a swapped link cannot win."""
        there = os.stat(path)
        opened = os.fstat(self.sources[path])
        if (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino):
            raise OSError(errno.ESTALE, "swapped", path)

    def private_dev(self, devices: dict[str, int]) -> None:
        """A tmpfs with the harmless devices, an own devpts and an own shm; see tty(4), devpts."""
        linux.mount(
            b"tmpfs", b"/dev", b"tmpfs", linux.MS_NOSUID | linux.MS_NOEXEC, b"mode=0755,size=1m"
        )
        for name, tree in devices.items():
            if tree < 0:
                continue
            os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
            linux.move_mount(tree, linux.AT_FDCWD, f"/dev/{name}".encode())
        for folder in ("pts", "shm", ".blank-folder"):
            os.mkdir(f"/dev/{folder}", 0o755)
        linux.mount(
            b"devpts",
            b"/dev/pts",
            b"devpts",
            linux.MS_NOSUID | linux.MS_NOEXEC,
            b"newinstance,ptmxmode=0666,mode=0620",
        )
        linux.mount(b"tmpfs", b"/dev/shm", b"tmpfs", linux.MS_NOSUID | linux.MS_NODEV, b"mode=1777")
        for target, link in DEV_LINKS:
            os.symlink(target, link)
        os.close(os.open("/dev/.blank-file", os.O_CREAT | os.O_WRONLY, 0))
        os.chmod("/dev/.blank-folder", 0)
        for blank in (b"/dev/.blank-folder", b"/dev/.blank-file"):
            linux.mount(blank, blank, None, linux.MS_BIND)
            linux.mount_setattr(linux.AT_FDCWD, blank, set_=linux.MOUNT_ATTR_RDONLY)

    def finish_dev(self) -> None:
        """Take the blanks' names away (their mounts stay) and close /dev to new entries."""
        for blank in ("/dev/.blank-folder", "/dev/.blank-file"):
            linux.unmount(blank.encode())
        os.rmdir("/dev/.blank-folder")
        os.unlink("/dev/.blank-file")
        linux.mount_setattr(linux.AT_FDCWD, b"/dev", set_=linux.MOUNT_ATTR_RDONLY)

    def blank(self, path: str) -> None:
        """Cover a denied file or folder; what is absent or out of reach needs no cover."""
        try:
            is_folder = os.stat(path).st_mode & 0o170000 == 0o040000
        except OSError:
            return
        source = b"/dev/.blank-folder" if is_folder else b"/dev/.blank-file"
        linux.mount(source, os.fsencode(path), None, linux.MS_BIND)

    def pin(self, path: str, flags: int) -> None:
        """Mount a name on itself: a mount point can be neither renamed nor removed."""
        try:
            fd = os.open(path, linux.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if os.fstat(fd).st_mode & 0o170000 == 0o120000:
                return  # a link has no content of its own; the plan names it in the gaps
            tree = linux.open_tree(fd, b"")
            if flags:
                linux.mount_setattr(tree, b"", set_=flags, recursive=True)
            linux.move_mount(tree, fd, b"")
            os.close(tree)
        finally:
            os.close(fd)

    def private_proc(self) -> None:
        """A /proc of our pid namespace; when the host's is masked (EPERM) the old one stays."""
        try:
            linux.mount(
                b"proc", b"/proc", b"proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
            )
        except PermissionError:
            raise SetUpFailed("proc", errno.EPERM, "/proc") from None
        for name in DANGEROUS_PROC:
            path = f"/proc/{name}".encode()
            try:
                linux.mount(path, path, None, linux.MS_BIND | linux.MS_REC)
            except FileNotFoundError:
                continue
            linux.mount_setattr(linux.AT_FDCWD, path, set_=linux.MOUNT_ATTR_RDONLY, recursive=True)


def _loopback_up() -> None:
    """Bring `lo` up in our network namespace: SIOCGIFFLAGS, SIOCSIFFLAGS (netdevice(7))."""
    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    name = b"lo".ljust(16, b"\0")
    flags = fcntl.ioctl(probe.fileno(), 0x8913, name + bytes(24))
    value = int.from_bytes(flags[16:18], sys.byteorder) | 1
    fcntl.ioctl(probe.fileno(), 0x8914, name + value.to_bytes(2, sys.byteorder) + bytes(22))
    probe.close()


if __name__ == "__main__":
    main()
