"""READ THIS FIRST: what happens to one command, in order.

    request -> classify -> decide -> confine -> spawn -> output -> reply

Only this module knows the order, only this module writes events, and only here does a stage's
"no" become a raised `Refusal`. What a run needs (launcher, ladder, classifier, log) is held by
the `Engine`, of which a daemon has one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import errno
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from sandboxd import config, environment, programs, sessions
from sandboxd.classify.classifier import Classifier, Context
from sandboxd.classify.tables import load_tables
from sandboxd.confine.select import Ladder, mechanisms
from sandboxd.confine.tier import Mechanism
from sandboxd.decide.decision import decide, keys_to_remember
from sandboxd.errors import (
    ApprovalDenied,
    ApprovalRequired,
    ArgumentsTooLong,
    Cancelled,
    CwdMissing,
    Fault,
    InvalidRequest,
    NotExecutable,
    ProgramMissing,
    Refusal,
    SessionUnknown,
    TierUnavailable,
    WorkspaceRefused,
)
from sandboxd.events import kinds
from sandboxd.events.log import EventLog
from sandboxd.model import (
    Action,
    ApprovalAsk,
    ApprovalReply,
    Decision,
    Denial,
    ExecRequest,
    Invocation,
    LaunchPlan,
    NetworkMode,
    Policy,
    ProbeResult,
    Result,
    Tier,
    Verdict,
)
from sandboxd.output.capture import Capture
from sandboxd.policy import build_policy
from sandboxd.profiles import Profile, load_profile
from sandboxd.sessions import Session
from sandboxd.spawn.launcher import Launcher, LaunchFailed
from sandboxd.supervise import Outcome, Supervised

HEAD_BYTES = TAIL_BYTES = 32 * 1024


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


# --------------------------------------------------------------------------- the engine


class Engine:
    """What runs share. Make it with `Engine.create()` inside a running event loop."""

    def __init__(self, launcher: Launcher, log: EventLog, hidden: Sequence[str]) -> None:
        self.launcher = launcher
        self.log = log
        self.hidden = tuple(hidden)
        self.ladder = Ladder(mechanisms(), self._run_probe)
        self._classifiers: dict[tuple[str, ...], Classifier] = {}
        self._sessions: dict[str, Session] = {}

    @classmethod
    async def create(cls, *, socket_folder: str | None = None) -> Engine:
        """Start the zygote and name the log; nothing is probed and no table is read yet."""
        launcher = Launcher()
        launcher.start()
        state = config.state_folder()
        sessions.sweep_idle()
        hidden = [state, config.private_folder(), config.config_folder()]
        if socket_folder is not None:
            hidden.append(os.path.realpath(socket_folder))
        return cls(launcher, EventLog(os.path.join(state, "events.db")), hidden)

    async def close(self) -> None:
        """Kill every run, stop the zygote, write the last events."""
        await self.launcher.close()
        for classifier in self._classifiers.values():
            classifier.close()
        for session in self._sessions.values():
            if not session.is_lasting:
                sessions.remove_folder(session)
        self.log.close()

    # -- sessions

    def open_session(
        self,
        *,
        workspace: str | None,
        cwd: str,
        session_id: str | None = None,
        profile: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Session:
        """Open a session, or the one of this id again. Raises what `sessions.open_session` does."""
        opened = sessions.open_session(
            workspace=workspace, cwd=cwd, session_id=session_id, profile=profile, base=environment
        )
        known = self._sessions.get(opened.id)
        if known is not None:
            if known.workspace != opened.workspace:
                raise WorkspaceRefused(
                    f"session {opened.id} belongs to the workspace {known.workspace}",
                    hint="use that workspace, or another session id",
                    path=opened.workspace,
                )
            opened.approved, opened.approved_hosts = known.approved, known.approved_hosts
        self._sessions[opened.id] = opened
        self.log.append(
            kinds.SessionOpened(
                session_id=opened.id, workspace=opened.workspace, profile=opened.profile
            )
        )
        return opened

    def close_session(self, session_id: str) -> None:
        """Forget the session and delete its folder. Raises SessionUnknown."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            raise SessionUnknown(f"there is no session {session_id!r}", hint="see `session.list`")
        sessions.remove_folder(session)

    def sessions(self) -> list[Session]:
        return list(self._sessions.values())

    # -- questions

    async def classify(
        self,
        session: Session,
        *,
        command: str | None,
        argv: Sequence[str] | None,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        shell: str = "bash",
    ) -> Verdict:
        """The verdict for a text or an argument vector in this session. Runs nothing."""
        request = ExecRequest(
            command=command,
            argv=tuple(argv) if argv is not None else None,
            cwd=cwd,
            env=dict(env or {}),
        )
        return self.judge(session, session.rules, request, shell=shell)

    def judge(
        self, session: Session, profile: Profile, request: ExecRequest, *, shell: str = "bash"
    ) -> Verdict:
        cwd = _cwd(session, request)
        policy = self.policy(session, profile, request, cwd)
        context = Context(
            cwd=cwd,
            path=_path(session, request),
            environment=request.env,
            writable_roots=(*policy.writable, policy.private_tmp, "/tmp"),
            profile=profile.name,
            shell=shell,
            stdin_digest=_stdin_digest(request),
            home=session.home,
        )
        classifier = self._classifier(profile.commands)
        if request.argv is not None:
            return classifier.classify_argv(request.argv, context)
        return classifier.classify_text(request.command or "", context)

    def _classifier(self, tables: tuple[str, ...]) -> Classifier:
        if tables not in self._classifiers:
            self._classifiers[tables] = Classifier(load_tables(tables))
        return self._classifiers[tables]

    def policy(self, session: Session, profile: Profile, request: ExecRequest, cwd: str) -> Policy:
        return build_policy(
            profile,
            workspace=session.workspace,
            home=session.home,
            private_tmp=session.private_tmp,
            path=_path(session, request),
            cwd=cwd,
            limits=request.limits,
            hidden=[path for path in self.hidden if not _is_above(path, session.workspace)],
        )

    async def tiers(self) -> list[tuple[Tier, ProbeResult]]:
        """Every rung of this host, probed, strongest first."""
        found = []
        policy = Policy(profile="probe", workspace="/", writable=(), private_tmp="/tmp")
        nothing = Invocation(program="/bin/true", argv=("true",), environment={}, cwd="/")
        for rung in self.ladder.rungs:
            result = await self.ladder.probe(rung, NetworkMode.HOST)
            found.append((rung.plan(nothing, policy).tier, result))
        return found

    async def chosen_tier(self, session: Session) -> Tier:
        """The tier that this session's runs get when they name none."""
        rung, why = await self._choose(session.rules, ExecRequest())
        policy = self.policy(session, session.rules, ExecRequest(), session.cwd)
        nothing = Invocation(program="/bin/true", argv=("true",), environment={}, cwd="/")
        return rung.plan(nothing, policy, why).tier

    async def _choose(
        self, profile: Profile, request: ExecRequest
    ) -> tuple[Mechanism, tuple[str, ...]]:
        minimum = request.min_tier or profile.min_tier
        if minimum is None and profile.approval == "never" and request.tier is None:
            minimum = "landlock"  # nobody is asked: the kernel must hold
        return await self.ladder.choose(profile.network, tier=request.tier, min_tier=minimum)

    def is_own_child(self, pid: int) -> bool:
        """Whether a process descends from our zygote."""
        zygote = self.launcher.zygote_pid
        while pid > 1:
            if pid == zygote:
                return True
            pid = _parent(pid)
        return False

    async def _run_probe(self, plan: LaunchPlan) -> tuple[int, bytes]:
        captured = bytearray()
        run = Supervised(
            {"output": Capture("", 4096, 4096)}, lambda _, chunk: captured.extend(chunk)
        )
        await run.start(self.launcher, plan, has_stdin=False)
        outcome = await run.outcome(None)
        return outcome.exit.code, bytes(captured)


