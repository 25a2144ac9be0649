"""A program that a run could have planted is not the program of that name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.classify import programs
from sandboxd.classify.classifier import Classifier
from sandboxd.classify.context import Context
from sandboxd.classify.programs import ProgramFinder
from sandboxd.classify.tables import load_tables

SYSTEM = "/usr/bin:/bin"


@pytest.fixture(scope="module")
def classifier() -> Iterator[Classifier]:
    classifier = Classifier(load_tables())
    yield classifier
    classifier.close()


def plant(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def context(workspace: Path, path: str) -> Context:
    return Context(
        cwd=str(workspace), path=path, home="/home/user", writable_roots=(str(workspace),)
    )


def test_a_planted_ls_first_on_path_is_not_read_only(
    tmp_path: Path, classifier: Classifier
) -> None:
    plant(tmp_path / "venv" / "bin", "ls")
    verdict = classifier.classify_text("ls", context(tmp_path, f"{tmp_path}/venv/bin:{SYSTEM}"))
    assert verdict.class_.value == "mutating"
    assert [reason.rule for reason in verdict.reasons] == ["program-writable"]


def test_a_system_program_before_the_writable_folder_stays_read_only(
    tmp_path: Path, classifier: Classifier
) -> None:
    plant(tmp_path / "bin", "ls")
    verdict = classifier.classify_text("ls", context(tmp_path, f"{SYSTEM}:{tmp_path}/bin"))
    assert verdict.class_.value == "read_only"


@pytest.mark.parametrize("entry", ["", ".", "bin", "./bin"])
def test_a_relative_or_empty_path_entry_is_not_read_only(
    entry: str, tmp_path: Path, classifier: Classifier
) -> None:
    verdict = classifier.classify_text("ls", context(tmp_path, f"{entry}:{SYSTEM}"))
    assert verdict.class_.value == "mutating"


def test_an_absent_name_is_not_read_only_when_a_run_could_create_it(tmp_path: Path) -> None:
    safe = ProgramFinder(SYSTEM, [str(tmp_path)])
    risky = ProgramFinder(f"{SYSTEM}:{tmp_path}/bin", [str(tmp_path)])
    assert safe.plantable("no-such-program") is None
    assert risky.plantable("no-such-program") is not None
    assert risky.plantable("ls") is None


def test_links_are_followed_in_both_directions(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    plant(workspace, "tool")
    outside.mkdir()
    (outside / "tool").symlink_to(workspace / "tool")
    assert ProgramFinder(str(outside), [str(workspace)]).plantable("tool") is not None
    (tmp_path / "alias").symlink_to(workspace)
    assert ProgramFinder(str(tmp_path / "alias"), [str(workspace)]).plantable("tool") is not None
    assert ProgramFinder(str(workspace), [str(tmp_path / "alias")]).plantable("tool") is not None


def test_a_sibling_whose_name_begins_alike_is_not_inside(tmp_path: Path) -> None:
    plant(tmp_path / "work-tools", "ls")
    (tmp_path / "work").mkdir()
    assert (
        ProgramFinder(str(tmp_path / "work-tools"), [str(tmp_path / "work")]).plantable("ls")
        is None
    )


def test_builtins_are_not_looked_up_but_argument_vectors_are(
    tmp_path: Path, classifier: Classifier
) -> None:
    plant(tmp_path / "bin", "echo")
    facts = context(tmp_path, f"{tmp_path}/bin:{SYSTEM}")
    assert classifier.classify_text("echo hi", facts).class_.value == "read_only"
    assert classifier.classify_argv(["echo", "hi"], facts).class_.value == "mutating"
    assert classifier.classify_text("xargs echo", facts).class_.value == "mutating"


def test_a_cached_verdict_ends_when_a_program_appears(
    tmp_path: Path, classifier: Classifier
) -> None:
    workspace, tools = tmp_path / "workspace", tmp_path / "tools"
    workspace.mkdir()
    tools.mkdir()
    facts = context(workspace, f"{tools}:{SYSTEM}")
    assert classifier.classify_text("ls", facts).class_.value == "read_only"
    os.symlink(plant(workspace, "ls"), tools / "ls")
    assert classifier.classify_text("ls", facts).class_.value == "mutating"


def settled(folder: Path) -> None:
    """As if nothing had changed here for a while."""
    os.utime(folder, (1_000_000_000, 1_000_000_000))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stamps are looked at each time."""
    monkeypatch.setattr(programs, "FRESH_SECONDS", -1.0)


def test_a_program_that_goes_away_is_noticed(tmp_path: Path, impatient: None) -> None:
    tool = plant(tmp_path / "bin", "tool")
    settled(tmp_path / "bin")
    finder = ProgramFinder(f"{tmp_path}/bin:{tmp_path}/ws", [f"{tmp_path}/ws"])
    assert [finder.plantable("tool"), finder.plantable("tool")] == [None, None]
    tool.unlink()
    assert finder.plantable("tool") is not None


def test_a_program_that_appears_is_noticed(tmp_path: Path, impatient: None) -> None:
    (tmp_path / "bin").mkdir()
    settled(tmp_path / "bin")
    finder = ProgramFinder(f"{tmp_path}/bin:{tmp_path}/ws", [f"{tmp_path}/ws"])
    assert finder.plantable("tool") is not None
    plant(tmp_path / "bin", "tool")
    assert finder.plantable("tool") is None


def test_a_folder_that_changed_a_moment_ago_is_looked_at_each_time(tmp_path: Path) -> None:
    tool = plant(tmp_path / "bin", "tool")
    finder = ProgramFinder(f"{tmp_path}/bin:{tmp_path}/ws", [f"{tmp_path}/ws"])
    assert finder.plantable("tool") is None
    tool.unlink()
    assert finder.plantable("tool") is not None


def test_a_file_that_becomes_executable_is_noticed(tmp_path: Path) -> None:
    tool = plant(tmp_path / "bin", "tool")
    tool.chmod(0o644)
    settled(tmp_path / "bin")
    finder = ProgramFinder(f"{tmp_path}/bin:{tmp_path}/ws", [f"{tmp_path}/ws"])
    assert finder.plantable("tool") is not None
    tool.chmod(0o755)
    assert finder.plantable("tool") is None


def test_a_link_that_leads_through_a_writable_folder_can_be_turned(tmp_path: Path) -> None:
    """What counts is not only where it ends, but every step on the way."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "ws" / "step").symlink_to("/bin/ls")
    (tmp_path / "bin" / "tool").symlink_to(tmp_path / "ws" / "step")
    finder = ProgramFinder(f"{tmp_path}/bin:/usr/bin", [f"{tmp_path}/ws"])
    assert "a run can write" in (finder.plantable("tool") or "")
