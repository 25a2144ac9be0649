"""A `Client` for the click commands: the daemon's when it answers, else an engine in process."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd.cli.exec import PER_WORKSPACE, profile_name
from sandboxd.client import Client
from sandboxd.errors import DaemonUnreachable
from sandboxd.protocol.asking import connect_socket, opening
from sandboxd.protocol.messages import Initialize


@contextmanager
def reach(socket_name: str | None = None, *, no_daemon: bool = False) -> Iterator[Client]:
    """A client without a session; the engine behind it ends with the context."""
    connected = None if no_daemon else _daemon(socket_name)
    if connected is not None:
        with Client(connected) as client:
            yield client
        return
    from sandboxd.cli.embedded import Embedded

    embedded = Embedded()
    try:
        with Client(embedded.connected) as client:
            yield client
    finally:
        embedded.close()


def _daemon(named: str | None) -> socket.socket | None:
    try:
        return connect_socket(named)
    except DaemonUnreachable:
        if named or os.environ.get("SANDBOXD_SOCKET"):
            raise
        return None


def here(workspace: str | None, profile: str | None) -> Initialize:
    """`initialize` for the folder and environment of this process."""
    return opening(
        workspace=workspace or os.environ.get("SANDBOXD_WORKSPACE"),
        cwd=os.getcwd(),
        profile=profile_name(profile or os.environ.get("SANDBOXD_PROFILE")),
        session_id=os.environ.get("SANDBOXD_SESSION") or PER_WORKSPACE,
        env={name: value for name, value in os.environ.items() if _is_utf8(name + value)},
    )


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
