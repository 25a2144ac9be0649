"""A real engine of the same interface that spawns plain subprocesses, for tests of the daemon.

It classifies by first word and confines nothing: what is tested here is everything around it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sandboxd.background import Background
from sandboxd.decide.approvals import Approvals
from sandboxd.errors import ApprovalDenied, Cancelled, ProgramMissing
from sandboxd.model import (
    Action,
    ApprovalAsk,
    Captured,
    CommandClass,
    Decision,
    ExecRequest,
    ProbeResult,
    Result,
    Tier,
    Verdict,
)
from sandboxd.sessions import Shared

TIER = Tier(name="containment", kernel=False, enforces=(), gaps=("no kernel boundary",))


@dataclass
class PlainSession:
    id: str
    workspace: str
    cwd: str
    profile: str
    environment: dict[str, str]
    output_folder: str = ""
    is_lasting: bool = False
    shared: Shared = field(default_factory=Shared)


class NoTerminals:
    def of(self, session_id: str) -> list[object]:
        return []


@dataclass
class PlainEngine:
    """Remembers its sessions and the process groups that it started."""

    opened: dict[str, PlainSession] = field(default_factory=dict)
    groups: list[int] = field(default_factory=list)
    own_children: set[int] = field(default_factory=set)
    is_closed: bool = False
    approvals: Approvals = field(default_factory=Approvals)
    terminals: NoTerminals = field(default_factory=NoTerminals)
    background: Background = field(default_factory=Background)

    async def close(self) -> None:
        self.is_closed = True

    def open_session(
        self,
        *,
        workspace: str | None,
        cwd: str,
        session_id: str | None = None,
        profile: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> PlainSession:
        session = PlainSession(
            id=session_id or secrets.token_hex(4),
            workspace=workspace or cwd,
            cwd=cwd,
            profile=profile or "default",
            environment=dict(environment or os.environ),
        )
        self.released: list[str] = []
        self.opened[session.id] = session
        return session

    def close_session(self, session_id: str) -> None:
        del self.opened[session_id]

    def release_session(self, session: PlainSession) -> None:
        self.released.append(session.id)

    def sessions(self) -> list[PlainSession]:
        return list(self.opened.values())

    async def classify(
        self,
        session: PlainSession,
        *,
        command: str | None,
        argv: Sequence[str] | None,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        shell: str = "bash",
    ) -> Verdict:
        return verdict_for(command or argv[0])  # type: ignore[index]

    async def tiers(self) -> list[tuple[Tier, ProbeResult]]:
        return [(TIER, ProbeResult(tier=TIER.name, available=True, seconds=0.001))]

    async def chosen_tier(self, session: PlainSession) -> Tier:
        await asyncio.sleep(0)
        return TIER

    def is_own_child(self, pid: int) -> bool:
        return pid in self.own_children


def verdict_for(text: str) -> Verdict:
    is_deleting = text.startswith("rm")
    kind = CommandClass.DESTRUCTIVE if is_deleting else CommandClass.READ_ONLY
    return Verdict(class_=kind, parsed=True, cacheable=not is_deleting)


class PlainControl:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.is_cancelled = False

    async def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    def close_stdin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def resize(self, cols: int, rows: int) -> None:
        """There is no pty here."""

    def watch(self, told: Callable[[str, bool], None]) -> None:
        """It is never looked at."""

    def cancel(self) -> None:
        self.is_cancelled = True
        self.signal(signal.SIGKILL)


async def run_plain(
    engine: PlainEngine, session: PlainSession, request: ExecRequest, channel: object
) -> Result:
    """The pipeline's contract, without any confinement."""
    verdict = verdict_for(request.command or " ".join(request.argv or ()))
    decision = await _decide(engine, session, verdict, request, channel)
    started = time.monotonic()
    argv = request.argv or ("/bin/sh", "-c", str(request.command))
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if request.stdin_open else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=request.cwd or session.cwd,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise ProgramMissing(f"there is no {argv[0]}", hint="install it") from error
    engine.groups.append(process.pid)
    control = PlainControl(process)
    run_id = request.run_id or secrets.token_hex(4)
    channel.started(run_id, control)
    try:
        out, err = await asyncio.gather(
            _drain(process.stdout, "stdout", channel), _drain(process.stderr, "stderr", channel)
        )
        code = await process.wait()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if control.is_cancelled:
        raise Cancelled("cancelled", hint="again", data={"stdout": out.decode()})
    return Result(
        run_id=run_id,
        exit_code=code if code >= 0 else 128 - code,
        duration_s=time.monotonic() - started,
        cwd=session.cwd,
        tier=TIER,
        verdict=verdict,
        decision=decision,
        stdout=_captured(out),
        stderr=_captured(err),
    )


async def _decide(
    engine: PlainEngine,
    session: PlainSession,
    verdict: Verdict,
    request: ExecRequest,
    channel: object,
) -> Decision:
    if verdict.class_ is CommandClass.READ_ONLY or request.approve == "all":
        return Decision(action=Action.ALLOW, mode="standard", reasons=())
    ask = ApprovalAsk(
        request_id="",
        command=str(request.command),
        verdict=verdict,
        tier=TIER,
        session_id=session.id,
        may_remember=verdict.cacheable,
    )
    reply = await engine.approvals.ask(
        ask, channel, key=None, is_settled=lambda: False, wait_s=request.approval_wait_s
    )
    if reply.answer not in ("once", "session"):
        raise ApprovalDenied("no", hint="do not repeat")
    return Decision(action=Action.ALLOW, mode="standard", reasons=(), approved_by="person")


async def _drain(reader: asyncio.StreamReader | None, name: str, channel: object) -> bytes:
    assert reader is not None
    kept = b""
    while chunk := await reader.read(262144):
        channel.output(name, chunk)
        kept = (kept + chunk)[-65536:]
    return kept


def _captured(data: bytes) -> Captured:
    text = data.decode("utf-8", "replace")
    return Captured(text=text, total_bytes=len(data), total_lines=data.count(b"\n"))
