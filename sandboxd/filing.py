"""What file operations of all sessions share, and the part of the pipeline that judges them.

Beside the pipeline because this is where the files stage meets sessions, policy and decision: the
tools of a session, a verdict for a file operation, what a run shows and changes of files that were
seen. It writes no events and raises no refusals of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from sandboxd.asking import Proposed
from sandboxd.assess.judging import Eyes, judge
from sandboxd.decide.decision import about_protected
from sandboxd.environment import DEFAULT_PATH
from sandboxd.errors import Fault, Refusal
from sandboxd.events import kinds
from sandboxd.files import reading, searching
from sandboxd.files.changes import Done, Plan, Preview, Target
from sandboxd.files.guard import Place, Scope, locate
from sandboxd.files.ledger import Ledger, Seen, Stamp
from sandboxd.files.locks import Locks
from sandboxd.files.reading import Tools
from sandboxd.files.searching import Grepped, Job
from sandboxd.files.storage import version_at
from sandboxd.files.text import unified
from sandboxd.files.undo import Undo
from sandboxd.model import (
    Action,
    ApprovalAsk,
    Approve,
    CommandClass,
    Decision,
    ExecRequest,
    NetworkMode,
    Part,
    Policy,
    Reason,
    Tier,
    Verdict,
)
from sandboxd.profiles import fill_in
from sandboxd.proposals import Inputs, Parameter, Role, ToolCall, Violation
from sandboxd.sessions import Session

THREADS = 16
SCOPE_S = 2.0
"""How long a session's scope is used before the disk is asked again where its roots really are."""
MAX_WATCHED = 512
"""Files seen that a run is watched for, the latest."""
MAX_DIFF = 64 * 1024
GUARD = Tier(
    name="guard",
    kernel=True,
    enforces=("reads and writes beneath the session's folders alone, through no link",),
    gaps=(),
)
"""What holds a file operation: the daemon does it itself, through checked handles."""

P = ParamSpec("P")
T = TypeVar("T")


