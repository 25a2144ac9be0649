"""Landlock's plan as data, and what older versions of it really leave open."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.confine.landlock import DEVICES, Landlock
from sandboxd.confine.siblings import Siblings, readable
from sandboxd.errors import TierUnavailable
from sandboxd.model import Invocation, LandlockRules, NetworkMode, Policy
from tests.confined import ATTEMPT, Ground, make_ground, read, run_plan, with_launcher

TREE = {
    "/": ["dev", "etc", "home", "usr"],
    "/home": ["me", "you"],
    "/home/me": [".aws", ".ssh", ".vimrc", "work"],
}
POLICY = Policy(
    profile="default",
    workspace="/home/me/work",
    writable=("/home/me/work",),
    denied=("/home/me/.ssh", "/home/me/.aws/credentials"),
    private_tmp="/var/tmp/s/tmp",
)
INVOCATION = Invocation(
    program="/usr/bin/make", argv=("make",), environment={"A": "b"}, cwd="/home/me/work"
)


def tier(abi: int = 7) -> Landlock:
    return Landlock(abi, 1000, 1000, Siblings(lambda folder: TREE.get(folder, [])))


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


def test_the_rules_name_the_siblings_of_what_is_denied() -> None:
    rules = tier(5).plan(INVOCATION, POLICY).landlock
    assert rules is not None
    assert msgspec.structs.replace(rules, version=0) == LandlockRules(
        read=("/etc", "/home/me/.vimrc", "/home/me/work", "/home/you", "/usr"),
        write=("/home/me/work", "/var/tmp/s/tmp", "/dev/shm"),
        devices=DEVICES,
        abi=5,
    )


def test_the_plan_makes_no_namespace_and_gives_up_privileges() -> None:
    plan = tier().plan(INVOCATION, POLICY)
    assert (plan.namespaces, plan.mounts, plan.drop_privileges) == ((), (), True)
    assert (plan.program, plan.argv, plan.environment) == ("/usr/bin/make", ("make",), {"A": "b"})


def test_roots_runs_take_on_the_owner_of_the_workspace_and_nobody_elses_do() -> None:
    foreign = msgspec.structs.replace(POLICY, owner=(1001, 1002))
    own = msgspec.structs.replace(POLICY, owner=(1000, 1000))
    assert tier().plan(INVOCATION, foreign).outside_ids == (1001, 1002)
    assert tier().plan(INVOCATION, own).outside_ids is None


def test_without_a_network_there_is_no_internet_socket() -> None:
    off = msgspec.structs.replace(POLICY, network=NetworkMode.OFF)
    plans = [tier().plan(INVOCATION, policy) for policy in (POLICY, off)]
    assert plans[0].seccomp != plans[1].seccomp
    assert any("network off" in held for held in plans[1].tier.enforces)
    assert not any("network" in gap for gap in plans[1].tier.gaps)


def test_sandboxd_in_a_writable_root_is_refused() -> None:
    own = msgspec.structs.replace(POLICY, own=("/home/me/work/.venv",))
    with pytest.raises(TierUnavailable) as caught:
        tier().plan(INVOCATION, own)
    assert caught.value.path == "/home/me/work/.venv"


@pytest.mark.parametrize("abi", [1, 2, 3, 5, 6, 7])
def test_gaps_follow_the_version(abi: int) -> None:
    gaps = " ".join(tier(abi).plan(INVOCATION, POLICY).tier.gaps)
    held = " ".join(tier(abi).plan(INVOCATION, POLICY).tier.enforces)
    assert ("truncated" in gaps) == (abi < 3)
    assert ("signalled" in gaps) == (abi < 6)
    assert ("no signal to a process outside" in held) == (abi >= 6)


# ------------------------------------------------------------------ for every tree

NAMES = ("a", "b", "c")
names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)
paths = names.map(lambda parts: "/" + "/".join(parts))


def ancestors(path: str) -> set[str]:
    return {path[:place] or "/" for place, letter in enumerate(path) if letter == "/"}


def is_covered(path: str, granted: Iterable[str]) -> bool:
    return any(path == top or path.startswith(top.rstrip("/") + "/") for top in granted)


@given(st.lists(paths, max_size=5))
def test_no_rule_covers_a_denied_path_and_every_other_path_has_one(denied: list[str]) -> None:
    granted, listed = readable("/", denied, lambda folder: [*NAMES, "dev"])
    above = {folder for path in [*denied, "/dev"] for folder in ancestors(path)}
    for path in denied:
        assert not is_covered(path, granted)
        assert not any(is_covered(top, [path]) for top in granted)
    for depth in range(1, 5):
        for parts in product(NAMES, repeat=depth):
            path = "/" + "/".join(parts)
            is_open = not is_covered(path, denied) and path not in above
            assert is_covered(path, granted) == is_open, path
    assert set(listed) <= above


# ------------------------------------------------------------------ older versions, really run


@pytest.mark.parametrize(
    ("abi", "answer", "left"), [(2, "ALLOWED", ""), (3, "EACCES", "outside\n")]
)
def test_before_abi_3_a_file_outside_can_be_emptied_as_the_gaps_say(
    abi: int, answer: str, left: str, ground: Ground
) -> None:
    victim = ground.outside + "/file"
    assert attempt_with(abi, ground, f"os.truncate({victim!r}, 0)") == answer
    assert read(victim) == left


def test_every_version_keeps_what_all_of_them_can(ground: Ground) -> None:
    secret, victim = ground.home + "/.ssh/id_rsa", ground.outside + "/file"
    for abi in (1, 4, 7):
        assert attempt_with(abi, ground, f"open({secret!r}).read()") == "EACCES"
        assert attempt_with(abi, ground, f"put({victim!r})") == "EACCES"
        assert attempt_with(abi, ground, "put('mine')") == "ALLOWED"


def attempt_with(abi: int, ground: Ground, action: str) -> str:
    code = ATTEMPT + f"print(attempt(lambda: {action}))"
    words = (sys.executable, "-I", "-c", code)
    tested = Landlock(abi, os.getuid(), os.getgid())
    invocation = Invocation(
        program=words[0],
        argv=words,
        environment={"TMPDIR": ground.tmp},
        cwd=ground.workspace,
    )
    plan = tested.plan(invocation, ground.policy())
    _, output = with_launcher(lambda launcher: run_plan(launcher, plan))
    return output.strip()
