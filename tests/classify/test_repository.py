"""Which configurations of a repository make a reading git run programs; real repositories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandboxd.classify.repository import git_defines_programs

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
}


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-C", str(folder), *words], check=True, env=_ENVIRONMENT, capture_output=True
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_a_fresh_repository_defines_nothing(repository: Path) -> None:
    assert not git_defines_programs(str(repository))


def test_a_folder_without_a_repository_defines_nothing(tmp_path: Path) -> None:
    assert not git_defines_programs(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("filter.x.clean", "./x"),
        ("filter.x.process", "./x"),
        ("diff.x.textconv", "./x"),
        ("diff.x.command", "./x"),
        ("merge.x.driver", "./x"),
        ("gpg.program", "./x"),
        ("gpg.ssh.program", "./x"),
        ("log.showSignature", "true"),
        ("core.sshCommand", "./x"),
        ("credential.helper", "!./x"),
        ("credential.https://example.com.helper", "!./x"),
        ("url.ext::x.insteadOf", "https://example.com/"),
        ("remote.origin.uploadpack", "./x"),
        ("remote.origin.url", "ext::./x"),
        ("include.path", "other"),
        ("includeIf.gitdir:/x/.path", "other"),
    ],
)
def test_a_key_that_names_a_program_is_found(repository: Path, key: str, value: str) -> None:
    git(repository, "config", key, value)
    assert git_defines_programs(str(repository))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("core.fsmonitor", "./x"),
        ("core.hooksPath", "hooks"),
        ("diff.external", "./x"),
        ("core.pager", "./x"),
        ("user.name", "filter.x.clean"),
        ("alias.st", "!./x"),
        ("remote.origin.url", "https://example.com/x.git"),
        ("log.showSignature", "false"),
        ("diff.renames", "true"),
    ],
)
def test_a_key_that_is_neutralised_or_harmless_is_not(
    repository: Path, key: str, value: str
) -> None:
    git(repository, "config", key, value)
    assert not git_defines_programs(str(repository))


def test_a_change_of_the_configuration_is_seen(repository: Path) -> None:
    assert not git_defines_programs(str(repository))
    git(repository, "config", "filter.x.clean", "./x")
    assert git_defines_programs(str(repository))
    git(repository, "config", "--unset", "filter.x.clean")
    assert not git_defines_programs(str(repository))


def test_a_folder_inside_uses_the_repository_above(repository: Path) -> None:
    (repository / "a" / "b").mkdir(parents=True)
    git(repository, "config", "filter.x.clean", "./x")
    assert git_defines_programs(str(repository / "a" / "b"))


@pytest.mark.parametrize(
    "text",
    [
        '[filter "x"] clean = ./x\n',
        "[filter.x]\n\tclean = ./x\n",
        '[FILTER "x"]\n\tCLEAN=./x\n',
        '[a "b"] [filter "x"] clean = ./x\n',
        "[user]\n\tname = a \\\n[core]\n",
        "[core\n",
        "not configuration !\n",
    ],
)
def test_odd_spellings_and_puzzles_count(repository: Path, text: str) -> None:
    with open(repository / ".git" / "config", "a") as stream:
        stream.write(text)
    assert git_defines_programs(str(repository))


def test_a_linked_worktree_uses_the_main_configuration(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", str(linked))
    assert not git_defines_programs(str(linked))
    git(repository, "config", "filter.x.clean", "./x")
    assert git_defines_programs(str(linked))


def test_the_configuration_of_one_worktree_counts(repository: Path) -> None:
    git(repository, "config", "extensions.worktreeConfig", "true")
    git(repository, "config", "--worktree", "filter.x.clean", "./x")
    assert git_defines_programs(str(repository))


def test_an_embedded_bare_repository_is_what_git_finds(repository: Path) -> None:
    bare = repository / "fixtures" / "bare"
    bare.mkdir(parents=True)
    git(bare, "init", "-q", "--bare")
    assert not git_defines_programs(str(bare))
    git(bare, "config", "filter.x.clean", "./x")
    assert git_defines_programs(str(bare))
    assert not git_defines_programs(str(repository))


@pytest.fixture
def with_submodule(repository: Path) -> Path:
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "first")
    git(repository, "add", "inner")
    return repository


def test_a_plain_submodule_defines_nothing(with_submodule: Path) -> None:
    assert not git_defines_programs(str(with_submodule))


def test_a_submodules_configuration_counts(with_submodule: Path) -> None:
    git(with_submodule / "inner", "config", "filter.x.clean", "./x")
    assert git_defines_programs(str(with_submodule))


def test_an_index_that_cannot_be_read_counts(with_submodule: Path) -> None:
    git(with_submodule, "update-index", "--index-version", "4")
    assert git_defines_programs(str(with_submodule))
