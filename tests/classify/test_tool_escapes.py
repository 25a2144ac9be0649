"""Ordinary tools that start a shell, write a file or send one away are never called readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.classify.classifier import Classifier
from sandboxd.classify.tables import load_tables
from sandboxd.model import CommandClass
from tests.classify.shell_context import CONTEXT


def lines_of(section: str) -> list[str]:
    text = (Path(__file__).parent / "tool_escapes.txt").read_text()
    body = text.split(f"[{section}]\n", 1)[1].split("\n[", 1)[0]
    return [line.replace("\\n", "\n") for line in body.splitlines() if line]


@pytest.fixture(scope="module")
def classifier() -> Iterator[Classifier]:
    classifier = Classifier(load_tables())
    classifier.warm_up()
    yield classifier
    classifier.close()


def readers(classifier: Classifier, texts: list[str]) -> list[str]:
    return [
        text
        for text in texts
        if classifier.classify_text(text, CONTEXT).class_ is CommandClass.READ_ONLY
    ]


def test_no_escape_write_or_upload_is_read_only(classifier: Classifier) -> None:
    acts = lines_of("acts")
    assert len(acts) > 500
    assert readers(classifier, acts) == []


@pytest.mark.parametrize("wrapping", ["nice @", "timeout 5 @", "env @", "ls; @", "x=$(@)", "( @ )"])
def test_nor_is_it_through_a_wrapper(wrapping: str, classifier: Classifier) -> None:
    assert readers(classifier, [wrapping.replace("@", text) for text in lines_of("acts")]) == []


def test_what_only_reads_is_read_only(classifier: Classifier) -> None:
    reads = lines_of("reads")
    asked = set(reads) - set(readers(classifier, reads))
    assert asked <= {"diff --line-format=%L /dev/null f", "pr -T f", "od -An -c -w9999 f"}
