"""Laws that hold for every text: a list is never milder than a part, wrapping changes no class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.classify.classifier import Classifier
from sandboxd.classify.tables import load_tables
from sandboxd.model import CommandClass
from tests.classify.shell_context import CONTEXT

HERE = Path(__file__).parent
EVERYDAY = [
    line
    for line in (HERE / "everyday.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
OTHERS = [
    *("touch x", "rm -rf x", "frobnicate", "git push", "git reset --hard", "make", "cd src", "cd"),
    *("sudo ls", "echo x > f", "x=1", "PATH=. ls", "sed -i s/a/b/ f", "export A=1", "set -x"),
    *(
        "find . -delete",
        "curl -d x http://h.example",
        "python3 -c 'print(1)'",
        "dd if=a of=/dev/sda",
    ),
    *(
        "read x",
        "eval ls",
        "trap 'rm x' EXIT",
        "xargs rm",
        "git branch -D x",
        "umask 0",
        "cat <<< $x",
    ),
]
COMMANDS = [*EVERYDAY, *OTHERS]
JOINTS = ["; ", "\n", " && ", " || ", " & "]
WRAPPINGS = [
    "{ @; }",
    "( @ )",
    "if true; then @; fi",
    "if false; then :; elif true; then @; else :; fi",
    "if false; then :; else @; fi",
    "for i in 1 2; do @; done",
    "for ((i = 0; i < 2; i++)); do @; done",
    "while @; do break; done",
    "until false; do @; break; done",
    "case x in a|x) @ ;; esac",
    "f() { @; }; f",
    "f() { @; }",
    "function f { @; }; f",
    "f() ( @ ); f",
    "{ ( { @; } ) ; }",
    "if { @; }; then ( @ ); fi",
]


@pytest.fixture(scope="module")
def classifier() -> Iterator[Classifier]:
    classifier = Classifier(load_tables())
    classifier.warm_up()
    yield classifier
    classifier.close()


def severity(classifier: Classifier, text: str) -> int:
    return classifier.classify_text(text, CONTEXT).class_.severity


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(COMMANDS), st.sampled_from(COMMANDS), st.sampled_from(JOINTS))
def test_a_list_is_never_milder_than_either_part(
    classifier: Classifier, left: str, right: str, joint: str
) -> None:
    whole = severity(classifier, left + joint + right)
    assert whole >= severity(classifier, left)
    if not left.startswith(("cd", "export", "PATH")) or joint == " & ":
        assert whole >= severity(classifier, right)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(COMMANDS), st.sampled_from(WRAPPINGS), st.sampled_from(WRAPPINGS))
def test_every_class_survives_wrapping_twice(
    classifier: Classifier, text: str, inner: str, outer: str
) -> None:
    wrapped = outer.replace("@", inner.replace("@", text))
    assert severity(classifier, wrapped) >= severity(classifier, text)


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_what_destroys_still_destroys_when_wrapped(wrapping: str, classifier: Classifier) -> None:
    for text in ("rm -rf x", "git reset --hard", "find . -delete", "xargs rm", "git branch -D x"):
        verdict = classifier.classify_text(wrapping.replace("@", text), CONTEXT)
        assert (verdict.class_, verdict.parsed, verdict.cacheable) == (
            CommandClass.DESTRUCTIVE,
            True,
            False,
        )


@pytest.mark.parametrize("wrapping", WRAPPINGS[:10])
def test_a_reader_is_still_one_when_wrapped(wrapping: str, classifier: Classifier) -> None:
    for text in ("ls -la", "grep -rn x src", "cat f | head -3", "git status"):
        verdict = classifier.classify_text(wrapping.replace("@", text), CONTEXT)
        assert verdict.class_ is CommandClass.READ_ONLY, wrapping