class Filing:
    """Locks, kept changes, threads, and one ledger for each session."""

    def __init__(self, state: str) -> None:
        self.locks = Locks(os.path.join(state, "locks"))
        self.undo = Undo(os.path.join(state, "undo"))
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="files")
        self._ledgers: dict[str, Ledger] = {}
        self._scopes: dict[tuple[object, ...], tuple[float, Scope]] = {}

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """In a thread, because disks are slow. The work is finished even when nobody waits."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    def forget(self, session_id: str) -> None:
        """The session is closed."""
        self._ledgers.pop(session_id, None)

    def ledger(self, session: Session) -> Ledger:
        known = self._ledgers.get(session.id)
        if known is None:
            known = self._ledgers[session.id] = Ledger(os.path.join(session.folder, "ledger"))
        return known

    def tools(self, session: Session, policy: Policy, *, sees_images: bool | None = None) -> Tools:
        return Tools(
            scope=self._scope(session, policy),
            ledger=self.ledger(session),
            locks=self.locks,
            undo=self.undo,
            session_id=session.id,
            sees_images=sees_images,
        )

    def _scope(self, session: Session, policy: Policy) -> Scope:
        key = (
            *(policy.workspace, policy.writable, policy.denied, policy.protected, policy.own),
            *(policy.private_tmp, policy.visible, policy.owner, policy.shown),
            *(session.cwd, session.home),
        )
        now = time.monotonic()
        known = self._scopes.get(key)
        if known is not None and now - known[0] < SCOPE_S:
            return known[1]
        self._scopes = {k: v for k, v in self._scopes.items() if now - v[0] < SCOPE_S}
        scope = Scope.of(
            policy, cwd=session.cwd, home=session.home, read_roots=_read_roots(session)
        )
        self._scopes[key] = (now, scope)
        return scope

    # -- commands and the ledger

    def before_run(self, session: Session, verdict: Verdict) -> dict[str, Stamp] | None:
        """How the files that were seen stand before a run that may change them; None when it may
        not, or nothing was seen."""
        if verdict.parsed and verdict.class_ is CommandClass.READ_ONLY:
            return None
        entries = self.ledger(session).entries()[-MAX_WATCHED:]
        return {entry.path: stamp for entry in entries if (stamp := _stamp(entry.path))} or None

    async def after_run(
        self, session: Session, policy: Policy, before: dict[str, Stamp] | None, command: str
    ) -> tuple[str, ...]:
        """Take into the ledger what a run of ours has changed; the names of those files."""
        if before is None:
            return ()
        changed = [path for path, stamp in before.items() if _stamp(path) != stamp]
        if not changed:
            return ()
        tools = self.tools(session, policy)
        return await self.run(_refresh, tools, changed, before, command)

    async def observe(
        self, session: Session, policy: Policy, verdict: Verdict, begun_ns: int
    ) -> None:
        """A read-only command has shown these files: they count as seen."""
        tools = self.tools(session, policy)
        sizes = [stamp.size for path in verdict.read_paths if (stamp := _stamp(path))]
        if len(sizes) <= 4 and sum(sizes) <= 64 * 1024:
            _observe_all(tools, verdict.read_paths, begun_ns)  # cheaper than a change of threads
        elif sizes:
            await self.run(_observe_all, tools, verdict.read_paths, begun_ns)


def _observe_all(tools: Tools, paths: tuple[str, ...], begun_ns: int) -> None:
    for path in paths:
        reading.observe(tools, path, before_ns=begun_ns)


def _stamp(path: str) -> Stamp | None:
    try:
        return Stamp.of(os.lstat(path))
    except OSError:
        return None


def _refresh(
    tools: Tools, changed: list[str], before: dict[str, Stamp], command: str
) -> tuple[str, ...]:
    """Only what was as the session knew it when the run began; the rest stays stale."""
    refreshed = []
    for path in changed:
        seen = tools.ledger.get(path)
        if seen is None or seen.stamp != before[path]:
            continue
        try:
            place = locate(path, tools.scope, "read")
            if place.found is None:
                tools.ledger.forget(path)
                continue
            version, stamp = version_at(place, tools.scope)
        except (Refusal, Fault, OSError):
            continue
        if version != seen.version:
            refreshed.append(place.shown)
            tools.ledger.record(Seen(path, version, stamp, command[:200]))
        else:
            tools.ledger.record(Seen(path, version, stamp, seen.refreshed_by))
    return tuple(refreshed)


def _read_roots(session: Session) -> tuple[str, ...]:
    """`files.read_roots` of the profile, filled in."""
    variables = {
        "WORKSPACE": session.workspace,
        "HOME": session.home if os.path.isabs(session.home) else "",
        "TMP": session.private_tmp,
    }
    filled = (fill_in(text, variables) for text in session.rules.read_roots)
    return tuple(path for path in filled if path)


# --------------------------------------------------------------------------- judging


def verdict_of(operation: str, target: Target) -> Verdict:
    """What a file operation would do, in the words in which commands are judged."""
    writes = tuple(place.path for place in target.writes)
    reads = tuple(place.path for place in target.reads)
    kind = CommandClass.READ_ONLY
    if writes:
        kind = CommandClass.DESTRUCTIVE if target.deletes else CommandClass.MUTATING
    shown = ", ".join(place.shown for place in (*target.writes, *target.reads))
    words = {"read_only": "reads", "mutating": "changes", "destructive": "deletes or changes"}
    reasons = [Reason(operation, f"{words[kind.value]} {shown}")]
    reasons += [
        Reason("protected-name", f"{name} runs later, outside") for name in target.protected
    ]
    key = None
    if kind is not CommandClass.DESTRUCTIVE and not target.protected:
        key = hashlib.sha256("\0".join([operation, *reads, "", *writes]).encode("utf-8", "surrogateescape")).hexdigest()  # fmt: skip
    return Verdict(
        class_=kind,
        parsed=True,
        cacheable=key is not None,
        reasons=tuple(reasons),
        parts=(
            Part((0, len(operation)), f"{operation} {shown}", kind, operation, reasons[0].message),
        ),
        read_paths=reads,
        write_paths=writes,
        approval_key=key,
    )


@dataclass(frozen=True, kw_only=True)
class ProposedChange(Proposed):
    """A file operation that is about to be decided."""

    target: Target
    plan: Plan | None = None
    """What would change; known only when somebody is to be asked."""

    def decide(self) -> Decision:
        decision = super().decide()
        return (
            about_protected(decision, self.target.protected) if self.target.protected else decision
        )

    def inputs(self) -> Inputs:
        return msgspec.structs.replace(super().inputs(), protected=self.target.protected)

    @property
    def joining_key(self) -> str | None:
        """Each change is a question of its own: another one shows another difference."""
        return None

    def question(self, decision: Decision) -> ApprovalAsk:
        ask = super().question(decision)
        if self.plan is None:
            return ask
        return msgspec.structs.replace(
            ask, creates=self.plan.shown_creates, diff=shown_diff(self.plan)
        )


@dataclass
class Judging:
    """The decision about one file operation, made where its target is known."""

    eyes: Eyes
    session: Session
    policy: Policy
    approve: Approve
    call_id: str
    record: Callable[[kinds.Event], None]
    """Puts an event into the log, from any thread; the pipeline's own."""
    key: str = ""
    """What "the same call" means."""
    proposed: ProposedChange | None = None
    decision: Decision | None = None
    violations: tuple[Violation, ...] = ()

    def __call__(self, target: Target) -> bool:
        """Whether it may go on without asking."""
        verdict = verdict_of(target.operation, target)
        proposed = ProposedChange(
            session=self.session,
            request=ExecRequest(approve=self.approve),
            verdict=verdict,
            # What reaches a network is no question here, and what holds is the guard.
            policy=msgspec.structs.replace(self.policy, network=NetworkMode.OFF),
            tier=GUARD,
            run_id=self.call_id,
            command=verdict.parts[0].command,
            cwd=self.session.cwd,
            target=target,
        )
        judged = judge(
            self.eyes,
            proposed,
            self.session.rules,
            _call_of(target, self.key if self.key in self.session.shared.refusals else ""),
            self.record,
            is_command=False,
        )
        self.proposed = replace(proposed, violations=judged.violations)
        self.decision, self.violations = judged.decision, judged.violations
        return self.decision.action is Action.ALLOW

    def is_same_target(self, target: Target) -> bool:
        """Whether the approved operation still leads to the files that were judged."""
        judged = self.proposed.target if self.proposed is not None else None
        return judged is not None and [p.path for p in judged.writes + judged.reads] == [
            p.path for p in target.writes + target.reads
        ]

    def events(self, outcome: Done | Preview) -> Iterator[kinds.Event]:
        """What the log keeps of an operation that was carried out."""
        proposed, session = self.proposed, self.session
        if not isinstance(outcome, Done) or proposed is None or self.decision is None:
            return
        yield kinds.DecisionMade(session_id=session.id, run_id=self.call_id, decision=self.decision)
        files = outcome.plan.files
        yield kinds.FilesTouched(
            session_id=session.id,
            run_id=self.call_id,
            operation=outcome.plan.target.operation,
            paths=tuple(file.place.path for file in files),
            versions=tuple(file.version for file in files),
            change_id=outcome.change_id,
        )


