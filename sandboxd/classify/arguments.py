"""The words after a command's name, read the way the program itself would read them.

Strict on purpose: a word that bash may still change and that could become an option is a doubt,
GNU long options count only by their exact full name (abbreviations of dangerous options work:
`sort --compress-prog=./x`), and clusters are expanded (`sort -ro out`). A doubt never makes an
invocation read-only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from sandboxd.classify.entries import Entry, Flag
from sandboxd.model import DESTRUCTIVE, Word

_NUMERIC = re.compile(r"[0-9]+\Z")


def could_be_option(word: Word) -> bool:
    """Whether bash could make an option out of this word or of a piece of it."""
    if word.may_be_option:
        return True
    return not word.is_literal and word.may_split and ("$" in word.text or "`" in word.text)


class Given(Struct, frozen=True, gc=False):
    """One option as it was given; `flag` is None when the table does not know it."""

    name: str
    flag: Flag | None
    value: Word | None = None


MAX_CLUSTERS = 256


class Arguments(Struct, frozen=True, gc=False):
    """What the program would see: options with values, operands, the rest, and every doubt."""

    entry: Entry
    given: tuple[Given, ...] = ()
    operands: tuple[Word, ...] = ()
    rest: tuple[Word, ...] = ()
    """With `stops_at_operand`: everything from the first operand on."""
    doubts: tuple[str, ...] = ()
    parent: Arguments | None = None
    """The arguments of the command that this is a subcommand of."""
    words: tuple[Word, ...] = ()
    """All words as they were, for the small languages that read them themselves."""
    is_literal: bool = True
    """Whether every word is certain."""

    def has(self, *names: str) -> bool:
        """Whether one of these options was given here (not before the subcommand)."""
        return bool(self.given) and any(item.name in names for item in self.given)

    def values(self, *names: str) -> tuple[Word, ...]:
        """The values of these options, in order."""
        return tuple(item.value for item in self.given if item.name in names and item.value)

    def value(self, *names: str) -> Word | None:
        """The last value of these options."""
        values = self.values(*names)
        return values[-1] if values else None


def attached(word: Word, text: str) -> Word:
    """The part of `word` that reads `text`: an option's value in the same word."""
    return Word(
        text=text,
        span=word.span,
        is_literal=word.is_literal,
        may_split=word.may_split,
        has_glob=word.has_glob,
    )


