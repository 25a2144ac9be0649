"""What a policy says of a path is what each tier's plan does to it: policies and paths by Hypothesis.

The plans are judged without running them: Seatbelt's by the evaluator of its language, the mounts of
`namespaces` by the last step that covers a path. Every name is hostile; letters are small, because
Seatbelt also holds protected names in other letters and the policy itself does not speak of those.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxd.answers import Operation, allows
from sandboxd.confine.landlock import Landlock
from sandboxd.confine.namespaces import mount_steps
from sandboxd.confine.sbpl import Evaluator
from sandboxd.confine.seatbelt_profile import generate
from sandboxd.confine.siblings import Siblings
from sandboxd.model import Invocation, MountStep, NetworkMode, Policy

NAMES = [
    "a", "b", ".git", "hooks", "config", ".envrc", 'q"', "p(", ")) (allow default)", "$(x)", "new\nline", "back\\slash", "é", "日本", " ", "-d", "#;", "[a-z]",
    "a.b", "..x", "*",
]  # fmt: skip
OPERATIONS: tuple[Operation, ...] = ("read", "write")
SEATBELT = {"read": "file-read-data", "write": "file-write-data"}

name = st.sampled_from(NAMES)
tail = st.lists(name, min_size=1, max_size=3).map("/".join)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    workspace = f"/u/{draw(name)}/w"
    roots = [workspace, *draw(st.lists(tail.map(lambda path: f"/u/{path}"), max_size=2))]
    places = st.one_of(
        tail.map(lambda path: f"/u/{path}"),
        st.tuples(st.sampled_from(roots), tail).map("/".join),
    )
    below = st.tuples(st.sampled_from(roots), tail).map("/".join)
    return Policy(
        profile="any",
        workspace=workspace,
        writable=tuple(dict.fromkeys(roots)),
        denied=tuple(draw(st.lists(places, max_size=4, unique=True))),
        protected=tuple(draw(st.lists(below, max_size=4, unique=True))),
        private_tmp="/p/" + draw(name),
        network=draw(st.sampled_from(list(NetworkMode))),
        unix_sockets=draw(st.sampled_from(["none", "workspace"])),
    )


def paths_around(policy: Policy) -> Iterator[str]:
    """Every entry, what lies in it, above it and right beside it."""
    entries = [*policy.writable, *policy.denied, *policy.protected, policy.private_tmp]
    for entry in dict.fromkeys(entries):
        yield entry
        yield entry + "/a"
        yield entry + "/.git/config"
        yield entry + "x"
        parts = entry.split("/")
        yield from ("/".join(parts[:end]) or "/" for end in range(1, len(parts)))
    yield from ("/", "/etc/passwd", "/u")


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(policies())
def test_the_seatbelt_profile_does_what_the_policy_says(policy: Policy) -> None:
    made = generate(policy)
    found = Evaluator(made.text, made.parameters)
    for path in paths_around(policy):
        for operation in OPERATIONS:
            wanted = allows(policy, operation, path, has_private_tmp=False).allowed
            assert found.allows(SEATBELT[operation], path) == wanted, (operation, path)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(policies())
def test_every_write_to_a_seatbelt_profile_is_judged_alike(policy: Policy) -> None:
    """Creating, changing and describing; removing is stricter, for folders that must stay."""
    made = generate(policy)
    found = Evaluator(made.text, made.parameters)
    for path in paths_around(policy):
        data = found.allows("file-write-data", path)
        assert found.allows("file-write-create", path) == data
        assert found.allows("file-write-mode", path) == data
        assert data or not found.allows("file-write-unlink", path)
        assert found.allows("file-read-metadata", path) == found.allows("file-read-data", path)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(policies(), st.sampled_from(NAMES))
def test_no_name_gets_into_the_text(policy: Policy, other: str) -> None:
    text = generate(policy).text
    assert '"' + policy.workspace not in text
    assert "(allow default" not in text
    assert text.count("(deny default") == 1


# ------------------------------------------------------------------ Linux


def shown(steps: tuple[MountStep, ...], path: str) -> tuple[bool, bool]:
    """(read, write) in a view where everything exists: the last step that covers a path decides."""
    read, write = True, False
    for step in steps:
        if path != step.path and not path.startswith(step.path.rstrip("/") + "/"):
            continue
        if step.kind == "blank":
            read, write = False, False
        elif step.kind in ("bind", "tmp"):
            read, write = True, True
        elif step.kind in ("readonly", "visible", "text"):
            read, write = True, False
    return read, write


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(policies())
def test_the_mounts_of_namespaces_do_what_the_policy_says(policy: Policy) -> None:
    steps = mount_steps(policy)
    for path in paths_around(policy):
        if path.startswith("/p"):
            continue  # the private folder is /tmp in there
        read, write = shown(steps, path)
        may_read, may_write = (allows(policy, op, path).allowed for op in OPERATIONS)
        if is_twice_nested(policy, path):
            assert (read, write) <= (may_read, may_write), path
        else:
            assert (read, write) == (may_read, may_write), path


def is_twice_nested(policy: Policy, path: str) -> bool:
    """In a writable folder, in a denied one, in a writable one: hidden as a whole, which is stricter."""
    above = [path[:end] for end in range(1, len(path) + 1) if path[end : end + 1] in ("/", "")]
    outer = next((i for i, each in enumerate(above) if each in policy.writable), len(above))
    denied = next(
        (i for i, each in enumerate(above) if i >= outer and each in policy.denied), len(above)
    )
    return any(each in policy.writable for each in above[denied + 1 :])


@pytest.mark.parametrize("path", ["/tmp", "/tmp/x", "/tmp/x/y"])
def test_the_private_folder_is_tmp_in_namespaces(path: str) -> None:
    policy = Policy(profile="any", workspace="/u/w", writable=("/u/w",), private_tmp="/p/x")
    assert shown(mount_steps(policy), path) == (True, True)
    assert allows(policy, "write", path).allowed


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(policies())
def test_landlock_lets_nothing_be_written_that_no_root_holds(policy: Policy) -> None:
    """It cannot subtract: protected names and denied ones inside a root are gaps that it names."""
    rung = Landlock(6, 1000, 1000, siblings=Siblings())
    nothing = Invocation(program="/bin/true", argv=("true",), environment={}, cwd="/")
    plan = rung.plan(nothing, policy)
    assert plan.landlock is not None
    roots = plan.landlock.write
    for path in paths_around(policy):
        inside = any(path == root or path.startswith(root + "/") for root in roots)
        answer = allows(policy, "write", path, has_private_tmp=False)
        assert inside or not answer.allowed, path
        assert not inside or answer.allowed or answer.kind in ("protected", "denied"), path
