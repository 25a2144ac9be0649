"""The hosted workflow: its syntax by the keys it may use, and that it decides nothing by itself."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
TOP = {"name", "on", "permissions", "concurrency", "jobs"}
JOB = {"strategy", "runs-on", "container", "timeout-minutes", "steps"}
STEP = {"name", "uses", "run", "with", "if"}
ACTIONS = {"actions/checkout@v4", "actions/upload-artifact@v4"}


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    loaded = yaml.load(WORKFLOW.read_text(), Loader=yaml.BaseLoader)
    assert isinstance(loaded, dict)
    return loaded


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_only_known_keys_are_used(workflow: dict[str, Any]) -> None:
    assert set(workflow) <= TOP
    assert set(workflow["on"]) == {"push", "pull_request"}
    for job in workflow["jobs"].values():
        assert set(job) <= JOB
        assert {"runs-on", "steps", "timeout-minutes"} <= set(job)
        assert int(job["timeout-minutes"]) <= 30
    for step in steps(workflow):
        assert set(step) <= STEP
        assert ("run" in step) != ("uses" in step)


def test_every_step_is_a_script_of_ci_or_a_known_action(workflow: dict[str, Any]) -> None:
    for step in steps(workflow):
        if "uses" in step:
            assert step["uses"] in ACTIONS
            continue
        assert re.fullmatch(r"ci/[a-z-]+( \$\{\{ matrix\.[a-z]+ \}\})?", step["run"])
        script = ROOT / step["run"].split()[0]
        assert script.is_file()
        assert os.access(script, os.X_OK)


def test_what_it_runs_on(workflow: dict[str, Any]) -> None:
    jobs = workflow["jobs"]
    linux, macos = jobs["linux"]["strategy"]["matrix"], jobs["macos"]["strategy"]["matrix"]
    assert len({name for name in linux["os"] if name.startswith("ubuntu-")}) == 2
    assert linux["user"] == ["root", "unprivileged"]
    assert jobs["container"]["container"]
    assert {name.split("-")[1] for name in macos["os"]} == {"14", "15"}
    assert any(name.endswith("-intel") for name in macos["os"])


def test_expressions_name_what_exists(workflow: dict[str, Any]) -> None:
    text = WORKFLOW.read_text()
    matrices = {
        key
        for job in workflow["jobs"].values()
        for key in job.get("strategy", {}).get("matrix", {})
    }
    for expression in re.findall(r"\$\{\{ (.*?) \}\}", text):
        assert expression == "github.ref" or expression.removeprefix("matrix.") in matrices


def test_the_table_of_a_mac_is_kept_whatever_happened(workflow: dict[str, Any]) -> None:
    (upload,) = [step for step in steps(workflow) if "upload-artifact" in step.get("uses", "")]
    assert upload["if"] == "always()"
    assert upload["with"]["path"] in (ROOT / "ci" / "macos").read_text()


def test_a_mac_requires_seatbelt() -> None:
    script = (ROOT / "ci" / "macos").read_text()
    assert "verify --tier seatbelt --strict --json" in script
    assert "SANDBOXD_TEST_TIERS" in script
    for folder in re.findall(r"tests/\S+", script):
        assert (ROOT / folder).exists(), folder
