"""READ THIS FIRST: what happens to one command, in order.

    request -> classify -> decide -> confine -> spawn -> output -> reply

Only this module knows the order, only this module writes events, and only here does a stage's
"no" become a raised `Refusal`. Clock, log, ladder and launcher come in as arguments.
"""

from __future__ import annotations

from typing import Protocol

from sandboxd.model import ApprovalAsk, ApprovalReply, ExecRequest, Result


class RunControl(Protocol):
    """What a caller may do to a running command."""

    async def write(self, data: bytes) -> None:
        """Write to its stdin; returns when the pipe has taken all of it (back-pressure)."""

    def close_stdin(self) -> None: ...

    def signal(self, number: int) -> None:
        """Send a signal to the run's process group."""

    def cancel(self) -> None:
        """End the run: `run_command` raises `Cancelled` once the tree is dead."""


class RunChannel(Protocol):
    """The caller's side of one run: server connection, command line, test."""

    can_approve: bool
    """Whether `approve` reaches a person at all."""

    async def approve(self, ask: ApprovalAsk) -> ApprovalReply: ...

    def started(self, run_id: str, control: RunControl) -> None:
        """The program is running; called once, before any output."""

    def output(self, stream: str, chunk: bytes) -> None:
        """Bytes as they came (`stream` is stdout, stderr or output); must not block."""


class Engine(Protocol):  # replaced by the real class; the daemon and the CLI build it with `Engine.create()`
    async def close(self) -> None: ...


async def run_command(
    engine: Engine, session: object, request: ExecRequest, channel: RunChannel
) -> Result:
    """Run one command through the whole gate.

    Raises `Refusal` for every expected no, `Cancelled` (with the partial output as `data`)
    after `RunControl.cancel`, `Fault` when our own machinery failed. When the surrounding task
    is cancelled (client gone) the tree is killed before the cancellation continues.
    """
    raise NotImplementedError
