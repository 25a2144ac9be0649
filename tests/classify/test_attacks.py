"""Known ways to write or run something through a reader, and the everyday readers beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.classify.examples import grade_example
from sandboxd.model import CommandClass
from tests.classify.grading_support import TABLES


def lines(name: str) -> Iterator[str]:
    for line in (Path(__file__).parent / name).read_text().splitlines():
        if line and not line.startswith("#"):
            yield line


@pytest.mark.parametrize("text", list(lines("attacks.txt")))
def test_an_attack_is_never_read_only(text: str) -> None:
    assert grade_example(text, TABLES).class_ is not CommandClass.READ_ONLY


@pytest.mark.parametrize("text", list(lines("everyday.txt")))
def test_an_everyday_reader_is_not_asked_about(text: str) -> None:
    found = grade_example(text, TABLES)
    assert found.class_ is CommandClass.READ_ONLY, found.reason
