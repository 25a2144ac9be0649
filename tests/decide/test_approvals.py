"""The broker: who is asked, whose answer counts, and what becomes of a question whose caller goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sandboxd.decide.approvals import Approvals
from sandboxd.errors import ApprovalRequired, ApprovalTimedOut, ApprovalUnknown, Overloaded
from sandboxd.model import Answer, ApprovalAsk, ApprovalReply, CommandClass, Tier, Verdict

TIER = Tier(name="namespaces", kernel=True, enforces=(), gaps=())


def asking(command: str = "make", *, session: str = "s", remember: bool = True) -> ApprovalAsk:
    kind = CommandClass.MUTATING if remember else CommandClass.DESTRUCTIVE
    return ApprovalAsk(
        request_id="",
        command=command,
        verdict=Verdict(class_=kind, parsed=True, cacheable=remember),
        tier=TIER,
        may_remember=remember,
        session_id=session,
        reasons=("it changes something",),
    )


class Person:
    """A caller's channel; its person answers when told to."""

    def __init__(self, *, able: bool = True, last: bool = False) -> None:
        self.can_approve = able
        self.approves_last = last
        self.asked: list[str] = []
        self.withdrawn = 0
        self.told: list[bool] = []
        self._answer: asyncio.Future[ApprovalReply] = asyncio.get_running_loop().create_future()

    async def approve(self, ask: ApprovalAsk) -> ApprovalReply:
        self.asked.append(ask.request_id)
        try:
            return await asyncio.shield(self._answer)
        except asyncio.CancelledError:
            self.withdrawn += 1
            raise

    def asking(self, ask: ApprovalAsk | None, *, is_elsewhere: bool = False) -> None:
        self.told.append(ask is not None)

    def say(self, answer: Answer) -> None:
        self._answer.set_result(ApprovalReply(answer=answer))

    def fail(self) -> None:
        self._answer.set_exception(ConnectionError("gone"))


class Desk:
    """An attached approver."""

    def __init__(self) -> None:
        self.asked_of: list[str] = []
        self.resolutions: list[tuple[str, Answer | None]] = []

    def asked(self, ask: ApprovalAsk) -> None:
        self.asked_of.append(ask.request_id)

    def resolved(self, request_id: str, answer: Answer | None) -> None:
        self.resolutions.append((request_id, answer))


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 20))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


def ask(
    broker: Approvals,
    person: Person,
    what: ApprovalAsk | None = None,
    *,
    key: str | None = None,
    settled: Callable[[], bool] = lambda: False,
    wait_s: float | None = None,
) -> asyncio.Task[ApprovalReply]:
    return asyncio.ensure_future(
        broker.ask(what or asking(), person, key=key, is_settled=settled, wait_s=wait_s)
    )


@in_loop
async def test_nobody_to_ask_is_refused_at_once_and_leaves_nothing() -> None:
    broker, person = Approvals(), Person(able=False)
    with pytest.raises(ApprovalRequired, match="it changes something"):
        await ask(broker, person)
    assert (broker.pending(), person.told) == ([], [])


@in_loop
async def test_the_client_is_asked_before_an_approver_and_the_own_terminal_after_it() -> None:
    broker, desk = Approvals(), Desk()
    broker.attach(desk)
    client, terminal = Person(), Person(last=True)
    first, second = ask(broker, client), ask(broker, terminal)
    await settle()
    assert [one.place for one in broker.pending()] == ["client", "approver"]
    assert (len(client.asked), len(terminal.asked), len(desk.asked_of)) == (1, 0, 1)
    client.say("once")
    broker.resolve(desk.asked_of[0], ApprovalReply(answer="deny", reason="no"))
    assert [(await one).answer for one in (first, second)] == ["once", "deny"]


@in_loop
async def test_a_killed_approver_hands_what_waits_to_the_own_terminal_or_to_nobody() -> None:
    broker, desk = Approvals(), Desk()
    detach = broker.attach(desk)
    terminal, nobody = Person(last=True), Person(able=False)
    kept, lost = ask(broker, terminal), ask(broker, nobody)
    await settle()
    assert len(desk.asked_of) == 2
    detach()
    await settle()
    with pytest.raises(ApprovalRequired):
        await lost
    terminal.say("once")
    assert (await kept).answer == "once"


