"""The broker of approvals: what waits for a person, who is asked, and whose answer counts.

A module of its own because this is a boundary: everything that asks goes through here, and nothing
else can answer. Invariants:
- a request is asked of one place at a time, in this order: a client of its callers that declared
  `approvals`, the attached approvers, the own terminal of a command; when that place goes away the
  next one is asked, and with none left the request is refused;
- requests of the same key (`ask(key=..)`) are one question, and its answer is the answer of all;
- the first answer counts, every later one is `ApprovalUnknown`;
- `session` counts as `once` where nothing may be remembered;
- a question dies with the last caller that waits for it.

It knows no sockets and records nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from sandboxd.errors import ApprovalRequired, ApprovalTimedOut, ApprovalUnknown, Overloaded
from sandboxd.model import Answer, ApprovalAsk, ApprovalReply

WAIT_S = 600.0
"""How long a question waits for its answer when its caller does not say."""
MAX_PENDING = 512
"""Questions at one time, over all sessions; one more is overload."""

Place = Literal["client", "approver", "terminal"]


class ApprovalChannel(Protocol):
    """The part of a caller's channel that may reach a person."""

    can_approve: bool
    """Whether `approve` reaches a person at all."""
    approves_last: bool
    """It is the terminal of this one command: an attached approver is asked before it."""

    async def approve(self, ask: ApprovalAsk) -> ApprovalReply:
        """Ask; cancelled when the question has been answered elsewhere."""

    def asking(self, ask: ApprovalAsk | None, *, is_elsewhere: bool = False) -> None:
        """A person is asked from now on, through this channel or elsewhere; None: not any more."""


class Approver(Protocol):
    """Somebody who has attached to answer whatever nobody else is asked."""

    def asked(self, ask: ApprovalAsk) -> None: ...

    def resolved(self, request_id: str, answer: Answer | None) -> None:
        """It was answered, here or elsewhere; None: its caller has gone, or the time was over."""


@dataclass(eq=False)
class Pending:
    """One question and who waits for its answer."""

    ask: ApprovalAsk
    key: str | None
    is_settled: Callable[[], bool]
    answered: asyncio.Future[ApprovalReply]
    callers: list[ApprovalChannel] = field(default_factory=list)
    failed: list[ApprovalChannel] = field(default_factory=list)
    """Channels that could not ask after all."""
    place: Place | None = None
    asked_of: ApprovalChannel | None = None
    asking: asyncio.Task[None] | None = None
    asked_at: float = field(default_factory=time.monotonic)


