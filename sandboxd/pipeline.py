"""READ THIS FIRST: what happens to one command, in order.

    request -> classify -> decide -> confine -> spawn -> output -> reply

Only this module knows the order, only this module writes events, and only here does a stage's
"no" become a raised `Refusal`. What a run needs (launcher, ladder, classifier, log) is held by
the `Engine`, of which a daemon has one.

This file is long because commands, terminals and files each have their order here, and nobody else
may write an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import msgspec

from sandboxd import environment, final_cwd, leaving, network, programs, reply, sessions
from sandboxd import request as request_of
from sandboxd.asking import Proposed
from sandboxd.assess.calls import call_of_tool, digest_of, verdict_of, with_command, worse_of
from sandboxd.assess.judging import (
    OUTSIDE,
    Judged,
    count_refusal,
    forget_refusals,
    judge,
    judge_command,
    key_of_command,
    key_of_operation,
    note_seen,
    refusal_of,
)
from sandboxd.background import Kept, left_running
from sandboxd.confine.guardian import approved
from sandboxd.confine.guardian.guard import Guard
from sandboxd.decide.approvals import ApprovalChannel
from sandboxd.decide.decision import is_refused
from sandboxd.engine import Engine
from sandboxd.errors import Cancelled, Fault, ProtectedPath, Refusal
from sandboxd.events import kinds
from sandboxd.files.changes import Done, Operation, Plan, Preview, Target, attempt
from sandboxd.files.guard import Place, locate
from sandboxd.files.handles import not_found
from sandboxd.files.reading import Tools
from sandboxd.files.searching import Grepped, Job, Search, top_and_start
from sandboxd.filing import Judging, grep
from sandboxd.keys import Line, follow
from sandboxd.learning import Learner
from sandboxd.model import (
    READ_ONLY,
    Action,
    Approve,
    Decision,
    ExecRequest,
    Invocation,
    LaunchPlan,
    NetworkMode,
    Policy,
    Result,
    Verdict,
)
from sandboxd.output.capture import Capture
from sandboxd.profiles import Profile
from sandboxd.proposals import Door, Role, ToolCall
from sandboxd.sessions import Session
from sandboxd.spawn.launcher import LaunchFailed
from sandboxd.supervise import Outcome, Supervised
from sandboxd.terminal import Terminal
from sandboxd.typing_in import (
    Inside,
    as_request,
    clear_line,
    in_terminal,
    is_for_shell,
    remember,
    shell_name,
    unreadable,
)

T = TypeVar("T")

__all__ = [
    "Engine",
    "RunChannel",
    "RunControl",
    "change_file",
    "grep_files",
    "look_at_files",
    "open_terminal",
    "run_command",
    "type_text",
]


class RunControl(Protocol):
    """What a caller may do to a running command."""

    async def write(self, data: bytes) -> None:
        """Write to its stdin; returns when the pipe has taken all of it (back-pressure)."""

    def close_stdin(self) -> None: ...

    def signal(self, number: int) -> None:
        """Send a signal to the run's process group, or the foreground of its pty."""

    def resize(self, cols: int, rows: int) -> None:
        """Tell its pty a new size; nothing without one."""

    def watch(self, told: Callable[[str, bool], None]) -> None:
        """Be told `stopped`, and while its input is open `waiting_for_input`, `polls_input` and
        `running`, with whether it reads a password."""

    def cancel(self) -> None:
        """End the run: `run_command` raises `Cancelled` once the tree is dead."""


class RunChannel(ApprovalChannel, Protocol):
    """The caller's side of one run: server connection, command line, test."""

    def started(self, run_id: str, control: RunControl) -> None:
        """The program is running; called once, before any output."""

    def output(self, stream: str, chunk: bytes) -> None:
        """Bytes as they came (`stream` is stdout, stderr or output); must not block."""

    def has_room(self) -> bool:
        """Whether the reader keeps up; asked only when the request says `pace`."""


class Launching(Protocol):
    """Whoever wants to know what is about to start."""

    def judged(self, verdict: Verdict, plan: LaunchPlan, policy: Policy) -> None: ...


