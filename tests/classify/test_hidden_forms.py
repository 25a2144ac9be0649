"""Forms in which bash runs a program and a parser may not show it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sandboxd.classify.classifier import Classifier
from sandboxd.classify.tables import load_tables
from sandboxd.model import CommandClass
from tests.classify.shell_context import CONTEXT
from tests.classify.shell_fuzz import reads_as_harmless, run_in_bash

FORMS = yaml.safe_load((Path(__file__).parent / "hidden_forms.yaml").read_text())
RUNS = [form["text"] for form in FORMS if form["runs"]]

# These start a shell of their own, wait for a terminal, or need more than a bare PATH.
NEEDS_MORE = ("env", "xargs", "bash", "sh", "HOME=/tmp", "hash -p", "BASH_CMDS")


@pytest.fixture(scope="module")
def classifier() -> Iterator[Classifier]:
    classifier = Classifier(load_tables())
    yield classifier
    classifier.close()


@pytest.mark.parametrize("text", RUNS)
def test_what_bash_runs_is_not_read_only(text: str, classifier: Classifier) -> None:
    assert classifier.classify_text(text, CONTEXT).class_ is not CommandClass.READ_ONLY


@pytest.mark.parametrize("text", RUNS)
def test_what_bash_runs_does_not_read_as_harmless_before_any_table(text: str) -> None:
    by_name = (
        "printf",
        "read",
        "unset",
        "let",
        "declare",
        "trap",
        "compgen",
        "mapfile",
        "BASH_CMDS",
    )
    assert not reads_as_harmless(text) or text.startswith(by_name)


def test_the_table_says_what_this_bash_does() -> None:
    forms = [form for form in FORMS if not any(word in form["text"] for word in NEEDS_MORE)]
    outcomes = run_in_bash([form["text"] for form in forms])
    differing = [
        outcome.text
        for form, outcome in zip(forms, outcomes, strict=True)
        if outcome.ran_marker != form["runs"]
    ]
    assert len(forms) > 140
    assert differing == []


@pytest.mark.parametrize(
    "text",
    [form["text"] for form in FORMS if not form["runs"] and form["text"].startswith("echo ")],
)
def test_quoted_and_escaped_mentions_stay_readable(text: str, classifier: Classifier) -> None:
    assert classifier.classify_text(text, CONTEXT).parsed
