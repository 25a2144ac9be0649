"""Namespaces that a helper makes and init enters: bwrap may make them where we may not.

The helper builds the view and starts in it, as pid 1, a shell that says that all is there and then
waits for a line. Init takes the namespaces from that process, enters them and goes on as
if it had made them: the run's network, its pty, Landlock and the filter come after. Init itself
stays outside the pid namespace, so the run can neither see, signal nor stop it; what it starts is
inside. The run ends with pid 1: the kernel kills everything beside it.

Facts this rests on, each tried:
- setns(2) needs CAP_SYS_ADMIN over the target, which the owner of a user namespace has from its
  parent. A setuid helper owns its namespace as root: then entering fails, before anything has run.
- bwrap makes a second user namespace to get its ids back, after the mounts: the mounts belong to
  the outer one (NS_GET_USERNS), the program into the inner one.
- pid 1 ignores every signal that it does not handle, SIGKILL too, when it comes from inside.
- bwrap dies with us and pid 1 with bwrap (PR_SET_PDEATHSIG), so nothing is left when we are killed.
- The filter is on pid 1 too: whatever a run does to it, it gains nothing by it.
- /proc of the view shows the run's pids, which are not ours: ours stays open (`proc`).

Loaded by init: nothing but C modules and `os` may be imported here.
Sources: setns(2), ioctl_ns(2), user_namespaces(7), pid_namespaces(7), bwrap(1).
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket
import errno
import fcntl
import os
import select

from sandboxd.spawn import passed
from sandboxd.spawn.reports import SetUpFailed, kill
from sandboxd.system import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NS_GET_USERNS = 0xB701
ENTERED = ("ipc", "uts", "net", "pid")
"""After user and mount: of these whichever the helper made."""
MAX_WORDS = 200


class Maker:
    """The helper of one run, and what we hold of the namespaces that it made."""

    def __init__(self, request: dict[str, Any]) -> None:
        """Opens what must be ours before the ids change: the roots, which a swapped link would
        make others, and our /proc."""
        self.request = request
        self.pid = 0
        self.proc = os.open("/proc", linux.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.roots = [(shown, _open_root(path)) for shown, path in request["roots"]]
        self.hold = self.first = self.inner = -1
        self.outer: tuple[int, int] = (-1, -1)
        """The user namespace that owns the view, and its mount namespace."""

    def start(self, control: _socket.socket) -> None:
        """Start the helper; returns when the view is complete. Raises SetUpFailed with its words."""
        request = self.request
        stdin, self.hold = os.pipe()
        told, tell = os.pipe()
        fds = passed.make({2: b"", **request["passed"]})
        places = {0: stdin, 1: tell, **fds}
        try:
            self.pid = os.posix_spawn(
                request["program"],
                request["argv"],
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in places.items()],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM),
            )
        except OSError as error:
            program = os.fsdecode(request["program"])
            raise SetUpFailed("mount.helper", error.errno or 0, program) from None
        os.close(stdin)
        os.close(tell)
        is_ready = _hears(told, self.pid, control)
        words, status = passed.said(fds[2]), passed.said(fds[request["status_fd"]])
        for fd in (told, *fds.values()):
            os.close(fd)
        if not is_ready:
            kill(self.pid)
            raise SetUpFailed("mount.helper", 0, _first_line(words))
        self.take(passed.program_group(status))

    def take(self, pid: int) -> None:
        """Open the namespaces of the helper's pid 1."""
        try:
            self.first = linux.pidfd_open(pid)
            self.fds = {name: _namespace(pid, name) for name in ("user", "mnt", *ENTERED)}
            owner = fcntl.ioctl(self.fds["mnt"], NS_GET_USERNS)
        except OSError as error:
            raise SetUpFailed("join", error.errno or 0) from None
        self.outer = (owner, self.fds.pop("mnt"))
        self.inner = self.fds.pop("user")

    def enter(self) -> None:
        """Enter the view and everything but the inner user namespace; we hold its capabilities."""
        user, mount = self.outer
        try:
            linux.setns(user, linux.CLONE_NEWUSER)
            linux.setns(mount, linux.CLONE_NEWNS)
            for name, fd in self.fds.items():
                if fd >= 0:
                    linux.setns(fd, linux.NAMESPACE_FLAGS[name])
                    os.close(fd)
        except OSError as error:
            raise SetUpFailed("join", error.errno or 0) from None
        self.check_roots()

    def check_roots(self) -> None:
        """The folders in the view are those opened first: a swapped link cannot win."""
        for shown, fd in self.roots:
            opened = os.fstat(fd)
            try:
                there = os.stat(shown)
            except OSError as error:
                raise SetUpFailed("workspace", error.errno or 0, shown) from None
            if (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino):
                raise SetUpFailed("workspace", errno.ESTALE, shown)
            os.close(fd)

    def settle(self) -> None:
        """Take on the ids that the run sees."""
        try:
            if not os.path.sameopenfile(self.inner, self.outer[0]):
                linux.setns(self.inner, linux.CLONE_NEWUSER)
        except OSError as error:
            raise SetUpFailed("join", error.errno or 0) from None
        os.close(self.inner)

    def end(self) -> None:
        """End pid 1 and with it the whole run: by a signal, or where our Landlock domain keeps that
        in, by the line that it waits for."""
        try:
            signal.pidfd_send_signal(self.first, signal.SIGKILL)
        except PermissionError:
            _write_line(self.hold)
        except ProcessLookupError:
            pass


def _hears(told: int, helper: int, control: _socket.socket) -> bool:
    """Whether the view's pid 1 has said its line; no when the helper ends first (what it started
    may live on), or we are told to end."""
    ended = linux.pidfd_open(helper)
    poll = select.poll()
    for fd in (told, ended, control.fileno()):
        poll.register(fd, select.POLLIN)
    is_first = poll.poll()[0][0] == told
    os.close(ended)
    return is_first and os.read(told, 1) == b"\n"


def _namespace(pid: int, name: str) -> int:
    """The namespace of that process; -1 when it is the one we live in."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    fd = os.open(f"/proc/{pid}/ns/{name}", flags)
    if name in ("user", "mnt"):
        return fd
    own, theirs = os.stat(f"/proc/self/ns/{name}"), os.fstat(fd)
    if (own.st_dev, own.st_ino) != (theirs.st_dev, theirs.st_ino):
        return fd
    os.close(fd)
    return -1


def _write_line(fd: int) -> None:
    try:
        os.write(fd, b"\n")
    except OSError:
        pass  # it is gone


def _open_root(path: str) -> int:
    try:
        flags = linux.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
        return os.open(path, flags)
    except OSError as error:
        raise SetUpFailed("workspace", error.errno or 0, path) from None


def _first_line(words: bytes) -> str:
    return words.split(b"\n")[0][:MAX_WORDS].decode(errors="replace")
