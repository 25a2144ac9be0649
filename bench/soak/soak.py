"""A daemon under many clients, of which some are killed: is anything left, and is every answer right?

    python bench/soak/soak.py --seconds 120 --connections 1000 --runs 200

Connections stay open and classify now and then; runs are commands with answers that are checked, some
of them with processes left behind; client processes are killed at random with their runs under way. At
the end the daemon's descriptors, processes, session folders and memory are compared with the beginning.
Exit 1 when something is left or an answer was wrong. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sandboxd.client import AsyncClient, Client  # the checkout is not installed
from sandboxd.errors import Overloaded

MEMORY_BOUND = 96 * 1024 * 1024
"""How much more memory the daemon may hold at the end: allocators keep what many clients needed."""

STOP_WITHIN_S = 300
"""On a machine with other work; its sessions' folders, a thousand and more, are removed meanwhile."""
SLEEP = ["sleep", "7321"]
"""What runs leave behind."""
VICTIM = """
import asyncio, sys
sys.path.insert(0, {root!r})
from sandboxd.client import AsyncClient
async def main():
    client = await AsyncClient.connect({socket!r}, workspace={workspace!r})
    words = ["sh", "-c", "sleep 7321 & sleep 7321"]
    await asyncio.gather(*(client.exec(words, approve="all") for _ in range(3)))
asyncio.run(main())
"""


class Tally:
    """What the clients saw."""

    def __init__(self) -> None:
        self.right = self.wrong = self.overloaded = self.killed = 0
        self.classified = 0
        self.slowest_s = 0.0


async def idle(client: AsyncClient, until: float, tally: Tally) -> None:
    while time.monotonic() < until:
        await asyncio.sleep(random.uniform(1, 5))
        before = time.monotonic()
        verdict = await client.classify("ls -la | head")
        tally.slowest_s = max(tally.slowest_s, time.monotonic() - before)
        tally.classified += 1
        tally.wrong += verdict.class_.value != "read_only"


async def busy(client: AsyncClient, until: float, tally: Tally, number: int) -> None:
    count = 0
    while time.monotonic() < until:
        count += 1
        word = f"answer-{number}-{count}"
        text = f"echo {word}; {'sleep 7321 &' if count % 5 == 0 else 'true'}"
        try:
            result = await client.exec(["sh", "-c", text], approve="all", timeout_s=60)
        except Overloaded:
            tally.overloaded += 1
            await asyncio.sleep(0.1)
            continue
        is_right = result.exit_code == 0 and result.stdout is not None
        is_right = is_right and result.stdout is not None and result.stdout.text == word + "\n"
        tally.right += is_right
        tally.wrong += not is_right


async def killing(socket: str, workspace: str, until: float, tally: Tally) -> None:
    """Client processes that die in the middle of their runs."""
    root = str(Path(__file__).resolve().parents[2])
    code = VICTIM.format(root=root, socket=socket, workspace=workspace)
    while time.monotonic() < until:
        victim = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stderr=subprocess.DEVNULL
        )
        await asyncio.sleep(random.uniform(0.8, 2.5))
        with contextlib.suppress(ProcessLookupError):
            victim.kill()
        await victim.wait()
        tally.killed += 1


def held(process: psutil.Process) -> dict[str, int]:
    return {
        "fds": process.num_fds(),
        "processes": len(process.children(recursive=True)),
        "rss": process.memory_info().rss,
        "threads": process.num_threads(),
    }


async def load(arguments: argparse.Namespace, socket: str, workspace: str, tally: Tally) -> None:
    until = time.monotonic() + arguments.seconds
    limit = asyncio.Semaphore(100)

    async def connected() -> AsyncClient:
        async with limit:
            return await AsyncClient.connect(socket, workspace=workspace)

    idlers = await asyncio.gather(*(connected() for _ in range(arguments.connections)))
    runners = await asyncio.gather(*(connected() for _ in range(max(1, arguments.runs // 10))))
    work = [idle(client, until, tally) for client in idlers]
    work += [
        busy(runners[number % len(runners)], until, tally, number)
        for number in range(arguments.runs)
    ]
    work += [killing(socket, workspace, until, tally) for _ in range(arguments.victims)]
    await asyncio.gather(*work)
    await asyncio.gather(*(client.close() for client in (*idlers, *runners)))


def settled(process: psutil.Process, before: dict[str, int], limit_s: float) -> dict[str, int]:
    """What it holds once it has had time to let go."""
    deadline = time.monotonic() + limit_s
    while True:
        after = held(process)
        is_less = after["fds"] <= before["fds"] + 4
        if (is_less and after["processes"] <= before["processes"] + 2) or (
            time.monotonic() > deadline
        ):
            return after
        time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--victims", type=int, default=2)
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    with tempfile.TemporaryDirectory(prefix="soak-", dir="/var/tmp") as top:
        return soak(arguments, top)


def soak(arguments: argparse.Namespace, top: str) -> int:
    socket, workspace, temp = f"{top}/s", f"{top}/w", f"{top}/t"
    os.mkdir(workspace)
    os.mkdir(temp)
    env = {**os.environ, "TMPDIR": temp, "XDG_STATE_HOME": f"{top}/state"}
    daemon = subprocess.Popen(
        [sys.executable, "-m", "sandboxd", "serve", "--socket", socket],
        stdout=subprocess.PIPE,
        env=env,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert daemon.stdout is not None
    daemon.stdout.readline()
    process, tally = psutil.Process(daemon.pid), Tally()
    try:
        with Client.connect(socket, workspace=workspace) as client:
            for _ in range(20):
                client.exec(["true"], approve="all")
        before = settled(process, held(process), 1)
        begun = time.monotonic()
        asyncio.run(load(arguments, socket, workspace, tally))
        took = time.monotonic() - begun
        after = settled(process, before, 30)
        with Client.connect(socket, workspace=workspace) as client:
            last = client.exec(["echo", "alive"]).exit_code
            status = client.status()
    finally:
        stopping = time.monotonic()
        daemon.send_signal(signal.SIGTERM)
        code = daemon.wait(STOP_WITHIN_S)
    left = [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == SLEEP]
    folders = sum(len(os.listdir(f"{temp}/{name}/sessions")) for name in os.listdir(temp))
    told = {
        "seconds": round(took, 1),
        "right": tally.right,
        "wrong": tally.wrong,
        "overloaded": tally.overloaded,
        "classified": tally.classified,
        "slowest_classify_s": round(tally.slowest_s, 3),
        "clients_killed": tally.killed,
        "before": before,
        "after": after,
        "sessions_at_end": status.sessions,
        "processes_left_after_stop": len(left),
        "session_folders_after_stop": folders,
        "stopped_in_s": round(time.monotonic() - stopping, 1),
        "exit": code,
    }
    sys.stdout.write(json.dumps(told) + "\n")
    is_clean = (
        not tally.wrong
        and tally.right > 0
        and last == code == 0
        and after["fds"] <= before["fds"] + 4
        and after["processes"] <= before["processes"] + 2
        and after["rss"] <= before["rss"] + MEMORY_BOUND
        and not left
        and not folders
    )
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
