"""One handler per row of the method table, for one client.

A module of its own because this is where the protocol meets the pipeline, and nothing else:
no sockets, no JSON. Handlers take the row's parameters and return the row's result; a no is a
raised `Refusal`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING

import msgspec

from sandboxd import explaining
from sandboxd.assess.judging import canonical_paths
from sandboxd.assess.replaying import Replayed
from sandboxd.daemon.approving import ApprovalHandlers
from sandboxd.daemon.calls import Call, Caller
from sandboxd.daemon.changed import changes_of
from sandboxd.daemon.files import FileHandlers
from sandboxd.daemon.host import SERVER, Host
from sandboxd.daemon.kept_output import read_part
from sandboxd.daemon.recorded import page_of, replayed, statistics_of
from sandboxd.daemon.running import ClientRun, signal_number
from sandboxd.daemon.terminals import TerminalHandlers
from sandboxd.errors import InvalidRequest, RunUnknown
from sandboxd.events.answers import EventPage, Verification
from sandboxd.events.redaction import NOTHING_KNOWN
from sandboxd.events.statistics import Statistics
from sandboxd.model import ExecRequest, Result, Verdict
from sandboxd.pipeline import assess_call
from sandboxd.proposals import worst_risk
from sandboxd.protocol import event_messages as em
from sandboxd.protocol import messages as m
from sandboxd.protocol.wire import RequestId
from sandboxd.request import check_size

if TYPE_CHECKING:
    from sandboxd.sessions import Session


class Service(ApprovalHandlers, TerminalHandlers, FileHandlers):
    """The handlers of one connection and what they remember of it."""

    def __init__(self, host: Host, caller: Caller) -> None:
        super().__init__(host, caller)
        self._leave: Callable[[], None] = lambda: None
        self._runs: dict[RequestId, ClientRun] = {}

    def ended(self) -> None:
        """The client is gone: a session that nobody can name again goes with it."""
        if self._opened is not None:
            self._leave()
            self._host.engine.release_session(self._opened)

    def _end_runs(self) -> None:
        """The session was closed by another client."""
        for run in self._runs.values():
            run.cancel()

    # ----------------------------------------------------------------- initialize

    async def initialize(self, call: Call, params: m.Initialize) -> m.Initialized:
        # No await before the session is open: a call sent right behind this one finds it.
        if self._opened is not None:
            raise InvalidRequest(
                "this connection is initialized already", hint="open another connection"
            )
        _check_version(params.protocol_version)
        session = self._opened = self._open(params)
        self._leave = session.shared.when_closed(self._end_runs)
        self._capabilities = params.capabilities
        return m.Initialized(
            protocol_version=m.PROTOCOL_VERSION,
            server=SERVER,
            session_id=session.id,
            tier=await self._host.engine.chosen_tier(session),
            profile=session.profile,
            workspace=session.workspace,
        )

    def _open(self, params: m.Initialize) -> Session:
        cwd = params.cwd or params.workspace
        for name, path in (("workspace", params.workspace), ("cwd", cwd)):
            if path is not None and not os.path.isabs(path):
                raise InvalidRequest(
                    f"wrong parameters: `{name}` is not an absolute path: {path!r}",
                    hint="name the folder from the root",
                    data={"parameter": name},
                )
        if cwd is None:
            raise InvalidRequest(
                "wrong parameters: neither `workspace` nor `cwd` was named",
                hint="name the folder in which commands may write",
                data={"parameter": "workspace"},
            )
        return self._host.engine.open_session(
            workspace=params.workspace,
            cwd=cwd,
            session_id=params.session_id,
            profile=params.profile,
            environment=params.env,
        )

    # ----------------------------------------------------------------- classify

    async def classify(self, call: Call, params: m.Classify) -> Verdict:
        session = self._session()
        _one_of(params.command, params.argv)
        return await self._host.engine.classify(
            session,
            command=params.command,
            argv=params.argv,
            cwd=params.cwd,
            env=params.env,
            shell=params.shell,
        )

    # ----------------------------------------------------------------- commands

    async def command_exec(self, call: Call, params: ExecRequest) -> Result:
        session = self._session()
        _one_of(params.command, params.argv)
        self._host.begin_run()
        try:
            return await self._run(session, call, params)
        finally:
            self._host.end_run()

    async def _run(self, session: Session, call: Call, params: ExecRequest) -> Result:
        self._check_run_id(params.run_id)
        run = ClientRun(self._caller, call, params, self._capabilities)
        self._runs[call.id] = run
        try:
            return await self._host.run(self._host.engine, session, params, run)
        finally:
            del self._runs[call.id]
            run.ended()

    def _check_run_id(self, run_id: str | None) -> None:
        if run_id is not None and any(run.run_id == run_id for run in self._runs.values()):
            raise InvalidRequest(
                f"wrong parameters: `run_id` {run_id!r} is running already",
                hint="choose another, or leave it out",
                data={"parameter": "run_id"},
            )

    async def command_write(self, call: Call, params: m.CommandWrite) -> m.Done:
        await self._find_run(params.run_id).write(params)
        return m.Done()

    async def command_terminate(self, call: Call, params: m.CommandTerminate) -> m.Done:
        kept = self._host.engine.background.get(self._session().id, params.run_id)
        if kept is not None and kept.run is not None:
            number = signal_number(params.signal)
            kept.end() if number in (SIGTERM, SIGKILL) else kept.run.signal(number)
        else:
            await self._find_run(params.run_id).terminate(params.signal)
        return m.Done()

    async def command_resize(self, call: Call, params: m.CommandResize) -> m.Done:
        check_size(params.cols, params.rows)
        await self._find_run(params.run_id).resize(params.cols, params.rows)
        return m.Done()

    def _find_run(self, run_id: str) -> ClientRun:
        for run in self._runs.values():
            if run.run_id == run_id:
                return run
        raise RunUnknown(
            f"no command {run_id!r} is running on this connection",
            hint="it may have ended; see the answer to its command.exec call",
        )

    async def cancel(self, call: Call | None, params: m.Cancel) -> None:
        run = self._runs.get(params.id)
        if run is not None:
            run.cancel()
        else:
            self._caller.cancel_call(params.id)

    # ----------------------------------------------------------------- listings

    async def tier_list(self, call: Call, params: m.Empty) -> m.TierListing:
        found = await self._host.engine.tiers()
        return m.TierListing(
            tiers=tuple(
                m.TierStatus(
                    tier=tier,
                    available=probe.available,
                    seconds=probe.seconds,
                    cause=probe.cause,
                    remedy=probe.remedy,
                )
                for tier, probe in found
            )
        )

    async def profile_show(self, call: Call, params: m.ProfileShow) -> m.ProfileShown:
        return await explaining.show(self._host.engine, self._session(), params)

    async def profile_explain(self, call: Call, params: m.ProfileExplain) -> m.Explanation:
        return await explaining.explain(self._host.engine, self._session(), params)

    async def session_list(self, call: Call, params: m.Empty) -> m.SessionListing:
        return m.SessionListing(
            sessions=tuple(
                m.SessionEntry(
                    session_id=session.id,
                    workspace=session.workspace,
                    profile=session.profile,
                    cwd=session.cwd,
                    clients=session.shared.clients,
                    terminals=len(self._host.engine.terminals.of(session.id)),
                    idle_s=round(session.shared.idle_s, 3),
                    lasting=session.is_lasting,
                )
                for session in self._host.engine.sessions()
            )
        )

    async def session_close(self, call: Call, params: m.SessionClose) -> m.Done:
        self._host.engine.close_session(params.session_id)
        return m.Done()

    async def output_read(self, call: Call, params: m.OutputRead) -> m.OutputPart:
        folder = self._session().output_folder
        return await asyncio.to_thread(read_part, folder, params)

    # ----------------------------------------------------------------- assessments

    async def intent_assess(self, call: Call, params: em.IntentAssess) -> em.IntentAssessment:
        given = {name: msgspec.json.decode(value) for name, value in params.parameters.items()}
        judged, found = await assess_call(
            self._host.engine, self._session(), params.tool, given, params.roles, params.cwd
        )
        return em.IntentAssessment(
            decision=judged.decision.action,
            class_=judged.proposed.verdict.class_,
            risk=worst_risk(judged.violations),
            reasons=judged.decision.reasons,
            violations=judged.violations,
            paths=canonical_paths(judged, found),
            assessment_id=judged.proposed.run_id,
        )

    # ----------------------------------------------------------------- events

    async def event_query(self, call: Call, params: em.EventQuery) -> EventPage:
        return await asyncio.to_thread(page_of, self._host.engine.log, params)

    async def event_verify(self, call: Call, params: m.Empty) -> Verification:
        return await asyncio.to_thread(self._host.engine.log.verification)

    async def event_changes(self, call: Call, params: em.EventChanges) -> em.ChangeListing:
        redactor = self._opened.redactor if self._opened is not None else NOTHING_KNOWN
        undo = self._host.engine.filing.undo
        return await asyncio.to_thread(
            changes_of, undo, params.workspace, params.session_id, redactor
        )

    async def event_replay(self, call: Call, params: em.EventReplay) -> Replayed:
        return await asyncio.to_thread(replayed, self._host.engine.log, params)

    async def stats(self, call: Call, params: em.StatsQuery) -> Statistics:
        return await asyncio.to_thread(statistics_of, self._host.engine.log, params)

    async def status(self, call: Call, params: m.Empty) -> m.Status:
        return self._host.status()


def _check_version(version: int) -> None:
    if version != m.PROTOCOL_VERSION:
        raise InvalidRequest(
            f"wrong parameters: `protocol_version` {version} is not spoken here; "
            f"{m.PROTOCOL_VERSION} is",
            hint="use a client of the same release",
            data={"parameter": "protocol_version", "supported": [m.PROTOCOL_VERSION]},
        )


def _one_of(command: str | None, argv: tuple[str, ...] | None) -> None:
    """Exactly one of shell text and argument vector, and not an empty one."""
    if (command is None) == (argv is None):
        told = "neither `command` nor `argv`" if command is None else "both `command` and `argv`"
        raise InvalidRequest(
            f"wrong parameters: {told}",
            hint="send shell text in `command`, or an argument vector in `argv`",
            data={"parameter": "command"},
        )
    if argv is not None and not argv:
        raise InvalidRequest(
            "wrong parameters: `argv` is empty",
            hint="its first element is the program",
            data={"parameter": "argv"},
        )
