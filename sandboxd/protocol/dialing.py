"""Getting to a server: its socket, or a command whose stdin and stdout are the connection.

A module of its own because clients dial again when a connection is lost, and both do it alike.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from msgspec import structs

from sandboxd.errors import DaemonUnreachable
from sandboxd.protocol import messages as m
from sandboxd.protocol.asking import Approver, connect_socket, opening

END_WITHIN_S = 15.0
"""How long a command may take to end its runs and itself once its input is closed."""


@dataclass
class Dialed:
    """A connection, and the process at its other end when it is ours."""

    connected: socket.socket
    process: subprocess.Popen[bytes] | None = None

    def hang_up(self) -> None:
        """Close it; a process of ours ends its runs and is waited for."""
        with contextlib.suppress(OSError):
            self.connected.shutdown(socket.SHUT_RDWR)
        self.connected.close()
        if self.process is not None:
            try:
                self.process.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


Dialer = Callable[[], Dialed]


def to_socket(name: str | None) -> Dialer:
    """To the daemon at a socket; raises DaemonUnreachable or SocketUnusable when called."""
    return lambda: Dialed(connect_socket(name))


def by_command(words: Sequence[str] | None) -> Dialer:
    """To a server of our own: `sandboxd serve --stdio`, or a command that leads to one
    (`ssh HOST sandboxd serve --stdio`). Raises DaemonUnreachable when it cannot be started."""
    argv = list(words) if words else [sys.executable, "-P", "-m", "sandboxd", "serve", "--stdio"]

    def dial() -> Dialed:
        ours, theirs = socket.socketpair()
        try:
            process = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=theirs.fileno(), start_new_session=True
            )
        except OSError as error:
            ours.close()
            raise DaemonUnreachable(
                f"{argv[0]} cannot be started: {error.strerror}",
                hint="name a command that ends in `sandboxd serve --stdio`",
            ) from error
        finally:
            theirs.close()
        return Dialed(ours, process)

    return dial


class OpenOptions(TypedDict, total=False):
    """What `connect` and `spawn` take by name. Without a workspace it is the one that holds the current
    folder; `approver` is asked when a person must be."""

    workspace: str | None
    cwd: str | None
    profile: str | None
    session_id: str | None
    env: Mapping[str, str] | None
    approver: Approver | None


@dataclass(frozen=True)
class Opening:
    """What is needed to connect, and to connect again."""

    dial: Dialer
    params: m.Initialize
    approver: Approver | None

    @classmethod
    def of(cls, dial: Dialer, options: OpenOptions) -> Opening:
        approver = options.get("approver")
        params = opening(
            workspace=options.get("workspace"),
            cwd=options.get("cwd"),
            profile=options.get("profile"),
            session_id=options.get("session_id"),
            env=options.get("env"),
            approvals=approver is not None,
        )
        return cls(dial, params, approver)

    def again(self, session: m.Initialized | None) -> m.Initialize:
        """The same session once more."""
        if session is None:
            return self.params
        return structs.replace(
            self.params, session_id=session.session_id, workspace=session.workspace
        )
