"""The same rules behind every door: commands, terminals, and calls of other people's tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandboxd.assess.judging import canonical_paths
from sandboxd.daemon.changed import changes_of
from sandboxd.daemon.recorded import replayed
from sandboxd.engine import Engine
from sandboxd.errors import ApprovalRequired, ProfileBroken, Refusal, RuleViolated
from sandboxd.events.kinds import Assessed, Finished, GroundsLaid, Launched, Observed
from sandboxd.files.changes import Operation
from sandboxd.files.matching import Edit
from sandboxd.files.operations import Copy, EditFile, Patch, Write
from sandboxd.model import Action, Approve, EgressRules, NetworkMode
from sandboxd.pipeline import assess_call, change_file, open_terminal, run_command, type_text
from sandboxd.profiles import Profile
from sandboxd.protocol.event_messages import EventReplay
from sandboxd.protocol.methods import METHODS, Direction
from sandboxd.sessions import Session
from sandboxd.spawn.waiting import State
from tests.confined import Ground, make_ground, write
from tests.guarded import Channel, Gate


@pytest.fixture
def gate() -> Iterator[Gate]:
    def made(ground: Ground) -> Gate:
        return Gate(ground, "namespaces")

    for ground in make_ground():
        yield made(ground)


def with_rules(session: Session, **rules: dict[str, Any]) -> None:
    """The session under its profile with these options of rules."""
    assert isinstance(session.rules, Profile)
    session.rules = msgspec.structs.replace(session.rules, rules=rules)


# ------------------------------------------------------------------ no way past the gate

GATED = {
    "command.exec", "terminal.start", "terminal.write",
    "fs.write", "fs.edit", "fs.copy", "fs.patch", "fs.undo",
    "intent.assess",
}  # fmt: skip
"""Methods by which something runs or changes, or is judged for somebody else who does it."""
READING = {"fs.read", "fs.list", "fs.glob", "fs.grep", "fs.changes"}
"""They read files: the canonical path rule contains them, and `ask-all` asks."""
HARMLESS = {
    "initialize", "classify", "cancel", "command.write", "command.terminate", "command.resize",
    "terminal.read", "terminal.resize", "terminal.kill", "terminal.list", "terminal.attach",
    "approval.list", "approval.resolve", "approval.attach", "profile.show", "profile.explain",
    "tier.list", "tier.verify", "session.list", "session.show", "session.close", "output.read",
    "status", "event.query", "event.verify", "event.replay", "event.changes", "stats",
}  # fmt: skip
"""They tell, end, or feed what was judged when it began; none of them starts or changes anything."""


def test_every_method_of_the_table_is_judged_or_known_to_be_harmless() -> None:
    """A new method must be put into one of the sets; what changes files or runs goes into GATED."""
    sent_by_clients = {
        method.name
        for method in METHODS
        if method.direction in (Direction.REQUEST, Direction.NOTICE)
    }
    assert sent_by_clients - GATED - READING - HARMLESS == set()
    assert sent_by_clients >= GATED | READING


# Each of these would do something that a rule of the session forbids; none may.
DOORS: dict[str, Callable[[Engine, Session, Gate], Awaitable[object]]] = {
    "command.exec": lambda engine, session, gate: run_command(
        engine, session, gate.request("touch forbidden", "all"), Channel()
    ),
    "terminal.start": lambda engine, session, gate: open_terminal(
        engine, session, gate.request("touch forbidden", "all"), Channel()
    ),
    "fs.write": lambda engine, session, gate: change_file(
        engine, session, Write("forbidden", "x"), Channel(), approve="all"
    ),
    "fs.edit": lambda engine, session, gate: change_file(
        engine, session, EditFile("forbidden", (Edit("", "x"),)), Channel(), approve="all"
    ),
    "fs.copy": lambda engine, session, gate: change_file(
        engine, session, Copy("source", "forbidden"), Channel(), approve="all"
    ),
    "fs.patch": lambda engine, session, gate: change_file(
        engine, session, Patch(ADDING), Channel(), approve="all"
    ),
}
ADDING = "*** Begin Patch\n*** Add File: forbidden\n+x\n*** End Patch\n"


def test_the_doors_tried_here_are_those_of_the_table() -> None:
    tried_elsewhere = {"terminal.write", "intent.assess", "fs.undo"}
    assert set(DOORS) | tried_elsewhere == GATED


@pytest.mark.parametrize("door", DOORS)
def test_no_door_leads_past_a_rule(gate: Gate, door: str) -> None:
    write(gate.ground.workspace + "/source", "x")

    async def work(engine: Engine, session: Session) -> list[Any]:
        with_rules(session, WriteScope={"only": ("src/**",)})
        with pytest.raises(RuleViolated) as caught:
            await DOORS[door](engine, session, gate)
        assert caught.value.rule == "WriteScope"
        return [row.event for row in engine.log.query(session_id=session.id)]

    events = gate.engine(work)
    assert not os.path.exists(gate.ground.workspace + "/forbidden")
    (assessed,) = [event for event in events if isinstance(event, Assessed)]
    assert assessed.decision.action is Action.REFUSE


def test_file_operations_are_recorded_and_replayed(gate: Gate) -> None:
    """Also where a protected name makes it a question, and where a repeated refusal ends it."""

    async def work(engine: Engine, session: Session) -> None:
        async def change(operation: Operation, approve: Approve) -> str:
            try:
                await change_file(engine, session, operation, Channel(), approve=approve)
            except Refusal as refusal:
                return refusal.code
            return "done"

        assert await change(Write("a", "one"), "all") == "done"
        assert await change(Write("src/b", "two"), "mutating") == "done"
        assert await change(Write("../outside/file", "x"), "all") == "OUTSIDE_ROOT"
        codes = [await change(Write(".envrc", "x"), "none") for _ in range(4)]
        assert codes == ["APPROVAL_REQUIRED"] * 3 + ["RULE_VIOLATED"]
        assert await change(Write("c", "x"), "none") == "APPROVAL_REQUIRED"
        found = replayed(engine.log, EventReplay(session_id=session.id))
        assert (found.calls, found.same, found.differences) == (7, 7, ())
        listing = changes_of(engine.filing.undo, session.workspace, session.id, session.redactor)
        diffs = {os.path.basename(one.path): one.diff for one in listing.changes}
        assert set(diffs) == {"a", "b"}
        assert "+one" in (diffs["a"] or "")

    gate.engine(work)


# ------------------------------------------------------------------ commands


def test_command_that_names_a_place_outside_is_asked_about_and_recorded(gate: Gate) -> None:
    async def work(engine: Engine, session: Session) -> list[Any]:
        request = gate.request(f"echo x > {gate.ground.outside}/new", "none")
        with pytest.raises(ApprovalRequired, match="outside what may be written"):
            await run_command(engine, session, request, Channel())
        return [row.event for row in engine.log.query(session_id=session.id)]

    events = gate.engine(work)
    (assessed,) = [event for event in events if isinstance(event, Assessed)]
    assert [one.rule for one in assessed.violations] == ["PathContainment"]
    assert assessed.decision.action is Action.ASK
    order = [type(event) for event in events]
    assert order.index(GroundsLaid) < order.index(Observed) < order.index(Assessed)
    assert Launched not in order


@pytest.mark.parametrize(
    "command",
    ["perl -e 1", "bash -c 'perl -e 1'", "env perl -e 1", "find . -exec perl -e 1 ';'", "./tool", "echo $(perl -e 1)"],
)  # fmt: skip
def test_interpreter_that_the_profile_denies_runs_by_no_name(gate: Gate, command: str) -> None:
    write(gate.ground.workspace + "/tool", "#!/usr/bin/env perl\n")
    os.chmod(gate.ground.workspace + "/tool", 0o755)

    async def work(engine: Engine, session: Session) -> None:
        with_rules(session, ExecInterpreter={"deny": ("perl",)})
        with pytest.raises(RuleViolated, match=r"perl|cannot be read") as caught:
            await run_command(engine, session, gate.request(command, "all"), Channel())
        assert caught.value.rule == "ExecInterpreter"
        assert Launched not in [type(row.event) for row in engine.log.query(session_id=session.id)]
        result = await run_command(engine, session, gate.request("echo perl", "all"), Channel())
        assert result.exit_code == 0

    gate.engine(work)


def test_write_scope_holds_for_commands(gate: Gate) -> None:
    async def work(engine: Engine, session: Session) -> None:
        with_rules(session, WriteScope={"only": ("src/**",)})
        with pytest.raises(RuleViolated, match="outside the part that may be changed"):
            await run_command(engine, session, gate.request("touch other", "all"), Channel())
        for command in ("mkdir src", "touch src/new", "touch /tmp/free"):
            result = await run_command(engine, session, gate.request(command, "all"), Channel())
            assert result.exit_code == 0, command

    with_src = gate.ground.workspace
    gate.engine(work)
    assert os.listdir(with_src + "/src") == ["new"]


def test_same_refused_command_is_stopped_and_another_goes_on(gate: Gate) -> None:
    async def work(engine: Engine, session: Session) -> None:
        async def refusal_of(command: str) -> str:
            with pytest.raises((ApprovalRequired, RuleViolated)) as caught:
                await run_command(engine, session, gate.request(command, "none"), Channel())
            return caught.value.code

        codes = [await refusal_of("touch a") for _ in range(4)]
        assert codes == ["APPROVAL_REQUIRED"] * 3 + ["RULE_VIOLATED"]
        assert await refusal_of("touch b") == "APPROVAL_REQUIRED"
        result = await run_command(engine, session, gate.request("touch a", "all"), Channel())
        assert result.exit_code == 0
        engine.eyes.clock = lambda: 1e12  # much later it is another day
        assert await refusal_of("touch a") == "APPROVAL_REQUIRED"

    gate.engine(work)


def test_broken_options_of_a_rule_are_a_broken_profile(gate: Gate) -> None:
    async def work(engine: Engine, session: Session) -> None:
        with_rules(session, RepeatLimit={"limt": "3"})
        with pytest.raises(ProfileBroken, match="limt"):
            await run_command(engine, session, gate.request("true", "all"), Channel())

    gate.engine(work)


# ------------------------------------------------------------------ terminals


def test_rules_hold_for_lines_typed_in_a_terminal(gate: Gate) -> None:
    async def work(engine: Engine, session: Session) -> None:
        with_rules(session, ExecInterpreter={"deny": ("perl",)})
        with pytest.raises(RuleViolated):
            await open_terminal(engine, session, gate.request(["perl"], "all"), Channel())
        shell = gate.request(["bash", "--noprofile", "--norc"], "all")
        terminal = await open_terminal(engine, session, shell, Channel())
        while (await terminal.look()).state is not State.AT_PROMPT:
            await asyncio.sleep(0.02)
        with pytest.raises(RuleViolated, match="perl"):
            await type_text(engine, session, terminal, "env perl -e 1\n", Channel(), "all")
        doors = [
            row.event.door
            for row in engine.log.query(session_id=session.id)
            if isinstance(row.event, Assessed)
        ]
        assert set(doors) == {"terminal"}

    gate.engine(work)


# ------------------------------------------------------------------ tools of others


def assess(gate: Gate, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """(decision, rules violated, canonical paths) of each call, in one session."""

    async def work(engine: Engine, session: Session) -> list[Any]:
        found = []
        for tool, parameters in calls:
            judged, call = await assess_call(engine, session, tool, parameters)
            rules = [one.rule for one in judged.violations]
            found.append((judged.decision.action.value, rules, canonical_paths(judged, call)))
        return found

    found = gate.engine(work)
    assert isinstance(found, list)
    return found


def test_home_outside_the_workspace_is_seen_as_such_by_every_rule_and_is_not_missing(
    gate: Gate,
) -> None:
    os.mkdir(gate.ground.home + "/.config")
    write(gate.ground.home + "/.config/x", "real\n")
    path = gate.ground.home + "/.config/x"
    assert assess(
        gate,
        ("Read", {"file_path": "~/.config/x"}),
        ("Write", {"file_path": "~/.config/x", "content": "y"}),
        ("mystery", {"x": "~/.config/x"}),
        ("Bash", {"command": "echo > ~/.config/x"}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Delete File: ~/.config/x\n*** End Patch"}),
    ) == [
        ("refuse", ["PathContainment"], {"file_path": path}),
        ("refuse", ["PathContainment", "ReadBeforeWrite"], {"file_path": path}),
        ("ask", ["PathContainment"], {"x": path}),
        ("ask", ["PathContainment"], {}),
        ("refuse", ["ManifestContainment", "ReadBeforeWrite"], {"input[0]": path}),
    ]


def test_link_out_of_the_workspace_is_judged_where_it_leads(gate: Gate) -> None:
    os.symlink(gate.ground.outside, gate.ground.workspace + "/link")
    (found,) = assess(gate, ("Write", {"file_path": "link/file", "content": "x"}))
    assert found == (
        "refuse",
        ["PathContainment", "ReadBeforeWrite"],
        {"file_path": gate.ground.outside + "/file"},
    )


def test_callers_own_tools_read_before_they_write_and_notice_who_wrote_in_between(
    gate: Gate,
) -> None:
    place = Path(gate.ground.workspace, "a.txt")
    place.write_text("one\n")
    read, edit = ("Read", {"file_path": "a.txt"}), ("Edit", {"file_path": "a.txt"})

    async def work(engine: Engine, session: Session) -> None:
        async def rules(call: tuple[str, dict[str, Any]]) -> list[str]:
            judged, _ = await assess_call(engine, session, *call)
            return [one.rule for one in judged.violations]

        assert await rules(edit) == ["ReadBeforeWrite"]
        assert await rules(read) == []
        assert await rules(edit) == []
        place.write_text("written by the caller's own tool\n")
        assert await rules(edit) == []
        place.write_text("that too\n")
        assert await rules(edit) == []
        assert await rules(read) == []
        place.write_text("by somebody else\n")
        assert await rules(edit) == ["StaleWrite"]
        assert await rules(read) == []
        assert await rules(edit) == []

    gate.engine(work)


def test_command_in_a_tool_is_judged_like_one_of_ours_without_a_sandbox_behind_it(
    gate: Gate,
) -> None:
    found = assess(
        gate,
        ("Bash", {"command": "ls"}),
        ("Bash", {"command": "rm -rf build"}),
        ("Bash", {"command": f"cat {gate.ground.home}/.ssh/id_rsa"}),
        ("Bash", {"command": "cat /etc/passwd"}),
    )
    assert [(decision, rules) for decision, rules, _ in found] == [
        ("allow", []),
        ("ask", []),
        ("ask", ["PathContainment"]),
        ("allow", []),
    ]


def test_assessment_is_recorded_with_its_observations_and_without_contents(gate: Gate) -> None:
    async def work(engine: Engine, session: Session) -> list[Any]:
        await assess_call(
            engine, session, "Write", {"file_path": "new", "content": "hunter2hunter2"}
        )
        return [row.event for row in engine.log.query(session_id=session.id)]

    events = gate.engine(work)
    assert "hunter2" not in str(events)
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["SessionOpened", "GroundsLaid", "Observed", "Assessed"]
    assert Finished.__name__ not in kinds


def test_file_tools_commands_and_callers_tools_share_what_was_seen(gate: Gate) -> None:
    for name in ("a", "b", "c"):
        write(f"{gate.ground.workspace}/{name}", "x\n")
    old = 1_700_000_000
    for name in ("a", "b", "c"):
        os.utime(f"{gate.ground.workspace}/{name}", (old, old))

    async def work(engine: Engine, session: Session) -> None:
        async def rules(tool: str, path: str) -> list[str]:
            judged, _ = await assess_call(engine, session, tool, {"file_path": path})
            return [one.rule for one in judged.violations]

        await asyncio.sleep(0.02)
        await run_command(engine, session, gate.request("cat a", "none"), Channel())
        assert await rules("Edit", "a") == []
        assert await rules("Edit", "b") == ["ReadBeforeWrite"]
        assert await rules("Read", "b") == []
        await change_file(engine, session, Write("b", "y\n"), Channel(), approve="all")
        assert await rules("Edit", "b") == []
        with pytest.raises(Refusal) as caught:
            await change_file(engine, session, Write("c", "y\n"), Channel(), approve="all")
        assert caught.value.code == "FS_NOT_OBSERVED"

    gate.engine(work)


def test_hosts_are_judged_by_the_allowlist_and_by_what_a_person_granted(gate: Gate) -> None:
    """Both by the tool of a caller and by a command, which its own network would hold anyway."""

    async def work(engine: Engine, session: Session) -> None:
        session.rules = msgspec.structs.replace(
            session.rules,
            network=NetworkMode.ALLOWLIST,
            network_fallback=None,
            egress=EgressRules(allow=("*.example.com",), deny=("bad.example.com",)),
        )

        async def decision(tool: str, **parameters: object) -> str:
            judged, _ = await assess_call(engine, session, tool, parameters)
            return judged.decision.action.value

        assert await decision("WebFetch", url="https://docs.example.com/") == "allow"
        assert await decision("WebFetch", url="https://bad.example.com/") == "refuse"
        assert await decision("WebFetch", url="https://elsewhere.org/") == "refuse"
        session.shared.approved_hosts.update({"elsewhere.org", "bad.example.com"})
        assert await decision("WebFetch", url="https://elsewhere.org/") == "allow"
        assert await decision("WebFetch", url="https://bad.example.com/") == "refuse"
        request = gate.request("curl https://bad.example.com/", "none")
        with pytest.raises(ApprovalRequired, match="not allowed"):
            await run_command(engine, session, request, Channel())

    gate.engine(work)
