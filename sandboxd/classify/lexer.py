"""The plain lexer: the common case by a closed grammar, in about ten microseconds.

Literal words, quotes without expansions, `| || && ; & newline`, and redirections that write
nothing (`2>&1`, `>/dev/null`). Everything else is handed on by returning None: this module
never decides that something is wrong, only that it is not plain. It is the subset that every
POSIX shell reads alike, so it also serves when the shell is not bash.
"""

from __future__ import annotations

import re

from sandboxd.classify.reading import MAX_PIPE, Draft, Reading, Unit
from sandboxd.model import Redirect, Word

_WORD = r"(?:[A-Za-z0-9_./:,+@%^=\-]++|'[^'\x00]*+'|\"[^\"\\$`\x00]*+\")++"
# Possessive quantifiers throughout: a word that does not match must not be tried again in parts.
_ENDS = r"(?=[ \t\n;|&]|\Z)"
_TOKEN = re.compile(
    r"[ \t]*+(?:"
    r"([12]?>[ \t]*/dev/null" + _ENDS + r"|[12]?>&[12]" + _ENDS + r"|&>[ \t]*/dev/null" + _ENDS
    + r"|</dev/null" + _ENDS + r")"
    r"|([A-Za-z0-9_./:,@+%^=\-]++" + _ENDS + r")"
    r"|(" + _WORD + _ENDS + r"|\{\}" + _ENDS + r")"
    r"|(\|\||&&|\|(?!&)|;(?!;|&)|&(?!>)|\n)"
    r"|\Z|([\s\S]))"
)  # fmt: skip
_SINK_TOKEN, _BARE_TOKEN, _QUOTED_TOKEN, _OPERATOR_TOKEN = 1, 2, 3, 4
"""What else there is matches as one character, so that the search never goes over text twice."""
_SINK = re.compile(r"([012]?)(>&|&>|>|<)[ \t]*(.*)")
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


def read_plain(text: str) -> Reading | None:
    """The text as units of simple commands, or None when it is not plain."""
    units: list[Unit] = []
    pipe: list[Draft] = []
    tokens: list[str] = []
    connector = ";"
    draft: Draft | None = None
    for match in _TOKEN.finditer(text):
        kind = match.lastindex
        if kind is None:
            break
        if kind > _OPERATOR_TOKEN:
            return None
        raw = match[kind]
        if kind <= _QUOTED_TOKEN:
            start, end = span = match.span(kind)
            if draft is None:
                draft = Draft([], [], [], start, end)
            draft.end = end
            if kind == _SINK_TOKEN:
                draft.redirects.append(_sink(raw, start))
            elif not draft.words and not _may_begin(raw):
                return None
            elif kind == _BARE_TOKEN:
                draft.words.append(Word(text=raw, span=span))
            else:
                draft.words.append(Word(text=_unquoted(raw), span=span))
        elif raw == "|":
            if draft is None or not draft.words:
                return None
            pipe.append(draft)
            draft = None
            if len(pipe) >= MAX_PIPE:
                return None
        else:
            if draft is None:
                if raw == "\n" and (pipe or connector in ("&&", "||") or not tokens):
                    continue
                return None
            pipe.append(draft)
            units.append(_unit(pipe, tokens, connector, is_background=raw == "&"))
            pipe, tokens, draft = [], [], None
            connector = ";" if raw == "\n" else raw
            continue
        tokens.append(raw)
    if draft is not None:
        pipe.append(draft)
        units.append(_unit(pipe, tokens, connector, is_background=False))
    elif pipe or connector in ("&&", "||"):
        return None
    return Reading(units, is_plain=True)


def _may_begin(raw: str) -> bool:
    """Whether a word is plain text where a command begins."""
    if raw in _RESERVED or raw == "{}":
        return False
    return "=" not in raw or _ASSIGNS.match(raw) is None


def _unquoted(raw: str) -> str:
    return _QUOTES.sub(lambda quoted: quoted[1] or quoted[2] or "", raw)


def _sink(raw: str, start: int) -> Redirect:
    match = _SINK.fullmatch(raw)
    assert match is not None
    descriptor, operator, target = match.groups()
    place = start + match.start(3)
    return Redirect(
        operator=operator,
        target=Word(text=target, span=(place, place + len(target))),
        descriptor=int(descriptor) if descriptor else None,
    )


def _unit(pipe: list[Draft], tokens: list[str], connector: str, *, is_background: bool) -> Unit:
    if is_background:
        tokens.append("&")
    if len(pipe) > 1:
        names: tuple[str, ...] = ()
        for draft in pipe:
            draft.piped_from = names
            draft.is_piped_to = True
            names += (draft.name,)
        pipe[-1].is_piped_to = False
    return Unit(
        span=(pipe[0].start, pipe[-1].end),
        tokens=tuple(tokens),
        commands=tuple(draft.finished() for draft in pipe),
        connector=connector,
        is_background=is_background,
        is_plain=len(pipe) == 1,
        last=len(pipe) - 1,
    )
