"""connect(2) performed by init for the processes of its run, so that no Unix socket of the host
is ever reached, under whatever name.

Hiding sockets by path does not hold: relative names, links, renamed, restarted and later sockets
all connect. So the filter stops every connect(2) and asks here; init reads the address once from
the caller's memory, opens the path in the run's own view, looks where that file really lies, and
connects the caller's own socket to exactly that file. The call is never allowed to continue, so
nothing can change between the look and the act. All families come here: a descriptor could be
swapped for another's after a look at it.

Init is the right one to do it: it lives in the run's namespaces and under its Landlock domain and
ids, so the kernel judges its connect as it would the caller's, and a server sees the run's own
credentials. Its own calls pass the filter by the two random words in their upper register halves
(`linux.connect`), which no process of the run can know: the leader shares no memory with init
after execve, init cannot be traced, and a filter cannot be read back without privileges.

A blocking connect must not block init: the socket is made non-blocking for the time and the
answer is given when poll(2) says so. Sources: seccomp_unotify(2), pidfd_getfd(2), unix(7).
"""

from __future__ import annotations

import _socket
import errno
import fcntl
import os
import select
import struct

from sandboxd.system import linux

RECEIVE, SEND, IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NOTIFICATION = struct.Struct("=QIIiIQ6Q")
RESPONSE = struct.Struct("=QqiI")
ADDRESS_MAX = 128
SO_DOMAIN = 39
RETRY_MS = 10
"""Between attempts at a Unix socket whose backlog is full; a blocking connect(2) waits there."""


class Pending:
    """A connect under way: who waits for it, and what to put back when it is done."""

    def __init__(self, request: int, fd: int, address: bytes, held: int, flags: int) -> None:
        self.request = request
        self.fd = fd
        self.address = address
        self.held = held
        self.flags = flags

    def close(self) -> None:
        for fd in (self.fd, self.held):
            if fd >= 0:
                os.close(fd)


