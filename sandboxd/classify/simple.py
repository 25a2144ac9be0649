"""Simple commands: words, assignments, redirections, and where here-documents belong.

The middle of the structure reader: below it words and expansions, above it lists and compound
commands. Source: bash(1), "Simple Commands", "REDIRECTION", "PARAMETERS".
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable

from sandboxd.classify.arithmetic import is_integer, is_one_expression
from sandboxd.classify.conditionals import ConditionalReader
from sandboxd.classify.heredocs import Delimiter, find_body, read_delimiter, strip_tabs
from sandboxd.classify.reading import Draft
from sandboxd.model import Assignment, Redirect, Span, Word

_BLANKS = re.compile(r"(?:[ \t]+|\\\n)*(?:#[^\n]*)?")
_REDIRECT = re.compile(
    r"(?:(\d+)|\{([A-Za-z_]\w*)\})?(<<<|<<-|<<|<>|<&|<(?!\()|>>|>\||>&|>(?!\()|&>>|&>)"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_SUBSCRIPTED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\[([^\]\[\n]*)\](\+?)=")
_ELEMENT = re.compile(r"\[([^\]\[\n]*)\]\+?=")
_JOINS = re.compile(r"(?:\\\n)+[|&;<>(#\\!=\-]")
_QUOTED_ELEMENT = re.compile(r"\[('[^']*'|\"[^\"\\$`]*\")\]\+?=")
_ENDS_COMMAND = frozenset("\n;&|)")
_ENDS_WORD = frozenset(" \t\n|&;()<>")
_FUNCTION = re.compile(r"[A-Za-z0-9_.:+@%/-]+")
_DECLARES = frozenset(("declare", "typeset", "local", "export", "readonly"))
_NUMBER_VALUE = re.compile(r"\"?(?:\$[#?$!]|\$\{#[A-Za-z0-9_@*\[\]]+\})\"?\Z")


class SimpleReader(ConditionalReader):
    """The part of the reader that knows simple commands and redirections."""

    def __init__(
        self, text: str, home: str, depth: int = 0, fixed_span: Span | None = None
    ) -> None:
        super().__init__(text, home, depth, fixed_span)
        self.pending: list[tuple[Draft, int, Delimiter]] = []
        self.newlines_read = 0
        self.last_blanks = (0, 0)
        self.only_whole = False
        self.foreign_names: Iterable[str] = ()
        self._drafts_of_units: list[list[Draft]] = []

    @abstractmethod
    def function_body(self, name: str) -> None:
        """Read the compound command that is the body of a function."""

    # ------------------------------------------------------------------ blanks and operators

    def blanks(self) -> None:
        """Skip blanks, line continuations and a comment."""
        start = self.position
        char = self.text[start : start + 1]
        if char not in (" ", "\t", "\\", "#"):
            return
        if char == "#" and start and self.text[start - 1] not in " \t\n;&|()<>":
            return
        match = _BLANKS.match(self.text, start, self.end)
        if match is None:
            return
        comment = self.text.find("#", start, match.end())
        if comment > start and self.text[comment - 1] not in " \t":
            raise self.fail("a comment right after a line continuation")
        if comment >= 0:
            self.inert.append((comment, match.end()))
        self.position = match.end()
        if self.position > start:
            self.last_blanks = (start, self.position)

    def operator(self, written: str) -> str:
        self.position += len(written)
        self.tokens.append(written)
        joined = _JOINS.match(self.text, self.position, self.end)
        if joined is not None and written[-1:] in "&|;<>()!{":
            raise self.fail("a line continuation inside an operator")
        return written

    def newline(self) -> None:
        """Consume the newline at the position and the here-documents that wait for it."""
        self.position += 1
        self.newlines_read += 1
        self.tokens.append("\n")
        pending, self.pending = self.pending, []
        for draft, index, delimiter in pending:
            self._gather(draft, index, delimiter)

    def newlines(self) -> None:
        while True:
            self.blanks()
            if self.peek() != "\n":
                return
            self.newline()

    def _gather(self, draft: Draft, index: int, delimiter: Delimiter) -> None:
        body = find_body(self.text, self.position, self.end, delimiter)
        if not body.is_terminated and self.depth:
            raise self.fail("a here-document is not ended")
        if delimiter.is_quoted:
            text, is_literal = self.text[body.start : body.end], True
            self.inert.append((body.start, body.end))
        else:
            if delimiter.strips_tabs and "<<" in self.text[body.start : body.end]:
                raise self.fail("a here-document inside an indented here-document")
            text, is_literal = self.body(body.start, body.end)
        if delimiter.strips_tabs:
            text = strip_tabs(text)
        self.position = body.resume
        self.tokens.append(self.text[body.start : body.end])
        old = draft.redirects[index]
        draft.redirects[index] = Redirect(
            operator=old.operator,
            descriptor=old.descriptor,
            body=text,
            is_literal_body=is_literal,
        )

    # ------------------------------------------------------------------ simple commands

    def simple_command(self) -> str | None:
        """Read one simple command, or a function definition, whose name is returned."""
        draft = Draft([], [], [], self.position, self.position)
        while True:
            self.blanks()
            char = self.peek()
            if char == "" or (
                char in _ENDS_COMMAND and self.text[self.position : self.position + 2] != "&>"
            ):
                break
            if char == "(":
                if self._is_function(draft):
                    return self._function_definition(draft)
                self._declared_array(draft)
            elif not (self.redirect(draft) or self._assignment(draft)):
                draft.words.extend(self.words())
            draft.end = self.position
        if not (draft.words or draft.assignments or draft.redirects):
            if draft.start == draft.end:
                raise self.fail("a command is missing")
            self.note("unknown-command", "a command without a name", draft.start, draft.end)
        self._finish(draft)
        return None

    def _finish(self, draft: Draft) -> None:
        draft.start, draft.end = self.span(draft.start, draft.end)
        self.drafts.append(draft)
        self.count_commands(1)

    def _is_function(self, draft: Draft) -> bool:
        if len(draft.words) != 1 or draft.assignments or draft.redirects:
            return False
        start, end = draft.words[0].span
        return self.fixed_span is not None or bool(_FUNCTION.fullmatch(self.text, start, end))

    def _function_definition(self, draft: Draft) -> str:
        if self.fixed_span is not None:
            raise self.fail("a function defined inside a backtick substitution")
        self.operator("(")
        self.blanks()
        if self.peek() != ")":
            raise self.fail("a parenthesis that cannot be read")
        self.operator(")")
        self.function_body(draft.name)
        return draft.name

    def _declared_array(self, draft: Draft) -> None:
        """`declare -a x=(...)`: an array as an operand of a declaring builtin."""
        if (
            draft.name not in _DECLARES
            or self.text[self.position - 1] != "="
            or len(draft.words) < 2
        ):
            raise self.fail("a parenthesis that cannot be read")
        word = draft.words.pop()
        self._array()
        span = (word.span[0], self.span(self.position, self.position)[1])
        draft.words.append(Word(text=word.text, span=span, is_literal=False))
        self.arithmetic.taint(word.text.rstrip("+="))

    def _assignment(self, draft: Draft) -> bool:
        """Read an assignment prefix, if one stands here."""
        if draft.words:
            return False
        start = self.position
        match = _ASSIGNMENT.match(self.text, start, self.end)
        has_subscript = match is None
        if match is None:
            match = _SUBSCRIPTED.match(self.text, start, self.end)
            if match is None:
                return False
            self.expression(match.start(2), match.end(2))
        is_append = match[match.lastindex or 0] == "+"
        self.position = match.end()
        before = len(self.drafts)
        value, is_number = self._value(before)
        self.tokens.append(self.text[start : self.position])
        assignment = Assignment(
            name=match[1], value=value, has_subscript=has_subscript, is_append=is_append
        )
        self.arithmetic.take_assignment(assignment, is_number=is_number)
        draft.assignments.append(assignment)
        if value is not None and value.is_literal and re.search(r"\$\(|`|[<>]\(", value.text):
            self.note(
                "assignment", "a variable is given text that holds a command", start, self.position
            )
        return True

    def _value(self, drafts_before: int) -> tuple[Word | None, bool]:
        """The value of an assignment, and whether it is certainly a number."""
        start = self.position
        char = self.peek()
        if char == "(":
            return None, self._array()
        if char == "" or (char in _ENDS_WORD and not self._opens_process()):
            return Word(text="", span=self.span(start, start)), False
        builder = self.build(is_value=True)
        raw = self.text[start : self.position]
        bare = raw.strip('"')
        is_number = (
            _NUMBER_VALUE.match(raw) is not None
            or is_one_expression(bare)
            or self.is_numeric_substitution(raw, drafts_before)
        )
        return builder.word(self.span(start, self.position)), is_number

    def _opens_process(self) -> bool:
        return self.peek() in ("<", ">") and self.peek(1) == "("

    def _array(self) -> bool:
        """Read `( ... )` after `name=`; whether all elements are numbers."""
        kept = len(self.tokens)
        self.operator("(")
        numbers = True
        while True:
            self.newlines()
            char = self.peek()
            if char == ")":
                self.operator(")")
                del self.tokens[kept:]
                return numbers
            if char == "" or (char in "|&;(<>" and not self._opens_process()):
                raise self.fail("an array that cannot be read")
            if quoted := _QUOTED_ELEMENT.match(self.text, self.position, self.end):
                self.note(
                    "subscript", "a quoted subscript is evaluated", quoted.start(), quoted.end()
                )
                self.inert.append(quoted.span(1))
                self.position = quoted.end()
                numbers = False
                continue
            element = _ELEMENT.match(self.text, self.position, self.end)
            if element is not None:
                self.expression(element.start(1), element.end(1))
                self.position = element.end()
                if self.peek() in (" ", "\t", "\n", ")"):
                    numbers = False
                    continue
            words = self.words()
            numbers = numbers and all(word.is_literal and is_integer(word.text) for word in words)

    # ------------------------------------------------------------------ redirections

    def trailing_redirects(self, start: int) -> None:
        """Redirections of a compound command, as a command of their own without words."""
        draft = Draft([], [], [], start, self.position)
        self.blanks()
        begin = self.position
        while self.redirect(draft):
            draft.end = self.position
            self.blanks()
        if draft.redirects:
            draft.start = begin
            self._finish(draft)

    def redirect(self, draft: Draft) -> bool:
        """Read one redirection into `draft`, if one stands here."""
        start = self.position
        match = _REDIRECT.match(self.text, start, self.end)
        if match is None:
            return False
        descriptor, variable, operator = match.groups()
        self.position = match.end()
        self.tokens.append(match[0])
        if _JOINS.match(self.text, self.position, self.end):
            raise self.fail("a line continuation inside an operator")
        if variable is not None:
            draft.assignments.append(
                Assignment(name=variable, value=Word(text="", span=self.span(start, start)))
            )
        number = int(descriptor) if descriptor is not None else None
        if operator in ("<<", "<<-"):
            self._here_document(draft, operator, number)
            return True
        if self.peek() == "&" or (operator == "<<" and self.peek() == "<"):
            raise self.fail("a redirection that cannot be read")
        self.blanks()
        target = self.word()
        draft.redirects.append(
            Redirect(
                operator=operator,
                target=target,
                descriptor=number,
                body=target.text if operator == "<<<" else None,
                is_literal_body=target.is_literal,
            )
        )
        return True

    def _here_document(self, draft: Draft, operator: str, descriptor: int | None) -> None:
        self.blanks()
        start = self.position
        delimiter = read_delimiter(self.text, start, self.end, strips_tabs=operator == "<<-")
        self.position = delimiter.end
        self.inert.append((start, delimiter.end))
        self.tokens.append(self.text[start : delimiter.end])
        self.pending.append((draft, len(draft.redirects), delimiter))
        draft.redirects.append(Redirect(operator=operator, descriptor=descriptor, body=""))
