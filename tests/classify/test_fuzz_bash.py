"""Random shell text: whatever bash executes must not be read-only."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sandboxd.classify.classifier import Classifier
from sandboxd.classify.tables import load_tables
from sandboxd.model import CommandClass
from tests.classify.shell_context import CONTEXT
from tests.classify.shell_fuzz import Outcome, reads_as_harmless, run_in_bash, strings

COUNT = 20_000
SEED = 20_240


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return run_in_bash(strings(COUNT, SEED))


@pytest.fixture(scope="module")
def classifier() -> Iterator[Classifier]:
    classifier = Classifier(load_tables())
    classifier.warm_up()
    yield classifier
    classifier.close()


def test_the_strings_make_bash_act_often_enough_to_mean_something(
    outcomes: list[Outcome],
) -> None:
    assert sum(outcome.ran_marker for outcome in outcomes) >= COUNT // 20


def test_what_bash_executed_is_never_read_only(
    outcomes: list[Outcome], classifier: Classifier
) -> None:
    wrong = [
        outcome.text
        for outcome in outcomes
        if outcome.acted
        and classifier.classify_text(outcome.text, CONTEXT).class_ is CommandClass.READ_ONLY
    ]
    assert wrong == []


def test_our_own_reader_alone_hides_nothing_that_bash_executed(outcomes: list[Outcome]) -> None:
    wrong = [o.text for o in outcomes if o.acted and reads_as_harmless(o.text)]
    assert wrong == []


def test_no_string_takes_long_or_crashes(classifier: Classifier) -> None:
    classifier.warm_up()
    slow = []
    for text in strings(COUNT, SEED + 1):
        begun = time.perf_counter()
        classifier.classify_text(text, CONTEXT)
        if time.perf_counter() - begun > 1:
            slow.append(text)
    assert slow == []
