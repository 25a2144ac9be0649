"""Handlers of `approval.*`: what waits for a person, over all sessions, and their answers.

They need no session: whoever may connect at all (see `peers`) is a person's own program, and no
process inside a sandbox can connect.
"""

from __future__ import annotations

import asyncio
import time

from sandboxd.daemon.calls import Call, Caller
from sandboxd.daemon.handlers import Handlers
from sandboxd.model import Answer, ApprovalAsk, ApprovalReply
from sandboxd.protocol import messages as m


class Attached:
    """A client that has attached as an approver."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def asked(self, ask: ApprovalAsk) -> None:
        self._caller.notify("approval.pending", ask)

    def resolved(self, request_id: str, answer: Answer | None) -> None:
        told = m.ApprovalResolved(request_id=request_id, answer=answer)
        self._caller.notify("approval.resolved", told)


class ApprovalHandlers(Handlers):
    """The part of a connection's `Service` that speaks about approvals."""

    async def approval_list(self, call: Call, params: m.Empty) -> m.ApprovalListing:
        now = time.monotonic()
        return m.ApprovalListing(
            requests=tuple(
                m.ApprovalEntry(
                    ask=one.ask,
                    asked_of=one.place or "approver",
                    waits_s=round(now - one.asked_at, 3),
                    callers=len(one.callers),
                )
                for one in self._host.engine.approvals.pending()
            )
        )

    async def approval_resolve(self, call: Call, params: m.ApprovalResolve) -> m.ApprovalResolved:
        reply = ApprovalReply(answer=params.answer, reason=params.reason)
        counted = self._host.engine.approvals.resolve(params.request_id, reply)
        return m.ApprovalResolved(request_id=params.request_id, answer=counted.answer)

    async def approval_attach(self, call: Call, params: m.Empty) -> m.Done:
        detach = self._host.engine.approvals.attach(Attached(self._caller))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            detach()
        return m.Done()
