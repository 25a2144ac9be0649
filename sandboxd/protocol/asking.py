"""What both Python clients share: requests from what callers have, answers to what servers ask.

A module of its own because the blocking and the asynchronous client differ only in how they
wait.
"""

from __future__ import annotations

import base64
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, Unpack

import msgspec
from msgspec import Raw

from sandboxd import __version__
from sandboxd.config import socket_path
from sandboxd.errors import DaemonUnreachable, InvalidRequest
from sandboxd.model import (
    Answer,
    ApprovalAsk,
    ApprovalReply,
    Approve,
    ExecRequest,
    Limits,
)
from sandboxd.proposals import Role
from sandboxd.protocol import event_messages as em
from sandboxd.protocol import messages as m
from sandboxd.protocol import wire

OnOutput = Callable[[m.CommandOutput], None]
Approver = Callable[[ApprovalAsk], ApprovalReply | Answer]


def with_id(request: ExecRequest) -> ExecRequest:
    """Named by us, so that its output can be told from others' from the first piece on."""
    return msgspec.structs.replace(request, run_id=request.run_id or "c-" + secrets.token_hex(8))


class ExecOptions(TypedDict, total=False):
    """What `exec` and `stream` take by name, as in `command.exec`; `stdin` is text or bytes."""

    run_id: str
    cwd: str | None
    env: Mapping[str, str | None] | None
    env_pass: Sequence[str]
    profile: str | None
    tier: str | None
    min_tier: str | None
    approve: Approve
    escalation: str | None
    approval_wait_s: float | None
    timeout_s: float | None
    stdin: str | bytes | None
    stdin_open: bool
    head_bytes: int | None
    tail_bytes: int | None
    merge: bool
    limits: Limits | None
    allow_hosts: Sequence[str]
    publish: Sequence[int]


def exec_request(command: str | Sequence[str], **options: Unpack[ExecOptions]) -> ExecRequest:
    """A request from what callers have: text for bash, or a sequence as the argument vector. Raises
    InvalidRequest for a value of the wrong type."""
    given: dict[str, object] = {**options}
    stdin = given.pop("stdin", None)
    if isinstance(stdin, bytes):
        given["stdin_b64"] = base64.b64encode(stdin).decode("ascii")
    elif stdin is not None:
        given["stdin"] = stdin
    given["env"] = dict(options.get("env") or {})
    given["command" if isinstance(command, str) else "argv"] = command
    try:
        return msgspec.convert(given, ExecRequest)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"wrong options: {error}", hint="see docs/protocol.md") from error


def opening(
    *,
    workspace: str | None = None,
    cwd: str | None = None,
    profile: str | None = None,
    session_id: str | None = None,
    env: Mapping[str, str] | None = None,
    approvals: bool = False,
) -> m.Initialize:
    """The parameters of `initialize`; without a workspace, the one that holds the current folder."""
    return m.Initialize(
        protocol_version=m.PROTOCOL_VERSION,
        client=m.ClientInfo(name="sandboxd.client", version=__version__),
        capabilities=m.Capabilities(approvals=approvals),
        workspace=os.path.abspath(workspace) if workspace else None,
        cwd=cwd or os.path.abspath(workspace or os.getcwd()),
        profile=profile,
        session_id=session_id,
        env=dict(env) if env is not None else None,
    )


def connect_socket(named: str | None) -> socket.socket:
    """A socket connected to the daemon; raises DaemonUnreachable or SocketUnusable."""
    path = socket_path(named)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.connect(path)
    except OSError as error:
        connected.close()
        raise DaemonUnreachable(
            f"no daemon answers on {path}: {error.strerror}",
            hint="start one with `sandboxd serve --detach`",
            path=path,
        ) from error
    return connected


def hung_up() -> DaemonUnreachable:
    return DaemonUnreachable(
        "the server closed the connection", hint="connect again; runs of this connection have ended"
    )


def assess_params(
    tool: str,
    parameters: Mapping[str, object],
    *,
    roles: Mapping[str, Role] | None,
    cwd: str | None,
) -> em.IntentAssess:
    """`intent.assess` with arguments as Python values."""
    raw = {name: Raw(msgspec.json.encode(value)) for name, value in parameters.items()}
    return em.IntentAssess(
        tool=tool, parameters=raw, roles=dict(roles) if roles is not None else None, cwd=cwd
    )


def classify_params(
    command: str | Sequence[str], *, cwd: str | None = None, shell: str = "bash"
) -> m.Classify:
    if isinstance(command, str):
        return m.Classify(command=command, cwd=cwd, shell=shell)
    return m.Classify(argv=tuple(command), cwd=cwd, shell=shell)


def output_of(message: wire.Message) -> m.CommandOutput | None:
    """The output that a notification carries, if it is one."""
    if isinstance(message, wire.Notification) and message.method == "command.output":
        return wire.decode_body(message.params, m.CommandOutput)
    return None


def answer_question(question: wire.Request, approver: Approver | None) -> bytes:
    """The line that answers what the server asked; a failing approver has denied."""
    if question.method != "approval.request" or approver is None:
        error = wire.WireError(wire.METHOD_NOT_FOUND, f"this client has no {question.method!r}")
        return wire.encode_failure(question.id, error)
    try:
        reply = approver(wire.decode_body(question.params, ApprovalAsk))
    except Exception as error:
        reply = ApprovalReply(answer="deny", reason=f"the approver failed: {error}")
    if isinstance(reply, str):
        reply = ApprovalReply(answer=reply)
    return wire.encode_response(question.id, reply)
