"""Which protected files of a repository a git command is said to write: all that it really writes.

The last tests run git itself: what it changed must be what the verdict named.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.classify.classifier import Classifier
from sandboxd.classify.context import Context
from sandboxd.classify.tables import load_tables
from sandboxd.model import CommandClass
from tests.classify.grading_support import command, facts, grade

CONFIG = "/work/.git/config"
HOOKS = "/work/.git/hooks"
WRITES = {
    "remote add o https://h/x": (CONFIG,),
    "remote set-url o u": (CONFIG,),
    "remote rename a b": (CONFIG,),
    "remote remove o": (CONFIG,),
    "config user.name x": (CONFIG,),
    "config --unset user.name": (CONFIG,),
    "config --add a.b c": (CONFIG,),
    "config set a.b c": (CONFIG,),
    "config --global user.name x": ("/home/user/.gitconfig",),
    "config -f other a.b c": ("/work/other",),
    "config --worktree a.b c": ("/work/.git/config.worktree", CONFIG),
    "push -u origin HEAD": (CONFIG,),
    "push --set-upstream origin x": (CONFIG,),
    "pull --set-upstream origin x": (CONFIG,),
    "branch -m a b": (CONFIG,),
    "branch -u origin/x": (CONFIG,),
    "branch --set-upstream-to=origin/x": (CONFIG,),
    "branch -D x": (CONFIG,),
    "branch x origin/x": (CONFIG,),
    "checkout -b x origin/x": (CONFIG,),
    "checkout --track origin/x": (CONFIG,),
    "switch -c x origin/x": (CONFIG,),
    "submodule add https://h/x sub": (CONFIG, "/work/.gitmodules"),
    "submodule update --init": (CONFIG,),
    "submodule deinit sub": (CONFIG,),
    "init": (CONFIG, HOOKS),
    "init sub": ("/work/sub/.git/config", "/work/sub/.git/hooks"),
    "lfs install --local": (HOOKS, CONFIG),
    "lfs install": (HOOKS, CONFIG, "/home/user/.gitconfig"),
    "sparse-checkout set a": (CONFIG, "/work/.git/config.worktree"),
    "-C sub remote add o u": ("/work/sub/.git/config",),
}
WRITES_NOTHING_PROTECTED = [
    "config user.name", "config --get user.name", "config -l", "config --local user.name", "push", "push origin main",
    "branch", "branch x", "branch -a", "checkout x", "checkout -b x", "checkout -", "switch x", "switch -c x", "commit -m x", "fetch",
    "pull", "remote -v", "remote update", "stash", "--git-dir=/x remote add o u", "status", "submodule status",
]  # fmt: skip


def found(folder: str) -> tuple[str, str]:
    return f"{folder}/.git", f"{folder}/.git"


def written(*words: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(grade(command(*words), facts(git_folders=found)).write_paths))


@pytest.mark.parametrize(("arguments", "expected"), WRITES.items())
def test_a_git_command_names_what_it_writes(arguments: str, expected: tuple[str, ...]) -> None:
    assert written("git", *arguments.split()) == expected


@pytest.mark.parametrize("arguments", WRITES_NOTHING_PROTECTED)
def test_other_git_commands_name_nothing(arguments: str) -> None:
    assert written("git", *arguments.split()) == ()


@pytest.mark.parametrize(
    "line",
    [
        "pre-commit install",
        "poetry run pre-commit install",
        "npx husky install",
        "husky",
        "lefthook install",
    ],
)
def test_hook_managers_name_the_hooks_and_the_configuration(line: str) -> None:
    assert written(*line.split()) == (HOOKS, CONFIG)


@pytest.mark.parametrize("line", ["pre-commit run -a", "npx eslint .", "poetry run pytest"])
def test_other_tools_of_a_project_name_nothing(line: str) -> None:
    assert written(*line.split()) == ()


def test_a_branch_that_only_the_remote_has_is_tracked_from_now_on() -> None:
    refs = {"/work/.git/refs/remotes/origin/x"}
    known = facts(git_folders=found, exists=refs)
    assert grade(command("git", "checkout", "x"), known).write_paths == (CONFIG,)
    assert grade(command("git", "switch", "x"), known).write_paths == (CONFIG,)
    local = facts(git_folders=found, exists=refs | {"/work/.git/refs/heads/x"})
    assert grade(command("git", "checkout", "x"), local).write_paths == ()


def test_outside_a_repository_nothing_is_named() -> None:
    assert grade(command("git", "remote", "add", "o", "u"), facts()).write_paths == ()


# ------------------------------------------------------------------ beside git itself


@pytest.fixture
def classifier() -> Iterator[Classifier]:
    made = Classifier(load_tables())
    yield made
    made.close()


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@y", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def cloned(tmp_path: Path) -> Path:
    """A clone whose remote has a branch `x` that is not checked out."""
    (tmp_path / "up").mkdir()
    git(tmp_path / "up", "init", "-q", "-b", "main")
    git(tmp_path / "up", "commit", "-q", "--allow-empty", "-m", "one")
    git(tmp_path / "up", "branch", "x")
    git(tmp_path, "clone", "-q", "up", "work")
    return tmp_path / "work"


def state(folder: Path) -> dict[str, bytes]:
    common = folder / ".git"
    files = [common / "config", common / "config.worktree", folder / ".gitmodules"]
    files += sorted((common / "hooks").glob("*"))
    return {str(file): file.read_bytes() for file in files if file.is_file()}


@pytest.mark.parametrize(
    "arguments",
    [
        "remote add o https://h/x", "remote set-url origin u", "remote remove origin", "config a.b c", "config --unset remote.origin.url",
        "branch -m main other", "branch -u origin/x", "branch --unset-upstream", "branch y origin/x", "checkout -q -b y origin/x",
        "checkout -q --track origin/x", "switch -q -c y origin/x", "push -q -u origin HEAD:z", "sparse-checkout set a", "commit -q --allow-empty -m y",
        "stash", "fetch -q", "tag t", "checkout -q -b plain", "submodule --quiet add ../up sub",
    ],
)  # fmt: skip
def test_what_git_changed_is_what_was_named(
    arguments: str, cloned: Path, classifier: Classifier
) -> None:
    context = Context(cwd=str(cloned), path="/usr/bin:/bin", home="/home/user")
    verdict = classifier.classify_text(f"git {arguments}", context)
    before = state(cloned)
    git(cloned, *arguments.split())
    after = state(cloned)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert verdict.class_ is not CommandClass.READ_ONLY
    assert changed <= set(verdict.write_paths)
    assert bool(changed) == bool(verdict.write_paths)


def test_a_linked_worktree_writes_the_shared_configuration(
    cloned: Path, classifier: Classifier
) -> None:
    git(cloned, "worktree", "add", "-q", "../linked")
    context = Context(cwd=str(cloned.parent / "linked"), path="/usr/bin:/bin", home="/home/user")
    verdict = classifier.classify_text("git remote add o u", context)
    assert verdict.write_paths == (str(cloned / ".git" / "config"),)
