"""An init made ahead of its run: taken when it fits, never when the host has changed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.model import NetworkMode
from sandboxd.spawn.launcher import Launcher
from sandboxd.spawn.reports import children
from tests.confined import Ground, make_ground, plan_for, run_plan, with_launcher

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


async def spare_of(launcher: Launcher) -> int:
    """The pid of the init that waits, once there is one."""
    for _ in range(200):
        waiting = children(launcher.zygote_pid)
        if waiting and launcher.running == 0:
            return waiting[0]
        await asyncio.sleep(0.01)
    raise AssertionError("no init was made ahead")


def runs(ground: Ground, *networks: NetworkMode) -> list[tuple[int, int, str]]:
    """One run after the other: (the init that waited before it, its own init, its output)."""

    async def main(launcher: Launcher) -> list[tuple[int, int, str]]:
        told = []
        waiting = 0
        for network in networks:
            read_end, write_end = os.pipe()
            plan = plan_for("namespaces", ground, ["/bin/echo", "ran"], ground.policy(network))
            child = await launcher.launch(plan, (0, write_end, write_end))
            os.close(write_end)
            assert (await child.wait()).code == 0
            told.append((waiting, child.pid, os.read(read_end, 100).decode()))
            os.close(read_end)
            waiting = await spare_of(launcher)
        return told

    return with_launcher(main, keeps_spare=True)


@pytest.mark.parametrize("network", [NetworkMode.HOST, NetworkMode.OFF, NetworkMode.OPEN])
def test_the_next_run_of_the_same_kind_takes_the_waiting_init(
    ground: Ground, network: NetworkMode
) -> None:
    first, second, third = runs(ground, network, network, network)
    assert first[0] == 0
    assert second[0] == second[1] != first[1]
    assert third[0] == third[1] != second[1]
    assert [told[2] for told in (first, second, third)] == ["ran\n"] * 3


def test_a_run_of_another_kind_gets_an_init_of_its_own(ground: Ground) -> None:
    _, second = runs(ground, NetworkMode.HOST, NetworkMode.OFF)
    assert second[0] != second[1]
    assert second[2] == "ran\n"


def test_a_waiting_init_that_was_killed_costs_nothing_but_time(ground: Ground) -> None:
    async def main(launcher: Launcher) -> list[str]:
        plan = plan_for("namespaces", ground, ["/bin/echo", "ran"])
        told = [(await run_plan(launcher, plan))[1]]
        waiting = await spare_of(launcher)
        os.kill(waiting, 9)
        while os.path.exists(f"/proc/{waiting}"):  # until the zygote has reaped it
            await asyncio.sleep(0.01)
        told.append((await run_plan(launcher, plan))[1])
        told.append((await run_plan(launcher, plan))[1])
        return told

    assert with_launcher(main, keeps_spare=True) == ["ran\n"] * 3


def test_nothing_waits_when_the_launcher_is_gone(ground: Ground) -> None:
    async def main(launcher: Launcher) -> int:
        await run_plan(launcher, plan_for("namespaces", ground, ["/bin/true"]))
        return await spare_of(launcher)

    waiting = with_launcher(main, keeps_spare=True)
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{waiting}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{waiting}")


def test_what_the_host_mounts_meanwhile_is_seen_by_the_next_run(ground: Ground) -> None:
    """Where mount propagation is private the waiting init would know nothing of it."""
    words = ["unshare", "--mount", "--propagation", "private"]
    if os.getuid() != 0:
        words += ["--user", "--map-root-user"]
    done = subprocess.run(
        [*words, sys.executable, "-m", "tests.spawn.test_spare", ground.top],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["before", "after", "new init"], done.stderr


def mounting(ground: Ground) -> None:
    """In a mount namespace of our own: look, mount over the folder, look again."""

    async def main(launcher: Launcher) -> None:
        plan = plan_for("namespaces", ground, ["/bin/cat", ground.outside + "/file"])
        print((await run_plan(launcher, plan))[1].strip(), flush=True)
        waiting = await spare_of(launcher)
        subprocess.run(["mount", "-t", "tmpfs", "none", ground.outside], check=True)
        with open(ground.outside + "/file", "w", encoding="utf-8") as file:
            file.write("after\n")
        child = await launcher.launch(plan, (0, 1, 2))
        await child.wait()
        print("same init" if waiting == child.pid else "new init")

    with open(ground.outside + "/file", "w", encoding="utf-8") as file:
        file.write("before\n")
    with_launcher(main, keeps_spare=True)


if __name__ == "__main__":
    mounting(Ground(sys.argv[1]))
