"""The plain lexer: the common case by a closed grammar, in about ten microseconds.

Words, quotes, `| || && ; & newline` and redirections to and from named files; in words also
`$name`, `$1`, `$?`, `*`, `?`, a leading `~` and backslashes, which make a word less certain but
run nothing. Everything else is handed on by returning None: this module never decides that
something is wrong, only that it is not plain. Without the expansions it is the subset that
every POSIX shell reads alike (`is_common`), so it also serves when the shell is not bash.
"""

from __future__ import annotations

import re

from sandboxd.classify.reading import MAX_PIPE, Reading, Unit
from sandboxd.classify.unquote import WordBuilder
from sandboxd.model import Redirect, SimpleCommand, Span, Word

_BARE = r"[A-Za-z0-9_./:,@+%^=\-]++"
_WORD = r"(?:" + _BARE + r"|'[^'\x00]*+'|\"[^\"\\$`\x00]*+\")+"
_EXPANDING = (
    r"(?:" + _BARE + r"|'[^'\x00]*+'|[*?~]|\\[!-~ ]|\$[A-Za-z0-9_?#]"
    r"|\"(?:[^\"\\$`\x00]++|\\[^\n\x00]|\$[A-Za-z0-9_?#])*\")+"
)  # fmt: skip
# Possessive where one kind of character repeats: such a run is never tried again in parts. Never on a
# group: `re` of Python 3.11.2 then loses captures, and what a later one held would not be read at all.
_ENDS = r"(?=[ \t\n;|&]|\Z)"
_TOKEN = re.compile(
    r"([ \t]*+)(?:"
    r"(" + _BARE + _ENDS + r"(?: " + _BARE + _ENDS + r")*)"
    r"|(" + _WORD + _ENDS + r"|\{\}" + _ENDS + r")"
    r"|(\|\||&&|\|(?!&)|;(?!;|&)|&(?!>)|\n)"
    r"|([0-9]?(?:>>?|<)[ \t]*+" + _BARE + _ENDS + r"|[12]?>&[12]" + _ENDS
    + r"|&>[ \t]*+/dev/null" + _ENDS + r")"
    r"|(" + _EXPANDING + _ENDS + r")"
    r"|\Z|([\s\S]++))"
)  # fmt: skip
"""What is none of these matches all that is left, so that the text is gone over only once."""
_REDIRECT = re.compile(r"([0-9]?)(>&|&>|>>|>|<)[ \t]*(.*)")
_NAME = r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9])"
_PIECE = re.compile(
    r"(" + _BARE + r"|~)|'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)|(" + _NAME + r")|(\$[?#])|([*?])",
    re.DOTALL,
)
_QUOTED_PIECE = re.compile(r"([^\\$]+)|\\([$`\"\\])|(\\)|(" + _NAME + r")|(\$[?#])", re.DOTALL)
_RESERVED = frozenset(
    [
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "select",
        "function",
        "coproc",
        "time",
        "in",
    ]
)
_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_QUOTES = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def read_plain(text: str, home: str = "") -> Reading | None:
    """The text as units of simple commands, or None when it is not plain. `home` is what a
    leading `~` stands for; it is only certain when that is an absolute path."""
    units: list[Unit] = []
    pipe: list[SimpleCommand] = []
    names: tuple[str, ...] = ()
    words: list[Word] = []
    redirects: list[Redirect] = []
    tokens: list[str] = []
    connector = ";"
    is_common = True
    begun, end, position = -1, 0, 0
    for blank, bare, quoted, operator, redirect, expanding, other in _TOKEN.findall(text):
        start = position + len(blank)
        if bare:
            position = start + len(bare)
            pieces = bare.split(" ")
            if not words and not _may_begin(pieces[0]):
                return None
            if begun < 0:
                begun = start
            for piece in pieces:
                end = start + len(piece)
                words.append(Word(text=piece, span=(start, end)))
                start = end + 1
            tokens += pieces
            continue
        raw = quoted or operator or redirect or expanding
        if not raw:
            if other or start != len(text):
                return None  # never a part of the text for the whole, whatever `re` made of it
            break
        position = start + len(raw)
        if not operator:
            end = position
            if begun < 0:
                begun = start
            if redirect:
                operator_as_written, target = _add_redirect(raw, start, redirects)
                tokens += (operator_as_written, target)
                continue
            if not words and not _may_begin(raw):
                return None
            if expanding:
                word = _expanding(raw, (start, end), home)
                if word is None:
                    return None
                words.append(word)
                is_common = False
            else:
                words.append(Word(text=_unquoted(raw), span=(start, end)))
        elif raw == "|":
            if not words or len(pipe) >= MAX_PIPE - 1:
                return None
            pipe.append(_command(words, redirects, (begun, end), names, is_piped_to=True))
            names += (words[0].text,)
            words, redirects, begun = [], [], -1
        else:
            if begun < 0:
                if raw == "\n" and (pipe or connector in ("&&", "||") or not tokens):
                    continue
                return None
            pipe.append(_command(words, redirects, (begun, end), names))
            units.append(_unit(pipe, tokens, connector, is_background=raw == "&"))
            pipe, names, words, redirects, tokens, begun = [], (), [], [], [], -1
            connector = ";" if raw == "\n" else raw
            continue
        tokens.append(raw)
    if begun >= 0:
        pipe.append(_command(words, redirects, (begun, end), names))
        units.append(_unit(pipe, tokens, connector))
    elif pipe or connector in ("&&", "||"):
        return None
    return Reading(units, is_plain=True, is_common=is_common)


