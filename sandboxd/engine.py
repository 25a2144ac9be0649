"""What runs share: the zygote's launcher, the ladder of tiers, classifiers, sessions, the log.

A daemon has one `Engine`; the command line without a daemon makes one for a single run. It
answers questions; `pipeline.run_command` is what runs a command and writes events.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping, Sequence

from sandboxd import config, environment, network, programs, sessions
from sandboxd import request as request_of
from sandboxd.assess.judging import Eyes
from sandboxd.background import Background
from sandboxd.bounds import Bounds
from sandboxd.classify.classifier import Classifier, Context
from sandboxd.classify.tables import load_tables
from sandboxd.confine.guardian.guardian import Guardian
from sandboxd.confine.guardian.present import Present
from sandboxd.confine.select import Ladder, mechanisms
from sandboxd.confine.tier import Mechanism, shows
from sandboxd.decide.approvals import Approvals
from sandboxd.decide.escalation import Escalations
from sandboxd.egress.outside import Outside
from sandboxd.errors import Fault, Overloaded, Refusal, SessionUnknown, TooLarge, WorkspaceRefused
from sandboxd.events.log import EventLog
from sandboxd.filing import Filing
from sandboxd.filling import HERE
from sandboxd.model import (
    ExecRequest,
    Invocation,
    LaunchPlan,
    NetworkMode,
    Policy,
    ProbeResult,
    Tier,
    Verdict,
)
from sandboxd.output.capture import Capture
from sandboxd.policy import build_policy, is_inside
from sandboxd.profiles import Profile, effective_profile
from sandboxd.quota import Quota
from sandboxd.redaction.copies import Copies, git_environment
from sandboxd.sessions import Session
from sandboxd.spawn.launcher import Launcher, LaunchFailed
from sandboxd.supervise import Supervised
from sandboxd.system import posix
from sandboxd.terminals import Terminals

SET_UP_FAILED = 125
POLICY_S = 1.0
"""How long the policy of a session's file operations is used before the disk is looked at again: which
roots exist, where submodules lie. What the guard refuses by name does not depend on it."""
NOWHERE = "/dev/null"
"""No folder: what programs of our own print is taken as it comes and kept nowhere."""
OWN_PROGRAM_S = 60.0
"""How long a program of our own making (a search) may take."""


def _socket_cover(path: str) -> list[str]:
    """What to hide of the daemon's socket: itself, and its folder when that is ours alone."""
    folder = os.path.dirname(path)
    found = os.stat(folder)
    is_private = found.st_uid == os.getuid() and not found.st_mode & 0o077
    return [path, folder] if is_private else [path]


def _judged(classifier: Classifier, request: ExecRequest, context: Context) -> Verdict:
    if request.argv is not None:
        return classifier.classify_argv(request.argv, context)
    return classifier.classify_text(request.command or "", context)


LONG_TEXT = 4096
"""Characters from which a command is judged in a thread."""
RESUME_S = 600.0
"""How long a session without a client waits to be resumed by its id."""
HOUSE_S = 3600.0
MAX_SESSIONS = 4096
"""Sessions at one time; those that nobody has open make room, the idlest first."""


