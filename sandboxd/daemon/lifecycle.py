"""Taking and giving back the socket: one daemon per socket, no stale file in the way.

A module of its own because the order is the safety: the lock first (flock(2), released by the
kernel when its holder dies, however it dies), then proof that nobody listens, only then is an
old socket removed. The lock file says who holds it. Sources: unix(7), flock(2).
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd.config import SUN_PATH_MAX, make_private, private_folder
from sandboxd.errors import DaemonRunning, SocketUnusable

BACKLOG = 1024
_FIRST_HANDED = 3


@contextmanager
def held_socket(path: str) -> Iterator[socket.socket]:
    """A listening socket at `path` that is ours alone until the context ends.

    Raises DaemonRunning, which names the holder's pid, or SocketUnusable. Leaves neither socket
    nor lock behind.
    """
    _prepare_folder(path)
    lock = _take_lock(path + ".lock", path)
    try:
        _remove_stale(path)
        listening = _listen(path)
        mine = os.stat(path)
        try:
            yield listening
        finally:
            listening.close()
            _remove_if_same(path, mine)
    finally:
        _remove_if_same(path + ".lock", os.fstat(lock))
        os.close(lock)


@contextmanager
def held_lock(path: str) -> Iterator[None]:
    """The lock of a socket that somebody else made and keeps. Raises DaemonRunning."""
    lock = _take_lock(path + ".lock", path)
    try:
        yield
    finally:
        _remove_if_same(path + ".lock", os.fstat(lock))
        os.close(lock)


def handed_socket() -> socket.socket | None:
    """The listening Unix socket that a service manager handed to this very process; None without one.

    Raises SocketUnusable for anything else. Source: sd_listen_fds(3).
    """
    pid = os.environ.pop("LISTEN_PID", "")
    count = os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdigit() or count == "0":
        return None
    handed = socket.socket(fileno=_FIRST_HANDED)
    is_listening = handed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if count != "1" or handed.family != socket.AF_UNIX or not is_listening:
        raise SocketUnusable(
            f"the service manager handed over {count} descriptor(s), and the first is no listening Unix "
            "socket",
            hint="write one ListenStream= with a path; `sandboxd service install` does",
        )
    os.set_inheritable(_FIRST_HANDED, False)
    handed.setblocking(False)
    return handed


def _prepare_folder(path: str) -> None:
    """Make sandboxd's own folders; a folder that somebody named must be there."""
    if len(os.fsencode(path)) > SUN_PATH_MAX:
        raise _unusable(path, f"it has more than {SUN_PATH_MAX} bytes")
    folder = os.path.dirname(path)
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if folder in (private_folder(), os.path.join(runtime, "sandboxd")):
        make_private(folder)
    elif not os.path.isdir(folder):
        raise _unusable(path, f"there is no folder {folder}")


def _take_lock(lock_path: str, path: str) -> int:
    """The descriptor that holds the lock; keeps trying while the file is being replaced."""
    while True:
        try:
            lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _unusable(path, error.strerror) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(lock, 32).decode("ascii", "replace").strip()
            os.close(lock)
            raise _running(path, holder) from error
        if _is_same_file(lock_path, os.fstat(lock)):
            os.ftruncate(lock, 0)
            os.write(lock, b"%d\n" % os.getpid())
            return lock
        os.close(lock)


def _remove_stale(path: str) -> None:
    """Remove a socket nobody listens on. We hold the lock, so none of us can be starting."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(path, error.strerror) from error
    if not stat.S_ISSOCK(found.st_mode):
        raise _unusable(path, "something that is not a socket has that name")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except OSError as error:
            raise _unusable(path, error.strerror) from error
        else:
            raise _running(path, "")


def _listen(path: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(path)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _unusable(path, error.strerror or str(error)) from error
    finally:
        os.umask(before)
    listening.setblocking(False)
    return listening


def _is_same_file(path: str, found: os.stat_result) -> bool:
    try:
        now = os.lstat(path)
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino)


def _remove_if_same(path: str, found: os.stat_result) -> None:
    """Remove what is ours; what somebody put in its place stays."""
    try:
        if _is_same_file(path, found):
            os.unlink(path)
    except OSError:
        return


def _running(path: str, holder: str) -> DaemonRunning:
    who = f"process {holder}" if holder else "another process"
    return DaemonRunning(
        f"a daemon is running already: {who} holds {path}",
        hint="use it, stop it, or name another socket with --socket",
        path=path,
        data={"pid": int(holder)} if holder.isdigit() else None,
    )


def _unusable(path: str, why: str | None) -> SocketUnusable:
    return SocketUnusable(
        f"cannot listen on {path}: {why}",
        hint="name a short path in a folder that you may write, with --socket or SANDBOXD_SOCKET",
        path=path,
    )
