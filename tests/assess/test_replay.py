"""A recorded session is judged again from the record alone: the same twice, whatever the world did."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.assess import world as world_module
from sandboxd.assess.replaying import Replayed, replay
from sandboxd.daemon.recorded import replayed
from sandboxd.engine import Engine
from sandboxd.errors import ApprovalRequired, RuleViolated, SessionUnknown
from sandboxd.events.kinds import Assessed
from sandboxd.events.replay import put_together
from sandboxd.files import guard
from sandboxd.pipeline import assess_call, run_command
from sandboxd.protocol.event_messages import EventReplay
from sandboxd.sessions import Session
from tests.confined import Ground, make_ground, write
from tests.guarded import Channel, Gate

TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("Read", {"file_path": "kept.txt"}),
    ("Edit", {"file_path": "kept.txt", "old_string": "a", "new_string": "b"}),
    ("Edit", {"file_path": "unread.txt"}),
    ("Write", {"file_path": "new/file.txt", "content": "x"}),
    ("Read", {"file_path": "gone.txt"}),
    ("Write", {"file_path": "~/.config/x", "content": "x"}),
    ("Write", {"file_path": "link/x", "content": "x"}),
    ("WebFetch", {"url": "https://example.com/"}),
    ("WebFetch", {"url": "http://169.254.169.254/"}),
    ("Bash", {"command": "perl -e 1"}),
    ("Bash", {"command": "rm -rf build"}),
    ("mystery", {"x": ["/etc/shadow", "a/b"]}),
    ("apply_patch", {"patch": "*** Begin Patch\n*** Delete File: kept.txt\n*** End Patch"}),
]
COMMANDS = [
    ("true", "none"),
    ("ls", "none"),
    ("touch made", "none"),
    ("touch made", "mutating"),
    ("echo x > /tmp/inside", "all"),
    ("touch src/x", "all"),
    ("./script", "all"),
]
ROUNDS = 10
CALLS = ROUNDS * (len(TOOLS) + len(COMMANDS))


class Recorded:
    """A session of 200 calls in a log, and the ground that it had."""

    def __init__(self, ground: Ground, engine: Engine, session_id: str) -> None:
        self.ground = ground
        self.log = engine.log
        self.session_id = session_id

    def replay(self, **more: Any) -> Replayed:
        return replayed(self.log, EventReplay(session_id=self.session_id, **more))


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    for ground in make_ground():
        yield record(ground)


def record(ground: Ground) -> Recorded:
    gate = Gate(ground, "namespaces")

    async def work(engine: Engine, session: Session) -> Recorded:
        for number in range(ROUNDS):
            await play(engine, session, gate, number)
        assert engine.log.flush(30)
        return Recorded(ground, engine, session.id)

    lay_out(ground)
    found = gate.engine(work)
    assert isinstance(found, Recorded)
    change_the_world(ground)
    return found


def lay_out(ground: Ground) -> None:
    for name in ("kept.txt", "unread.txt"):
        write(f"{ground.workspace}/{name}", "content\n")
    os.mkdir(ground.workspace + "/src")
    os.mkdir(ground.home + "/.config")
    write(ground.home + "/.config/x", "real\n")
    os.symlink(ground.outside, ground.workspace + "/link")
    write(ground.workspace + "/script", "#!/usr/bin/env perl\n1;\n")
    os.chmod(ground.workspace + "/script", 0o755)


async def play(engine: Engine, session: Session, gate: Gate, number: int) -> None:
    """One round: every tool, then every command, some of them refused."""
    for tool, parameters in TOOLS:
        await assess_call(engine, session, tool, parameters)
    for command, approve in COMMANDS:
        try:
            await run_command(engine, session, gate.request(command, approve), Channel())  # type: ignore[arg-type]
        except (ApprovalRequired, RuleViolated):
            continue
    if number == ROUNDS // 2:
        write(gate.ground.workspace + "/kept.txt", "by somebody else\n")


def change_the_world(ground: Ground) -> None:
    """Files, links and folders are not what they were."""
    shutil.rmtree(ground.workspace + "/src")
    os.remove(ground.workspace + "/link")
    os.mkdir(ground.workspace + "/link")
    os.remove(ground.workspace + "/kept.txt")
    write(ground.workspace + "/gone.txt", "there now\n")
    write(ground.workspace + "/script", "#!/bin/sh\n")
    os.remove(ground.home + "/.config/x")


def test_replay_after_everything_changed_is_identical(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever would look at the world fails the test."""

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a replay looked at the world")

    for owner, name in (
        (guard, "resolve"),
        (world_module, "resolve"),
        (world_module, "identity"),
        (world_module.SessionWorld, "path"),
        (world_module.SessionWorld, "refusals"),
        (world_module.time, "time"),
    ):
        monkeypatch.setattr(owner, name, forbidden)
    first, second = recorded.replay(), recorded.replay()
    assert first == second
    assert first.calls >= 200
    assert (first.calls, first.same, first.skipped) == (CALLS, CALLS, 0)
    assert first.differences == ()