class Connector:
    """Serves the listener of one run. Descriptors that may become ready are in `poll`."""

    def __init__(
        self,
        listener: int,
        secret: tuple[int, int],
        roots: list[str],
        allows_abstract: bool,
        poll: select.poll,
        on_unreachable: Callable[[bytes], None],
        on_refused: Callable[[bytes], None],
        proc: str = "/proc",
    ) -> None:
        """`on_unreachable` hears the address of each stream that the run's routes keep in,
        `on_refused` the path of each Unix socket that we do. `proc` is where processes lie under
        the numbers that we know them by."""
        self.proc = proc
        self.listener = listener
        self.secret = secret
        self.roots = roots
        self.allows_abstract = allows_abstract
        self.poll = poll
        self.on_unreachable = on_unreachable
        self.on_refused = on_refused
        self.waiting: dict[int, Pending] = {}
        self.retrying: list[Pending] = []
        poll.register(listener, select.POLLIN)

    @property
    def timeout_ms(self) -> int | None:
        return RETRY_MS if self.retrying else None

    def serve(self, fd: int) -> bool:
        """Handle a descriptor that poll found ready; False when it is none of ours."""
        if fd == self.listener:
            self.receive()
        elif fd in self.waiting:
            self.complete(fd)
        else:
            return False
        return True

    def retry(self) -> None:
        """Try again where a backlog was full."""
        tried, self.retrying = self.retrying, []
        for pending in tried:
            if self.is_valid(pending.request):
                self.attempt(pending)
            else:
                self.finish(pending, None)

    def receive(self) -> None:
        data = bytearray(NOTIFICATION.size)
        try:
            fcntl.ioctl(self.listener, RECEIVE, data)
        except OSError:
            return  # the caller was killed meanwhile
        request, pid, _, _, _, _, fd, pointer, length, *_ = NOTIFICATION.unpack(data)
        try:
            pending = self.prepare(request, pid, fd & 0xFFFFFFFF, pointer, length & 0xFFFFFFFF)
        except OSError as error:
            self.answer(request, error.errno or errno.EPERM)
            return
        self.attempt(pending)

    def prepare(self, request: int, pid: int, number: int, pointer: int, length: int) -> Pending:
        """Copy the address and the socket; raises what the caller is to see."""
        if length > ADDRESS_MAX:
            raise OSError(errno.EINVAL, "length")
        address = _read_memory(f"{self.proc}/{pid}/mem", pointer, length)
        pidfd = linux.pidfd_open(_thread_group(f"{self.proc}/{pid}/status"))
        try:
            fd = linux.pidfd_getfd(pidfd, number)
        finally:
            os.close(pidfd)
        held = -1
        try:
            if not self.is_valid(request):
                raise OSError(errno.EINTR, "gone")
            if _family(fd) == _socket.AF_UNIX:
                address, held = self.unix_address(pid, address)
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
            return Pending(request, fd, address, held, flags)
        except OSError:
            os.close(fd)
            raise

    def unix_address(self, pid: int, address: bytes) -> tuple[bytes, int]:
        """(address to connect to, descriptor that holds the file); raises EPERM outside the roots."""
        if len(address) < 3 or int.from_bytes(address[:2], "little") != _socket.AF_UNIX:
            raise OSError(errno.EINVAL, "address")
        if address[2] == 0:
            if not self.allows_abstract:
                raise OSError(errno.EPERM, "abstract")
            return address, -1
        held = _open_at(f"{self.proc}/{pid}/cwd", address[2:].split(b"\0")[0])
        way = f"{self.proc}/self/fd/{held}"
        place = os.readlink(way)
        if any(place.startswith(root.rstrip("/") + "/") for root in self.roots):
            return b"\x01\x00" + way.encode() + b"\0", held
        os.close(held)
        self.on_refused(os.fsencode(place))
        raise OSError(errno.EPERM, place)

    def attempt(self, pending: Pending) -> None:
        """Connect; answer now, or when the socket is ready."""
        is_blocking = not pending.flags & os.O_NONBLOCK
        if is_blocking:
            fcntl.fcntl(pending.fd, fcntl.F_SETFL, pending.flags | os.O_NONBLOCK)
        try:
            linux.connect(pending.fd, pending.address, self.secret)
        except OSError as error:
            if is_blocking and error.errno in (errno.EINPROGRESS, errno.EALREADY):
                self.waiting[pending.fd] = pending
                self.poll.register(pending.fd, select.POLLOUT)
            elif is_blocking and error.errno == errno.EAGAIN:
                self.retrying.append(pending)
            else:
                self.finish(pending, error.errno)
        else:
            self.finish(pending, 0)

    def complete(self, fd: int) -> None:
        pending = self.waiting.pop(fd)
        self.poll.unregister(fd)
        self.finish(pending, _error_of(fd))

    def finish(self, pending: Pending, error: int | None) -> None:
        if not pending.flags & os.O_NONBLOCK:
            fcntl.fcntl(pending.fd, fcntl.F_SETFL, pending.flags)
        if error == errno.EHOSTUNREACH and _is_stream(pending.fd):
            self.on_unreachable(pending.address)
        pending.close()
        if error is not None:
            self.answer(pending.request, error)

    def answer(self, request: int, error: int) -> None:
        try:
            fcntl.ioctl(self.listener, SEND, RESPONSE.pack(request, 0, -error, 0))
        except OSError:
            pass  # the caller was killed or interrupted while it waited

    def is_valid(self, request: int) -> bool:
        """Whether the caller still waits: what was read from its memory is its own only then."""
        try:
            fcntl.ioctl(self.listener, IS_VALID, struct.pack("=Q", request))
        except OSError:
            return False
        return True


def _read_memory(memory: str, pointer: int, length: int) -> bytes:
    try:
        fd = os.open(memory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        raise OSError(errno.EPERM, "memory") from None
    try:
        data = os.pread(fd, length, pointer)
    except OSError:
        raise OSError(errno.EFAULT, "address") from None
    finally:
        os.close(fd)
    if len(data) != length:
        raise OSError(errno.EFAULT, "address")
    return data


def _thread_group(status: str) -> int:
    """The process of a thread: pidfd_open(2) takes no thread ids."""
    with open(status, "rb", buffering=0) as file:
        for line in file.read().split(b"\n"):
            if line.startswith(b"Tgid:"):
                return int(line[5:])
    raise OSError(errno.ESRCH, "gone")


def _family(fd: int) -> int:
    return _option(fd, SO_DOMAIN)


def _is_stream(fd: int) -> bool:
    """Not a datagram socket: those are connected just to learn one's own address."""
    return _option(fd, _socket.SO_TYPE) == _socket.SOCK_STREAM


def _error_of(fd: int) -> int:
    return _option(fd, _socket.SO_ERROR)


def _option(fd: int, name: int) -> int:
    probe = _socket.socket(fileno=fd)
    try:
        return probe.getsockopt(_socket.SOL_SOCKET, name)
    finally:
        probe.detach()


def _open_at(cwd: str, path: bytes) -> int:
    """The file at `path` as the caller in `cwd` names it, in the view we share with it."""
    folder = -1
    try:
        if not path.startswith(b"/"):
            folder = os.open(cwd, linux.O_PATH | os.O_CLOEXEC)
        return os.open(path, linux.O_PATH | os.O_CLOEXEC, dir_fd=folder if folder >= 0 else None)
    finally:
        if folder >= 0:
            os.close(folder)