class Approvals:
    """What waits for a person. Belongs to one event loop."""

    def __init__(self) -> None:
        self._pending: dict[str, Pending] = {}
        self._approvers: list[Approver] = []

    # -- asking

    async def ask(
        self,
        ask: ApprovalAsk,
        channel: ApprovalChannel,
        *,
        key: str | None,
        is_settled: Callable[[], bool],
        wait_s: float | None = None,
    ) -> ApprovalReply:
        """The answer of a person; `ask.request_id` is given here.

        `key` names what one answer may cover: a question of the same key joins the one that waits.
        `is_settled` is looked at again after every answer `session` of the same session: what it
        covers is not asked. Raises ApprovalRequired, ApprovalTimedOut, Overloaded.
        """
        pending = self._same(key) or self._open(ask, key, is_settled)
        pending.callers.append(channel)
        limit_s = WAIT_S if wait_s is None else wait_s
        try:
            self._route(pending)
            if not pending.answered.done():
                channel.asking(pending.ask, is_elsewhere=pending.asked_of is not channel)
            return await asyncio.wait_for(asyncio.shield(pending.answered), limit_s)
        except TimeoutError:
            raise ApprovalTimedOut(
                f"nobody has answered within {limit_s:g} s",
                hint="ask again when a person is there; `sandboxd approve` shows what waits",
            ) from None
        finally:
            if pending.place is not None:
                channel.asking(None)
            self._leave(pending, channel)

    def _same(self, key: str | None) -> Pending | None:
        waiting = (one for one in self._pending.values() if key is not None and one.key == key)
        return next((one for one in waiting if not one.answered.done()), None)

    def _open(self, ask: ApprovalAsk, key: str | None, is_settled: Callable[[], bool]) -> Pending:
        if len(self._pending) >= MAX_PENDING:
            raise Overloaded(
                f"{MAX_PENDING} questions wait for a person already",
                hint="have them answered (`sandboxd approve`) and try again",
            )
        ask = msgspec.structs.replace(ask, request_id="a-" + secrets.token_hex(4))
        answered: asyncio.Future[ApprovalReply] = asyncio.get_running_loop().create_future()
        answered.add_done_callback(lambda done: done.cancelled() or done.exception())
        pending = Pending(ask, key, is_settled, answered)
        self._pending[ask.request_id] = pending
        return pending

    def _leave(self, pending: Pending, channel: ApprovalChannel) -> None:
        pending.callers.remove(channel)
        if not pending.callers:
            self._close(pending, None)
        elif not pending.answered.done():
            self._route(pending)

    def _close(self, pending: Pending, answer: Answer | None) -> None:
        """It needs no answer any more: nobody is asked, and those who were are told."""
        if self._pending.pop(pending.ask.request_id, None) is None:
            return
        if not pending.answered.done():
            pending.answered.cancel()
        self._withdraw(pending)
        for approver in tuple(self._approvers):
            approver.resolved(pending.ask.request_id, answer)

    # -- who is asked

    def _route(self, pending: Pending) -> None:
        """Ask where it should be asked now, unless that is where it is asked already."""
        if pending.answered.done():
            return
        channel = self._channel(pending, is_last=False)
        place: Place = "client"
        if channel is None and self._approvers:
            place = "approver"
        elif channel is None:
            channel, place = self._channel(pending, is_last=True), "terminal"
            if channel is None:
                pending.answered.set_exception(_nobody(pending.ask))
                return
        if (place, channel) == (pending.place, pending.asked_of):
            return
        self._withdraw(pending)
        pending.place, pending.asked_of = place, channel
        if channel is not None:
            pending.asking = asyncio.ensure_future(self._ask(pending, channel))
        else:
            for approver in tuple(self._approvers):
                approver.asked(pending.ask)

    def _channel(self, pending: Pending, *, is_last: bool) -> ApprovalChannel | None:
        """A caller's own way to a person. One that is asked already stays."""
        able = [
            one
            for one in pending.callers
            if one.can_approve and one.approves_last is is_last and one not in pending.failed
        ]
        return pending.asked_of if pending.asked_of in able else next(iter(able), None)

    async def _ask(self, pending: Pending, channel: ApprovalChannel) -> None:
        try:
            reply = await channel.approve(pending.ask)
        except Exception:
            pending.asking = None
            pending.failed.append(channel)
            self._route(pending)
            return
        pending.asking = None
        self._answered(pending, reply)

    def _withdraw(self, pending: Pending) -> None:
        asking, pending.asking, pending.asked_of = pending.asking, None, None
        if asking is not None:
            asking.cancel()

    # -- answering

    def resolve(self, request_id: str, reply: ApprovalReply) -> ApprovalReply:
        """Answer a question; the answer as it counts. Raises ApprovalUnknown."""
        pending = self._pending.get(request_id)
        if pending is None or pending.answered.done():
            raise ApprovalUnknown(
                f"nothing waits under {request_id!r}: it was answered, its caller has gone, or it never was",
                hint="see `approval.list`, or `sandboxd approve --list`",
            )
        return self._answered(pending, reply)

    def _answered(self, pending: Pending, reply: ApprovalReply) -> ApprovalReply:
        if reply.answer == "session" and not pending.ask.may_remember:
            reply = msgspec.structs.replace(reply, answer="once")
        if not pending.answered.done():
            pending.answered.set_result(reply)
        self._close(pending, reply.answer)
        return reply

    def remembered(self, session_id: str) -> None:
        """Something was approved for a session: what that covers needs no answer any more."""
        for pending in list(self._pending.values()):
            is_open = pending.ask.session_id == session_id and not pending.answered.done()
            if is_open and pending.is_settled():
                self._answered(pending, ApprovalReply(answer="once", reason="covered"))

    # -- watching

    def attach(self, approver: Approver) -> Callable[[], None]:
        """Be asked what nobody else is asked, until what is returned is called."""
        self._approvers.append(approver)
        for pending in list(self._pending.values()):
            if pending.place == "approver":
                approver.asked(pending.ask)
        return lambda: self._detach(approver)

    def _detach(self, approver: Approver) -> None:
        self._approvers.remove(approver)
        for pending in list(self._pending.values()):
            self._route(pending)

    def pending(self) -> list[Pending]:
        """What waits, oldest first."""
        return [one for one in self._pending.values() if not one.answered.done()]


def _nobody(ask: ApprovalAsk) -> ApprovalRequired:
    verdict = ask.verdict
    is_grave = not verdict.parsed or verdict.class_.value == "destructive"
    word = "all" if is_grave else "mutating"
    return ApprovalRequired(
        f"this needs a person's word and nobody can be asked: {'; '.join(ask.reasons)}",
        hint="have a person answer (`sandboxd approve` in a terminal) or run it, or let the caller "
        f"take responsibility with --approve {word}",
        rule=verdict.reasons[0].rule if verdict.reasons else None,
        data={"verdict": msgspec.to_builtins(verdict)},
    )