async def run_command(
    engine: Engine,
    session: Session,
    request: ExecRequest,
    channel: RunChannel,
    launching: Launching | None = None,
) -> Result:
    """Run one command through the whole gate. With `keep_background` the result comes when the
    program has ended, and what it left behind lives on in the engine.

    Raises `Refusal` for every expected no, `Cancelled` (with the partial output as `data`)
    after `RunControl.cancel`, `Fault` when our own machinery failed. When the surrounding task
    is cancelled (client gone) the tree is killed before the cancellation continues.
    """
    run_id = request.run_id or "r-" + secrets.token_hex(8)
    _record_session(engine, session)
    if not request.keep_background:
        return await _recorded(engine, session, request, channel, run_id, launching, None)
    return await engine.background.answered(
        session.id,
        run_id,
        lambda kept: _recorded(engine, session, request, channel, run_id, launching, kept),
    )


async def _recorded(
    engine: Engine,
    session: Session,
    request: ExecRequest,
    channel: RunChannel,
    run_id: str,
    launching: Launching | None,
    kept: Kept | None,
) -> Result:
    """The run, and the event of a bad end."""
    try:
        return await _run(engine, session, request, channel, run_id, launching, kept)
    except Cancelled:
        raise  # its result says so
    except Refusal as refusal:
        engine.log.append(kinds.Refused.of(session.id, run_id, refusal, session.redactor))
        raise
    except Fault as fault:
        engine.log.append(kinds.Faulted.of(session.id, run_id, fault))
        raise
    except asyncio.CancelledError:
        if launching is None:  # a terminal is ended this way by its session, too
            engine.log.append(kinds.Abandoned(session_id=session.id, run_id=run_id))
        raise


def _record_session(engine: Engine, session: Session) -> None:
    """It is in use, and the log knows it."""
    sessions.used(session)
    if not session.shared.is_recorded:
        session.shared.is_recorded = True
        engine.log.append(
            kinds.SessionOpened(
                session_id=session.id, workspace=session.workspace, profile=session.profile
            )
        )


