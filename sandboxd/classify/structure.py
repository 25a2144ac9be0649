"""The structure reader: shell text into units of simple commands, by a closed grammar of bash.

It reads what agents write daily (here-documents, `[[ ]]`, `case`, arrays, `time`, `$(a && b)`,
`(( ))`, `for ((;;))`) and raises `Unread` at the first thing it is not sure of. It never
guesses and never skips: every expansion that can run a command ends up as a simple command or
as a notice. Source: bash(1), "SHELL GRAMMAR"; POSIX.1-2024, "Shell Grammar".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import ClassVar

from sandboxd.classify.arithmetic import arithmetic_end, is_integer
from sandboxd.classify.reading import MAX_PIPE, Draft, Reading, Unit, Unread
from sandboxd.classify.simple import SimpleReader
from sandboxd.classify.words import WordReader
from sandboxd.model import Assignment, Span, Word

_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|while|until|do|done|case|esac|select|function|coproc|time"
    r"|in|\[\[|\{|\}|!)(?=[ \t\n;&|()<>]|\Z)"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?=[ \t\n;]|\Z)")
_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_.:+@%/-]+")
_COPROC_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]+(?=[({]|while |until |if |for |case )")
_CASE_END = re.compile(r";;&|;;|;&")
_OPENERS = re.compile(r"\\.|\$\(|`|[<>]\(", re.DOTALL)

_CLOSES_SUBSTITUTION = frozenset((")",))
_CLOSES_TEXT = frozenset(("",))


class StructureReader(SimpleReader):
    """Reads one whole text. `read_units` for the top level, `read_all` for a nested text."""

    def nested_reader(self, text: str, span: Span) -> WordReader:
        return StructureReader(text, self.home, self.depth, self.fixed_span or span)

    def read_all(self) -> None:
        self.command_list(_CLOSES_TEXT, may_be_empty=True)
        self.check_openers()

    def read_units(self) -> Reading:
        """Read the text as a list of units."""
        units: list[Unit] = []
        connector = ";"
        while True:
            self.newlines()
            if self.position >= self.end:
                if connector in ("&&", "||"):
                    raise self.fail("a command is missing after the last operator")
                break
            unit = self._unit(connector)
            units.append(unit)
            own_tokens = len(self.tokens)
            separator = self.separator()
            if separator not in ("", "&"):
                del self.tokens[own_tokens]
            self._close(unit, separator)
            if separator == "":
                if self.position < self.end:
                    raise self.fail(f"`{self.peek()}` stands where a command must end")
                break
            unit.is_background = separator == "&"
            connector = ";" if separator == "\n" else separator
        self._flush(units)
        self.check_openers()
        self._finish_units(units)
        return Reading(units, frozenset(self.functions), self.only_whole)

    def _unit(self, connector: str) -> Unit:
        start = self.position
        is_pipeline, defines = self.pipeline()
        end = self.last_blanks[0] if self.last_blanks[1] == self.position else self.position
        unit = Unit((start, max(start, end)), (), (), connector=connector)
        unit.defines = defines
        unit.last = len(self.drafts) - 1 if is_pipeline else None
        return unit

    def _close(self, unit: Unit, separator: str) -> None:
        """Take over what was read since the unit began, here-document bodies included."""
        unit.tokens = tuple(self.tokens)
        self._drafts_of_units.append(self.drafts)
        unit.notices = list(self.notices)
        unit.is_plain = unit.last == 0 and len(self.drafts) == 1
        if separator and separator != "\n" and self.pending:
            self.only_whole = True
        self.drafts, self.notices, self.tokens = [], [], []

    def _flush(self, units: list[Unit]) -> None:
        """What a here-document held that was only read after the last unit had ended."""
        if not (self.drafts or self.notices):
            return
        last = units[-1]
        self._drafts_of_units[-1].extend(self.drafts)
        last.notices.extend(self.notices)
        last.tokens += tuple(self.tokens)
        last.is_plain = False

    def _finish_units(self, units: list[Unit]) -> None:
        """Here-documents may complete a command after its unit ended: finish all at the end."""
        for unit, drafts in zip(units, self._drafts_of_units, strict=True):
            unit.commands = tuple(draft.finished() for draft in drafts)
            for draft in drafts:
                self.arithmetic.take_setter(draft)
        starts = [unit.span[0] for unit in units]
        for notice in self.arithmetic.notices(self.foreign_names, self.functions):
            place = bisect_right(starts, notice.span[0]) - 1
            units[max(place, 0)].notices.append(notice)

    def check_openers(self) -> None:
        """Every `$(`, backtick, `<(` and `>(` outside inert text must have been read as one."""
        chars = list(self.text)
        for start, end in self.inert:
            chars[start:end] = "x" * (end - start)
        found = {
            match.start()
            for match in _OPENERS.finditer("".join(chars))
            if not match[0].startswith("\\")
        }
        if found != self.openers:
            place = min(found ^ self.openers)
            raise Unread("a substitution that was not read as one", self.span(place, place)[0])

    # ------------------------------------------------------------------ lists

    def read_substitution(self, opener: int, start: int) -> None:
        self.openers.add(opener)
        self.position = start
        self.enter()
        outer, self.pending = self.pending, []
        newlines = self.newlines_read
        self.command_list(_CLOSES_SUBSTITUTION, may_be_empty=True)
        if self.pending or (outer and self.newlines_read != newlines):
            raise self.fail("a here-document crosses the end of a substitution")
        self.pending = outer
        self.leave()

    def command_list(self, closers: frozenset[str], *, may_be_empty: bool = False) -> str:
        """Read commands up to one of `closers`, consume it and return it."""
        is_empty = may_be_empty
        needs_more = True
        while True:
            self.newlines()
            closer = self._closer(closers)
            if closer is not None:
                if needs_more and not is_empty:
                    raise self.fail("a command is missing")
                return closer
            self.pipeline()
            separator = self.separator()
            is_empty = separator not in ("&&", "||")
            needs_more = not is_empty
            if separator == "":
                closer = self._closer(closers)
                if closer is None:
                    raise self.fail("a command is not ended")
                return closer

    def _closer(self, closers: frozenset[str]) -> str | None:
        """Consume and return the closer at the position, if one of `closers` stands there."""
        self.blanks()
        if self.position >= self.end:
            return "" if "" in closers else None
        char = self.text[self.position]
        if char == ")" and ")" in closers:
            self.operator(")")
            return ")"
        if char == ";":
            match = _CASE_END.match(self.text, self.position, self.end)
            if match is not None and match[0] in closers:
                self.operator(match[0])
                return match[0]
            return None
        word = _RESERVED.match(self.text, self.position, self.end)
        if word is not None and word[0] in closers:
            self.operator(word[0])
            return word[0]
        return None

    def separator(self) -> str:
        """Consume what stands between two pipelines; the empty string when nothing does."""
        self.blanks()
        if self.text.startswith(("&&", "||"), self.position) and self.position + 1 < self.end:
            return self.operator(self.text[self.position : self.position + 2])
        char = self.peek()
        if char == "\n":
            self.newline()
            return "\n"
        if char == "&" or (char == ";" and self.peek(1) not in (";", "&")):
            return self.operator(char)
        return ""

    def pipeline(self) -> tuple[bool, str | None]:
        """Read one pipeline; whether it is simple commands only, and the function it defines."""
        is_plain = not self._prefixes()
        elements: list[tuple[int, int]] = []
        defines: str | None = None
        if not is_plain and self.tokens[-1] == "time" and self.peek() in ("", ";", "\n"):
            return False, None
        while True:
            begin = len(self.drafts)
            is_simple, defined = self.command()
            is_plain = is_plain and is_simple
            defines = defined if not elements else None
            elements.append((begin, len(self.drafts)))
            self.blanks()
            if self.peek() != "|" or self.peek(1) == "|":
                break
            defines = None
            if len(elements) >= MAX_PIPE:
                raise self.fail("a pipeline of too many commands")
            self.operator("|&" if self.peek(1) == "&" else "|")
            self.newlines()
        if len(elements) > 1:
            self._connect(elements)
        return is_plain, defines

    def _connect(self, elements: list[tuple[int, int]]) -> None:
        fed_by: tuple[str, ...] = ()
        for index, (begin, end) in enumerate(elements):
            for draft in self.drafts[begin:end]:
                draft.piped_from = fed_by + draft.piped_from
                draft.is_piped_to = draft.is_piped_to or index < len(elements) - 1
            fed_by += tuple(draft.name for draft in self.drafts[begin:end] if draft.words)

    def _prefixes(self) -> bool:
        """`!` and `time`, any number of them."""
        found = False
        while True:
            self.blanks()
            word = _RESERVED.match(self.text, self.position, self.end)
            if word is None or word[0] not in ("!", "time"):
                return found
            found = True
            self.operator(word[0])
            self.blanks()
            if word[0] == "time" and self.text.startswith(("-p ", "-p\t"), self.position):
                self.operator("-p")
            elif word[0] == "time" and self.peek() == "-":
                raise self.fail("an option of `time` that cannot be read")

    # ------------------------------------------------------------------ compound commands

    _COMPOUND: ClassVar[dict[str, str]] = {
        "if": "_if",
        "for": "_for",
        "select": "_select",
        "while": "_loop",
        "until": "_loop",
        "case": "_case",
        "{": "_group",
        "[[": "_conditional",
        "function": "_function",
        "coproc": "_coproc",
    }

    def command(self) -> tuple[bool, str | None]:
        """Read one command; whether it is a simple one, and the function it defines."""
        self.blanks()
        if self.peek() == "(":
            self.compound("(")
            return False, None
        word = _RESERVED.match(self.text, self.position, self.end)
        if word is None:
            defined = self.simple_command()
            return defined is None, defined
        if word[0] not in self._COMPOUND:
            raise self.fail(f"`{word[0]}` stands where a command must begin")
        defined = self.compound(word[0])
        return False, defined

    def compound(self, word: str) -> str | None:
        self.enter()
        start = self.position
        defined: str | None = None
        if word == "(":
            self._parenthesis()
        elif word == "function":
            self.operator(word)
            defined = self._function()
        else:
            self.operator(word)
            getattr(self, self._COMPOUND[word])()
        if word != "coproc":
            self.trailing_redirects(start)
        self.leave()
        return defined

    def _parenthesis(self) -> None:
        start = self.position
        if self.peek(1) == "(":
            close = arithmetic_end(self.text, start + 2, self.end)
            if close is not None:
                self.expression(start + 2, close)
                self.position = close + 2
                self.tokens.append(self.text[start : self.position])
                return
        self.operator("(")
        self.command_list(_CLOSES_SUBSTITUTION)

    def _group(self) -> None:
        self.command_list(frozenset(("}",)))

    def _conditional(self) -> None:
        self.conditional()
        self.tokens.append("]]")

    def _if(self) -> None:
        self.command_list(frozenset(("then",)))
        while True:
            closer = self.command_list(frozenset(("elif", "else", "fi")))
            if closer == "fi":
                return
            if closer == "else":
                self.command_list(frozenset(("fi",)))
                return
            self.command_list(frozenset(("then",)))

    def _loop(self) -> None:
        self.command_list(frozenset(("do",)))
        self.command_list(frozenset(("done",)))

    def _for(self) -> None:
        self.blanks()
        if self.text.startswith("((", self.position):
            self._counted_for()
        else:
            self._named_for(tainted=False)
        self._loop_body()

    def _select(self) -> None:
        self.blanks()
        self._named_for(tainted=True)
        self._loop_body()

    def _loop_body(self) -> None:
        self.blanks()
        if self.peek() == ";":
            self.operator(";")
        self.newlines()
        closer = self._closer(frozenset(("do", "{")))
        if closer is None:
            raise self.fail("`do` is missing")
        self.command_list(frozenset(("done" if closer == "do" else "}",)))

    def _counted_for(self) -> None:
        start = self.position
        close = arithmetic_end(self.text, start + 2, self.end)
        if close is None:
            raise self.fail("a loop header that cannot be read")
        part = start + 2
        for piece in self.text[part:close].split(";"):
            self.expression(part, part + len(piece))
            part += len(piece) + 1
        self.position = close + 2
        self.tokens.append(self.text[start : self.position])

    def _named_for(self, *, tainted: bool) -> None:
        name = _NAME.match(self.text, self.position, self.end)
        if name is None:
            raise self.fail("the variable of a loop cannot be read")
        start = self.position
        self.operator(name[0])
        self.newlines()
        words: list[Word] = []
        if not re.compile(r"in(?=[ \t\n;])").match(self.text, self.position, self.end):
            tainted = True
        else:
            self.operator("in")
            tainted = self._loop_words(words) or tainted
        if tainted or not words:
            self.arithmetic.taint(name[0])
        self.assign(name[0], start, start + len(name[0]))

    def _loop_words(self, words: list[Word]) -> bool:
        """The words of a loop; whether one of them may be something else than a number."""
        tainted = False
        while True:
            self.blanks()
            if self.peek() in (";", "\n"):
                return tainted
            before = len(self.drafts)
            start = self.position
            made = self.words()
            raw = self.text[start : self.position]
            numeric = self.is_numeric_substitution(raw, before) or all(
                word.is_literal and is_integer(word.text) for word in made
            )
            tainted = tainted or not numeric
            words.extend(made)

    def _case(self) -> None:
        self.blanks()
        self.word()
        self.newlines()
        if self._closer(frozenset(("in",))) is None:
            raise self.fail("`in` is missing")
        while True:
            self.newlines()
            if self._closer(frozenset(("esac",))):
                return
            self._case_patterns()
            if (
                self.command_list(frozenset((";;", ";&", ";;&", "esac")), may_be_empty=True)
                == "esac"
            ):
                return

    def _case_patterns(self) -> None:
        if self.peek() == "(":
            self.operator("(")
        while True:
            self.blanks()
            self.word()
            self.blanks()
            if self.peek() == ")":
                self.operator(")")
                return
            if self.peek() != "|":
                raise self.fail("a pattern that cannot be read")
            self.operator("|")

    def _function(self) -> str:
        self.blanks()
        name = _FUNCTION_NAME.match(self.text, self.position, self.end)
        if name is None:
            raise self.fail("the name of a function cannot be read")
        self.operator(name[0])
        self.blanks()
        if self.peek() == "(":
            self._empty_parentheses()
        self.function_body(name[0])
        return name[0]

    def _empty_parentheses(self) -> None:
        self.operator("(")
        self.blanks()
        if self.peek() != ")":
            raise self.fail("a parenthesis that cannot be read")
        self.operator(")")

    def function_body(self, name: str) -> None:
        self.functions.add(name)
        self.newlines()
        word = _RESERVED.match(self.text, self.position, self.end)
        kind = word[0] if word else self.peek()
        if (kind not in self._COMPOUND and kind != "(") or kind in ("function", "coproc"):
            raise self.fail("the body of a function cannot be read")
        self.compound(kind)

    def _coproc(self) -> None:
        self.blanks()
        name = _COPROC_NAME.match(self.text, self.position, self.end)
        if name is not None:
            self.tokens.append(name[1])
            self.position = name.end()
        start = self.position
        self.command()
        self.arithmetic.taint("COPROC")
        self.drafts.append(
            Draft(
                [], [Assignment(name=name[1] if name else "COPROC")], [], *self.span(start, start)
            )
        )
