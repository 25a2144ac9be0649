"""The plan of the tier `namespaces` as data: whole mount view, ids, and what each switch changes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.confine.namespaces import Namespaces, mount_steps
from sandboxd.confine.siblings import Siblings
from sandboxd.model import Invocation, MountStep, NetworkMode, Policy

POLICY = Policy(
    profile="default",
    workspace="/home/me/work",
    writable=("/home/me/work", "/state/tmp", "/home/me/repo/.git"),
    denied=("/home/me/.ssh", "/tmp/.X11-unix", "/home/me/work/.env"),
    protected=("/home/me/work/.git/config", "/home/me/work/.envrc"),
    pinned=("/home/me/work/.git",),
    private_tmp="/state/tmp",
    visible=("/tmp/venv", "/home/me/work/bin"),
    network=NetworkMode.HOST,
)
INVOCATION = Invocation(program="/bin/true", argv=("true",), environment={}, cwd="/home/me/work")


def tier(abi: int = 7) -> Namespaces:
    return Namespaces(abi, 1000, 1000, Siblings(lambda folder: []))


def test_the_whole_view_in_its_order() -> None:
    assert mount_steps(POLICY) == (
        MountStep("proc", "/proc"),
        MountStep("dev", "/dev"),
        MountStep("blank", "/home/me/.ssh"),
        MountStep("blank", "/home/me/work/.env"),
        MountStep("tmp", "/tmp", "/state/tmp"),
        MountStep("bind", "/home/me/repo/.git"),
        MountStep("bind", "/home/me/work"),
        MountStep("visible", "/tmp/venv"),
        MountStep("pin", "/home/me/work/.git"),
        MountStep("readonly", "/home/me/work/.git/config"),
        MountStep("readonly", "/home/me/work/.envrc"),
        MountStep("blank", "/home/me/work/.env"),
    )


names = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=4)
paths = names.map(lambda parts: "/" + "/".join(parts))
policies = st.builds(
    lambda roots, denied, protected, visible: msgspec.structs.replace(
        POLICY,
        writable=tuple(dict.fromkeys(roots)),
        denied=tuple(denied),
        protected=tuple(protected),
        visible=tuple(visible),
    ),
    st.lists(paths, min_size=1, max_size=4),
    st.lists(paths, max_size=4),
    st.lists(paths, max_size=4),
    st.lists(paths, max_size=4),
)


@given(policies)
def test_what_is_denied_or_protected_is_never_uncovered_by_a_later_step(policy: Policy) -> None:
    """After the last step that opens something at or above a path, the path is closed again."""
    steps = mount_steps(policy)
    for path, closing in [
        *((path, "blank") for path in policy.denied),
        *((path, "readonly") for path in policy.protected),
    ]:
        opened = [
            place
            for place, step in enumerate(steps)
            if step.kind in ("bind", "visible", "tmp")
            and path.startswith(step.path.rstrip("/") + "/")
        ]
        closed = [
            place for place, step in enumerate(steps) if step.kind == closing and step.path == path
        ]
        assert closed
        assert max(closed) > max(opened, default=-1)


@given(policies)
def test_outer_roots_come_before_inner_ones(policy: Policy) -> None:
    roots = [step.path for step in mount_steps(policy) if step.kind in ("bind", "visible")]
    for place, path in enumerate(roots):
        assert not any(outer.startswith(path + "/") for outer in roots[:place])


@pytest.mark.parametrize(
    ("owner", "inside", "outside"),
    [
        (None, (1000, 1000), (1000, 1000)),
        ((1000, 1000), (1000, 1000), (1000, 1000)),
        ((1001, 1002), (0, 0), (1001, 1002)),
    ],
)
def test_the_run_acts_as_the_workspaces_owner(
    owner: tuple[int, int] | None, inside: tuple[int, int], outside: tuple[int, int]
) -> None:
    plan = tier().plan(INVOCATION, msgspec.structs.replace(POLICY, owner=owner))
    assert (plan.inside_ids, plan.outside_ids) == (inside, outside)


@pytest.mark.parametrize("network", list(NetworkMode))
def test_only_the_hosts_network_is_shared(network: NetworkMode) -> None:
    plan = tier().plan(INVOCATION, msgspec.structs.replace(POLICY, network=network))
    assert ("net" in plan.namespaces) == (network is not NetworkMode.HOST)
    assert {"user", "mount", "pid", "ipc", "uts"} <= set(plan.namespaces)


def test_without_landlock_the_view_stands_alone_and_says_so() -> None:
    plan = tier(0).plan(INVOCATION, POLICY)
    assert plan.landlock is None
    assert any("no Landlock in this kernel" in gap for gap in plan.tier.gaps)
    assert not any("Landlock" in held for held in plan.tier.enforces)


def test_privileges_are_given_up_and_a_filter_is_there() -> None:
    plan = tier().plan(INVOCATION, POLICY)
    assert plan.drop_privileges
    assert plan.seccomp
    assert plan.tier.kernel
