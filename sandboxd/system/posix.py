"""What Linux and macOS share, and the one place that turns an OSError into words."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Callable

IS_LINUX = sys.platform == "linux"
IS_MACOS = sys.platform == "darwin"

ZYGOTE_SOCKET_KIND = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_DGRAM
"""macOS has no SEQPACKET for AF_UNIX; its datagrams keep borders but show no end-of-file."""


def anonymous_file(data: bytes) -> int:
    """A descriptor of an unnamed file that holds `data`: memfd_create(2), or an unlinked file."""
    create: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    if create is not None:
        fd = create("sandboxd-request")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    return fd


def parent(pid: int) -> int:
    """The parent of a process, from /proc; 0 when there is none to see."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def reaches_ipv6() -> bool:
    """Whether this host has a route to global IPv6 addresses. Sends nothing."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.connect(("2001:db8::1", 9))
            return True
    except OSError:
        return False


def words(error: OSError) -> str:
    """The error as a person reads it: `No such file or directory`."""
    return error.strerror or error.__class__.__name__


def peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the process at the other end of a Unix socket; pid 0 when unknown.

    SO_PEERCRED in unix(7); LOCAL_PEERCRED and LOCAL_PEERPID on macOS.
    """
    if sys.platform == "linux":
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid = (int.from_bytes(raw[i : i + 4], sys.byteorder) for i in (0, 4))
        return pid, uid
    level, peer_cred, peer_pid = 0, 0x001, 0x002
    raw = connection.getsockopt(level, peer_cred, 76)
    uid = int.from_bytes(raw[4:8], sys.byteorder)
    pid = int.from_bytes(connection.getsockopt(level, peer_pid, 4), sys.byteorder)
    return pid, uid


def tasks_of(uid: int) -> int:
    """How many threads of this user there are; 0 where /proc does not tell (proc(5))."""
    found = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    found += len(os.listdir(f"/proc/{name}/task"))
    return found
