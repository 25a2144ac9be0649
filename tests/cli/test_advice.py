"""Advice of `doctor` about settings outside sandboxd."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd.cli.advice import advise


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's git configuration, empty."""
    file = tmp_path / "gitconfig"
    file.write_text("")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(file))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    return file


def test_bare_repositories_are_advised_about_until_somebody_decided(configuration: Path) -> None:
    [advice] = advise()
    assert advice.command == "git config --global safe.bareRepository explicit"
    for decided in ("explicit", "all"):
        configuration.write_text(f"[safe]\n\tbareRepository = {decided}\n")
        assert advise() == []


def test_the_command_it_names_is_what_helps(configuration: Path) -> None:
    [advice] = advise()
    subprocess.run(advice.command.split(), check=True)
    assert advise() == []


@pytest.mark.parametrize("git", [None, "#!/bin/sh\nexit 128\n"])
def test_without_a_working_git_nothing_is_advised(
    git: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if git is not None:
        (tmp_path / "git").write_text(git)
        (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert advise() == []


def test_doctor_shows_it() -> None:
    words = [sys.executable, "-m", "sandboxd", "doctor", "--no-daemon"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "advice: git config --global safe.bareRepository explicit" in done.stdout
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=False)
    assert [item["about"] for item in json.loads(done.stdout)["advice"]] == ["safe.bareRepository"]
