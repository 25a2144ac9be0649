"""What the readers hand to the classifier: units of simple commands, and what else was noticed.

It is apart from the readers so that the plain lexer, the structure reader and the classifier
share one vocabulary. A *unit* is one pipeline or compound command of the top-level list; all
commands inside it (substitutions, here-document bodies, functions, loops) are flattened into it.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from sandboxd.model import Assignment, CommandClass, Redirect, SimpleCommand, Span, Word

MAX_COMMANDS = 10_000
"""Simple commands in one text, those in texts inside it included."""
MAX_PIPE = 256
"""Commands in one pipeline; each knows the names of all before it."""


class Unread(Exception):
    """The text is outside what the reader reads; `message` is one sentence for a person."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class Notice(Struct, frozen=True):
    """Something that is not a simple command and still decides the class."""

    rule: str
    message: str
    span: Span
    class_: CommandClass = CommandClass.MUTATING


@dataclass(slots=True, eq=False)
class Draft:
    """A simple command while its here-documents and its place in a pipe are still being read."""

    words: list[Word]
    assignments: list[Assignment]
    redirects: list[Redirect]
    start: int
    end: int
    piped_from: tuple[str, ...] = ()
    is_piped_to: bool = False

    @property
    def name(self) -> str:
        return self.words[0].text if self.words else ""

    def finished(self) -> SimpleCommand:
        return SimpleCommand(
            words=tuple(self.words),
            assignments=tuple(self.assignments),
            redirects=tuple(self.redirects),
            span=(self.start, self.end),
            piped_from=self.piped_from,
            is_piped_to=self.is_piped_to,
        )


class Unit(Struct):
    """One pipeline or compound command of the top-level list."""

    span: Span
    tokens: tuple[str, ...]
    """Words and operators as written, without blanks and comments; what an approval covers."""
    commands: tuple[SimpleCommand, ...]
    notices: list[Notice] = []
    connector: str = ";"
    """What joins it to the unit before: `;`, `&&`, `||` or `&`."""
    is_background: bool = False
    is_plain: bool = True
    """One simple command and nothing around it: its effects reach the units after it."""
    last: int | None = None
    """Index of the command whose exit code is the unit's; None when that is not one command."""
    defines: str | None = None
    """The function it defines, when it is a function definition and nothing else."""


class Reading(Struct):
    """The whole text, read."""

    units: list[Unit]
    functions: frozenset[str] = frozenset()
    only_whole: bool = False
    """Units cannot be remembered one by one (a here-document is read after a later unit began)."""
    is_plain: bool = False
    """The plain lexer's closed grammar was enough; no second reading is needed."""
    is_common: bool = False
    """Every POSIX shell reads the text alike."""
