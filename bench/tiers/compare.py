"""Ratios of each tier's cost against bare bwrap, interleaved in one run; see README.md."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "bench" / "tiers")]

import peers  # noqa: E402  # beside this file

from sandboxd.confine.select import Ladder, mechanisms  # noqa: E402  # not installed
from sandboxd.engine import Engine  # noqa: E402
from sandboxd.model import Invocation, LaunchPlan, NetworkMode, Policy  # noqa: E402
from sandboxd.policy import build_policy  # noqa: E402
from sandboxd.profiles import load_profile  # noqa: E402
from sandboxd.spawn.launcher import Launcher  # noqa: E402

Work = Callable[[], Awaitable[None]]
IN_FLIGHT = 64
AT_MOST = {"namespaces": 1.2, "landlock": 0.6}
AT_LEAST = {"namespaces": 1.5}


def bwrap_words(workspace: str) -> list[str]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SystemExit("bwrap is the yardstick; install the package bubblewrap")
    return [
        bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
        "--bind", workspace, workspace, "--unshare-all", "--die-with-parent", "/bin/true",
    ]  # fmt: skip


def spawning(words: list[str], environment: Mapping[str, str] = os.environ) -> Work:
    """A plain child of ours, waited for through a pidfd like every other in this loop."""

    async def work() -> None:
        pid = os.posix_spawn(words[0], words, environment)
        fd = os.pidfd_open(pid)
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(fd, lambda: ended.done() or ended.set_result(None))
        await ended
        loop.remove_reader(fd)
        os.close(fd)
        if os.waitpid(pid, 0)[1] != 0:
            raise SystemExit(f"{words[0]} failed")

    return work


def launching(launcher: Launcher, plan: LaunchPlan, null: int) -> Work:
    async def work() -> None:
        child = await launcher.launch(plan, (null, null, null))
        if (await child.wait()).code != 0:
            raise SystemExit(f"a run in {plan.tier.name} failed")

    return work


def policy_in(folder: str) -> Policy:
    for name in ("work", "tmp"):
        os.mkdir(os.path.join(folder, name))
    workspace = os.path.join(folder, "work")
    return build_policy(
        load_profile("default"),
        workspace=workspace,
        home=os.path.expanduser("~"),
        private_tmp=os.path.join(folder, "tmp"),
        path=os.environ["PATH"],
        cwd=workspace,
    )


async def contestants(
    engine: Engine, launchers: list[Launcher], folder: str, null: int
) -> dict[str, Work]:
    """Each tier has a launcher of its own, as a daemon that runs nothing else."""
    policy = policy_in(folder)
    works = {
        "bwrap": spawning(bwrap_words(policy.workspace)),
        "posix_spawn": spawning(["/bin/true"]),
    }
    invocation = Invocation(
        program="/bin/true",
        argv=("true",),
        environment=dict(os.environ),
        cwd=policy.workspace,
    )
    ladder = Ladder(mechanisms(), engine.run_plan)
    for mechanism, found in await ladder.survey(NetworkMode.HOST):
        if found.available:
            plan = engine.present.trimmed(mechanism.plan(invocation, policy))
            launchers.append(Launcher(keeps_spare=True))
            works[mechanism.name] = launching(launchers[-1], plan, null)
    return works


async def one_by_one(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, one run at a time, in turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        await work()
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            await work()
            times[name].append((time.perf_counter() - start) * 1000)
    return {name: statistics.median(found) for name, found in times.items()}


async def in_flight(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Runs per second with IN_FLIGHT at once: the best of the rounds, in turns."""
    best = dict.fromkeys(works, 0.0)
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
            best[name] = max(best[name], IN_FLIGHT / (time.perf_counter() - start))
    return best


async def measure(rounds: int, folder: str) -> tuple[dict[str, float], dict[str, float]]:
    engine = await Engine.create()
    null = os.open(os.devnull, os.O_RDWR)
    launchers: list[Launcher] = []
    try:
        works = await contestants(engine, launchers, folder, null)
        return await one_by_one(works, rounds), await in_flight(works, max(3, rounds // 20))
    finally:
        os.close(null)
        for each in (*launchers, engine):
            await each.close()


def beside_peers(rounds: int, place: str, folder: str) -> None:
    """What npm installed in `place`, in turns with bare bwrap and with us: a figure, no bar."""
    environment = peers.environment(folder + "/peers-home")
    works = {name: spawning(words, environment) for name, words in peers.words_in(place).items()}

    async def measured() -> dict[str, float]:
        engine = await Engine.create()
        null = os.open(os.devnull, os.O_RDWR)
        launchers: list[Launcher] = []
        os.mkdir(folder + "/peers")
        try:
            ours = await contestants(engine, launchers, folder + "/peers", null)
            ours = {
                name: ours[name] for name in ("bwrap", "namespaces", "bubblewrap") if name in ours
            }
            return await one_by_one({**ours, **works}, rounds)
        finally:
            os.close(null)
            for each in (*launchers, engine):
                await each.close()

    show(f"beside peers ({rounds} rounds)", "median ms", asyncio.run(measured()), {})


def show(
    title: str, unit: str, found: dict[str, float], bars: dict[str, float]
) -> dict[str, float]:
    ratios = {name: value / found["bwrap"] for name, value in found.items()}
    print(f"{title:26} {unit:>10} {'ratio':>7} {'bar':>6}")
    for name, value in found.items():
        print(f"  {name:24} {value:10.2f} {ratios[name]:7.2f} {bars.get(name, ''):>6}")
    return ratios


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-", dir="/var/tmp") as folder:
        times, rates = asyncio.run(measure(rounds, folder))
        if len(sys.argv) > 2:
            beside_peers(max(5, rounds // 5), sys.argv[2], folder)
    spent = show(f"spawn to exit ({rounds} rounds)", "median ms", times, AT_MOST)
    done = show(f"{IN_FLIGHT} in flight", "runs/s", rates, AT_LEAST)
    missed = [name for name, bar in AT_MOST.items() if spent.get(name, 0) > bar]
    missed += [name for name, bar in AT_LEAST.items() if done.get(name, bar) < bar]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