def _command(
    words: list[Word],
    redirects: list[Redirect],
    span: Span,
    piped_from: tuple[str, ...],
    *,
    is_piped_to: bool = False,
) -> SimpleCommand:
    return SimpleCommand(
        words=tuple(words),
        redirects=tuple(redirects) if redirects else (),
        span=span,
        piped_from=piped_from,
        is_piped_to=is_piped_to,
    )


def _may_begin(raw: str) -> bool:
    """Whether a word is plain text where a command begins."""
    if raw in _RESERVED or raw == "{}":
        return False
    return "=" not in raw or _ASSIGNS.match(raw) is None


def _unquoted(raw: str) -> str:
    return _QUOTES.sub(lambda quoted: quoted[1] or quoted[2] or "", raw)


def _expanding(raw: str, span: Span, home: str) -> Word | None:
    """A word that bash expands; None when what a `~` in it means is not plain."""
    builder = WordBuilder()
    start = 0
    if "~" in raw:
        if "=" in raw:
            return None
        if raw[0] == "~":
            if raw != "~" and raw[1] != "/":
                return None
            builder.home("~", home)
            start = 1
    for piece in _PIECE.finditer(raw, start):
        kind, text = piece.lastindex, piece[piece.lastindex or 0]
        if kind == _DOUBLE_QUOTED:
            _quoted(text, builder)
        elif kind == _EXPANSION:
            builder.dynamic(text, splits=True)
        elif kind == _NUMBER:
            builder.number(text)
        elif kind == _GLOB:
            builder.glob(text)
        else:
            builder.literal(text)
    return builder.word(span)


_DOUBLE_QUOTED, _EXPANSION, _NUMBER, _GLOB = 3, 5, 6, 7
_EXPANSION_INSIDE, _NUMBER_INSIDE = 4, 5


def _quoted(body: str, builder: WordBuilder) -> None:
    """What stands between double quotes."""
    for piece in _QUOTED_PIECE.finditer(body):
        kind, text = piece.lastindex, piece[piece.lastindex or 0]
        if kind == _EXPANSION_INSIDE:
            builder.dynamic(text, splits=False)
        elif kind == _NUMBER_INSIDE:
            builder.number(text)
        else:
            builder.literal(text)


def _add_redirect(raw: str, start: int, redirects: list[Redirect]) -> tuple[str, str]:
    """Add the redirection that `raw` spells; its operator and its target as written."""
    match = _REDIRECT.fullmatch(raw)
    assert match is not None
    descriptor, operator, target = match.groups()
    place = start + match.start(3)
    redirects.append(
        Redirect(
            operator=operator,
            target=Word(text=target, span=(place, place + len(target))),
            descriptor=int(descriptor) if descriptor else None,
        )
    )
    return descriptor + operator, target


def _unit(
    pipe: list[SimpleCommand], tokens: list[str], connector: str, *, is_background: bool = False
) -> Unit:
    if is_background:
        tokens.append("&")
    return Unit(
        (pipe[0].span[0], pipe[-1].span[1]),
        tuple(tokens),
        tuple(pipe),
        [],
        connector,
        is_background,
        len(pipe) == 1,
        len(pipe) - 1,
    )
