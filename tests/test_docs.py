"""README, changelog and decision records say what is so: names, paths, codes and commands."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from sandboxd import errors
from sandboxd.cli import options
from sandboxd.cli.group import group
from sandboxd.model import TIER_NAMES

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
RECORDS = sorted((ROOT / "docs/decisions").glob("*.md"))
HEADINGS = ["## Context", "## Decision", "## Consequence", "## What would change our mind"]
ONE_PAGE = 60


def section(title: str) -> str:
    """The text of one `##` section of the README."""
    return README.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without head and rule."""
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_two_commands_do_all_the_set_up() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", section("Two commands"), re.S)
    assert len(blocks) == 2
    assert [block.count("\n") for block in blocks] == [1, 1]


def test_ci_runs_the_very_commands_of_the_readme() -> None:
    first, second = re.findall(r"```sh\n(.*?)\n```", section("Two commands"), re.S)
    runner = (ROOT / ".ci/run").read_text()
    pattern = re.search(r"grep -m 1 '\^(.*?)' README.md", runner)
    assert pattern is not None
    assert next(line for line in README.splitlines() if line.startswith(pattern[1])) == first
    install, test = second.split(" && ")
    assert install.removeprefix(".venv/bin/pip ") in (ROOT / "ci/setup").read_text().replace(
        "--quiet --disable-pip-version-check ", ""
    )
    assert test.removeprefix(".venv/bin/python ") in (ROOT / "ci/test").read_text()


def test_every_script_is_executable_and_stops_at_the_first_error() -> None:
    for script in [ROOT / ".ci/run", *(ROOT / "ci").iterdir()]:
        assert script.stat().st_mode & 0o111 == 0o111, script
        lines = script.read_text().splitlines()
        assert lines[0] == "#!/usr/bin/env bash"
        assert "set -euo pipefail" in lines


def test_every_place_named_exists() -> None:
    named = [name for row in rows(section("Where things live")) for name in row[0].split(", ")]
    assert [name for name in named if not (ROOT / name.strip("`")).exists()] == []


def test_every_folder_of_the_package_is_named() -> None:
    """Folders that hold code; a stage that is not built yet is not claimed."""
    built = {file.parent.name for file in (ROOT / "sandboxd").glob("*/*.py")} - {"__pycache__"}
    place = section("Where things live")
    assert {folder for folder in built if f"`sandboxd/{folder}/`" not in place} == set()


def test_every_link_leads_somewhere() -> None:
    for file in [ROOT / "README.md", ROOT / "CHANGELOG.md", *RECORDS]:
        for target in re.findall(r"\]\(([^)#]+)\)", file.read_text()):
            if "://" not in target:
                assert (file.parent / target).exists(), f"{file.name}: {target}"


def test_tiers_are_all_there_strongest_first() -> None:
    assert [row[0].strip("`") for row in rows(section("Tiers"))] == list(TIER_NAMES)


def test_tier_that_is_called_built_has_a_module() -> None:
    for name, state, *_ in rows(section("Tiers")):
        # `inherited` is `containment` under another name and lives beside it.
        file = {"inherited": "containment"}.get(name.strip("`"), name.strip("`"))
        module = ROOT / "sandboxd/confine" / f"{file}.py"
        assert module.exists() == state.startswith("built"), f"{name} is {state}"


def test_exit_codes_are_those_of_the_refusals() -> None:
    table = {row[0] for row in rows(section("Exit codes of `exec`"))}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {str(kind.exit_code) for kind in kinds if issubclass(kind, errors.Refusal)}
    assert codes | {"124"} == table - {"the program's own", "128 + n"}


def examples(command: str) -> list[list[str]]:
    """The words of each example in "Using it" that starts with `sandboxd COMMAND`."""
    lines = [line for line in section("Using it").splitlines() if line.startswith("sandboxd ")]
    split = [shlex.split(re.split(r" +# | > ", line)[0]) for line in lines]
    return [words[2:] for words in split if words[1] == command]


def test_every_exec_example_is_understood() -> None:
    found = examples("exec")
    assert len(found) >= 5
    for words in found:
        parsed = options.parse(words)
        assert parsed.argv or parsed.text


def test_every_other_example_names_a_command_that_exists() -> None:
    named = {
        words[0] for words in map(str.split, re.findall(r"sandboxd (\w.*)", section("Using it")))
    }
    for command in sorted(named - {"exec"}):
        assert group.get_command(click.Context(group), command) is not None, command


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_decision_is_one_page_in_four_parts_and_in_the_index(record: Path) -> None:
    text = record.read_text()
    title = text.splitlines()[0].removeprefix("# ")
    assert title.startswith(f"{record.stem[:4]}: ")
    assert [line for line in text.splitlines() if line.startswith("## ")] == HEADINGS
    assert text.count("\n") <= ONE_PAGE
    assert f"- [{title}](docs/decisions/{record.name})" in section("Decisions")


def test_decisions_are_numbered_without_gaps() -> None:
    assert [record.name[:4] for record in RECORDS] == [
        f"{n:04}" for n in range(1, len(RECORDS) + 1)
    ]


def test_licence_reason_names_the_dependency_that_gives_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "GPL-3.0-or-later"
    assert any(line.startswith("bashlex") for line in project["dependencies"])
    assert "bashlex" in section("Licence")


def test_changelog_has_a_place_for_what_is_new() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[(.+?)\]", text, re.M)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", heading) for heading in headings[1:])
