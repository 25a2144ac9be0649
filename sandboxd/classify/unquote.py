"""Unquoting: what bash makes of one word, and how sure that is.

`WordBuilder` collects the pieces of a word as the word reader meets them and says at the end
whether argv gets exactly that text. `ansi_c` decodes `$'...'`. Source: bash(1), "Quoting".
"""

from __future__ import annotations

import re

from sandboxd.model import Span, Word

_ANSI_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})"
    r"|U([0-9A-Fa-f]{1,8})|c)",
    re.DOTALL,
)
_ANSI_LETTERS = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


def ansi_c(body: str) -> str | None:
    """The value of `$'body'`; None when it depends on the locale or is cut short by a NUL."""
    try:
        return _ANSI_ESCAPE.sub(_decoded, body)
    except ValueError:
        return None


def _decoded(match: re.Match[str]) -> str:
    letter, octal, short_hex, unicode_short, unicode_long = match.groups()
    if letter is not None:
        return _ANSI_LETTERS.get(letter, letter)
    if octal is not None:
        code, limit = int(octal, 8), 0x7F
    elif short_hex is not None:
        code, limit = int(short_hex, 16), 0x7F
    elif unicode_short is not None or unicode_long is not None:
        code, limit = int(unicode_short or unicode_long, 16), 0x10FFFF
    else:
        raise ValueError("control escapes are not decoded")
    if code == 0 or code > limit or 0xD800 <= code <= 0xDFFF:
        raise ValueError("not one certain character")
    return chr(code)


class WordBuilder:
    """One word in the making. `lead` is what its value is certain to begin with."""

    __slots__ = (
        "has_brace",
        "has_glob",
        "is_literal",
        "lead",
        "may_be_option",
        "may_split",
        "parts",
    )

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.lead: str | None = ""
        self.is_literal = True
        self.may_split = False
        self.has_glob = False
        self.may_be_option = False
        self.has_brace = False

    def literal(self, text: str) -> None:
        """A piece that reaches argv as it is."""
        self.parts.append(text)
        if text and self.lead == "":
            self.lead = text

    def dynamic(self, raw: str, *, splits: bool) -> None:
        """An expansion; unquoted ones may become several words, the next one an option."""
        self.parts.append(raw)
        self.is_literal = False
        if splits:
            self.may_split = True
        if splits or self.lead == "":
            self.may_be_option = True
        if self.lead == "":
            self.lead = None

    def number(self, raw: str) -> None:
        """An expansion that is digits or a few letters whatever happens (`$?`, `$#`)."""
        self.parts.append(raw)
        self.is_literal = False
        if self.lead == "":
            self.lead = None

    def glob(self, raw: str) -> None:
        """A pattern character; at the start of a word it can match a name that begins with -."""
        self.parts.append(raw)
        self.is_literal = False
        self.has_glob = True
        self.may_split = True
        if self.lead == "" or (self.lead or "").startswith("-"):
            self.may_be_option = True
        if self.lead == "":
            self.lead = None

    def home(self, raw: str, home: str) -> None:
        """`~` at the start: the home folder when that is an absolute path."""
        if home.startswith("/"):
            self.literal(home)
        else:
            self.dynamic(raw, splits=False)

    def word(self, span: Span) -> Word:
        return Word(
            text="".join(self.parts),
            span=span,
            is_literal=self.is_literal,
            may_split=self.may_split,
            has_glob=self.has_glob,
            may_be_option=self.may_be_option,
        )


def literal_word(text: str, span: Span) -> Word:
    """A word that is exactly `text`."""
    return Word(text=text, span=span)