@in_loop
async def test_questions_of_one_key_are_one_and_its_answer_is_everybodys() -> None:
    broker, first, second, other = Approvals(), Person(), Person(), Person()
    calls = [ask(broker, first, key="k"), ask(broker, second, key="k"), ask(broker, other, key="j")]
    await settle()
    assert [len(one.callers) for one in broker.pending()] == [2, 1]
    assert (len(first.asked), len(second.asked), len(other.asked)) == (1, 0, 1)
    first.say("deny")
    assert [(await call).answer for call in calls[:2]] == ["deny", "deny"]
    other.say("once")
    await calls[2]


@in_loop
async def test_a_question_moves_to_the_next_caller_when_the_one_that_was_asked_goes() -> None:
    broker, first, second = Approvals(), Person(), Person()
    gone, stays = ask(broker, first, key="k"), ask(broker, second, key="k")
    await settle()
    gone.cancel()
    await settle()
    assert (first.withdrawn, len(second.asked)) == (1, 1)
    second.say("once")
    assert (await stays).answer == "once"


@in_loop
async def test_a_question_dies_with_its_last_caller_and_approvers_are_told() -> None:
    broker, desk = Approvals(), Desk()
    broker.attach(desk)
    call = ask(broker, Person(able=False))
    await settle()
    call.cancel()
    await settle()
    assert broker.pending() == []
    assert desk.resolutions == [(desk.asked_of[0], None)]
    with pytest.raises(ApprovalUnknown):
        broker.resolve(desk.asked_of[0], ApprovalReply(answer="once"))


@in_loop
async def test_the_first_of_two_answers_counts() -> None:
    broker, desk, client = Approvals(), Desk(), Person()
    broker.attach(desk)
    call = ask(broker, client)
    await settle()
    request_id = broker.pending()[0].ask.request_id
    broker.resolve(request_id, ApprovalReply(answer="deny"))
    with pytest.raises(ApprovalUnknown):
        broker.resolve(request_id, ApprovalReply(answer="once"))
    client.say("once")
    assert (await call).answer == "deny"
    assert client.withdrawn == 1


@in_loop
async def test_session_counts_as_once_where_nothing_may_be_remembered() -> None:
    broker, client = Approvals(), Person()
    call = ask(broker, client, asking(remember=False))
    await settle()
    client.say("session")
    assert (await call).answer == "once"


@in_loop
async def test_what_an_answer_for_the_session_covers_is_not_asked_of_that_session() -> None:
    broker, desk, approved = Approvals(), Desk(), set[str]()
    broker.attach(desk)
    same = ask(broker, Person(able=False), settled=lambda: "host" in approved)
    other = ask(broker, Person(able=False), asking(session="t"), settled=lambda: "host" in approved)
    await settle()
    approved.add("host")
    broker.remembered("s")
    assert (await same).answer == "once"
    assert [one.ask.session_id for one in broker.pending()] == ["t"]
    other.cancel()


@in_loop
async def test_nobody_answers_in_time() -> None:
    broker, client = Approvals(), Person()
    with pytest.raises(ApprovalTimedOut, match=r"within 0\.05 s"):
        await ask(broker, client, wait_s=0.05)
    await settle()
    assert (broker.pending(), client.withdrawn) == ([], 1)


@in_loop
async def test_a_client_that_fails_to_ask_is_passed_over() -> None:
    broker, client = Approvals(), Person()
    call = ask(broker, client)
    await settle()
    client.fail()
    with pytest.raises(ApprovalRequired):
        await call


@in_loop
async def test_questions_are_bounded() -> None:
    broker = Approvals()
    broker.attach(Desk())
    calls = [ask(broker, Person(able=False)) for _ in range(512)]
    await settle()
    with pytest.raises(Overloaded):
        await ask(broker, Person(able=False))
    for call in calls:
        call.cancel()
    await settle()
    assert broker.pending() == []
