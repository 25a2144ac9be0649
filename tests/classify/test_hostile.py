"""Hostile texts: the work for one verdict is bounded, and nothing inside can make it raise."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest

from sandboxd.classify import checks, plans
from sandboxd.classify.arguments import Arguments
from sandboxd.classify.classifier import Classifier
from sandboxd.classify.findings import Context, Finding
from sandboxd.classify.languages import sed
from sandboxd.classify.tables import load_tables
from sandboxd.model import CommandClass, Verdict
from tests.classify.shell_context import CONTEXT

SIZE = 64 * 1024
MANY_SECONDS = 8.0
"""Quadratic work on 64 KiB takes longer than this; what is measured here is well under one."""


def repeated(piece: str, tail: str = "", head: str = "") -> str:
    return head + piece * ((SIZE - len(tail) - len(head)) // len(piece)) + tail


WIDE = [
    repeated(" a", head="rm"),
    repeated(" f", head="cat"),
    repeated(" <a", head="cat"),
    repeated(" >a", head="ls"),
    repeated(" $(ls)", head="echo"),
    repeated("rm ", head="ssh host ", tail="x"),
    repeated("rm ", head="docker run ", tail="x"),
    repeated("cd a|ls;"),
    repeated("(cd a; ls);"),
    repeated("cd a||cd b;"),
    repeated("f;", head="f(){ ls;};"),
    repeated("bash -c ls;"),
    repeated("eval ls;"),
    repeated("trap ls EXIT;"),
    repeated("find . -exec rm {} \\;;"),
    repeated("case x in a) ls;; esac;"),
    repeated("cat <<E\na\nE\n"),
    repeated(" -exec ls {} \\;", head="find ."),
    repeated("\x0b"),
    repeated("`"),
    repeated("x=1;"),
]


@pytest.fixture(scope="module")
def classifier() -> Iterator[Classifier]:
    classifier = Classifier(load_tables())
    yield classifier
    classifier.close()


@pytest.mark.parametrize("text", WIDE, ids=[text[:16] for text in WIDE])
def test_a_text_of_64_kib_is_answered_in_bounded_time(text: str, classifier: Classifier) -> None:
    begun = time.monotonic()
    classifier.classify_text(text, CONTEXT)
    assert time.monotonic() - begun < MANY_SECONDS


def assert_unread(verdict: Verdict, message: str) -> None:
    assert (verdict.class_, verdict.parsed, verdict.cacheable, verdict.approval_key) == (
        CommandClass.DESTRUCTIVE,
        False,
        False,
        None,
    )
    assert [reason.rule for reason in verdict.reasons] == ["unparsed"]
    assert message in verdict.reasons[0].message


@pytest.mark.parametrize(
    "text",
    [
        "ls;" * 10_001,
        "ls\n" * 10_001,
        "echo $(ls);" * 5_001,
        "`ls`;" * 10_001,
        "bash -c '" + "ls;" * 9_999 + "'; ls; ls",
    ],
    ids=range(5),
)
def test_more_commands_than_anyone_writes_are_not_read(text: str, classifier: Classifier) -> None:
    verdict = classifier.classify_text(text, CONTEXT)
    if verdict.parsed:  # the text inside another one was not read, and so decides
        assert verdict.class_ is CommandClass.DESTRUCTIVE
        assert not verdict.cacheable
        assert "10000 commands" in verdict.reasons[0].message
    else:
        assert_unread(verdict, "10000 commands")


def test_in_a_long_text_any_command_may_run_in_any_folder(classifier: Classifier) -> None:
    short = classifier.classify_text("cat f;" * 10, CONTEXT)
    long = classifier.classify_text("cat f;" * 600, CONTEXT)
    assert (short.class_, short.read_paths) == (CommandClass.READ_ONLY, (f"{CONTEXT.cwd}/f",))
    assert (long.class_, long.read_paths) == (CommandClass.READ_ONLY, ())


def test_without_a_warm_up_a_text_that_needs_bashlex_is_asked_and_not_waited_for() -> None:
    text = "echo $;ls"
    classifier = Classifier(load_tables())
    try:
        begun = time.monotonic()
        first = classifier.classify_text(text, CONTEXT)
        took = time.monotonic() - begun
        classifier.warm_up()
        second = classifier.classify_text(text, CONTEXT)
    finally:
        classifier.close()
    assert (first.class_, first.cacheable) == (CommandClass.MUTATING, False)
    assert "just starting" in first.reasons[0].message
    assert took < 1
    assert second.class_ is CommandClass.READ_ONLY


# ------------------------------------------------------------------------------ defects


def breaking_checks(defect: Exception) -> Mapping[str, checks.Check]:
    def broken(arguments: Arguments, context: Context) -> Finding:
        raise defect

    return MappingProxyType(dict.fromkeys(checks.CHECKS, broken))


@pytest.mark.parametrize(
    "defect", [KeyError("x"), RecursionError(), MemoryError(), AssertionError(), OSError(5, "x")]
)
def test_a_defect_in_a_check_is_a_question_and_never_a_crash(
    defect: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "CHECKS", breaking_checks(defect))
    classifier = Classifier(load_tables())
    try:
        for text in ("sed -n 1p f", "ls; { sed -n 1p f; }", "bash -c 'sed -n 1p f'"):
            verdict = classifier.classify_text(text, CONTEXT)
            assert_unread(verdict, type(defect).__name__)
        assert_unread(classifier.classify_argv(["sed", "x"], CONTEXT), type(defect).__name__)
    finally:
        classifier.close()


def test_what_followed_a_defect_is_judged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = Classifier(load_tables())
    try:
        with monkeypatch.context() as patch:
            patch.setattr(sed, "_Script", None)
            assert not classifier.classify_text("sed -n 1p f", CONTEXT).parsed
        assert classifier.classify_text("sed -n 1p f", CONTEXT).class_ is CommandClass.READ_ONLY
    finally:
        classifier.close()
