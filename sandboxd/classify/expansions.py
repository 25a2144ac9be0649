"""Quotes and expansions: every form that can run a command is read, and none guessed.

The lowest part of the structure reader: a cursor over the text, quoted strings, `$name`,
`${...}`, substitutions and arithmetic. Invariants: an opener (`$(`, a backtick, `<(`, `>(`) that
was read is recorded in `openers`; text in which an opener means nothing (single quotes,
comments, literal here-document bodies) is recorded in `inert`; the structure reader compares
both with a plain count at the end.
Source: bash(1), "EXPANSION"; the forms that other parsers hide, each run in bash.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from sandboxd.classify.arithmetic import Arithmetic, arithmetic_end
from sandboxd.classify.reading import MAX_COMMANDS, Draft, Notice, Unread
from sandboxd.classify.unquote import WordBuilder, ansi_c
from sandboxd.model import Assignment, Span, Word

_QUOTED_RUN = re.compile(r"[^\"\\$`]+")
_BODY_RUN = re.compile(r"[^\\$`]+")
_OPERAND_RUN = re.compile(r"[^\"'\\$`}<>]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPECIAL = frozenset("0123456789@*#?-$!_")
_NUMERIC_SPECIAL = frozenset("#?$!")
_PARAMETER = re.compile(r"(#|!)?([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!_-])")
_OPERATOR = re.compile(r":?[-=+?]|##?|%%?|//?[#%]?|\^\^?|,,?|@|:")
_EXPRESSION_RUN = re.compile(r"[0-9 \t\n+\-*/%<>=!&|^~?:,()\[\]#@]")
_PLAINLY_QUOTED = re.compile(r"'[A-Za-z0-9_ ./:,@%+=-]*'")
"""Whether bash takes these quotes for quotes or for letters, nothing else changes."""
_PROCESS = re.compile(r"[<>]\(")

MAX_DEPTH = 40


class ExpansionReader(ABC):
    """Reads expansions in `text[position:end]`. One instance per text; backticks get their own."""

    def __init__(
        self, text: str, home: str, depth: int = 0, fixed_span: Span | None = None
    ) -> None:
        self.text = text
        self.position = 0
        self.end = len(text)
        self.home = home
        self.depth = depth
        self.fixed_span = fixed_span
        self.drafts: list[Draft] = []
        self.notices: list[Notice] = []
        self.tokens: list[str] = []
        self.openers: set[int] = set()
        self.inert: list[Span] = []
        self.arithmetic = Arithmetic()
        self.functions: set[str] = set()
        self.commands_read = 0

    @abstractmethod
    def read_substitution(self, opener: int, start: int) -> None:
        """Read the command list that starts at `start` up to and including its `)`."""

    @abstractmethod
    def nested_reader(self, text: str, span: Span) -> ExpansionReader:
        """A reader of the unescaped text of a backtick substitution."""

    @abstractmethod
    def read_all(self) -> None:
        """Read everything as one list of commands."""

    # ------------------------------------------------------------------ places

    def span(self, start: int, end: int) -> Span:
        return self.fixed_span or (start, end)

    def fail(self, message: str) -> Unread:
        return Unread(message, self.span(self.position, self.position)[0])

    def note(self, rule: str, message: str, start: int, end: int) -> None:
        self.notices.append(Notice(rule, message, self.span(start, end)))

    def count_commands(self, more: int) -> None:
        self.commands_read += more
        if self.commands_read > MAX_COMMANDS:
            raise self.fail(f"the text holds more than {MAX_COMMANDS} commands")

    def peek(self, offset: int = 0) -> str:
        place = self.position + offset
        return self.text[place] if place < self.end else ""

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail("commands are nested too deeply")

    def leave(self) -> None:
        self.depth -= 1

    # ------------------------------------------------------------------ quotes

    def single_quoted(self) -> str:
        close = self.text.find("'", self.position + 1, self.end)
        if close < 0:
            raise self.fail("a single quote is not closed")
        body = self.text[self.position + 1 : close]
        self.inert.append((self.position, close + 1))
        self.position = close + 1
        return body

    def double_quoted(self, builder: WordBuilder) -> None:
        """The rest of a double-quoted string; the position is after its opening quote."""
        builder.literal("")
        while True:
            char = self.peek()
            if char == "":
                raise self.fail("a double quote is not closed")
            if char == '"':
                self.position += 1
                return
            self._quoted_piece(builder, _QUOTED_RUN, '$`"\\')

    def _quoted_piece(self, builder: WordBuilder, run: re.Pattern[str], escapable: str) -> None:
        """One piece of a double-quoted string or of a here-document body."""
        plain = run.match(self.text, self.position, self.end)
        if plain is not None:
            self._mark_plain_processes(plain.start(), plain.end())
            self.position = plain.end()
            builder.literal(plain[0])
            return
        char = self.text[self.position]
        if char == "$":
            self.dollar(builder, quoted=True)
        elif char == "`":
            self.backtick(builder, quoted=True)
        elif self.peek(1) == "\n":
            before = self.text[self.position - 1]
            if before == "$" or (before.isalnum() and "$" in "".join(builder.parts[-1:])):
                raise self.fail("a line continuation inside an expansion")
            self.position += 2
        elif self.peek(1) and self.peek(1) in escapable:
            builder.literal(self.peek(1))
            self.position += 2
        else:
            builder.literal("\\")
            self.position += 1

    def body(self, start: int, end: int) -> tuple[str, bool]:
        """Expand-scan a here-document body; its text and whether it is literal."""
        kept = self.position, self.end
        self.position, self.end = start, end
        builder = WordBuilder()
        while self.position < self.end:
            self._quoted_piece(builder, _BODY_RUN, "$`\\")
        self.position, self.end = kept
        return "".join(builder.parts), builder.is_literal

    def _mark_plain_processes(self, start: int, end: int) -> None:
        """`<(` inside double quotes or a body is text; say so for the count of openers."""
        for match in _PROCESS.finditer(self.text, start, end):
            self.inert.append(match.span())

    # ------------------------------------------------------------------ expansions

    def process_substitution(self, builder: WordBuilder) -> None:
        opener = self.position
        self.position += 2
        self.read_substitution(opener, self.position)
        builder.parts.append(self.text[opener : self.position])
        builder.is_literal = False
        if builder.lead == "":
            builder.lead = "/dev/fd"

    def backtick(self, builder: WordBuilder, *, quoted: bool) -> None:
        opener = self.position
        close = opener + 1
        while close < self.end and self.text[close] != "`":
            close += 2 if self.text[close] == "\\" else 1
        if close >= self.end:
            raise self.fail("a backtick is not closed")
        inner = self.text[opener + 1 : close]
        if quoted and '\\"' in inner:
            raise self.fail("an escaped quote inside a backtick substitution")
        self.openers.update((opener, close))
        self.inert.append((opener + 1, close))
        unescaped = re.sub(r"\\([\\$`])", r"\1", inner)
        self.enter()
        self.absorb(self.nested_reader(unescaped, self.span(opener, close + 1)))
        self.leave()
        self.position = close + 1
        builder.dynamic(self.text[opener : self.position], splits=not quoted)

    def absorb(self, nested: ExpansionReader) -> None:
        """Read all of a nested text and take over what it found."""
        nested.read_all()
        self.count_commands(nested.commands_read)
        self.drafts.extend(nested.drafts)
        self.notices.extend(nested.notices)
        self.functions.update(nested.functions)
        self.arithmetic.absorb(nested.arithmetic)

    def dollar(self, builder: WordBuilder, *, quoted: bool) -> None:
        """Read the expansion that starts with the `$` at the position."""
        start = self.position
        following = self.peek(1)
        if following == "(":
            self._dollar_paren(builder, quoted)
        elif following == "{":
            self._parameter(builder, quoted)
        elif following == "'" and not quoted:
            self._ansi_quoted(builder)
        elif following == '"' and not quoted:
            self.position += 2
            self.double_quoted(builder)
            builder.is_literal = False
        elif following == "[":
            raise self.fail("the old arithmetic form $[ ] is not read")
        elif following == "\\" and self.peek(2) == "\n":
            raise self.fail("a line continuation inside an expansion")
        elif name := _NAME.match(self.text, start + 1, self.end):
            self.position = name.end()
            if self.text.startswith("\\\n", self.position):
                raise self.fail("a line continuation inside an expansion")
            builder.dynamic(self.text[start : self.position], splits=not quoted)
        elif following and following in _SPECIAL:
            self.position += 2
            joins = "{([" if quoted else "{([\"'"
            if following == "$" and self.peek() and self.peek() in joins:
                raise self.fail("`$$` runs into another expansion")
            self._special(builder, following, quoted)
        else:
            self.position += 1
            builder.literal("$")

    def _special(self, builder: WordBuilder, name: str, quoted: bool) -> None:
        raw = "$" + name
        if name in _NUMERIC_SPECIAL:
            builder.number(raw)
        elif name == "@" and quoted:
            builder.dynamic(raw, splits=True)
        else:
            builder.dynamic(raw, splits=not quoted)

    def _ansi_quoted(self, builder: WordBuilder) -> None:
        start = self.position
        close = start + 2
        while close < self.end and self.text[close] != "'":
            close += 2 if self.text[close] == "\\" else 1
        if close >= self.end:
            raise self.fail("a quote is not closed")
        self.position = close + 1
        self.inert.append((start, close + 1))
        value = ansi_c(self.text[start + 2 : close])
        if value is None:
            builder.dynamic(self.text[start : close + 1], splits=False)
        else:
            builder.literal(value)

    def _dollar_paren(self, builder: WordBuilder, quoted: bool) -> None:
        start = self.position
        if self.peek(2) == "(":
            close = arithmetic_end(self.text, start + 3, self.end)
            if close is not None:
                self.openers.add(start)
                self.expression(start + 3, close)
                self.position = close + 2
                builder.dynamic(self.text[start : self.position], splits=False)
                return
        self.position += 2
        self.read_substitution(start, self.position)
        builder.dynamic(self.text[start : self.position], splits=not quoted)

    def expression(self, start: int, end: int) -> None:
        """Judge an arithmetic expression: it can run commands through substitutions in it and
        through subscripts in the values of its variables."""
        kept = self.position, self.end
        self.position, self.end = start, end
        names: set[str] = set()
        while self.position < self.end:
            self._expression_piece(names)
        self.position, self.end = kept
        self.arithmetic.use(names, self.span(start, end))
        for name in self.arithmetic.assigned_in(self.text[start:end]):
            self.assign(name, start, end)

    def _expression_piece(self, names: set[str]) -> None:
        text, place = self.text, self.position
        if name := _NAME.match(text, place, self.end):
            names.add(name[0])
            self.position = name.end()
        elif text[place] == "$":
            before = len(self.drafts)
            builder = WordBuilder()
            self.dollar(builder, quoted=True)
            self._expression_value("".join(builder.parts), names, before, place)
        elif text[place] in "`'\"\\":
            raise self.fail("a quote inside an arithmetic expression")
        elif _PROCESS.match(text, place, self.end):
            self.inert.append((place, place + 2))
            self.position += 2
        elif _EXPRESSION_RUN.match(text, place, self.end):
            self.position += 1
        else:
            raise self.fail("an arithmetic expression that cannot be read")

    def _expression_value(self, raw: str, names: set[str], drafts_before: int, place: int) -> None:
        """The value of an expansion inside arithmetic is read as arithmetic again."""
        name = _NAME.fullmatch(raw.strip("${}#"))
        if raw in ("$#", "$?", "$$", "$!") or raw.startswith(("$((", "${#")):
            return
        if name and raw in (f"${name[0]}", f"${{{name[0]}}}"):
            names.add(name[0])
        elif not self.is_numeric_substitution(raw, drafts_before):
            self.note(
                "arithmetic",
                "an arithmetic expression evaluates text that is not known beforehand",
                place,
                self.position,
            )

    def is_numeric_substitution(self, raw: str, drafts_before: int) -> bool:
        """Whether `raw`, which ends at the position, is one substitution that prints a number."""
        if not raw.startswith("$(") or len(self.drafts) == drafts_before:
            return False
        made = self.drafts[drafts_before:]
        is_all = self.text.startswith(")", made[-1].end) and made[-1].end + 1 == self.position
        return is_all and self.arithmetic.prints_number(made)

    def assign(self, name: str, start: int, end: int) -> None:
        """Record an assignment that is not written as one (`${x:=v}`, `((x=1))`, `for x`)."""
        span = self.span(start, end)
        value = Word(text="", span=span)
        self.drafts.append(Draft([], [Assignment(name=name, value=value)], [], *span))

    # ------------------------------------------------------------------ ${...}

    def _parameter(self, builder: WordBuilder, quoted: bool) -> None:
        start = self.position
        self.position += 2
        head = _PARAMETER.match(self.text, self.position, self.end)
        if self.peek() == "#" and self.peek(1) == "}":
            self.position += 2
            builder.number("${#}")
            return
        if head is None:
            raise self.fail("an expansion that cannot be read")
        prefix, name = head[1], head[2]
        self.position = head.end()
        subscript = self._subscript(start) if self.peek() == "[" else ""
        if prefix == "!" and not subscript and self.peek() in ("*", "@") and self.peek(1) == "}":
            self.position += 1
        elif prefix == "!" and subscript not in ("@", "*"):
            self.note("indirection", "an indirect expansion can run commands", start, head.end())
        if self.peek() != "}":
            self._operation(name, start, quoted)
        if self.peek() != "}":
            raise self.fail("an expansion that cannot be read")
        self.position += 1
        raw = self.text[start : self.position]
        if prefix == "#":
            builder.number(raw)
        elif name == "@" or subscript == "@":
            builder.dynamic(raw, splits=True)
        else:
            builder.dynamic(raw, splits=not quoted)

    def _subscript(self, start: int) -> str:
        close = self.text.find("]", self.position, self.end)
        inner = self.text[self.position + 1 : close] if close >= 0 else ""
        if close < 0 or "[" in inner:
            raise self.fail("a subscript that cannot be read")
        if inner not in ("@", "*"):
            self.expression(self.position + 1, close)
        self.position = close + 1
        return inner

    def _operation(self, name: str, start: int, quoted: bool) -> None:
        operator = _OPERATOR.match(self.text, self.position, self.end)
        if operator is None:
            raise self.fail("an expansion that cannot be read")
        self.position = operator.end()
        kind = operator[0]
        if kind == "@":
            if self.peek() == "P" or self.peek() not in (
                "Q",
                "U",
                "u",
                "L",
                "E",
                "A",
                "K",
                "a",
                "k",
            ):
                self.note(
                    "prompt-expansion", "`@P` runs the commands in a value", start, self.position
                )
            self.position += 1
            return
        operand = self.position
        drafts_before = len(self.drafts)
        self._operand(quoted)
        if kind == ":":
            self._slice(operand, drafts_before, start)
        elif kind in ("=", ":="):
            self.arithmetic.taint(name)
            self.assign(name, start, self.position)

    def _operand(self, quoted: bool) -> None:
        """The word after an operator, up to the `}` that closes the expansion."""
        builder = WordBuilder()
        while True:
            char = self.peek()
            if char == "":
                raise self.fail("an expansion is not closed")
            if char == "}":
                return
            run = _OPERAND_RUN.match(self.text, self.position, self.end)
            if run is not None:
                self.position = run.end()
            elif char == "'":
                if not quoted:
                    self.single_quoted()
                elif plain := _PLAINLY_QUOTED.match(self.text, self.position, self.end):
                    self.position = plain.end()
                else:
                    raise self.fail("a single quote inside a quoted expansion")
            elif char == '"':
                self.position += 1
                self.double_quoted(builder)
            elif char == "\\":
                if self.peek(1) in ("", "\n"):
                    raise self.fail("a line continuation inside an expansion")
                self.position += 2
            elif char == "$":
                self.dollar(builder, quoted=quoted)
            elif char == "`":
                self.backtick(builder, quoted=quoted)
            elif self.peek(1) == "(":
                raise self.fail("a process substitution inside an expansion")
            else:
                self.position += 1

    def _slice(self, operand: int, drafts_before: int, start: int) -> None:
        """`${x:offset:length}`: both are arithmetic."""
        body = self.text[operand : self.position]
        if len(self.drafts) > drafts_before or any(mark in body for mark in "`'\"\\"):
            self.note("arithmetic", "an offset is evaluated as arithmetic", start, self.position)
            return
        self.expression(operand, self.position)