# --------------------------------------------------------------------------- one command


async def run_command(
    engine: Engine, session: Session, request: ExecRequest, channel: RunChannel
) -> Result:
    """Run one command through the whole gate.

    Raises `Refusal` for every expected no, `Cancelled` (with the partial output as `data`)
    after `RunControl.cancel`, `Fault` when our own machinery failed. When the surrounding task
    is cancelled (client gone) the tree is killed before the cancellation continues.
    """
    run_id = request.run_id or "r-" + secrets.token_hex(8)
    os.utime(session.folder)
    try:
        return await _run(engine, session, request, channel, run_id)
    except Refusal as refusal:
        engine.log.append(kinds.Refused.of(session.id, run_id, refusal))
        raise
    except Fault as fault:
        engine.log.append(kinds.Faulted.of(session.id, run_id, fault))
        raise


async def _run(
    engine: Engine, session: Session, request: ExecRequest, channel: RunChannel, run_id: str
) -> Result:
    profile = load_profile(request.profile) if request.profile else session.rules
    cwd = _existing_cwd(session, request)
    program, argv = programs.command_line(request, _path(session, request), cwd)

    verdict = engine.judge(session, profile, request)
    shown = request.command if request.command is not None else _joined(argv)
    engine.log.append(
        kinds.VerdictGiven.of(session.id, run_id, command=shown, cwd=cwd, verdict=verdict)
    )

    policy = engine.policy(session, profile, request, cwd)
    rung, why = await engine._choose(profile, request)
    env, scrubbed = environment.build(
        session.environment,
        request.env,
        profile,
        tmp=rung.temp_path(policy),
        extra_pass=request.env_pass,
        git_reader=verdict.git_hardening,
    )
    invocation = Invocation(program=program, argv=argv, environment=env, cwd=cwd)
    plan = rung.plan(invocation, policy, why)

    decision = decide(
        verdict,
        policy,
        plan.tier,
        approve=request.approve,
        approved=session.approved,
        approved_hosts=session.approved_hosts,
    )
    if decision.action is Action.ASK:
        decision = await _ask(session, channel, decision, verdict, plan.tier, run_id, shown)
    engine.log.append(kinds.DecisionMade(session_id=session.id, run_id=run_id, decision=decision))

    outcome = await _launch(engine, session, request, channel, run_id, plan, policy)
    result = _result(run_id, cwd, plan, verdict, decision, scrubbed, outcome)
    engine.log.append(kinds.Finished.of(session.id, result))
    if outcome.cancelled:
        raise Cancelled(
            "the command was cancelled; its processes are dead",
            hint="`data` holds the output so far; run it again to start from the beginning",
            data=msgspec.to_builtins(result),
        )
    return result


