"""`[[ ... ]]`: its own little language, in which some operators evaluate their operands.

`-v NAME[..]` and the numeric comparisons evaluate subscripts and variables as arithmetic, which
can run commands; everything else only compares. Source: bash(1), "CONDITIONAL EXPRESSIONS";
which forms run was tried in bash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandboxd.classify.arithmetic import is_integer, is_one_expression
from sandboxd.classify.unquote import WordBuilder
from sandboxd.classify.words import WordReader

_NUMERIC = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_TAKES_PATTERN = frozenset(("=~", "==", "=", "!="))
_EVALUATES_NAME = frozenset(("-v", "-R"))
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_VARIABLE = re.compile(r"\"?\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?\"?\Z")
_ALWAYS_NUMBER = re.compile(r"\"?(?:\$[#?$!]|\$\{#[A-Za-z0-9_@*\[\]]+\})\"?\Z")
_CLOSE = re.compile(r"\]\](?=[ \t\n;&|()<>]|\Z)")
_OPERATOR = re.compile(r"&&|\|\||[()]|!(?=[ \t\n(])|[<>](?!\()")
_REGEX_RUN = re.compile(r"[^\s\x00-\x20\x7f|&;()<>'\"\\$`]+")
_BLANKS = re.compile(r"(?:[ \t\n]|\\\n)*")


@dataclass(slots=True, frozen=True)
class _Operand:
    raw: str
    text: str
    is_literal: bool
    start: int
    drafts_before: int
    drafts_after: int


class ConditionalReader(WordReader):
    """The part of the reader that knows `[[ ]]`."""

    def conditional(self) -> None:
        """Read up to and including `]]`; the position is after `[[`."""
        operands: list[_Operand | None] = []
        while True:
            blanks = _BLANKS.match(self.text, self.position, self.end)
            self.position = blanks.end() if blanks else self.position
            if self.position >= self.end:
                raise self.fail("`[[` is not closed")
            if close := _CLOSE.match(self.text, self.position, self.end):
                self.position = close.end()
                break
            if operator := _OPERATOR.match(self.text, self.position, self.end):
                self.tokens.append(operator[0])
                self.position = operator.end()
                operands.append(None)
                continue
            is_pattern = (
                bool(operands) and operands[-1] is not None and operands[-1].raw in _TAKES_PATTERN
            )
            operands.append(self._operand_word(is_pattern=is_pattern))
        self._judge(operands)

    def _operand_word(self, *, is_pattern: bool) -> _Operand:
        start, before = self.position, len(self.drafts)
        builder = self._pattern() if is_pattern else self.build()
        raw = self.text[start : self.position]
        self.tokens.append(raw)
        text = "".join(builder.parts)
        return _Operand(raw, text, builder.is_literal, start, before, len(self.drafts))

    def _pattern(self) -> WordBuilder:
        """The right side of `=~` and `==`: parentheses and bars belong to it, blanks only inside."""
        builder, depth = WordBuilder(), 0
        start = self.position
        while self.position < self.end:
            char = self.text[self.position]
            if char == "(":
                depth += 1
            elif char == ")":
                if depth == 0:
                    break
                depth -= 1
            elif char in " \t\n" and depth == 0:
                break
            if char in "\n;&<>":
                raise self.fail("a pattern that cannot be read")
            if char in "()| \t":
                builder.literal(char)
                self.position += 1
            elif run := _REGEX_RUN.match(self.text, self.position, self.end):
                builder.literal(run[0])
                self.position = run.end()
            elif not self._piece(builder, start, False):
                break
            else:
                continue
        if self.position == start:
            raise self.fail("a pattern is missing")
        return builder

    def _judge(self, operands: list[_Operand | None]) -> None:
        for index, operand in enumerate(operands):
            if operand is None:
                continue
            neighbours = operands[max(index - 1, 0) : index], operands[index + 1 : index + 2]
            if operand.raw in _EVALUATES_NAME:
                for name in neighbours[1]:
                    self._judge_name(name)
            elif operand.raw in _NUMERIC:
                for side in neighbours:
                    for number in side:
                        self._judge_number(number)

    def _judge_name(self, operand: _Operand | None) -> None:
        if operand is not None and not (
            operand.is_literal and _IDENTIFIER.match(operand.text) is not None
        ):
            end = operand.start + len(operand.raw)
            self.note(
                "subscript",
                "`[[ -v` evaluates a subscript, which can run a command",
                operand.start,
                end,
            )

    def _judge_number(self, operand: _Operand | None) -> None:
        if operand is None:
            return
        span = self.span(operand.start, operand.start + len(operand.raw))
        if (operand.is_literal and is_integer(operand.text)) or _ALWAYS_NUMBER.match(operand.raw):
            return
        if is_one_expression(operand.raw.strip('"')):
            return
        if variable := _VARIABLE.match(operand.raw):
            self.arithmetic.use([variable[1]], span)
        elif operand.is_literal and _IDENTIFIER.match(operand.text):
            self.arithmetic.use([operand.text], span)
        elif not self._is_number_printed(operand):
            self.note(
                "arithmetic",
                "`[[` evaluates text that is not known beforehand as arithmetic",
                *(operand.start, operand.start + len(operand.raw)),
            )

    def _is_number_printed(self, operand: _Operand) -> bool:
        raw = operand.raw.strip('"')
        made = self.drafts[operand.drafts_before : operand.drafts_after]
        if not (raw.startswith("$(") and raw.endswith(")") and made):
            return False
        ends = operand.start + len(operand.raw.rstrip('"')) - 1
        return made[-1].end == ends and self.arithmetic.prints_number(made)
