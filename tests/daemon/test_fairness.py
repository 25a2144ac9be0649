"""One client's flood is its own: it waits in its own buffer, and others have their turns."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Coroutine
from typing import Any

CALLS = 4000
FACTOR = 10
"""The bound: a classify beside a flood of classifies takes at most ten times one alone. (Turns of two
lines make it about three; without turns it waits for the whole flood, over five hundred times.)"""


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    def run(serving: Any) -> None:
        asyncio.run(asyncio.wait_for(test(serving), 100))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def median_s(client: Any, rounds: int) -> float:
    taken = []
    for number in range(rounds):
        before = time.perf_counter()
        client.call(f"q{number}", "classify", command="ls")
        await client.answer(f"q{number}")
        taken.append(time.perf_counter() - before)
    return statistics.median(taken)


def flood(count: int) -> bytes:
    lines = (
        {"jsonrpc": "2.0", "id": number, "method": "classify", "params": {"command": "ls -la"}}
        for number in range(count)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@in_loop
async def test_a_flood_of_calls_is_answered_whole_and_slows_nobody_beyond_the_bound(
    serving: Any,
) -> None:
    async with serving() as served:
        loud, quiet = await served.session(), await served.session()
        alone = await median_s(quiet, 50)
        loud.send_bytes(flood(CALLS))
        await loud.answer(0)  # it has begun
        beside = await median_s(quiet, 30)
        for number in range(1, CALLS):
            assert "result" in await loud.answer(number)
        assert beside < FACTOR * max(alone, 0.0005), (alone, beside)


@in_loop
async def test_a_flood_that_nobody_reads_the_answers_of_is_not_kept_in_memory(
    serving: Any,
) -> None:
    async with serving() as served:
        loud, quiet = await served.session(), await served.session()
        loud.reader._transport.pause_reading()
        line = json.dumps(
            {"jsonrpc": "2.0", "id": "x" * 20000, "method": "nothing", "params": {}}
        ).encode()
        loud.send_bytes((line + b"\n") * 3000)  # 60 MB, and an answer as long to each
        for _ in range(20):
            quiet.call(1, "status")
            status = (await quiet.answer(1))["result"]
            await asyncio.sleep(0.05)
        assert status["queued_bytes"] < 40 * 1024 * 1024
        assert status["calls"] < 600
        assert status["connections"] == 2