async def _launch(
    engine: Engine,
    session: Session,
    request: ExecRequest,
    channel: RunChannel,
    run_id: str,
    plan: LaunchPlan,
    policy: Policy,
) -> Outcome:
    """Start the plan, feed it, wait for its end."""
    data = _stdin(request)
    names = ("output",) if request.merge else ("stdout", "stderr")
    head, tail = _budgets(request)
    captures = {name: Capture(session.output_folder, head, tail) for name in names}
    run = Supervised(captures, channel.output)
    try:
        await run.start(engine.launcher, plan, has_stdin=data is not None or request.stdin_open)
    except LaunchFailed as failure:
        raise _launch_refusal(failure, plan) from failure
    engine.log.append(kinds.Launched.of(session.id, run_id, plan))
    channel.started(run_id, run)
    feeding = asyncio.ensure_future(_feed(run, data)) if data is not None else None
    timeout_s = request.timeout_s if request.timeout_s is not None else policy.limits.wall_s
    try:
        return await run.outcome(timeout_s)
    finally:
        if feeding is not None:
            feeding.cancel()


async def _feed(run: Supervised, data: bytes) -> None:
    await run.write(data)
    run.close_stdin()


async def _ask(
    session: Session,
    channel: RunChannel,
    decision: Decision,
    verdict: Verdict,
    tier: Tier,
    run_id: str,
    command: str,
) -> Decision:
    """Ask a person; remember what they said for the session. Raises when the answer is no."""
    reasons = "; ".join(decision.reasons)
    if not channel.can_approve:
        word = "all" if not verdict.parsed or verdict.class_.value == "destructive" else "mutating"
        raise ApprovalRequired(
            f"this needs a person's word and nobody can be asked: {reasons}",
            hint=f"have a person run it, or let the caller take responsibility with --approve {word}",
            rule=verdict.reasons[0].rule if verdict.reasons else None,
            data={"verdict": msgspec.to_builtins(verdict)},
        )
    ask = ApprovalAsk(
        request_id=run_id,
        command=command,
        verdict=verdict,
        tier=tier,
        writes=verdict.write_paths,
        hosts=verdict.hosts,
    )
    reply = await channel.approve(ask)
    if reply.answer in ("deny", "stop"):
        raise ApprovalDenied(
            "a person said no" + (f": {reply.reason}" if reply.reason else ""),
            hint="do not try the same command again; ask what to do instead",
            data={"answer": reply.answer},
        )
    if reply.answer == "session":
        session.approved.update(keys_to_remember(verdict))
        session.approved_hosts.update(verdict.hosts)
    return Decision(
        action=Action.ALLOW, mode=decision.mode, reasons=decision.reasons, approved_by="person"
    )


# --------------------------------------------------------------------------- reading a request


def _path(session: Session, request: ExecRequest) -> str:
    """The PATH of the run."""
    given = request.env.get("PATH", session.environment.get("PATH"))
    return given or environment.DEFAULT_PATH


def _cwd(session: Session, request: ExecRequest) -> str:
    return os.path.normpath(os.path.join(session.cwd, request.cwd or ""))


def _existing_cwd(session: Session, request: ExecRequest) -> str:
    cwd = _cwd(session, request)
    if "\0" in cwd or not os.path.isdir(cwd):
        raise CwdMissing(
            f"the working directory {cwd!r} does not exist",
            hint="create it first, or name another with cwd",
            path=cwd,
        )
    return cwd


