"""What share of `exec true` is event work, measured in the same runs.

    python bench/events/cost.py [RUNS]

Every way into the log is timed where it happens, in processor time of its thread: making an event (`of`), `append`, and the writer
thread's own processor time for storing. Judging is timed too and told apart.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="bench-")

from sandboxd import pipeline  # after the state folder is named
from sandboxd.engine import Engine
from sandboxd.events import kinds
from sandboxd.model import ApprovalAsk, ApprovalReply, ExecRequest

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
WARM_UP = 20
LIMIT = 0.05
OF_KINDS = (kinds.VerdictGiven, kinds.Finished, kinds.Launched)


class Spent:
    """Seconds by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, float] = {}

    def timed(self, name: str, work: Callable[..., Any], clock: Callable[[], float]) -> Any:
        def run(*words: Any, **named: Any) -> Any:
            started = clock()
            try:
                return work(*words, **named)
            finally:
                self.by_name[name] = self.by_name.get(name, 0.0) + clock() - started

        return run


class Nobody:
    """A caller that hears nothing and is never asked."""

    can_approve = False
    approves_last = False

    def started(self, run_id: str, control: object) -> None: ...

    def output(self, stream: str, chunk: bytes) -> None: ...

    def asking(self, ask: object, *, is_elsewhere: bool = False) -> None: ...

    def has_room(self) -> bool:
        return True

    async def approve(self, ask: ApprovalAsk) -> ApprovalReply:
        return ApprovalReply(answer="deny")


def instrument(engine: Engine, spent: Spent) -> None:
    """Put a clock around every way into the log."""
    clock = time.thread_time
    engine.log.append = spent.timed("append", engine.log.append, clock)  # type: ignore[method-assign]
    for kind in OF_KINDS:
        kind.of = spent.timed("make", kind.of, clock)  # type: ignore[attr-defined]
    pipeline.judge_command = spent.timed("judge", pipeline.judge_command, clock)
    engine.log._writer.store = spent.timed("store", engine.log._writer.store, time.thread_time)  # type: ignore[method-assign]


async def measure() -> dict[str, Any]:
    engine = await Engine.create()
    spent = Spent()
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            session = engine.open_session(workspace=folder, cwd=folder)
            request = ExecRequest(argv=("true",))
            for _ in range(WARM_UP):
                await pipeline.run_command(engine, session, request, Nobody())
            engine.log.flush()
            instrument(engine, spent)
            took = []
            for _ in range(RUNS):
                started = time.perf_counter()
                await pipeline.run_command(engine, session, request, Nobody())
                took.append(time.perf_counter() - started)
            engine.log.flush()
            events = len(engine.log.query(session_id=session.id, limit=100_000))
    finally:
        await engine.close()
    run_us = statistics.median(took) * 1e6
    parts = {name: seconds / RUNS * 1e6 for name, seconds in spent.by_name.items()}
    # Appending an assessment happens inside judging.
    event_us = sum(parts[name] for name in ("append", "make", "store"))
    return {
        "runs": RUNS,
        "run_us": round(run_us, 1),
        "events_per_run": round(events / (RUNS + WARM_UP), 2),
        "parts_us": {name: round(value, 1) for name, value in parts.items()},
        "event_us": round(event_us, 1),
        "share": round(event_us / run_us, 4),
    }


def main() -> int:
    found = asyncio.run(measure())
    print(json.dumps(found, indent=2))
    is_good = found["share"] < LIMIT
    print(f"events are {found['share']:.1%} of a run: {'good' if is_good else 'TOO MUCH'}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
