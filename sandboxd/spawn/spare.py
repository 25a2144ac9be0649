"""An init made ahead of its run: cloned, and in a tier of namespaces with its ground made.

Most of what a run's set-up costs does not depend on the run. While nothing is being started the
zygote makes one init like the last, which then waits for its request; a run that wants the same
takes it, any other is cloned as ever and goes through the same steps itself.

A spare has copied the host's mounts when it was made, and where mount propagation is private (most
containers) it does not hear of later ones: the zygote throws it away when they change.
Only an init that keeps its user is made ahead: one that becomes the workspace's owner has to open
the run's folders by the daemon's right before that.
"""

from __future__ import annotations

import _socket
import os
import sys

from sandboxd.spawn.reports import kill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Request = dict[str, Any]
    Take = tuple[int, _socket.socket]

PREPARED = (
    "namespaces",
    "is_joined",
    "inside_ids",
    "outside_ids",
    "private",
    "network",
    "drop_privileges",
)
"""The parts of a request that an init sets up without knowing the rest."""
MAX_REQUEST = 64 * 1024
MAX_FDS = 8


class Spares:
    """The zygote's one spare. `clone` makes an init: it is given what to prepare and the socket
    on which the request will come."""

    def __init__(self) -> None:
        self.pid = 0
        self.channel: _socket.socket | None = None
        self.prepared: Request = {}
        self.wanted: Request | None = None
        """What the last run had: the next one is likely to want the same."""
        self.is_kept = False
        """Whether inits are made ahead at all."""

    def want(self, request: Request) -> None:
        """Remember what an init for a run like this one would prepare."""
        if self.is_kept:
            self.wanted = preparation(request)

    def take(self, request: Request) -> Take | None:
        """The spare, when it is one for this request: the caller's from now on."""
        if self.channel is None or preparation(request) != self.prepared:
            return None
        taken = (self.pid, self.channel)
        self.pid, self.channel = 0, None
        return taken

    def is_ready_for(self, prepared: Request) -> bool:
        return self.channel is not None and self.prepared == prepared

    def put(self, pid: int, channel: _socket.socket, prepared: Request) -> None:
        """Keep what has just been made."""
        self.drop()
        self.pid, self.channel, self.prepared = pid, channel, prepared

    def let_go(self) -> None:
        """In a clone: hold nothing of the spare, which is another's."""
        if self.channel is not None:
            self.channel.close()
        self.pid, self.channel = 0, None

    def drop(self) -> None:
        """End the spare; the zygote reaps it."""
        if self.channel is not None:
            self.channel.close()
            kill(self.pid)
        self.pid, self.channel = 0, None


def preparation(request: Request) -> Request | None:
    """What of a request its init can set up ahead; None where it may not be made ahead."""
    outside = request["outside_ids"]
    if outside is not None and outside[0] != os.getuid():
        return None
    return {name: request[name] for name in PREPARED}


def pair() -> tuple[_socket.socket, _socket.socket]:
    """The zygote's and the spare's end of the socket on which the request will come."""
    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)


def hand_over(channel: _socket.socket, data: bytes, fds: list[int]) -> bool:
    """Give a waiting init its request; False when it is gone."""
    rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
    try:
        channel.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    except OSError:
        return False
    finally:
        channel.close()
    return True


def receive(channel: _socket.socket, size: int = MAX_REQUEST) -> tuple[bytes, list[int]]:
    """One message and its descriptors, close-on-exec; no bytes when the other side is gone."""
    data, ancillary, _, _ = channel.recvmsg(
        size, _socket.CMSG_LEN(MAX_FDS * 4), getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
    )
    fds: list[int] = []
    for level, kind, payload in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            count = len(payload) // 4
            fds += [int.from_bytes(payload[i * 4 : i * 4 + 4], sys.byteorder) for i in range(count)]
    return data, fds
