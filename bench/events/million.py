"""A million events: how long do `query` by session and `stats` take?

python bench/events/million.py [FOLDER] [EVENTS]
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from sandboxd.events.answers import Wanted
from sandboxd.events.attribution import attribute
from sandboxd.events.kinds import (
    Assessed,
    DecisionMade,
    Event,
    Finished,
    Launched,
    SessionOpened,
    VerdictGiven,
    kind_of,
)
from sandboxd.events.reading import busiest, read_events, tally
from sandboxd.events.statistics import CALL_KINDS, MOST_SESSIONS, statistics
from sandboxd.events.store import Pending, Store
from sandboxd.model import Action, CommandClass, Decision, Part, Reason, Tier, Verdict

RUNS_PER_SESSION = 40
BATCH = 5000
LIMIT_S = 1.0
TIER = Tier(
    name="namespaces",
    kernel=True,
    enforces=("writing outside the workspace", "reading denied places"),
    gaps=("the network",),
)
REASONS = (
    "exit_status",
    "exit_status",
    "exit_status_text",
    "limit.wall",
    "denial.policy",
    "network",
)


def session(number: int, chance: random.Random) -> Iterator[Event]:
    name = f"s-{number:08x}"
    yield SessionOpened(session_id=name, workspace="/src/project", profile="default")
    for run in range(RUNS_PER_SESSION):
        yield from one_run(name, f"r-{number:x}-{run:x}", chance)


def one_run(name: str, run: str, chance: random.Random) -> Iterator[Event]:
    text = f"grep -rn 'needle {chance.random()}' src | head -20"
    verdict = Verdict(
        class_=chance.choice(list(CommandClass)),
        parsed=True,
        cacheable=True,
        reasons=(Reason("grep", "reads files", (0, 20)),),
        parts=(Part((0, 20), text, CommandClass.READ_ONLY, "grep", "reads files"),),
        read_paths=("/src/project/src",),
        programs=("grep", "head"),
        approval_key="0" * 64,
    )
    decision = Decision(action=Action.ALLOW, mode="standard", reasons=("read_only",))
    yield VerdictGiven(
        session_id=name, run_id=run, command=text, cwd="/src/project", verdict=verdict
    )
    yield Assessed(
        session_id=name,
        run_id=run,
        assessment_id="j-" + run,
        grounds_id="g-1",
        door="command",
        tool="command.exec",
        decision=decision,
    )
    yield DecisionMade(session_id=name, run_id=run, decision=decision)
    yield Launched(session_id=name, run_id=run, tier=TIER, program="/bin/bash", cwd="/src/project")
    is_failed = chance.random() < 0.3
    yield Finished(
        session_id=name,
        run_id=run,
        exit_code=int(is_failed),
        duration_s=0.01,
        stdout_bytes=400,
        stdout_end="src/file.py:12: a line of output\n" * 8,
        outcome="failed" if is_failed else "ok",
        attribution=attribute(chance.choice(REASONS)) if is_failed else None,
    )


def write(base: str, wanted: int) -> int:
    """Write so many events over ninety days; how many sessions."""
    store = Store(base, kept=10_000)
    chance = random.Random(4)
    start, step = 1_790_000_000_000_000, 90 * 86_400_000_000 // wanted
    batch: list[Pending] = []
    count, number = 0, 0
    while count < wanted:
        for event in session(number, chance):
            payload = msgspec.json.encode(event).decode()
            at_us = start + count * step
            batch.append((at_us, kind_of(event), event.session_id, event.run_id, payload))
            count += 1
        number += 1
        if len(batch) >= BATCH:
            store.append(batch)
            batch = []
    store.append(batch)
    store.close()
    return number


def seconds(work: Callable[[], object]) -> dict[str, float]:
    """Wall and processor time of the best of five: other work on the machine only ever adds."""
    wall, cpu = [], []
    for _ in range(5):
        began, used = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    return {"wall_s": round(min(wall), 4), "cpu_s": round(min(cpu), 4)}


def count_sessions(base: str) -> int:
    """A log that an earlier run of this has left."""
    return sum(count for key, count in tally(base).items() if key[2] == "session_opened")


def main() -> int:
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="bench-", dir="/var/tmp")
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    base = os.path.join(folder, "events.db")
    started = time.perf_counter()
    sessions = write(base, wanted) if not os.path.exists(base) else count_sessions(base)
    written_s = time.perf_counter() - started
    one = f"s-{sessions // 2:08x}"
    found: dict[str, Any] = {
        "events": wanted,
        "sessions": sessions,
        "files": len(os.listdir(folder)),
        "bytes": sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)),
        "written_per_s": round(wanted / written_s),
        "query_session": seconds(lambda: read_events(base, Wanted(session_id=one))),
        "query_kind": seconds(lambda: read_events(base, Wanted(kinds=("result",), limit=1000))),
        "query_since": seconds(lambda: read_events(base, Wanted(since=1.797e9, limit=1000))),
        "stats": seconds(lambda: statistics(tally(base), busiest(base, CALL_KINDS, MOST_SESSIONS))),
        "stats_session": seconds(lambda: statistics(tally(base, session_id=one))),
    }
    print(json.dumps(found, indent=2))
    is_good = all(found[name]["wall_s"] < LIMIT_S for name in ("query_session", "stats"))
    print("good" if is_good else "TOO SLOW")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
