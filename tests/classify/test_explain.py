"""A verdict as people see it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandboxd.classify.classifier import Classifier
from sandboxd.classify.explain import explain
from sandboxd.classify.tables import load_tables
from tests.classify.shell_context import CONTEXT


@pytest.fixture(scope="module")
def classifier() -> Iterator[Classifier]:
    classifier = Classifier(load_tables())
    yield classifier
    classifier.close()


def explained(classifier: Classifier, text: str) -> list[str]:
    return explain(text, classifier.classify_text(text, CONTEXT)).split("\n")


def test_the_deciding_part_is_marked_under_its_own_line(classifier: Classifier) -> None:
    lines = explained(classifier, "ls -l\npwd && rm -rf x # gone")
    assert lines[:3] == ["  ls -l", "  pwd && rm -rf x # gone", "         ^^^^^^^^"]
    assert lines[4].startswith("destructive: ")


def test_wide_characters_and_tabs_keep_the_marks_in_place(classifier: Classifier) -> None:
    lines = explained(classifier, "echo 日本;\trm x")
    assert lines[:2] == ["  echo 日本; rm x", "             ^^^^"]


def test_control_characters_are_shown_and_not_printed(classifier: Classifier) -> None:
    text = "echo '\x1b[31m'; rm x"
    lines = explained(classifier, text)
    assert "\x1b" not in "\n".join(lines)
    assert lines[0] == "  echo '\\x1b[31m'; rm x"
    assert lines[1].index("^") == lines[0].index("rm")


def test_unread_text_is_said_to_be_unreadable_and_not_to_destroy(classifier: Classifier) -> None:
    lines = explained(classifier, "echo ${")
    assert any(line.startswith("cannot be read") for line in lines)
    assert not any(line.startswith("destructive") for line in lines)


def test_a_read_only_command_has_no_marks_and_no_remedy(classifier: Classifier) -> None:
    lines = explained(classifier, "cat notes.txt")
    assert lines[:3] == ["  cat notes.txt", "", "read_only: only reads"]
    assert not any("to make it" in line for line in lines)
    assert "reads: /nowhere/project/notes.txt" in lines


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("echo x > f", "print instead of writing to a file, or write to /dev/null"),
        ("./ls", "use the command's bare name"),
        ("ls; make x", "leave out `make x`"),
        ("frobnicate", "describe the command in a command table"),
    ],
)
def test_it_says_what_would_make_the_command_read_only(
    text: str, remedy: str, classifier: Classifier
) -> None:
    assert any(remedy in line for line in explained(classifier, text))
