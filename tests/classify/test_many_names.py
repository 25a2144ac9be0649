"""Places where one word becomes many, or an option is taken back: neither may hide a write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandboxd.classify.classifier import Classifier, Context
from sandboxd.classify.tables import load_tables
from sandboxd.model import CommandClass

WRITERS = [
    "bash -n +n x",
    "cat x | bash -n +n",
    "sh -n +n x",
    "dash -n +n x",
    "bash -n +nx x",
    "bash -nx +nx x",
    "bash -n +o noexec x",
    "bash -no noexec x",
    "find . -exec bash -n +n {} \\;",
    "find a b -exec uniq {} +",
    "find a b -type f -exec xxd {} +",
    "find a b -exec uniq -c {} +",
    "find a b -exec uniq -- {} +",
    "find a b -exec env uniq {} +",
    "find a b -exec timeout 5 uniq {} +",
    "find -files0-from LIST -exec find {} \\;",
    "find -files0-from x -exec sort {} \\;",
    "find -files0-from x -exec sort {} +",
    "fd x -X uniq",
]
READERS = [
    "bash -n script.sh",
    "find . -name '*.py' -exec grep -l x {} +",
    "find . -type f -exec wc -l {} +",
    "find . -type f -exec ls -la {} +",
    "find . -type f -exec head -5 {} \\;",
    "find . -name '*.py' -exec cat {} +",
    "find . -type f -exec file {} +",
    "find . -type f -exec md5sum {} +",
    "find . -type f -exec stat -c %s {} +",
    "find . -type f -exec du -ch {} +",
]


@pytest.fixture(scope="module")
def classifier() -> Iterator[Classifier]:
    made = Classifier(load_tables(), waits=True)
    yield made
    made.close()


CONTEXT = Context(
    cwd="/work/nowhere",
    path="/usr/bin:/bin",
    environment={},
    writable_roots=("/work/nowhere",),
    home="/root",
)


@pytest.mark.parametrize("text", WRITERS)
def test_what_can_write_or_run_is_no_reader(text: str, classifier: Classifier) -> None:
    assert classifier.classify_text(text, CONTEXT).class_ is not CommandClass.READ_ONLY


@pytest.mark.parametrize("text", READERS)
def test_everyday_readers_of_many_names_are_not_asked_about(
    text: str, classifier: Classifier
) -> None:
    assert classifier.classify_text(text, CONTEXT).class_ is CommandClass.READ_ONLY
