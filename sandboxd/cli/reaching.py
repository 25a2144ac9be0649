"""A `Client` for the click commands: the daemon's when it answers, else an engine in process."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from sandboxd.cli.exec import PER_WORKSPACE, profile_name
from sandboxd.client import Client
from sandboxd.errors import DaemonUnreachable
from sandboxd.model import ApprovalAsk, ApprovalReply
from sandboxd.protocol.asking import Approver, connect_socket, opening
from sandboxd.protocol.messages import Initialize


@contextmanager
def reach(
    socket_name: str | None = None, *, no_daemon: bool = False, approver: Approver | None = None
) -> Iterator[Client]:
    """A client without a session; the engine behind it ends with the context."""
    connected = None if no_daemon else _daemon(socket_name)
    if connected is not None:
        with Client(connected, approver=approver) as client:
            yield client
        return
    from sandboxd.cli.embedded import Embedded

    embedded = Embedded()
    try:
        with Client(embedded.connected, approver=approver) as client:
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


def ask_here(ask: ApprovalAsk) -> ApprovalReply:
    """Ask the person at this terminal."""
    from sandboxd.cli.interrupts import Interrupts
    from sandboxd.cli.prompt import Question

    question = Question(msgspec.to_builtins(ask))
    question.draw()
    reply = None
    with Interrupts() as interrupts, contextlib.suppress(EOFError):
        reply = question.wait(interrupts)
    return msgspec.convert(reply or {"answer": "deny"}, ApprovalReply)


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
