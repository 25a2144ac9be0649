"""The word reader: one shell word at a time, unquoted, with its expansions read.

Above expansions and below simple commands. It says of each word whether argv gets exactly its
text, may split it, or may take it for an option. Source: bash(1), "EXPANSION", "QUOTING".
"""

from __future__ import annotations

import re
from abc import abstractmethod

from sandboxd.classify.braces import expand_braces, has_braces
from sandboxd.classify.expansions import ExpansionReader
from sandboxd.classify.unquote import WordBuilder
from sandboxd.model import Span, Word

_PLAIN = re.compile(r"[^\s\x00-\x20\x7f|&;()<>'\"\\$`*?\[{~]+")
_PLAIN_WORD = re.compile(r"[^\s\x00-\x20\x7f|&;()<>'\"\\$`*?\[{~#]+(?=[ \t\n;]|\Z)")
_ENDS_WORD = frozenset(" \t\n|&;()<>")
_ASSIGNING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_TILDE = re.compile(r"~(?=[/:]|[ \t\n|&;()<>]|\Z)")
_REST = re.compile(r"[^\s|&;()<>]*+")
_CLOSES_PATTERN = "]'\"$`\\"


class WordReader(ExpansionReader):
    """The part of the reader that knows words."""

    _pattern_stop = -1
    _pattern_close = -1

    @abstractmethod
    def nested_reader(self, text: str, span: Span) -> WordReader: ...

    def words(self) -> list[Word]:
        """The word at the position, brace-expanded: usually one."""
        start = self.position
        plain = _PLAIN_WORD.match(self.text, start, self.end)
        if plain is not None:
            self.position = plain.end()
            raw = plain[0]
            self.tokens.append(raw)
            return [Word(text=raw, span=self.span(start, self.position))]
        builder = self.build()
        span = self.span(start, self.position)
        raw = self.text[start : self.position]
        self.tokens.append(raw)
        if builder.has_brace and has_braces(raw):
            return self._expanded(builder, raw, span)
        return [builder.word(span)]

    def word(self) -> Word:
        """The word at the position where bash performs no brace expansion."""
        start = self.position
        builder = self.build()
        self.tokens.append(self.text[start : self.position])
        return builder.word(self.span(start, self.position))

    def _expanded(self, builder: WordBuilder, raw: str, span: Span) -> list[Word]:
        results = expand_braces(raw)
        if results is None or (not builder.is_literal and not builder.has_glob):
            builder.is_literal = False
            builder.may_split = builder.may_be_option = True
            return [builder.word(span)]
        words = []
        for result in results:
            reader = self.nested_reader(result, span)
            made = reader.build()
            if reader.position != len(result):
                raise self.fail("a brace expansion that cannot be read")
            if made.parts or result:
                words.append(made.word(span))
        return words

    def build(self, *, is_value: bool = False) -> WordBuilder:
        """Collect one word; ends before a blank or a metacharacter. `is_value` is the right
        side of an assignment, where `~` also counts after a colon."""
        builder = WordBuilder()
        start = self.position
        self._pattern_stop = -1
        assigns = is_value or _ASSIGNING.match(self.text, start, self.end) is not None
        while self.position < self.end:
            plain = _PLAIN.match(self.text, self.position, self.end)
            if plain is not None:
                self.position = plain.end()
                builder.literal(plain[0])
                continue
            if not self._piece(builder, start, assigns):
                break
        if self.position == start:
            raise self.fail("a word is missing")
        return builder

    def _piece(self, builder: WordBuilder, start: int, assigns: bool) -> bool:
        """Read one special piece of a word; False when the word ends here."""
        char = self.text[self.position]
        if char in _ENDS_WORD:
            if char in "<>" and self.peek(1) == "(":
                self.process_substitution(builder)
                return True
            return False
        if char == "'":
            builder.literal(self.single_quoted())
        elif char == '"':
            self.position += 1
            self.double_quoted(builder)
        elif char == "\\":
            self._escaped(builder)
        elif char == "$":
            self.dollar(builder, quoted=False)
        elif char == "`":
            self.backtick(builder, quoted=False)
        elif char in "*?":
            self.position += 1
            builder.glob(char)
        elif char == "[":
            self._bracket(builder)
        elif char == "{":
            self.position += 1
            builder.has_brace = True
            builder.literal("{")
        elif char == "~":
            self._tilde(builder, start, assigns)
        else:
            self._odd_character(builder, char)
        return True

    def _odd_character(self, builder: WordBuilder, char: str) -> None:
        if char == "\0":
            raise self.fail("the text contains a NUL")
        place = self.position
        self.position += 1
        builder.literal(char)
        self.note(
            "control-character",
            f"an unquoted control character or unusual blank ({char!a}) is part of a word",
            place,
            place + 1,
        )

    def _escaped(self, builder: WordBuilder) -> None:
        following = self.peek(1)
        if following == "":
            place = self.position
            self.position += 1
            builder.literal("\\")
            self.note("control-character", "the text ends in a backslash", place, place + 1)
            return
        if following == "\n":
            self._continuation()
            return
        builder.literal(following)
        self.position += 2

    def _continuation(self) -> None:
        """Backslash-newline vanishes; between operators it would join them, so it is not read."""
        before = self.text[self.position - 1] if self.position else " "
        after = self.peek(2)
        if before in "$<>&|`{(!#" or after in ("(", "{", "<", ">", "=", "["):
            raise self.fail("a line continuation inside an operator")
        self.position += 2

    def _find_pattern_close(self) -> None:
        """Where the last character stands that could close a `[` of this word; once per word."""
        rest = _REST.match(self.text, self.position, self.end)
        stop = self._pattern_stop = rest.end() if rest else self.position
        self._pattern_close = max(
            self.text.rfind(char, self.position, stop) for char in _CLOSES_PATTERN
        )

    def _bracket(self, builder: WordBuilder) -> None:
        """`[` is a pattern only when a `]` follows in the same word."""
        self.position += 1
        if self.position >= self._pattern_stop:
            self._find_pattern_close()
        if self.position > self._pattern_close:
            builder.literal("[")
        else:
            builder.glob("[")

    def _tilde(self, builder: WordBuilder, start: int, assigns: bool) -> None:
        place = self.position
        before = self.text[place - 1] if place > start else ""
        self.position += 1
        if before and not (assigns and before in "=:"):
            builder.literal("~")
        elif _TILDE.match(self.text, place, self.end):
            builder.home("~", self.home)
        else:
            builder.dynamic("~", splits=False)
