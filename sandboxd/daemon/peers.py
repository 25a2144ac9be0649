"""Who is at the other end of the socket, and whether they may be there.

A module of its own because it is a boundary: a run that reaches the socket could answer its
own approvals. Refused are other users (`PeerRefused`) and every process from inside a sandbox
(`PeerConfined`): descendants of our zygote, and, unless the daemon is confined the same way,
processes with no_new_privs or in another pid or user namespace. What cannot be read is refused.

Sources: unix(7) SO_PEERCRED, pidfd_open(2), proc_pid_status(5), namespaces(7). The peer's pidfd
(SO_PEERPIDFD, Linux 6.5) is held during the check, so the pid cannot come to mean another
process meanwhile.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable

from sandboxd.errors import PeerConfined, PeerRefused

_SO_PEERPIDFD = 77
_NAMESPACES = ("pid", "user")


def check_peer(connected: socket.socket, is_own_child: Callable[[int], bool]) -> None:
    """Raise PeerRefused or PeerConfined unless the peer is an unconfined process of this user."""
    pid, uid = _credentials(connected)
    if uid != os.geteuid():
        raise PeerRefused(
            f"this daemon belongs to user {os.geteuid()}; user {uid} may not use it",
            hint="start a daemon of your own: sandboxd serve",
        )
    if pid is None:
        return
    pidfd = _peer_pidfd(connected)
    try:
        reason = _confinement(pid, is_own_child)
        if reason is None and pidfd is not None and _has_exited(pidfd):
            reason = "the process that connected has exited"
    finally:
        if pidfd is not None:
            os.close(pidfd)
    if reason is not None:
        raise PeerConfined(
            f"a process inside a sandbox may not use the daemon: {reason}",
            hint="call sandboxd from outside the sandbox",
        )


def _credentials(connected: socket.socket) -> tuple[int | None, int]:
    """(pid, uid) of the peer; the pid is None where the system does not tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None, _uid_by_xucred(connected)
    packed = connected.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    pid, uid, _gid = struct.unpack("3i", packed)
    return pid, uid


def _uid_by_xucred(connected: socket.socket) -> int:
    """The uid from struct xucred (BSD, macOS: unix(4) LOCAL_PEERCRED)."""
    packed = connected.getsockopt(0, 1, struct.calcsize("IIh16I"))
    return int(struct.unpack_from("II", packed)[1])


def _peer_pidfd(connected: socket.socket) -> int | None:
    try:
        return connected.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        return None


def _has_exited(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def _confinement(pid: int, is_own_child: Callable[[int], bool]) -> str | None:
    """Why the process counts as confined, or None."""
    if pid <= 0:
        return "it lives in a pid namespace that this daemon cannot see"
    try:
        if is_own_child(pid):
            return "it was started by this daemon"
        if _no_new_privs(pid) and not _no_new_privs(os.getpid()):
            return "it has no_new_privs set"
        for kind in _NAMESPACES:
            if os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"):
                return f"it lives in another {kind} namespace"
    except OSError:
        return "its state cannot be read"
    return None


def _no_new_privs(pid: int) -> bool:
    with open(f"/proc/{pid}/status", "rb") as status:
        for line in status:
            if line.startswith(b"NoNewPrivs:"):
                return line.split()[1] != b"0"
    return True
