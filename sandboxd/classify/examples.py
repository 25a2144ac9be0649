"""The examples of a table entry, graded: the entry's own proof that it says what it means.

Examples are single commands; quotes are read by shlex. `sh -c TEXT` inside an example is read the
same way and cut at `;`, `&&` and `|`, so examples stay within that.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator

from sandboxd.classify.entries import Entry
from sandboxd.classify.findings import GradeFacts
from sandboxd.classify.grading import grade
from sandboxd.classify.tables import Tables
from sandboxd.model import CommandClass, Grade, Redirect, SimpleCommand, Verdict, Word, worst

_WORKSPACE = "/workspace"
_EXISTING = frozenset(("existing.txt", "existing.db"))


def example_facts(tables: Tables, depth: int = 0) -> GradeFacts:
    """Facts of a folder that holds `existing.txt` and `existing.db` and a plain repository."""
    return GradeFacts(
        cwd=_WORKSPACE,
        home="/home/user",
        exists=lambda path: os.path.basename(path) in _EXISTING,
        git_defines_programs=lambda folder: False,
        depth=depth,
        grade_text=lambda text: _verdict(text, tables, depth + 1),
        tables=tables,
    )


def command_of(text: str) -> SimpleCommand:
    """One command with its words; a leading `CMD |` puts CMD before it in a pipe.

    `${x}` in a word stands for an expansion in double quotes, `<<<TEXT` for a here-string.
    """
    words = shlex.split(text)
    bar = words.index("|") if "|" in words else -1
    before, after = words[: max(bar, 0)], words[bar + 1 :]
    return SimpleCommand(
        words=tuple(_word(text) for text in after if not text.startswith("<<<")),
        redirects=tuple(
            Redirect(operator="<<<", target=_word(text[3:])) for text in after if text[:3] == "<<<"
        ),
        span=(0, len(text)),
        piped_from=tuple(before[:1]),
    )


def _word(text: str) -> Word:
    is_literal = "${" not in text
    return Word(text=text, span=(0, 0), is_literal=is_literal, may_be_option=text.startswith("${"))


def _verdict(text: str, tables: Tables, depth: int) -> Verdict:
    try:
        pieces = re.split(r";|&&|\|\|?|\n", text)
        grades = [
            grade(command_of(piece), example_facts(tables, depth))
            for piece in pieces
            if piece.strip()
        ]
    except ValueError:
        return Verdict(class_=CommandClass.DESTRUCTIVE, parsed=False, cacheable=False)
    return Verdict(
        class_=worst(found.class_ for found in grades),
        parsed=True,
        cacheable=all(found.is_cacheable for found in grades),
    )


def grade_example(text: str, tables: Tables) -> Grade:
    """The grade of an example command line under `example_facts`."""
    return grade(command_of(text), example_facts(tables))


def examples_of(entry: Entry) -> Iterator[tuple[str, CommandClass]]:
    """Every example of an entry and of its subcommands, once, with the class it must have."""
    yield from dict.fromkeys(_all_examples(entry))


def _all_examples(entry: Entry) -> Iterator[tuple[str, CommandClass]]:
    for kind in CommandClass:
        for text in getattr(entry.examples, kind.value):
            yield text, kind
    for inner in entry.subcommands.values():
        yield from _all_examples(inner)


def failing_examples(tables: Tables, name: str) -> Iterator[str]:
    """One sentence for every example of `name` that is graded otherwise."""
    entry = tables.entry(name)
    if entry is None:
        return
    for text, wanted in examples_of(entry):
        found = grade_example(text, tables)
        if found.class_ is not wanted:
            yield f"the example `{text}` is {found.class_.value} ({found.reason}), not {wanted.value}"
