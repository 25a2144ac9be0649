"""sed scripts: only addresses and commands that print, edit in memory, branch or read a file.

`w`, `W`, `e`, `s///w` and `s///e` write or execute; `-i` and `-f` are options the table does not
list. What this reader does not understand is mutating. Source: GNU sed manual, section 3.
"""

from __future__ import annotations

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import NOTHING, Context, Finding, joined, mutating
from sandboxd.model import CommandClass, Word

_PLAIN = frozenset("=dDgGhHnNpPxzF{}")
_NUMBERED = frozenset("lLqQ")
_LABELS = frozenset(":bTt")


class _Unknown(Exception):
    """The script holds something that writes, executes or is not understood."""


class _Script:
    """One pass over a script text; `check` returns quietly or raises `_Unknown`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def take(self) -> str:
        letter = self.peek()
        self.at += 1
        return letter

    def skip(self, letters: str) -> None:
        while self.peek() and self.peek() in letters:
            self.at += 1

    def check(self) -> None:
        while True:
            self.skip(" \t\n;")
            if not self.peek():
                return
            self._addresses()
            self.skip(" \t")
            while self.peek() == "!":
                self.take()
                self.skip(" \t")
            self._command(self.take())

    def _addresses(self) -> None:
        if not self._address():
            return
        self.skip(" \t")
        if self.peek() == ",":
            self.take()
            self.skip(" \t")
            if self.peek() in ("+", "~"):
                self.take()
            if not self._address():
                raise _Unknown("an address is missing")

    def _address(self) -> bool:
        letter = self.peek()
        if letter.isdigit():
            self.skip("0123456789")
            if self.peek() == "~":
                self.take()
                self.skip("0123456789")
        elif letter == "$":
            self.take()
        elif letter == "/":
            self.take()
            self._delimited("/")
            self.skip("IM")
        elif letter == "\\":
            self.take()
            self._delimited(self.take())
            self.skip("IM")
        else:
            return False
        return True

    def _delimited(self, end: str) -> None:
        """Skip a pattern or replacement up to its unescaped end."""
        if not end or end in "\n\\":
            raise _Unknown("a pattern does not end")
        while True:
            letter = self.take()
            if not letter or letter == "\n":
                raise _Unknown("a pattern does not end")
            if letter == "\\":
                self.take()
            elif letter == end:
                return
            elif letter == "[":
                self._bracket(end)

    def _bracket(self, end: str) -> None:
        """Skip `[...]`; seds differ on whether the delimiter ends a pattern in it: not guessed."""
        if self.peek() == "^":
            self.take()
        if self.peek() == "]":
            self.take()
        while self.peek() != "]":
            letter = self.take()
            if letter in ("", "\n", end):
                raise _Unknown("the delimiter stands inside brackets")
            if letter == "\\" and self.peek() != "]":
                self.take()
            elif letter == "[" and self.peek() in (":", ".", "="):
                self._class_name(self.take())
        self.take()

    def _class_name(self, mark: str) -> None:
        close = self.text.find(mark + "]", self.at)
        if close < 0 or not self.text[self.at : close].isalnum():
            raise _Unknown("a character class does not end")
        self.at = close + 2

    def _command(self, letter: str) -> None:
        if letter in _PLAIN:
            if letter not in "{":
                self._end(letter)
        elif letter in _NUMBERED:
            self.skip(" \t")
            self.skip("0123456789")
            self._end(letter)
        elif letter in _LABELS:
            self._label()
        elif letter == "s":
            self._substitute()
        elif letter == "y":
            end = self.take()
            self._replacement(end)
            self._replacement(end)
            self._end(letter)
        elif letter in "aic" and letter:
            self._inserted_text()
        elif (letter in "rR" and letter) or letter == "#":
            self._to("\n")
        else:
            raise _Unknown(f"the command {letter!r} may write or execute")

    def _to(self, ends: str) -> None:
        while self.peek() and self.peek() not in ends:
            self.at += 1

    def _label(self) -> None:
        self.skip(" \t")
        while self.peek().isalnum() or self.peek() in ("_", "-", "."):
            self.at += 1
        self._end("a label")

    def _inserted_text(self) -> None:
        while self.peek() and self.peek() != "\n":
            if self.take() == "\\":
                self.take()

    def _substitute(self) -> None:
        end = self.take()
        self._delimited(end)
        self._replacement(end)
        while self.peek() and self.peek() in "gpiIM0123456789":
            self.take()
        self._end("s")

    def _replacement(self, end: str) -> None:
        while True:
            letter = self.take()
            if not letter:
                raise _Unknown("a replacement does not end")
            if letter == "\\":
                self.take()
            elif letter == end:
                return

    def _end(self, letter: str) -> None:
        self.skip(" \t")
        if self.peek() not in ("", ";", "\n", "}", "#"):
            raise _Unknown(f"after {letter!r} stands {self.peek()!r}")


def script_problem(text: str) -> str | None:
    """None when the script only reads; else why it does not, or why it is not understood."""
    try:
        _Script(text).check()
    except _Unknown as problem:
        return str(problem)
    return None


def sed(arguments: Arguments, context: Context) -> Finding:
    """Every script given by `-e`, else the first operand."""
    scripts: tuple[Word, ...] = arguments.values("-e", "--expression")
    if not scripts and not arguments.has("-f", "--file"):
        scripts = arguments.operands[:1]
    # Several -e are joined by newlines, and `a\` may continue into the next.
    joined_text = "\n".join(word.text for word in scripts)
    if not all(word.is_literal for word in scripts):
        return mutating("the sed script is only known when it runs", "sed.script")
    problem = script_problem(joined_text)
    found = [mutating(f"the sed script: {problem}", "sed.script")] if problem else []
    if arguments.has("-i", "--in-place", "-I"):
        found.append(_edits_in_place(arguments, context))
    return joined(found) if found else NOTHING


def _edits_in_place(arguments: Arguments, context: Context) -> Finding:
    has_script = arguments.has("-e", "--expression", "-f", "--file")
    files = arguments.operands if has_script else arguments.operands[1:]
    paths = tuple(context.path(word.text) or word.text for word in files if word.is_literal)
    return Finding(CommandClass.MUTATING, "edits files in place", "sed", write_paths=paths)
