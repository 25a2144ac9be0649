"""A sandboxd inside a run of sandboxd: it works, it says where it is, and it reaches nothing more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.confined import Ground, make_ground


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


def nested(ground: Ground, outer: str, *inner: str) -> Any:
    """The result object of a sandboxd that runs inside a run of another one."""
    me = [sys.executable, "-m", "sandboxd", "exec", "--approve", "all"]
    done = subprocess.run(
        [*me, "--raw", "--tier", outer, "--", *me, "--json", *inner],
        cwd=ground.workspace,
        env={**os.environ, "HOME": ground.home},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("{"), done.stderr
    return json.loads(done.stdout)


# Inside `landlock` the folders above a denied one cannot be listed, so no second ruleset is made.
@pytest.mark.parametrize(("outer", "tier"), [("namespaces", "landlock"), ("landlock", "inherited")])
def test_a_nested_run_works_and_names_what_it_really_is(
    outer: str, tier: str, ground: Ground
) -> None:
    result = nested(ground, outer, "-c", "echo inside > made; echo hi")
    assert "stdout" in result, result
    assert result["stdout"]["text"] == "hi\n"
    assert result["tier"]["name"] == tier
    assert any(reason.startswith("namespaces: ") for reason in result["tier"]["why_not_stronger"])
    assert os.listdir(ground.workspace) == ["made"]


def test_what_adds_nothing_is_called_inherited(ground: Ground) -> None:
    result = nested(ground, "namespaces", "--tier", "inherited", "--", "true")
    assert (result["tier"]["name"], result["tier"]["kernel"]) == ("inherited", False)


def test_containment_is_not_to_be_had_in_there(ground: Ground) -> None:
    result = nested(ground, "namespaces", "--tier", "containment", "--", "true")
    assert result["error"]["code"] == "TIER_UNAVAILABLE"


def test_inherited_is_not_to_be_had_outside(ground: Ground) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sandboxd", "exec", "--json", "--tier", "inherited", "--", "true"],
        cwd=ground.workspace,
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["error"]["code"] == "TIER_UNAVAILABLE"