class Engine:
    """What runs share. Make it with `Engine.create()` inside a running event loop."""

    def __init__(self, launcher: Launcher, log: EventLog, hidden: Sequence[str]) -> None:
        self.launcher = launcher
        self.log = log
        self.hidden = tuple(hidden)
        self.guardian = Guardian()
        self.ladder = Ladder(mechanisms(), self.run_plan)
        self.terminals = Terminals()
        self.background = Background()
        self.approvals = Approvals()
        self.escalations = Escalations()
        self.bounds = Bounds()
        self.outside = Outside()
        """How runs reach the network through us."""
        self._classifiers: dict[tuple[str, ...], Classifier] = {}
        self._sessions: dict[str, Session] = {}
        self.present = Present()
        self.eyes = Eyes(lambda session: self.filing.ledger(session))
        """What the rules look with."""
        self.filing = Filing(os.path.dirname(log.path))
        self._file_policies: dict[str, tuple[float, Session, Policy]] = {}
        self.quota = Quota()
        self.copies = Copies()
        """Configuration files without their secrets."""
        self.is_shared = False
        """Whether several clients use it: then none of them is kept waiting for another's sake."""
        self._judging_long = asyncio.Lock()

    @classmethod
    async def create(cls, *, socket: str | None = None, keeps_spare: bool = False) -> Engine:
        """Start the zygote and name the log; nothing is probed and no table is read yet.
        `keeps_spare`: many runs are to come, so the next one's init is made ahead."""
        launcher = Launcher(keeps_spare=keeps_spare)
        launcher.start()
        state = config.state_folder()
        sessions.sweep_idle()
        hidden = [state, config.private_folder(), config.temp_base(), config.config_folder()]
        if socket is not None:
            hidden += _socket_cover(os.path.realpath(socket))
        engine = cls(launcher, EventLog(os.path.join(state, "events.db")), hidden)
        engine.is_shared = socket is not None
        engine.guardian.sweep(config.temp_folder())
        engine.filing.locks.sweep()
        return engine

    async def close(self) -> None:
        """Kill every run, stop the zygote, write the last events."""
        await self.terminals.close()
        await self.background.close()
        await self.quota.close()
        await self.launcher.close()
        self.bounds.close()
        self.guardian.close()
        self.filing.close()
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
            opened.shared = known.shared
        else:
            self._make_room()
            sessions.recall(opened)
        opened.shared.clients += 1
        self._sessions[opened.id] = opened
        return opened

    def _make_room(self) -> None:
        """Raises Overloaded when every session is open in some client."""
        while len(self._sessions) >= MAX_SESSIONS:
            unused = [one for one in self._sessions.values() if not one.shared.clients]
            if not unused:
                raise Overloaded(
                    f"{MAX_SESSIONS} sessions are open",
                    hint="close a client, or share a session between several by its id",
                )
            self.close_session(min(unused, key=lambda one: one.shared.last_used).id)

    def close_session(self, session_id: str) -> None:
        """Forget the session and delete its folder. Raises SessionUnknown."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            raise SessionUnknown(f"there is no session {session_id!r}", hint="see `session.list`")
        session.shared.close()
        self.terminals.end_session(session_id)
        self.background.end_session(session_id)
        self.filing.forget(session_id)
        self.eyes.forget(session_id)
        sessions.remove_folder(session)

    def release_session(self, session: Session) -> None:
        """One of its clients is gone. After the last one it is closed in RESUME_S, unless somebody has
        resumed it by its id. Sessions of the command line last until they have been idle for a day."""
        shared = session.shared
        shared.clients -= 1
        shared.last_used = time.monotonic()
        if not shared.clients and not session.is_lasting:
            asyncio.get_running_loop().call_later(RESUME_S, self._expire, session.id)

    def _expire(self, session_id: str) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session.shared.is_idle(RESUME_S):
            self.close_session(session_id)

    async def keep_house(self) -> None:
        """What a daemon does every hour for as long as it lives: sessions in use stay, those that
        nobody has used for a day go."""
        while True:
            await asyncio.sleep(HOUSE_S)
            for session in self.sessions():
                if not session.shared.is_idle(sessions.IDLE_S) or self.terminals.of(session.id):
                    sessions.used(session, is_new=False)
                else:
                    del self._sessions[session.id]
            await asyncio.to_thread(sessions.sweep_idle)

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
        where = request_of.cwd_of(session, request)
        policy = self.policy(session, session.rules, request, where)
        return await self.judge(session, session.rules, request, policy, where, shell=shell)

    async def judge(
        self,
        session: Session,
        profile: Profile,
        request: ExecRequest,
        policy: Policy,
        cwd: str,
        *,
        shell: str | None = None,
    ) -> Verdict:
        """The verdict under a policy that is built already; `shell` is what would run the text.

        A short text is judged at once (tens of microseconds); a long one in a thread with a
        classifier of its own, so that nobody else waits for it.
        """
        context = Context(
            cwd=cwd,
            path=request_of.path_of(session, request),
            environment=request.env,
            writable_roots=(*policy.writable, policy.private_tmp, "/tmp"),
            profile=profile.name,
            shell=shell or programs.shell_name(),
            stdin_digest=request_of.stdin_digest(request),
            home=session.home,
        )
        if len(request_of.shown(request)) < LONG_TEXT:
            return _judged(self._classifier(profile.commands, "short"), request, context)
        async with self._judging_long:
            classifier = self._classifier(profile.commands, "long")
            return await asyncio.to_thread(_judged, classifier, request, context)

    def _classifier(self, tables: tuple[str, ...], use: str) -> Classifier:
        key = (*tables, use)
        if key not in self._classifiers:
            waits = use == "long" or not self.is_shared
            self._classifiers[key] = Classifier(load_tables(tables), waits=waits)
        return self._classifiers[key]

    async def warm_up(self) -> None:
        """Load what the first commands will need; a daemon calls it once it answers."""
        await asyncio.to_thread(self._classifier((), "short").warm_up)
        with contextlib.suppress(Refusal):
            await self.choose(effective_profile(None, None), ExecRequest())

    def policy(
        self,
        session: Session,
        profile: Profile,
        request: ExecRequest,
        cwd: str,
        system: str = HERE,
    ) -> Policy:
        """The policy of one run; `system` is another one's for a plan that is only shown."""
        policy = build_policy(
            profile,
            workspace=session.workspace,
            home=session.home,
            private_tmp=session.private_tmp,
            path=request_of.path_of(session, request),
            cwd=cwd,
            limits=request.limits,
            hidden=[path for path in self.hidden if not is_inside(session.workspace, [path])],
            environment=session.environment,
            system=system,
        )
        return network.with_request(network.with_proxies(policy, session.environment), request)

    def for_rung(self, policy: Policy, rung: Mechanism, home: str) -> Policy:
        """The policy as this rung can hold it: configuration shown without its secrets, or hidden."""
        if not policy.redacted:
            return policy
        return self.copies.applied(policy, rung.name, shows(rung), home)

    def beside_hidden(self, policy: Policy, rung: Mechanism, home: str) -> dict[str, str]:
        """Variables that let tools work beside configuration that this rung has to hide."""
        return git_environment(policy, home) if shows(rung) == "nothing" else {}

    def file_policy(self, session: Session) -> Policy:
        """What the file operations of a session may touch: what its runs may, configuration shown
        without its secrets."""
        now = time.monotonic()
        known = self._file_policies.get(session.id)
        if known is None or now - known[0] > POLICY_S or known[1] is not session:
            policy = self._session_policy(session)
            self._file_policies = {
                name: one for name, one in self._file_policies.items() if now - one[0] <= POLICY_S
            }
            known = self._file_policies[session.id] = now, session, policy
        return self.copies.applied(known[2], "guard", "copies", session.home)

    def _session_policy(self, session: Session) -> Policy:
        return self.policy(session, session.rules, ExecRequest(), session.cwd)

    async def tiers(self) -> list[tuple[Tier, ProbeResult]]:
        """Every rung of this host, probed, strongest first: what a run of the profile `default`
        has there, its network included."""
        profile = effective_profile("default", None)
        policy = Policy(
            profile=profile.name,
            workspace="/",
            writable=("the workspace",),
            private_tmp="a private folder",
            network=profile.network,
        )
        nothing = Invocation(program="/bin/true", argv=("true",), environment={}, cwd="/")
        found = []
        for rung, result in await self.ladder.survey(NetworkMode.HOST):
            mode = NetworkMode.HOST
            with contextlib.suppress(Refusal):
                rung, mode, _ = await self.choose(profile, ExecRequest(tier=rung.name))
            shown = self.in_mode(policy, mode, rung)
            found.append((rung.plan(nothing, shown).tier, result))
        return found

    async def chosen_tier(self, session: Session) -> Tier:
        """The tier that this session's runs get when they name none."""
        rung, network_mode, why = await self.choose(session.rules, ExecRequest())
        policy = self.policy(session, session.rules, ExecRequest(), session.cwd)
        policy = self.in_mode(policy, network_mode, rung)
        policy = self.for_rung(policy, rung, session.home)
        nothing = Invocation(program="/bin/true", argv=("true",), environment={}, cwd="/")
        return rung.plan(nothing, policy, why).tier

    async def choose(
        self, profile: Profile, request: ExecRequest
    ) -> tuple[Mechanism, NetworkMode, tuple[str, ...]]:
        """The rung, the network mode that it really enforces, and why no stronger rung."""
        minimum = request.min_tier or profile.min_tier
        if minimum is None and profile.approval == "never" and request.tier is None:
            minimum = "landlock"  # nobody is asked: the kernel must hold
        modes = [profile.network, *([profile.network_fallback] if profile.network_fallback else [])]
        return await self.ladder.choose_network(modes, tier=request.tier, min_tier=minimum)

    def in_mode(self, policy: Policy, mode: NetworkMode, rung: Mechanism) -> Policy:
        """The policy with the network mode that the rung enforces; a fallback and its cause become
        a gap."""
        return network.in_mode(policy, mode, rung.name, self.ladder.cause(rung, policy.network))

    async def unconfined(self) -> Mechanism:
        """The rung that confines nothing, for what a person has let out of the sandbox."""
        rung, _, _ = await self.ladder.choose_network((NetworkMode.HOST,), tier="containment")
        return rung

    def bounded(self, plan: LaunchPlan, policy: Policy) -> LaunchPlan:
        """The plan with its limits as this host can hold them."""
        return self.bounds.applied(plan, policy.limits, self.launcher.zygote_pid)

    def is_own_child(self, pid: int) -> bool:
        """Whether a process descends from our zygote."""
        zygote = self.launcher.zygote_pid
        while pid > 1:
            if pid == zygote:
                return True
            pid = posix.parent(pid)
        return False

    async def own_program(self, session: Session) -> OwnProgram:
        """What runs programs of our own making as this session's runs are, without a network."""
        modes = [NetworkMode.OFF, NetworkMode.HOST]
        rung, mode, why = await self.ladder.choose_network(modes, tier=None, min_tier=None)
        policy = self.in_mode(self._session_policy(session), mode, rung)
        policy = self.for_rung(policy, rung, session.home)
        return OwnProgram(self, rung, policy, why)

    async def run_plan(self, plan: LaunchPlan) -> tuple[int, bytes]:
        """Run a plan as it is, ungated and unrecorded: for probes of our own making only."""
        captured = bytearray()
        run = Supervised(
            {"output": Capture(NOWHERE, 4096, 4096)}, lambda _, chunk: captured.extend(chunk)
        )
        await run.start(self.launcher, plan, has_stdin=False)
        try:
            outcome = await run.outcome(None)
        except LaunchFailed:
            if not captured:
                raise
            return SET_UP_FAILED, bytes(captured)  # a helper's own words are the better cause
        return outcome.exit.code, bytes(captured)