class _Reader:
    """One pass over the words; a class because options consume the words behind them."""

    def __init__(self, words: Sequence[Word], entry: Entry, is_literal: bool) -> None:
        self.words = words
        self.entry = entry
        self.is_literal = is_literal
        self.index = 0
        self.given: list[Given] = []
        self.operands: list[Word] = []
        self.doubts: list[str] = []
        self.rest: tuple[Word, ...] = ()

    def read(self) -> None:
        words, count, flags = self.words, len(self.words), self.entry.flags
        stops = self.entry.stops_at_operand or self.entry.options_first
        while self.index < count:
            word = words[self.index]
            self.index += 1
            text = word.text
            if self.is_literal and not stops and text[:1] != "-" and text not in flags:
                self.operands.append(word)
                continue
            if text == "--" and word.is_literal:
                self._after_end_of_options()
                return
            if self._is_operand(word):
                if self.entry.stops_at_operand:
                    self.rest = tuple(self.words[self.index - 1 :])
                    return
                self.operands.append(word)
                if self.entry.options_first:
                    self.operands.extend(self.words[self.index :])
                    return
            else:
                self._option(word)

    def _after_end_of_options(self) -> None:
        if self.entry.stops_at_operand:
            self.rest = tuple(self.words[self.index :])
        else:
            self.operands.extend(self.words[self.index :])

    def _is_operand(self, word: Word) -> bool:
        if not self.is_literal and could_be_option(word):
            if not self.entry.is_harmless:
                self.doubts.append(f"{word.text} could become an option")
            return True
        if word.text in self.entry.flags:
            return False
        return not word.text.startswith("-") or word.text == "-"

    def _option(self, word: Word) -> None:
        if self.entry.style == "single":
            self._single(word)
        elif word.text.startswith("--"):
            self._long(word)
        else:
            self._cluster(word)

    def _single(self, word: Word) -> None:
        name, equals, value = word.text.partition("=")
        if name not in self.entry.flags and name.startswith("--"):
            name = name[1:]
        self._named(word, name, value if equals else None)

    def _long(self, word: Word) -> None:
        name, equals, value = word.text.partition("=")
        self._named(word, name, value if equals else None)

    def _named(self, word: Word, name: str, value: str | None) -> None:
        flag = self.entry.flags.get(name)
        if flag is None:
            self._unknown(word, name)
        elif flag.kind is None:
            if value is not None:
                self.doubts.append(f"{name} takes no value")
            self.given.append(Given(name, flag))
        elif value is not None:
            self._valued(flag, attached(word, value))
        elif flag.is_optional:
            self.given.append(Given(name, flag))
        else:
            self._next_as_value(flag)

    def _cluster(self, word: Word) -> None:
        text = word.text
        if text in self.entry.flags:
            return self._named(word, text, None)
        if "-#" in self.entry.flags and _NUMERIC.match(text[1:]) and word.is_literal:
            self.given.append(Given("-#", self.entry.flags["-#"]))
            return self._remember(text, 1)
        before = len(self.given)
        for position in range(1, len(text)):
            flag = self.entry.flags.get("-" + text[position])
            if flag is None:
                self._unknown(word, "-" + text[position])
                continue
            if flag.kind is not None:
                return self._cluster_value(word, flag, text[position + 1 :])
            self.given.append(Given(flag.name, flag))
        if word.is_literal and len(self.given) - before == len(text) - 1 and not self.doubts:
            return self._remember(text, len(text) - 1)
        return None

    def _remember(self, text: str, count: int) -> None:
        """Options without values, as the last `count` that were given: they read alike each time."""
        switches = self.entry.plan.switches
        if len(switches) < len(self.entry.flags) + MAX_CLUSTERS:
            switches[text] = tuple(self.given[-count:])

    def _cluster_value(self, word: Word, flag: Flag, rest: str) -> None:
        if rest:
            self._valued(flag, attached(word, rest))
        elif flag.is_optional:
            self.given.append(Given(flag.name, flag))
        else:
            self._next_as_value(flag)

    def _next_as_value(self, flag: Flag) -> None:
        if self.index >= len(self.words):
            self.doubts.append(f"{flag.name} lacks its value")
            self.given.append(Given(flag.name, flag))
            return
        word = self.words[self.index]
        self.index += 1
        if not self.entry.is_harmless and self._looks_like_option(word, flag):
            self.doubts.append(f"{flag.name} is followed by what looks like an option")
        self._valued(flag, word)

    def _looks_like_option(self, word: Word, flag: Flag) -> bool:
        """A program that takes no value here would obey the next word as an option."""
        if flag.name in self.entry.script_flags or _NUMERIC.match(word.text[1:]):
            return False
        return word.text.startswith("-") and word.text != "-"

    def _valued(self, flag: Flag, value: Word) -> None:
        if value.may_split and not value.is_literal and not self.entry.is_harmless:
            self.doubts.append(f"the value {value.text} of {flag.name} may become several words")
        if flag.choices and not (value.is_literal and value.text in flag.choices):
            self.doubts.append(f"{flag.name} {value.text} is not known to be harmless")
        self.given.append(Given(flag.name, flag, value))

    def _unknown(self, word: Word, name: str) -> None:
        if not word.is_literal and self.entry.is_harmless:
            return
        self.given.append(Given(name, self._abbreviated(name)))
        if self.entry.is_open and name.startswith("--") and word.is_literal:
            return
        self.doubts.append(f"the option {name} is not known to be harmless")

    def _abbreviated(self, name: str) -> Flag | None:
        """The destructive long option that `name` may be short for."""
        if not name.startswith("--") or len(name) < 3:
            return None
        for flag in self.entry.flags.values():
            if flag.class_ is DESTRUCTIVE and flag.name.startswith(name):
                return flag
        return None


def read_arguments(
    words: Sequence[Word], entry: Entry, parent: Arguments | None = None
) -> Arguments:
    """Read `words` (the name taken off) as the entry's options and operands."""
    words = tuple(words)
    if entry.style != "none":
        found = _read_plain(words, entry, parent)
        if found is not None:
            return found
    is_literal = True
    for word in words:
        if not word.is_literal or word.may_be_option:
            is_literal = False
    if entry.style == "none":
        return Arguments(entry, (), words, (), (), parent, words, is_literal)
    reader = _Reader(words, entry, is_literal)
    reader.read()
    return Arguments(
        entry,
        tuple(reader.given),
        tuple(reader.operands),
        reader.rest,
        tuple(reader.doubts),
        parent,
        words,
        is_literal,
    )


def _read_plain(
    words: tuple[Word, ...], entry: Entry, parent: Arguments | None
) -> Arguments | None:
    """The usual case: certain words, each an operand or options without values that were seen
    before. None for everything else, which `_Reader` reads word by word."""
    switches, flags = entry.plan.switches, entry.flags
    given: list[Given] = []
    operands: list[Word] = []
    rest: tuple[Word, ...] = ()
    has_rest = False
    for index, word in enumerate(words):
        if not word.is_literal or word.may_be_option:
            return None
        text = word.text
        if has_rest:
            continue
        if text in switches:
            given.extend(switches[text])
        elif text[:1] == "-" or text in flags:
            return None
        elif entry.stops_at_operand:
            rest, has_rest = words[index:], True
        elif entry.options_first:
            operands, has_rest = list(words[index:]), True
        else:
            operands.append(word)
    return Arguments(entry, tuple(given), tuple(operands), rest, (), parent, words, True)