def test_changed_rules_give_exactly_the_expected_differences(recorded: Recorded) -> None:
    """Looking at shebangs was not done then: those calls are unknown, never guessed."""
    found = recorded.replay(rules={"ExecInterpreter": {"deny": ("perl",)}})
    told = {(one.tool, one.command, one.what) for one in found.differences}
    assert told == {
        ("Bash", "perl -e 1", "decision"),
        ("command.exec", "./script", "unknown"),
    }
    assert len(found.differences) == 2 * ROUNDS
    assert {one.now.decision.value for one in found.differences if one.now} == {"refuse"}


def test_rule_that_is_off_gives_exactly_its_calls(recorded: Recorded) -> None:
    found = recorded.replay(rules={"ReadBeforeWrite": {"enabled": "false"}})
    rows = recorded.log.query(session_id=recorded.session_id, limit=10_000)
    assessed = [(row.seq, row.event) for row in rows if isinstance(row.event, Assessed)]
    expected = {
        seq
        for seq, event in assessed
        if any(one.rule == "ReadBeforeWrite" for one in event.violations)
    }
    assert {one.seq for one in found.differences} == expected
    assert {one.what for one in found.differences} == {"decision", "violations"}


def test_other_profile_asks_where_this_one_did_not(recorded: Recorded, tmp_path: Path) -> None:
    place = tmp_path / "strict.yaml"
    place.write_text("extends: default\napproval: ask-all\n")
    found = recorded.replay(profile=str(place))
    commands = {one.command for one in found.differences if one.tool == "command.exec"}
    assert {"true", "ls"} <= commands
    assert {
        (one.then.decision.value, one.now.decision.value)
        for one in found.differences
        if one.now is not None and one.what == "decision"
    } == {("allow", "ask")}


def test_recorded_profile_may_be_gone(recorded: Recorded) -> None:
    assert recorded.replay(recorded=True).differences == ()


def test_unknown_session_is_a_refusal(recorded: Recorded) -> None:
    with pytest.raises(SessionUnknown):
        replayed(recorded.log, EventReplay(session_id="nobody"))


def test_record_of_which_a_part_is_missing_is_counted(recorded: Recorded) -> None:
    rows = recorded.log.query(session_id=recorded.session_id, limit=10_000)
    events = [(row.seq, row.event) for row in rows if row.event and row.kind != "grounds"]
    found = replay(put_together(recorded.session_id, events), None, None)
    assert (found.calls, found.skipped) == (0, CALLS)


def test_command_line_prints_a_table_or_json_and_exits_1_on_a_difference(
    recorded: Recorded, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n  ExecInterpreter: {deny: [perl]}\n")

    def cli(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "sandboxd",
                "replay",
                recorded.session_id,
                "--no-daemon",
                *words,
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )

    same = cli()
    assert (same.returncode, same.stdout.split(":")[1].strip()) == (0, f"{CALLS} the same")
    changed = cli("--rules", str(rules), "--profile", "default")
    assert changed.returncode == 1
    assert "decided otherwise" in changed.stdout
    assert "not to be told" in changed.stdout
    told = json.loads(cli("--rules", str(rules), "--json").stdout)
    assert len(told["differences"]) == 2 * ROUNDS
    broken = cli("--rules", str(tmp_path / "none.yaml"))
    assert broken.returncode == 2
    assert "cannot be read" in broken.stderr