class OwnProgram:
    """Runs a program of our own making in the sandbox of a session, ungated and unrecorded."""

    def __init__(
        self, engine: Engine, rung: Mechanism, policy: Policy, why: tuple[str, ...]
    ) -> None:
        self._engine = engine
        self._rung = rung
        self._policy = policy
        self._why = why

    def seen(self, path: str) -> str:
        """A path as it is seen inside."""
        private = os.path.realpath(self._policy.private_tmp)
        if not is_inside(path, [private]):
            return path
        return self._rung.temp_path(self._policy) + path[len(private) :]

    async def __call__(self, words: list[str], cwd: str) -> tuple[int, bytes, bytes]:
        """Exit code, stdout and stderr; ended after OWN_PROGRAM_S. Raises Fault, TooLarge."""
        env = {"PATH": environment.DEFAULT_PATH, "LANG": "C.UTF-8"}
        invocation = Invocation(program=words[0], argv=tuple(words), environment=env, cwd=cwd)
        plan = self._rung.plan(invocation, self._policy, self._why)
        printed = {"stdout": bytearray(), "stderr": bytearray()}
        captures = {name: Capture(NOWHERE, 4096, 4096) for name in printed}
        run = Supervised(captures, lambda stream, chunk: printed[stream].extend(chunk))
        try:
            await run.start(self._engine.launcher, plan, has_stdin=False)
            outcome = await run.outcome(OWN_PROGRAM_S)
        except LaunchFailed as failure:
            raise Fault(f"a program of ours could not be started: {failure}") from failure
        if outcome.timed_out:
            raise TooLarge(
                f"the search took more than {OWN_PROGRAM_S:g} seconds and was ended",
                hint="search a smaller folder, or a simpler pattern",
            )
        return outcome.exit.code, bytes(printed["stdout"]), bytes(printed["stderr"])
