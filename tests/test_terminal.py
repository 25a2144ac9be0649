"""Terminals in the engine: what ends them when nobody does, what is recorded, how many there may be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sandboxd import terminal as terminal_module
from sandboxd import terminals as terminals_module
from sandboxd.engine import Engine
from sandboxd.errors import ApprovalRequired, Overloaded, ProgramMissing
from sandboxd.pipeline import open_terminal, type_text
from sandboxd.sessions import Session
from sandboxd.spawn.waiting import State
from tests.confined import Ground, make_ground
from tests.guarded import Channel, Gate


@pytest.fixture
def gate() -> Iterator[Gate]:
    def made(ground: Ground) -> Gate:
        return Gate(ground, "namespaces")

    for ground in make_ground():
        yield made(ground)


def test_an_unused_terminal_ends_even_when_somebody_forgot_to_detach(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_module, "IDLE_S", 0.5)

    async def work(engine: Engine, session: Session) -> None:
        cat = await open_terminal(engine, session, gate.request(["cat"], "all"), Channel())
        cat.attach(lambda chunk: None)
        await asyncio.wait_for(cat.gone(), 20)
        assert cat.result is not None
        assert cat.result.exit_code == 137

    gate.engine(work)


def test_a_session_has_so_many_terminals_at_most(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals_module, "MAX_ALIVE", 2)

    async def work(engine: Engine, session: Session) -> None:
        request = gate.request(["cat"], "all")
        for _ in range(2):
            await open_terminal(engine, session, request, Channel())
        with pytest.raises(Overloaded, match="2 terminals"):
            await open_terminal(engine, session, request, Channel())
        await engine.terminals.of(session.id)[0].end()
        await open_terminal(engine, session, request, Channel())

    gate.engine(work)


def test_what_cannot_start_leaves_no_terminal(gate: Gate) -> None:
    async def work(engine: Engine, session: Session) -> None:
        with pytest.raises(ProgramMissing):
            await open_terminal(engine, session, gate.request(["no-such"], "all"), Channel())
        with pytest.raises(ApprovalRequired):
            await open_terminal(engine, session, gate.request("touch x", "none"), Channel())
        assert engine.terminals.of(session.id) == []

    gate.engine(work)


def test_closing_a_session_ends_its_terminals(gate: Gate) -> None:
    async def work(engine: Engine, session: Session) -> None:
        cat = await open_terminal(engine, session, gate.request(["cat"], "all"), Channel())
        engine.close_session(session.id)
        await asyncio.wait_for(cat.gone(), 20)

    gate.engine(work)


def test_lines_and_their_decisions_stand_in_the_log_and_passwords_do_not(gate: Gate) -> None:
    async def work(engine: Engine, session: Session) -> list[str]:
        shell = ["bash", "--noprofile", "--norc"]
        request = gate.request(shell, "all")
        terminal = await open_terminal(engine, session, request, Channel())

        async def until(state: State, *, is_password: bool = False) -> None:
            while True:
                sight = await terminal.look()
                if sight.state is state and sight.is_password is is_password:
                    return
                await asyncio.sleep(0.02)

        async def type_in(text: str) -> None:
            await type_text(engine, session, terminal, text, Channel(), "all")

        await asyncio.wait_for(until(State.AT_PROMPT), 20)
        await type_in("python3 -c 'import getpass; getpass.getpass()'\n")
        await asyncio.wait_for(until(State.WAITING_FOR_INPUT, is_password=True), 20)
        await type_in("hunter2\n")
        await asyncio.wait_for(until(State.AT_PROMPT), 20)
        with pytest.raises(ApprovalRequired):
            await type_text(engine, session, terminal, "touch made\n", Channel(), "none")
        engine.log.flush()
        return [str(stored.event) for stored in engine.log.query(run_id=terminal.id)]

    events = gate.engine(work)
    text = "\n".join(events)
    assert "getpass.getpass" in text
    assert "touch made" in text
    assert "ApprovalRequired" in text or "APPROVAL_REQUIRED" in text
    assert "hunter2" not in text