async def _run(
    engine: Engine,
    session: Session,
    request: ExecRequest,
    channel: RunChannel,
    run_id: str,
    launching: Launching | None,
    kept: Kept | None,
) -> Result:
    profile = session.rules_for(request.profile)
    cwd = request_of.existing_cwd(session, request)
    program, argv = programs.command_line(request, request_of.path_of(session, request), cwd)

    policy = engine.policy(session, profile, request, cwd)
    verdict = await engine.judge(session, profile, request, policy, cwd)
    shown = request_of.shown(request)
    engine.log.append(
        kinds.VerdictGiven.of(
            session.id,
            run_id,
            command=shown,
            cwd=cwd,
            verdict=verdict,
            redactor=session.redactor,
        )
    )

    rung, mode, why = await engine.choose(profile, request)
    left = leaving.redeem(engine, session, request, policy, cwd, rung.name)
    if left is not None:
        rung, mode, why = await engine.unconfined(), NetworkMode.HOST, ("a person let it out",)
        policy = leaving.without_sandbox(policy)
    policy = engine.for_rung(engine.in_mode(policy, mode, rung), rung, session.home)
    env, scrubbed = environment.build(
        session.environment,
        request.env,
        profile,
        tmp=rung.temp_path(policy),
        cwd=cwd,
        extra_pass=request.env_pass,
        git_reader=verdict.git_hardening,
    )
    env = {**network.environment(policy, env), **engine.beside_hidden(policy, rung, session.home)}
    invocation = Invocation(
        program=program,
        argv=argv,
        environment=env,
        cwd=cwd,
        has_terminal=request.pty is not None,
    )
    plan = engine.bounded(rung.plan(invocation, policy, why), policy)
    network.check(plan, policy)

    proposed = Proposed(
        session,
        request,
        verdict,
        policy,
        plan.tier,
        run_id,
        shown,
        cwd,
        escalation=left.ask if left is not None else None,
    )
    door: Door = "command" if launching is None else "terminal"
    with left.kept_unless_asked() if left is not None else contextlib.nullcontext():
        decision = await _decide(engine, proposed, profile, channel, door)

    opened = left.opened if left is not None else approved.opened_by(verdict, decision, policy)
    if left is not None:
        engine.log.append(kinds.Escalated.of(session.id, run_id, left.tier, left.offer.denial))
    elif opened:
        plan = engine.bounded(rung.plan(invocation, approved.without(policy, opened), why), policy)
    plan = msgspec.structs.replace(plan, pty=request_of.pty(request))
    plan = final_cwd.followed(plan, request, verdict)
    if kept is not None:
        plan = request_of.keeping_background(plan)
    if launching is not None:
        launching.judged(verdict, plan, policy)
    learner = Learner(engine.outside) if request.learn else None
    way_out = network.WayOut(
        policy,
        learner.outside if learner is not None else engine.outside,
        lambda denial: engine.log.append(kinds.EgressDenied.of(session.id, run_id, denial)),
    )
    seen, begun_ns = engine.filing.before_run(session, verdict), time.time_ns()
    guard = engine.guardian.begin(
        approved.watched(run_id, session.folder, policy, plan, verdict, opened)
    )

    def leave(early: Outcome, run: Supervised) -> None:
        assert kept is not None
        ended_in = final_cwd.reached(early.cwd, cwd, policy)
        told = reply.result_of(run_id, ended_in, plan, verdict, decision, scrubbed, early)
        kept.tell(msgspec.structs.replace(told, left_running=left_running(run)), run)

    try:
        outcome = await _launch(
            engine,
            session,
            request,
            channel,
            run_id,
            plan,
            policy,
            guard,
            way_out,
            leave if kept is not None else None,
        )
    finally:
        findings = engine.guardian.finish(guard)
        await way_out.close()
    ended_in = final_cwd.reached(outcome.cwd, cwd, policy)
    result = reply.result_of(
        run_id, ended_in, plan, verdict, decision, scrubbed, outcome, way_out.denial
    )
    result = reply.with_findings(result, policy, findings)
    if learner is not None:
        told = await asyncio.to_thread(
            learner.profile, request, result, policy, profile, way_out.names_of
        )
        result = msgspec.structs.replace(result, learned=told)
    if verdict.class_ is not READ_ONLY:
        result = engine.quota.told(result, session.folder, session.private_tmp, profile.cache_bytes)
    if left is not None:
        result = msgspec.structs.replace(result, unconfined=True)
    elif launching is None and reply.may_be_escalated(result, policy) and not outcome.cancelled:
        result = await leaving.weighed(
            engine, session, request, result, rung=rung, invocation=invocation, policy=policy
        )
    if seen is not None:
        refreshed = await engine.filing.after_run(session, policy, seen, shown)
        result = msgspec.structs.replace(result, refreshed=refreshed)
    elif verdict.read_paths and verdict.parsed and result.exit_code == 0:
        await engine.filing.observe(session, policy, verdict, begun_ns)
    engine.log.append(kinds.Finished.of(session.id, result, session.redactor))
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
    guard: Guard,
    way_out: network.WayOut,
    leave: Callable[[Outcome, Supervised], None] | None,
) -> Outcome:
    """Start the plan, feed it, wait for its end."""
    data = request_of.stdin_of(request)
    names = request_of.streams(request)
    room = request_of.budgets(request, policy.limits)
    captures = {
        name: Capture(
            session.output_folder,
            room.head_bytes,
            room.tail_bytes,
            head_lines=room.head_lines,
            tail_lines=room.tail_lines,
        )
        for name in names
    }
    run = Supervised(captures, channel.output, channel.has_room if request.pace else None)
    bound = engine.bounds.begin(plan, policy.limits)
    try:
        await run.start(
            engine.launcher,
            engine.present.trimmed(plan),
            has_stdin=data is not None or request.stdin_open,
            groups=bound.descriptors,
        )
    except BaseException as failure:
        bound.end()
        if isinstance(failure, LaunchFailed):
            raise reply.launch_refusal(failure, plan) from failure
        raise
    bound.watch(run)
    way_out.begin(run.child.take_network())
    steps = [(step.kind, step.path) for step in plan.mounts]
    guard.launched(steps, lambda names: engine.launcher.remask(run.child, names))
    engine.log.append(kinds.Launched.of(session.id, run_id, plan))
    channel.started(run_id, run)
    feeding = asyncio.ensure_future(_feed(run, data)) if data is not None else None
    timeout_s = request.timeout_s if request.timeout_s is not None else policy.limits.wall_s
    try:
        if leave is not None and (early := await run.left(timeout_s)) is not None:
            leave(early, run)
            timeout_s = None
        outcome = await run.outcome(timeout_s)
        way_out.add_unreachable(run.child.unreachable)
        return dataclasses.replace(outcome, hit=bound.end())
    except LaunchFailed as failure:  # only a helper tells so late that it could not start it
        raise reply.launch_refusal(failure, plan) from failure
    finally:
        bound.end()
        if feeding is not None:
            feeding.cancel()


