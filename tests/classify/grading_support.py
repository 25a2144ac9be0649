"""Builds simple commands and facts for the grading tests; words are given as bash left them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from sandboxd.classify.findings import GradeFacts
from sandboxd.classify.grading import grade
from sandboxd.classify.tables import load_tables
from sandboxd.model import (
    Assignment,
    CommandClass,
    Grade,
    Part,
    Reason,
    Redirect,
    SimpleCommand,
    Verdict,
    Word,
)

TABLES = load_tables()


def literal(text: str) -> Word:
    return Word(text=text, span=(0, len(text)))


def quoted(text: str) -> Word:
    """`"$x"`: one word, nobody knows which."""
    return Word(text=text, span=(0, 0), is_literal=False, may_be_option=text.startswith("$"))


def unquoted(text: str) -> Word:
    """`$x` without quotes: any number of words."""
    return Word(
        text=text,
        span=(0, 0),
        is_literal=False,
        may_split=True,
        may_be_option=text.startswith("$"),
    )


def glob(text: str) -> Word:
    return Word(
        text=text,
        span=(0, 0),
        is_literal=False,
        may_split=True,
        has_glob=True,
        may_be_option=text[0] in "*?[",
    )


def command(
    *words: str | Word,
    redirects: tuple[Redirect, ...] = (),
    assignments: tuple[Assignment, ...] = (),
    piped_from: tuple[str, ...] = (),
    is_piped_to: bool = False,
) -> SimpleCommand:
    return SimpleCommand(
        words=tuple(literal(word) if isinstance(word, str) else word for word in words),
        redirects=redirects,
        assignments=assignments,
        piped_from=piped_from,
        is_piped_to=is_piped_to,
    )


def redirect(operator: str, target: str | Word, descriptor: int | None = None) -> Redirect:
    word = literal(target) if isinstance(target, str) else target
    return Redirect(operator=operator, target=word, descriptor=descriptor)


def verdict(class_: CommandClass, *, parsed: bool = True) -> Verdict:
    part = Part(span=(0, 1), command="inner", class_=class_, rule="inner", reason="inner")
    return Verdict(
        class_=class_,
        parsed=parsed,
        cacheable=parsed,
        reasons=(Reason(rule="inner", message="inner"),),
        parts=(part,),
        programs=("inner",),
    )


def facts(
    *,
    cwd: str | None = "/work",
    exists: Collection[str] = (),
    defines: Callable[[str], bool] = lambda folder: False,
    depth: int = 0,
    text: Callable[[str], Verdict] = lambda text: verdict(CommandClass.READ_ONLY),
    git_folders: Callable[[str], tuple[str, str] | None] = lambda folder: None,
) -> GradeFacts:
    return GradeFacts(
        cwd=cwd,
        home="/home/user",
        exists=lambda path: path in exists,
        git_defines_programs=defines,
        depth=depth,
        grade_text=text,
        tables=TABLES,
        git_folders=git_folders,
    )


def graded(*words: str | Word) -> Grade:
    return grade(command(*words), facts())


def class_of(*words: str | Word) -> CommandClass:
    return graded(*words).class_
