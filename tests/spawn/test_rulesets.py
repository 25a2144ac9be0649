"""Rulesets made ready ahead of time: used once, for exactly what they were made for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sandboxd.spawn.launcher import Launcher
from sandboxd.spawn.rulesets import KEPT, Ready
from tests.confined import Ground, make_ground, mechanism, plan_for, run_plan, with_launcher, write


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


def rules(version: int, *read: str) -> dict[str, object]:
    return {
        "read": list(read),
        "version": version,
        "abi": None,
        "list": [],
        "shown": [],
        "write": ["/var/tmp"],
        "devices": ["/dev/null"],
    }


def test_a_ruleset_is_given_once_and_only_for_the_same_version() -> None:
    ready = Ready()
    assert ready.take(rules(1, "/usr")) == -1
    ready.make()
    assert ready.take(rules(2, "/usr")) == -1
    fd = ready.take(rules(1, "/usr"))
    assert fd >= 0
    assert ready.take(rules(1, "/usr")) == -1
    os.close(fd)


def test_a_list_without_a_version_is_never_made_ready() -> None:
    ready = Ready()
    ready.take(rules(0, "/usr"))
    ready.make()
    assert ready.made == {}


@pytest.mark.parametrize("is_whole", [False, True])
def test_few_are_kept(is_whole: bool) -> None:
    ready = Ready()
    for version in range(1, 20):
        ready.take(rules(version, "/usr"), is_whole=is_whole)
        ready.make()
    assert len(ready.made) + len(ready.whole) == KEPT
    ready.drop()


def test_a_whole_ruleset_serves_many_runs_while_its_folders_are_the_same(tmp_path: Path) -> None:
    ready = Ready()
    folder = tmp_path / "written"
    folder.mkdir()
    wanted = {**rules(1, "/usr"), "write": [str(folder)]}
    ready.take(wanted, is_whole=True)
    ready.make()
    first, second = (ready.take(wanted, is_whole=True) for _ in range(2))
    assert min(first, second) >= 0
    os.close(first)
    os.close(second)
    folder.rename(tmp_path / "moved")
    folder.mkdir()
    assert ready.take(wanted, is_whole=True) == -1
    assert ready.take({**wanted, "devices": []}, is_whole=True) == -1
    ready.drop()


@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
def test_runs_one_after_another_keep_the_same_boundary(tier: str, ground: Ground) -> None:
    """The second and third run enter a ruleset that was made ready for them."""
    rung = mechanism(tier)
    script = f"cat {ground.home}/.netrc; cat {ground.home}/plain; ls / >/dev/null 2>&1; echo x > {ground.workspace}/f && echo wrote"
    write(ground.home + "/plain", "plain\n")
    time.sleep(0.1)

    async def main(launcher: Launcher) -> list[str]:
        found = []
        for _ in range(3):
            plan = plan_for(tier, ground, ["/bin/sh", "-c", script])
            if found:
                assert plan.landlock is not None
                plan = msgspec.structs.replace(
                    plan, landlock=msgspec.structs.replace(plan.landlock, version=7)
                )
            _, output = await run_plan(launcher, plan)
            found.append(output)
        return found

    outputs = with_launcher(main)  # type: ignore[arg-type]
    assert rung.name == tier
    for output in outputs:
        assert "canary" not in output
        assert output.endswith("plain\nwrote\n")
