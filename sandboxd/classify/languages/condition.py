"""Conditions: `test`, `[` and the words of `[[ ]]`.

`-v` and `-R` evaluate a subscript, and so do the numeric operators of `[[ ]]`: bash runs `$(..)`
found in there, also when it comes out of a variable. Source: bash(1) CONDITIONAL EXPRESSIONS.
"""

from __future__ import annotations

import re

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import NOTHING, Context, Finding, mutating
from sandboxd.model import Word

_EVALUATING = frozenset(("-v", "-R"))
_NUMERIC = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_BINARY = _NUMERIC | {"=", "==", "!=", "<", ">", "=~", "-nt", "-ot", "-ef", "-a", "-o"}
_UNARY = frozenset("-" + letter for letter in "abcdefghknoprstuwxzGLNOS")
_NUMBER = re.compile(r"[+-]?[0-9]+\Z")
_COUNTER = re.compile(r"(?:\$[?#$!]|\$\{#\w*(?:\[[@*]\])?\})\Z")
"""Parameters that bash itself sets to a number."""
_EXIT = {"1": "the condition is false"}


def test(arguments: Arguments, context: Context) -> Finding:
    """`test` and `[`: words that only the run knows must not be able to become an operator."""
    words = list(arguments.words)
    if context.command.words[0].text == "[":
        if not words or words[-1].text != "]":
            return mutating("[ lacks its ]")
        words.pop()
    for index, word in enumerate(words):
        if word.text in _EVALUATING:
            return mutating(f"{word.text} evaluates a subscript", "test")
        if not word.is_literal and not _COUNTER.match(word.text):
            if word.may_split and not word.has_glob:
                return mutating(f"{word.text} may become an operator that evaluates", "test")
            if not _is_operand(words, index):
                return mutating(f"{word.text} may become an operator that evaluates", "test")
    return Finding(exit_meaning=_EXIT)


def _is_operand(words: list[Word], index: int) -> bool:
    """A literal operator stands beside it, or it stands alone."""
    alone = [word for word in words if word.text != "!"]
    if len(alone) == 1:
        return True
    before = words[index - 1] if index > 0 else None
    after = words[index + 1] if index + 1 < len(words) else None
    if before is not None and before.is_literal and before.text in _BINARY | _UNARY:
        return True
    return after is not None and after.is_literal and after.text in _BINARY


def double_bracket(arguments: Arguments, context: Context) -> Finding:
    """`[[ .. ]]`: numeric operators are arithmetic, so their operands must be numbers."""
    words = arguments.words
    for index, word in enumerate(words):
        if word.text in _EVALUATING:
            return mutating(f"{word.text} evaluates a subscript", "test")
        if word.text in _NUMERIC:
            beside = [*words[max(index - 1, 0) : index], *words[index + 1 : index + 2]]
            if not all(_is_number(item) for item in beside):
                return mutating(f"{word.text} evaluates its operands as arithmetic", "test")
    return NOTHING if not words else Finding(exit_meaning=_EXIT)


def _is_number(word: Word) -> bool:
    pattern = _NUMBER if word.is_literal else _COUNTER
    return pattern.match(word.text) is not None
