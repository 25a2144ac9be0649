"""Covering names of a living run again after the host has replaced them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from sandboxd.model import LaunchPlan
from sandboxd.spawn.launcher import Launcher
from tests.confined import (
    ATTEMPT,
    VIEWED,
    Ground,
    make_ground,
    plan_for,
    read,
    with_launcher,
    write,
)


@pytest.fixture
def ground() -> Iterator[Ground]:
    for ground in make_ground():
        write(ground.workspace + "/.envrc", "kept\n")
        yield ground


def living(
    ground: Ground, code: str, without_landlock: bool = False, tier: str = "namespaces"
) -> LaunchPlan:
    """A run that answers each line `go` on its stdin by running `code` once."""
    text = ATTEMPT + f"import sys\nfor _ in sys.stdin:\n    {code}\n    sys.stdout.flush()\n"
    plan = plan_for(tier, ground, [sys.executable, "-I", "-c", text])
    return msgspec.structs.replace(plan, landlock=None) if without_landlock else plan


def replace(path: str, text: str) -> None:
    write(path + ".new", text)
    os.rename(path + ".new", path)


def answers(plan: LaunchPlan, act: Callable[[], None], steps: list[tuple[str, str]]) -> list[str]:
    """What the run could do before the host acted, after it, and after it was covered again."""

    async def main(launcher: Launcher) -> list[str]:
        stdin, go = os.pipe()
        back, stdout = os.pipe()
        child = await launcher.launch(plan, (stdin, stdout, 2))
        found = []

        async def ask() -> None:
            os.write(go, b"go\n")
            found.append((await asyncio.to_thread(os.read, back, 4096)).decode().strip())

        await ask()
        act()
        await ask()
        begun = time.perf_counter()
        assert await launcher.remask(child, steps)
        print(f"covered again in {(time.perf_counter() - begun) * 1000:.2f} ms")
        await ask()
        for fd in (go, stdin, back, stdout):
            os.close(fd)
        await child.wait()
        return found

    return with_launcher(main)  # type: ignore[arg-type]


@pytest.mark.parametrize("tier", VIEWED)
def test_a_protected_file_that_the_host_replaced_is_read_only_again(
    tier: str, ground: Ground
) -> None:
    path = ground.workspace + "/.envrc"
    plan = living(ground, f"print(attempt(lambda: put({path!r})))", tier=tier)
    found = answers(plan, lambda: replace(path, "new\n"), [("readonly", path)])
    assert found == ["EROFS", "ALLOWED", "EROFS"]
    assert read(path) == "new\nx"


@pytest.mark.parametrize("tier", VIEWED)
def test_a_denied_file_and_folder_are_hidden_again_without_landlock(
    tier: str, ground: Ground
) -> None:
    keys, login = ground.home + "/.ssh", ground.home + "/.netrc"

    def act() -> None:
        replace(login, "new-login\n")
        os.rename(keys, keys + ".old")
        write(keys + "/id_new", "new-key\n")

    code = (
        f"print(attempt(lambda: open({login!r}).read(1)), attempt(lambda: os.listdir({keys!r})), "
        f"attempt(lambda: open({keys!r} + '/id_new').read()))"
    )
    plan = living(ground, code, without_landlock=True, tier=tier)
    found = answers(plan, act, [("blank", keys), ("blank", login)])
    assert found[1] == "ALLOWED ALLOWED ALLOWED"
    assert found[2].split() == ["EACCES", "EACCES", "EACCES"]


def test_landlock_keeps_a_replaced_denied_file_shut_before_it_is_hidden_again(
    ground: Ground,
) -> None:
    login = ground.home + "/.netrc"
    plan = living(ground, f"print(attempt(lambda: open({login!r}).read()))")
    found = answers(plan, lambda: replace(login, "new-login\n"), [("blank", login)])
    assert found[1:] == ["EACCES", "EACCES"]


@pytest.mark.parametrize("tier", VIEWED)
def test_what_is_still_covered_is_left_alone(tier: str, ground: Ground) -> None:
    path = ground.workspace + "/.envrc"
    code = f"print(sum({path!r} in line for line in open('/proc/self/mountinfo')))"
    assert answers(living(ground, code, tier=tier), lambda: None, [("readonly", path)]) == ["1"] * 3


def test_a_run_that_has_ended_cannot_be_covered(ground: Ground) -> None:
    async def main(launcher: Launcher) -> bool:
        null = os.open(os.devnull, os.O_RDWR)
        child = await launcher.launch(plan_for("namespaces", ground, ["/bin/true"]), (null,) * 3)
        os.close(null)
        await child.wait()
        return await launcher.remask(child, [("readonly", ground.workspace + "/.envrc")])

    assert with_launcher(main) is False  # type: ignore[arg-type]


def test_a_run_without_mounts_of_its_own_hands_out_no_namespace(ground: Ground) -> None:
    """They would be the host's: covering names there would cover the host's files."""

    async def main(launcher: Launcher) -> tuple[bool, list[int]]:
        null = os.open(os.devnull, os.O_RDWR)
        plan = plan_for("landlock", ground, ["/bin/sleep", "3"])
        child = await launcher.launch(plan, (null, null, null))
        os.close(null)
        covered = await launcher.remask(child, [("blank", ground.home + "/.netrc")])
        handed_out = list(child._namespaces)
        child.kill()
        await child.wait()
        return covered, handed_out

    assert with_launcher(main) == (False, [])  # type: ignore[arg-type]
    assert read(ground.home + "/.netrc") == "canary-login\n"
