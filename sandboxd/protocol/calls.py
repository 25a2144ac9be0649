"""The methods of both Python clients, written once over `call` (see `blocking`).

A module of its own because the clients differ only in how `call` waits.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TypeVar, Unpack

from msgspec import Struct, structs

from sandboxd.model import Answer, ExecRequest, Result, Verdict
from sandboxd.proposals import Role
from sandboxd.protocol import event_messages as em
from sandboxd.protocol import messages as m
from sandboxd.protocol.asking import (
    ExecOptions,
    OnOutput,
    assess_params,
    classify_params,
    exec_request,
)

T = TypeVar("T", bound=Struct)


class AsyncCalls:
    """Each method raises the refusal that the server answers with."""

    session: m.Initialized | None = None
    """What the server said to `initialize`."""

    async def call(
        self, method: str, params: Struct, result: type[T], on_output: OnOutput | None = None
    ) -> T:
        """One call of any row of the table (docs/protocol.md)."""
        raise NotImplementedError

    # -- commands

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        on_output: OnOutput | None = None,
        **options: Unpack[ExecOptions],
    ) -> Result:
        """Run text by bash, or an argument vector, to its end; `on_output` receives rendered lines as
        they come. A KeyboardInterrupt, or cancelling the task, ends the run first."""
        return await self.run(exec_request(command, **options), on_output)

    async def run(self, request: ExecRequest, on_output: OnOutput | None = None) -> Result:
        """Like `exec`, with everything a request can say."""
        if on_output is not None and request.stream == "none":
            request = structs.replace(request, stream="lines")
        return await self.call("command.exec", request, Result, on_output)

    async def classify(
        self, command: str | Sequence[str], *, cwd: str | None = None, shell: str = "bash"
    ) -> Verdict:
        """What a command would do; runs nothing."""
        return await self.call("classify", classify_params(command, cwd=cwd, shell=shell), Verdict)

    async def assess(
        self,
        tool: str,
        parameters: Mapping[str, object],
        *,
        roles: Mapping[str, Role] | None = None,
        cwd: str | None = None,
    ) -> em.IntentAssessment:
        """Judge a call of the caller's own tool before it runs; touch the `paths` that come back."""
        asked = assess_params(tool, parameters, roles=roles, cwd=cwd)
        return await self.call("intent.assess", asked, em.IntentAssessment)

    async def write(self, run_id: str, data: str | bytes, *, eof: bool = False) -> None:
        """Input for a run that was started with `stdin_open`; returns when it has been taken."""
        if isinstance(data, str):
            params = m.CommandWrite(run_id=run_id, text=data, eof=eof)
        else:
            encoded = base64.b64encode(data).decode("ascii")
            params = m.CommandWrite(run_id=run_id, bytes_b64=encoded, eof=eof)
        await self.call("command.write", params, m.Done)

    async def terminate(self, run_id: str, signal: str = "TERM") -> None:
        """Send a signal to a run of this client."""
        params = m.CommandTerminate(run_id=run_id, signal=signal)
        await self.call("command.terminate", params, m.Done)

    async def read_output(
        self, output_id: str, *, from_line: int = 1, count: int | None = None
    ) -> str:
        """What a result left out, by line (from 1); as much as one reply carries without `count`."""
        params = m.OutputRead(output_id=output_id, from_line=from_line, count=count)
        return (await self.call("output.read", params, m.OutputPart)).text or ""

    # -- sessions and approvals

    async def sessions(self) -> tuple[m.SessionEntry, ...]:
        return (await self.call("session.list", m.Empty(), m.SessionListing)).sessions

    async def close_session(self, session_id: str) -> None:
        """Forget a session: its approvals, kept output and private temporary folder."""
        await self.call("session.close", m.SessionClose(session_id=session_id), m.Done)

    async def approvals(self) -> tuple[m.ApprovalEntry, ...]:
        """What waits for a person, over all sessions."""
        return (await self.call("approval.list", m.Empty(), m.ApprovalListing)).requests

    async def answer(self, request_id: str, answer: Answer, reason: str | None = None) -> Answer:
        """Answer for a person; the answer as it counts. Raises ApprovalUnknown when it is too late."""
        params = m.ApprovalResolve(request_id=request_id, answer=answer, reason=reason)
        counted = (await self.call("approval.resolve", params, m.ApprovalResolved)).answer
        return counted or answer

    # -- the server

    async def tiers(self) -> tuple[m.TierStatus, ...]:
        return (await self.call("tier.list", m.Empty(), m.TierListing)).tiers

    async def show_profile(
        self, profile: str | None = None, tier: str | None = None
    ) -> m.ProfileShown:
        """The merged profile; with a tier its launch plan."""
        params = m.ProfileShow(profile=profile, tier=tier)
        return await self.call("profile.show", params, m.ProfileShown)

    async def explain(self, params: m.ProfileExplain) -> m.Explanation:
        """What would happen to a path, a host or a command; runs nothing."""
        return await self.call("profile.explain", params, m.Explanation)

    async def status(self) -> m.Status:
        return await self.call("status", m.Empty(), m.Status)