def _stdin(request: ExecRequest) -> bytes | None:
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


def _stdin_digest(request: ExecRequest) -> str | None:
    data = _stdin(request)
    if data is None:
        return "open" if request.stdin_open else None
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _budgets(request: ExecRequest) -> tuple[int, int]:
    head = HEAD_BYTES if request.head_bytes is None else request.head_bytes
    tail = TAIL_BYTES if request.tail_bytes is None else request.tail_bytes
    for name, value in (("head_bytes", head), ("tail_bytes", tail)):
        if not 0 <= value <= 16 * 1024 * 1024:
            raise InvalidRequest(
                f"`{name}` is {value}; 0 to 16777216 are possible", hint=f"correct `{name}`"
            )
    return head, tail


def _joined(argv: tuple[str, ...]) -> str:
    import shlex

    return shlex.join(argv)


def _is_above(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _parent(pid: int) -> int:
    """The parent of a process; 0 when there is none to see."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    return 0


# --------------------------------------------------------------------------- making the reply


def _launch_refusal(failure: LaunchFailed, plan: LaunchPlan) -> Refusal | Fault:
    """What a failed step between clone and exec means to the caller."""
    if failure.stage == "cwd":
        return CwdMissing(
            f"the working directory {plan.cwd} cannot be entered inside the sandbox",
            hint="work in the workspace; other folders below /tmp are hidden from the run",
            path=plan.cwd,
        )
    if failure.stage == "exec":
        return _exec_refusal(failure, plan)
    if failure.stage.startswith(
        ("clone", "uid_map", "mount", "proc", "landlock", "seccomp", "workspace")
    ):
        return TierUnavailable(
            f"tier {plan.tier.name} could not be set up for this run: {failure}",
            hint="run `sandboxd doctor`, or ask for another tier with --tier",
            path=failure.path or None,
        )
    return Fault(f"starting the run failed at step {failure.stage}: {failure}")


def _exec_refusal(failure: LaunchFailed, plan: LaunchPlan) -> Refusal:
    if failure.errno == errno.E2BIG:
        return ArgumentsTooLong(
            "the arguments and environment are too long for this system (one argument over 128 KiB, or all over about 2 MiB)",
            hint="write the data to a file or pass it on standard input",
        )
    if failure.errno in (errno.ENOENT, errno.ENOTDIR):
        return ProgramMissing(
            f"{plan.program} cannot be found inside the sandbox, or its interpreter is missing",
            hint="programs below /tmp are visible only when they lie on PATH; check the first line of a script",
            path=plan.program,
        )
    return NotExecutable(
        f"{plan.program} cannot be executed: {os.strerror(failure.errno)}",
        hint="check its mode, its format and that the sandbox may read it",
        path=plan.program,
    )


def _result(
    run_id: str,
    cwd: str,
    plan: LaunchPlan,
    verdict: Verdict,
    decision: Decision,
    scrubbed: tuple[str, ...],
    outcome: Outcome,
) -> Result:
    ended = outcome.exit
    return Result(
        run_id=run_id,
        exit_code=124 if outcome.timed_out else ended.code,
        signal=signal.Signals(ended.signal).name if ended.signal is not None else None,
        timed_out=outcome.timed_out,
        duration_s=outcome.duration_s,
        cwd=cwd,
        tier=plan.tier,
        verdict=verdict,
        decision=decision,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        output=outcome.output,
        denial=_denial(plan, verdict, outcome),
        limit=_limit(outcome),
        survivors=ended.survivors,
        scrubbed_env=scrubbed,
        usage=ended.usage,
    )


LIMIT_SIGNALS = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "file_size"}
DENIAL_WORDS = ("Read-only file system", "Permission denied", "Operation not permitted")


def _limit(outcome: Outcome) -> str | None:
    if outcome.timed_out:
        return "wall"
    number = outcome.exit.signal
    return LIMIT_SIGNALS.get(signal.Signals(number)) if number is not None else None


def _denial(plan: LaunchPlan, verdict: Verdict, outcome: Outcome) -> Denial | None:
    """A guess from words, said to be one: any program can print them."""
    ended = outcome.exit.code
    if (
        ended == 0
        or outcome.timed_out
        or not plan.tier.kernel
        or str(ended) in verdict.exit_meaning
    ):
        return None
    captured = outcome.stderr or outcome.output
    text = captured.text[-4096:] if captured is not None else ""
    found = next((word for word in DENIAL_WORDS if word in text), None)
    if found is None:
        return None
    return Denial(
        evidence="text",
        rule="output-text",
        hint=f"the output says {found!r}; tier {plan.tier.name} writes only in the workspace and its own /tmp",
    )