async def open_terminal(
    engine: Engine, session: Session, request: ExecRequest, channel: RunChannel
) -> Terminal:
    """Start a terminal through the whole gate; returns once its program runs.

    It lives on in the engine until it ends, is ended, or nobody has used it for long. Raises what
    `run_command` raises, and Overloaded when the session has too many. `channel` is asked for
    approval only.
    """
    request = in_terminal(request)
    request_of.pty(request)
    terminal = engine.terminals.add(session.id, request, request_of.shown(request))
    started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    inside = Inside(terminal, channel, started)
    terminal.task = asyncio.ensure_future(_hold(engine, session, terminal, inside))
    try:
        await asyncio.wait({started, terminal.task}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        terminal.task.cancel()
        raise
    if not started.done():
        engine.terminals.forget(terminal)
        await terminal.task
    return terminal


async def _hold(engine: Engine, session: Session, terminal: Terminal, inside: Inside) -> None:
    """The life of a terminal's run; a no before it has started is its opener's."""
    result = None
    try:
        result = await run_command(engine, session, terminal.request, inside, terminal)
    except Cancelled as cancelled:
        result = msgspec.convert(cancelled.data, Result)
    except (Refusal, Fault):
        if not inside.started_at_all:
            raise
    finally:
        terminal.ended(result)


async def type_text(
    engine: Engine,
    session: Session,
    terminal: Terminal,
    text: str,
    channel: RunChannel,
    approve: Approve,
) -> None:
    """Type text in a terminal. What a program reads is input; a line that a shell would run is
    judged and decided like a command, before any of the text is typed. Raises as `run_command`.
    """
    async with terminal.typing:
        try:
            is_command = await is_for_shell(terminal, text)
            clearing = clear_line(terminal) if is_command else ""
            typed = follow(terminal.shell.line, text)
            for line in typed.entered if is_command else ():
                await _judge_line(engine, session, terminal, line, channel, approve)
            terminal.shell.line, terminal.shell.is_leftover = typed.line, not is_command
            await terminal.write((clearing + text).encode())
        except Refusal as refusal:
            engine.log.append(kinds.Refused.of(session.id, terminal.id, refusal, session.redactor))
            raise


async def _judge_line(
    engine: Engine,
    session: Session,
    terminal: Terminal,
    line: Line,
    channel: RunChannel,
    approve: Approve,
) -> None:
    """Judge and decide one line of a shell. Raises when the answer is no."""
    assert terminal.policy is not None  # it has started
    assert terminal.plan is not None
    request = as_request(terminal, line, approve)
    cwd = request_of.cwd_of(session, request)
    profile = session.rules_for(request.profile)
    verdict = unreadable(terminal, line) or await engine.judge(
        session, profile, request, terminal.policy, cwd, shell=await shell_name(terminal)
    )
    engine.log.append(
        kinds.VerdictGiven.of(
            session.id,
            terminal.id,
            command=line.text,
            cwd=cwd,
            verdict=verdict,
            redactor=session.redactor,
        )
    )
    tier = terminal.plan.tier
    proposed = Proposed(
        session, request, verdict, terminal.policy, tier, terminal.id, line.text, cwd
    )
    await _decide(engine, proposed, profile, channel, "terminal")
    remember(terminal, line, verdict)


async def assess_call(
    engine: Engine,
    session: Session,
    tool: str,
    parameters: Mapping[str, object],
    roles: Mapping[str, Role] | None = None,
    cwd: str | None = None,
) -> tuple[Judged, ToolCall]:
    """Judge a call that the caller's own tool would run: the same rules, classes and decision as for
    ours. Runs nothing and asks nobody. Raises InvalidRequest for arguments that cannot be read.
    """
    _record_session(engine, session)
    key = digest_of("assess", tool, parameters)
    call, command = call_of_tool(tool, parameters, roles, key if session.shared.refusals else "")
    request = ExecRequest(command=command, cwd=cwd)
    where = request_of.cwd_of(session, request)
    policy = engine.policy(session, session.rules, request, where)
    if command is None:
        verdict = verdict_of(call, where, session.home)
    else:
        of_command = await engine.judge(session, session.rules, request, policy, where)
        verdict, call = (
            worse_of(of_command, call, where, session.home),
            with_command(call, of_command),
        )
    assessment_id = "j-" + secrets.token_hex(8)
    proposed = Proposed(session, request, verdict, policy, OUTSIDE, assessment_id, tool, where)
    judged = judge(engine.eyes, proposed, session.rules, call, engine.log.append, is_command=False)
    if judged.decision.action is Action.REFUSE:
        count_refusal(session, key, refusal_of(judged.violations), engine.eyes.clock)
    else:
        forget_refusals(session, key)
        note_seen(engine.eyes.sightings(session), judged, call)
    return judged, call


async def look_at_files(
    engine: Engine,
    session: Session,
    operation: str,
    look: Callable[[Tools], T],
    channel: ApprovalChannel,
    *,
    sees_images: bool | None = None,
    touched: Callable[[T], kinds.FilesTouched | None] = lambda _: None,
) -> T:
    """Read, list or search through the gate; `look` is called in a thread.

    Raises every refusal of the files stage, and what asking raises where the profile asks about
    everything. `touched` says what the log keeps of it.
    """
    _record_session(engine, session)
    policy = engine.file_policy(session)
    try:
        if policy.approval == "ask-all":
            judging = Judging(engine.eyes, session, policy, "none", operation, engine.log.append)
            judging(Target(operation, ()))
            await _settle(engine, judging, channel)
        tools = engine.filing.tools(session, policy, sees_images=sees_images)
        found = await engine.filing.run(look, tools)
    except Refusal as refusal:
        engine.log.append(kinds.Refused.of(session.id, operation, refusal, session.redactor))
        raise
    event = touched(found)
    if event is not None:
        engine.log.append(event)
    return found


async def grep_files(
    engine: Engine, session: Session, path: str, search: Search, channel: ApprovalChannel
) -> Grepped:
    """Search files: a program of ours in the session's sandbox, which reads what a run may read."""

    def place(tools: Tools) -> tuple[Tools, Place]:
        return tools, locate(path, tools.scope, "read")

    tools, start = await look_at_files(engine, session, "fs.grep", place, channel)
    if start.found is None:
        raise not_found(start)
    run = await engine.own_program(session)
    top, below = top_and_start(start, tools.scope)
    is_file = stat.S_ISREG(start.found.st_mode)
    job = Job(search, run.seen(top), below, is_file)
    return await grep(tools, job, top, run)


async def change_file(
    engine: Engine,
    session: Session,
    operation: Operation,
    channel: ApprovalChannel,
    *,
    approve: Approve = "none",
    run_id: str | None = None,
    is_dry_run: bool = False,
) -> Done | Preview:
    """Change files through the whole gate: guard, ledger, decision, and then all of it or nothing.

    The locks are not held while a person is asked: what they saw must be what is done, or it is
    refused. Raises every refusal of the files stage, ApprovalRequired, ApprovalDenied.
    """
    _record_session(engine, session)
    policy = engine.file_policy(session)
    tools = engine.filing.tools(session, policy)
    call_id = run_id or "f-" + secrets.token_hex(8)
    key = key_of_operation(operation, approve) if session.shared.refusals else ""
    judging = Judging(engine.eyes, session, policy, approve, call_id, engine.log.append, key)
    try:
        outcome = await engine.filing.run(
            attempt, tools, operation, judging, run_id=run_id, is_dry_run=is_dry_run
        )
        if is_refused(judging.violations):
            raise refusal_of(judging.violations)
        if isinstance(outcome, Preview) and not is_dry_run:
            await _settle(engine, judging, channel, outcome.plan)
            outcome = await engine.filing.run(
                attempt,
                tools,
                operation,
                judging.is_same_target,
                run_id=run_id,
                approved=outcome.plan.digest,
            )
        if isinstance(outcome, Refusal):
            raise outcome
    except Refusal as refusal:
        key = key or key_of_operation(operation, approve)
        count_refusal(session, key, refusal, engine.eyes.clock)
        engine.log.append(kinds.Refused.of(session.id, call_id, refusal, session.redactor))
        raise
    except Fault as fault:
        engine.log.append(kinds.Faulted.of(session.id, call_id, fault))
        raise
    forget_refusals(session, key)
    for event in judging.events(outcome):
        engine.log.append(event)
    return outcome


async def _settle(
    engine: Engine, judging: Judging, channel: ApprovalChannel, plan: Plan | None = None
) -> None:
    """Ask about a file operation where somebody must be asked. Raises when the answer is no."""
    decision, proposed = judging.decision, judging.proposed
    assert decision is not None  # it has been judged
    assert proposed is not None
    if is_refused(judging.violations):
        raise refusal_of(judging.violations)
    if decision.action is Action.REFUSE:
        raise ProtectedPath(
            "; ".join(decision.reasons) + ", and this profile asks nobody",
            hint="leave it as it is, or ask the person to change it",
            rule="protected-name",
        )
    if decision.action is Action.ASK:
        proposed = dataclasses.replace(proposed, plan=plan)
        judging.decision = await _ask(engine, proposed, channel, decision)


async def _feed(run: Supervised, data: bytes) -> None:
    await run.write(data)
    run.close_stdin()


async def _decide(
    engine: Engine, proposed: Proposed, profile: Profile, channel: ApprovalChannel, door: Door
) -> Decision:
    """Let the rules judge a command, then decide, asking a person where that is needed. Raises
    RuleViolated, and what asking raises."""
    session, run_id = proposed.session, proposed.run_id
    judged = judge_command(engine.eyes, proposed, profile, door, engine.log.append)
    decision = judged.decision
    try:
        if decision.action is Action.REFUSE:
            raise refusal_of(judged.violations)
        if decision.action is Action.ASK:
            decision = await _ask(engine, judged.proposed, channel, decision)
    except Refusal as refusal:
        count_refusal(session, key_of_command(proposed), refusal, engine.eyes.clock)
        raise
    if session.shared.refusals:
        forget_refusals(session, key_of_command(proposed))
    engine.log.append(kinds.DecisionMade(session_id=session.id, run_id=run_id, decision=decision))
    return decision


async def _ask(
    engine: Engine, proposed: Proposed, channel: ApprovalChannel, decision: Decision
) -> Decision:
    """Ask a person, and remember what they said for the session. Raises when the answer is no, or
    none comes."""
    session, run_id = proposed.session, proposed.run_id
    ask = await asyncio.to_thread(proposed.question, decision)
    engine.log.append(kinds.ApprovalAsked.of(session.id, run_id, ask))
    reply = await engine.approvals.ask(
        ask,
        channel,
        key=proposed.joining_key,
        is_settled=lambda: proposed.decide().action is Action.ALLOW,
        wait_s=proposed.request.approval_wait_s,
    )
    engine.log.append(kinds.ApprovalAnswered.of(session.id, run_id, reply))
    decision = proposed.accepted(decision, reply)
    engine.approvals.remembered(session.id)
    return decision
