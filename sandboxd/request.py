"""Reading a request against its session: PATH, working directory, input, budgets.

Apart from the pipeline so that each "no" about a request's own content has one place.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shlex
from typing import NamedTuple

import msgspec

from sandboxd import environment
from sandboxd.errors import CwdMissing, InvalidRequest
from sandboxd.model import ExecRequest, LaunchPlan, Limits, Pty
from sandboxd.output.kept import MANY
from sandboxd.sessions import Session

HEAD_BYTES = TAIL_BYTES = 32 * 1024
MAX_BUDGET = 16 * 1024 * 1024
MAX_SIDE = 1000


def shown(request: ExecRequest) -> str:
    """The command as a person reads it and as spans count it."""
    return request.command if request.command is not None else shlex.join(request.argv or ())


def path_of(session: Session, request: ExecRequest) -> str:
    """The PATH of the run."""
    given = request.env.get("PATH", session.environment.get("PATH"))
    return given or environment.DEFAULT_PATH


def cwd_of(session: Session, request: ExecRequest) -> str:
    return os.path.normpath(os.path.join(session.cwd, request.cwd or ""))


def existing_cwd(session: Session, request: ExecRequest) -> str:
    cwd = cwd_of(session, request)
    if "\0" in cwd or not os.path.isdir(cwd):
        raise CwdMissing(
            f"the working directory {cwd!r} does not exist",
            hint="create it first, or name another with cwd",
            path=cwd,
        )
    return cwd


def stdin_of(request: ExecRequest) -> bytes | None:
    """The input that came with the request; None when there is none."""
    if request.stdin is not None and request.stdin_b64 is not None:
        raise InvalidRequest("both `stdin` and `stdin_b64` were given", hint="send one of them")
    if request.stdin is not None:
        return request.stdin.encode("utf-8", "surrogateescape")
    if request.stdin_b64 is None:
        return None
    try:
        return base64.b64decode(request.stdin_b64, validate=True)
    except binascii.Error as error:
        raise InvalidRequest(
            f"`stdin_b64` is not base64: {error}", hint="encode as RFC 4648 says"
        ) from error


def stdin_digest(request: ExecRequest) -> str | None:
    data = stdin_of(request)
    if data is None:
        return "open" if request.stdin_open else None
    return hashlib.sha256(data).hexdigest()


class Budgets(NamedTuple):
    """How much of head and tail a reply carries."""

    head_bytes: int
    tail_bytes: int
    head_lines: int
    tail_lines: int


def budgets(request: ExecRequest, limits: Limits) -> Budgets:
    """How much of head and tail a reply carries. Raises InvalidRequest."""
    both = limits.output_bytes
    head = HEAD_BYTES if both is None else min(both // 2, MAX_BUDGET)
    tail = TAIL_BYTES if both is None else min(both - both // 2, MAX_BUDGET)
    head = head if request.head_bytes is None else request.head_bytes
    tail = tail if request.tail_bytes is None else request.tail_bytes
    for name, value in (("head_bytes", head), ("tail_bytes", tail)):
        if not 0 <= value <= MAX_BUDGET:
            raise InvalidRequest(
                f"`{name}` is {value}; 0 to 16777216 are possible", hint=f"correct `{name}`"
            )
    lines = [MANY if given is None else given for given in (request.head_lines, request.tail_lines)]
    for name, value in zip(("head_lines", "tail_lines"), lines, strict=True):
        if value < 0:
            raise InvalidRequest(
                f"`{name}` is {value}; it cannot be negative", hint=f"correct `{name}`"
            )
    return Budgets(head, tail, *lines)


def keeping_background(plan: LaunchPlan) -> LaunchPlan:
    """The plan that leaves alone what outlives its leader. Raises InvalidRequest where none can."""
    if plan.pty is not None:
        raise InvalidRequest(
            "`keep_background` and `pty` at the same time",
            hint="start it with `terminal.start`, which outlives the call",
        )
    if plan.maker is not None or plan.status_fd is not None:
        raise InvalidRequest(
            f"tier {plan.tier.name} cannot keep what a command leaves in the background",
            hint="start it with `terminal.start`, or ask for another tier",
        )
    return msgspec.structs.replace(plan, keeps_background=True)


def pty(request: ExecRequest) -> Pty | None:
    """The pty that was asked for. Raises InvalidRequest when it cannot be one."""
    if request.pty is None:
        return None
    check_size(request.pty.cols, request.pty.rows)
    if not request.pty.fds or len(set(request.pty.fds)) != len(request.pty.fds):
        raise InvalidRequest(
            "`pty.fds` is empty or names one twice", hint="name those of 0, 1 and 2 that it is"
        )
    return request.pty


def check_size(cols: int, rows: int) -> None:
    """Raises InvalidRequest for a terminal of no or of absurd size."""
    for name, value in (("cols", cols), ("rows", rows)):
        if not 1 <= value <= MAX_SIDE:
            raise InvalidRequest(
                f"`{name}` is {value}; 1 to {MAX_SIDE} are possible", hint=f"correct `{name}`"
            )


def streams(request: ExecRequest) -> tuple[str, ...]:
    """The streams of the reply, in the order of descriptors."""
    if request.pty is not None:
        apart = [name for fd, name in ((1, "stdout"), (2, "stderr")) if fd not in request.pty.fds]
        return ("output", *apart)
    return ("output",) if request.merge else ("stdout", "stderr")
