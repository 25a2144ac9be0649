"""bashlex can neither hang nor exhaust the caller: it runs where it can be stopped."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.classify.classifier import Classifier
from sandboxd.classify.parse import BashlexWorker, is_misleading, neutralised
from sandboxd.classify.tables import load_tables
from tests.classify.shell_context import CONTEXT

SPINS = ["grep -e'${x' f", "ls a'${' | head", "sed -es'${x/y/' f"]
MISLEADS = [
    "echo '\"'$(PWN)'\"'",
    'echo ""<(PWN)',
    "echo ~$(PWN)",
    "echo ${x:-$(PWN)}",
    "cat <<EOF\n$(PWN)\nEOF",
    "cat <<'EOF'\nhi\nEOF\nPWN\n'EOF'",
    "echo ${a[$(PWN)]}",
    "echo $(ls # )\nPWN)",
]


@pytest.fixture
def worker() -> Iterator[BashlexWorker]:
    worker = BashlexWorker()
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def classifier() -> Iterator[Classifier]:
    classifier = Classifier(load_tables())
    yield classifier
    classifier.close()


def test_commands_of_nested_substitutions_are_listed(worker: BashlexWorker) -> None:
    found = worker.commands("ls -l | cat $(a b)")
    assert found is not None
    assert sorted(found) == [[(0, 2), (3, 5)], [(8, 11), (12, 18)], [(14, 15), (16, 17)]]


def test_what_bashlex_refuses_cannot_be_read(worker: BashlexWorker) -> None:
    for text in ("case x in x) ls;; esac", "time ls", "echo $((1))", "if", "ls )"):
        assert worker.commands(text) is None


@pytest.mark.parametrize("text", SPINS)
def test_text_on_which_bashlex_spins_is_given_up_and_the_worker_recovers(
    text: str, worker: BashlexWorker
) -> None:
    begun = time.monotonic()
    assert worker.commands(text) is None
    assert time.monotonic() - begun < 20
    assert worker.commands("ls x") == [[(0, 2), (3, 4)]]


@pytest.mark.parametrize("text", SPINS)
def test_the_classifier_answers_such_text_at_once(text: str, classifier: Classifier) -> None:
    begun = time.monotonic()
    verdict = classifier.classify_text(text, CONTEXT)
    assert verdict.parsed
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("text", MISLEADS)
def test_text_that_misleads_bashlex_is_not_read_only(text: str, classifier: Classifier) -> None:
    verdict = classifier.classify_text(text, CONTEXT)
    assert verdict.class_.value != "read_only"


def test_the_worker_is_bounded_in_memory(worker: BashlexWorker) -> None:
    worker.commands("true")
    process = worker._process
    assert process is not None
    limits = Path(f"/proc/{process.pid}/limits").read_text() if sys.platform == "linux" else ""
    if limits:
        row = next(line for line in limits.splitlines() if line.startswith("Max address space"))
        assert int(row.split()[3]) == 512 * 1024 * 1024


def test_a_killed_worker_is_started_again(worker: BashlexWorker) -> None:
    worker.commands("true")
    assert worker._process is not None
    worker._process.kill()
    worker._process.wait()
    assert worker.commands("ls x") == [[(0, 2), (3, 4)]]


def test_known_bad_forms_are_not_even_sent() -> None:
    for text in ("echo ${x", "echo `a`", "echo ~$(a)", 'echo ""<(a)', "cat <<E", "echo $'a'"):
        assert is_misleading(text)
    assert not is_misleading("ls $x | cat <<< a")


def test_quotes_become_letters_of_the_same_length() -> None:
    assert neutralised("a '$(b)' # c", [(2, 8), (9, 12)]) == "a xxxxxx    "


def test_importing_the_classifier_loads_neither_bashlex_nor_tree_sitter() -> None:
    code = (
        "import sys, sandboxd.classify.classifier as c, sandboxd.classify.tables as t;"
        "k = c.Classifier(t.load_tables());"
        "v = k.classify_text('ls -l', c.Context(cwd='/', path='/bin', home='/'));"
        "assert v.class_.value == 'read_only', v;"
        "assert not {'bashlex', 'tree_sitter'} & set(sys.modules), 'loaded'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