def _call_of(target: Target, key: str) -> ToolCall:
    """The operation in the words of the rules. What was read and whether it is still so the files
    stage itself checks, by content and under the lock, so the rules about that are not asked."""
    lists: tuple[tuple[Role, tuple[Place, ...]], ...] = (
        ("path", target.writes),
        ("source_path", target.reads),
    )
    parameters = [
        Parameter(name=role, role=role, value=place.path)
        for role, places in lists
        for place in places
    ]
    return ToolCall(
        tool=target.operation, door="files", parameters=tuple(parameters), copies=True, key=key
    )


def shown_diff(plan: Plan) -> str:
    """What an approver sees of a plan."""
    text = "".join(unified(file.diff, file.place.shown) for file in plan.files)
    return text if len(text) <= MAX_DIFF else text[:MAX_DIFF] + "\n[the rest is left out]\n"


# --------------------------------------------------------------------------- grep


class Sandbox(Protocol):
    """Whoever runs a program of ours as a run of the session would be run."""

    async def __call__(self, words: list[str], cwd: str) -> tuple[int, bytes, bytes]:
        """Exit code, stdout, stderr."""


async def grep(tools: Tools, job: Job, top: str, sandbox: Sandbox) -> Grepped:
    """Search with ripgrep, or with our own program where it is not there or does not speak the
    pattern (look-around, back references). Raises InvalidRequest for a broken pattern."""
    ripgrep = shutil.which("rg", path=DEFAULT_PATH)
    if ripgrep is not None:
        code, printed, complaints = await sandbox(job.count_words(ripgrep), job.top)
        if code in (0, 1) or (code == 2 and b"regex parse error" not in complaints and printed):
            counts = searching.ripgrep_counts(printed)
            windows = []
            if job.search.is_content and counts:
                order = searching.densest(counts)
                _, lines, _ = await sandbox(job.line_words(ripgrep, order), job.top)
                windows = searching.ripgrep_windows(lines, order)
            return searching.ripgrep_answer(counts, windows, complaints, top, tools.scope)
    _, printed, _ = await sandbox(job.searcher_words(sys.executable), job.top)
    return searching.searcher_answer(printed, job, top, tools.scope)
