"""`doctor --tools`: the usual tools at work in each kernel tier, and a broken one told as broken."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd.cli.tools import tools
from tests.confined import REQUIRED_TIERS

KERNEL = [name for name in REQUIRED_TIERS if name != "containment"]


def doctor(*words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    # Tests have a home of their own; rustup's cargo looks for its compiler in the person's.
    rustup = os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".rustup")
    environment = {"RUSTUP_HOME": rustup, **os.environ, **({"PATH": path} if path else {})}
    return subprocess.run(
        [sys.executable, "-m", "sandboxd", "doctor", "--no-daemon", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


@pytest.mark.slow
@pytest.mark.parametrize("tier", KERNEL)
def test_every_installed_tool_works_in_a_kernel_tier(tier: str) -> None:
    done = doctor("--tools", "--tier", tier, "--json")
    tried = {tool["name"]: tool for tool in json.loads(done.stdout)["tools"]}
    assert {tool.name for tool in tools()} == tried.keys()
    broken = {name for name, tool in tried.items() if tool["is_installed"] and not tool["works"]}
    assert broken == set()
    assert {tool["tier"] for tool in tried.values() if tool["is_installed"]} == {tier}
    assert done.returncode == 0
    assert tried["git"]["works"]
    assert tried["python"]["works"]


def test_a_tool_that_fails_is_named_with_its_last_words(tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "make"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'make: broken on purpose' >&2\nexit 3\n")
    broken.chmod(0o755)
    done = doctor("--tools", path=f"{broken.parent}")
    assert done.returncode == 1
    assert "git: not installed" in done.stdout
    [line] = [line for line in done.stdout.splitlines() if line.startswith("make: ")]
    assert "FAILS" in line
    assert "broken on purpose" in line


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    before = set(os.listdir("/var/tmp"))
    doctor("--tools", path=str(tmp_path))
    assert not [name for name in set(os.listdir("/var/tmp")) - before if "tools" in name]


def test_a_tier_is_named_for_the_tools_only() -> None:
    done = doctor("--tier", "landlock")
    assert done.returncode == 2
    assert "--tools" in done.stderr
