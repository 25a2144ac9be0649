"""What must not be stored as it is: secrets and file contents. Pure.

Two kinds of secret are replaced: values that the environment held under a name that looks like a
secret (known exactly), and text in the shape of a credential (private keys, tokens with a published
prefix, JSON web tokens, passwords in addresses, assignments and headers). Everything replaced becomes
`[redacted]`, so that the text around it stays readable. Bodies of here-documents are file contents:
their number of lines is kept and nothing else.

This finds what is recognisable; a secret without any shape, printed by a command, is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import Struct

from sandboxd.model import Verdict

REDACTED = "[redacted]"
SHORTEST_VALUE = 8
"""Shorter values of the environment would be found everywhere."""
MARKERS = (
    "-----begin",
    "-----end",
    "akia",
    "asia",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xox",
    "sk-",
    "sk_live_",
    "rk_live_",
    "aiza",
    "eyj",
    "npm_",
    "pypi-",
    "hf_",
    "://",
    "bearer",
    "basic ",
    "passw",
    "secret",
    "token",
    "api_key",
    "apikey",
    "api-key",
    "access_key",
    "private_key",
    "-u ",
    "--user",
)
"""One of them stands in every text that `_SHAPES` could find: looked for first, because it is cheap."""

_SHAPES = re.compile(
    r"(?P<pem>-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\A(?:(?!-----BEGIN).){0,8192}-----END [A-Z ]*PRIVATE KEY-----)"
    r"|(?P<token>\b(?:A(?:KI|SI)A[0-9A-Z]{16}|gh[poshur]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255}"
    r"|glpat-[\w-]{16,64}|xox[abeoprs]-[\w-]{10,250}|sk-[\w-]{16,250}|[sr]k_live_\w{16,250}"
    r"|AIza[\w-]{30,40}|npm_[A-Za-z0-9]{30,40}|pypi-[\w-]{30,250}|hf_[A-Za-z0-9]{20,60}"
    r"|eyJ[\w-]{8,4096}\.[\w-]{8,4096}(?:\.[\w-]{0,4096})?))"
    r"|(?P<url>\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{0,200}:)(?P<url_secret>[^\s/@'\"]{1,400})(?=@)"
    r"|(?P<header>\b(?:bearer|basic)[ \t]+)(?P<header_secret>[\w+/=.~-]{8,4096})"
    r"|(?P<named>(?<![A-Za-z0-9])[\w-]{0,60}?(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key"
    r"|access[_-]?key(?![_-]?id)|private[_-]?key)[\w-]{0,40}[\"']?(?:[ \t]{0,3}[:=][ \t]{0,3}|[ \t]+(?=[^-\s]))"
    r"[\"']?)(?P<named_secret>[^\s\"';&|<>(){}\[\],]{6,4096})"
    r"|(?P<user>(?<!\S)(?:-u|--user)[ \t=]{1,3}[\"']?[^\s:\"']{1,100}:)(?P<user_secret>[^\s\"']{1,400})",
    re.IGNORECASE | re.DOTALL,
)
_S = TypeVar("_S", bound=Struct)
_HEREDOC = re.compile(r"<<-?[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([\w.+-]+))")


class Redactor:
    """Redacts with the values that one session's environment keeps secret."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {value for value in values if len(value) >= SHORTEST_VALUE}
        self._values = tuple(sorted(found, key=len, reverse=True))

    def is_plain(self, text: str) -> bool:
        """Nothing in it is suspicious, and so nothing in what is quoted from it."""
        lowered = text.lower()
        is_marked = "<<" in text or any(marker in lowered for marker in MARKERS)
        return not is_marked and not any(value in text for value in self._values)

    def text(self, text: str) -> str:
        """`text` with every secret that can be recognised replaced."""
        for value in self._values:
            if value in text:
                text = text.replace(value, REDACTED)
        lowered = text.lower()
        if any(marker in lowered for marker in MARKERS):
            return _SHAPES.sub(_replaced, text)
        return text

    def command(self, text: str) -> str:
        """A command line: its here-document bodies left out, its secrets replaced."""
        if "<<" in text and "\n" in text:
            text = without_bodies(text)
        return self.text(text)

    def verdict(self, verdict: Verdict) -> Verdict:
        """The verdict without what it quotes of the command's secrets."""
        parts = tuple(self._quoted(verdict.parts, ("command", "reason")))
        reasons = tuple(self._quoted(verdict.reasons, ("message",)))
        if parts == verdict.parts and reasons == verdict.reasons:
            return verdict
        return msgspec.structs.replace(verdict, parts=parts, reasons=reasons)

    def _quoted(self, items: Iterable[_S], names: tuple[str, ...]) -> Iterable[_S]:
        for item in items:
            said = {name: getattr(item, name) for name in names}
            safe = {name: self.command(value) for name, value in said.items()}
            yield item if safe == said else msgspec.structs.replace(item, **safe)


def without_bodies(text: str) -> str:
    """The text with each here-document body replaced by its number of lines."""
    lines = text.split("\n")
    kept: list[str] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        kept.append(line)
        index += 1
        for match in _HEREDOC.finditer(line):
            delimiter = match[1] or match[2] or match[3]
            end = _end_of_body(lines, index, delimiter)
            if end is None:
                continue
            if end > index:
                kept.append(f"[{end - index} lines not kept]")
            kept.append(lines[end])
            index = end + 1
    return "\n".join(kept)


def _end_of_body(lines: list[str], start: int, delimiter: str) -> int | None:
    for index in range(start, len(lines)):
        if lines[index].lstrip("\t") == delimiter:
            return index
    return None


def _replaced(match: re.Match[str]) -> str:
    for before in ("url", "header", "named", "user"):
        if match[before] is not None:
            secret = match[before + "_secret"]
            if before == "named" and _is_prose(match["named"], secret):
                return match[0]
            return match[before] + REDACTED
    return REDACTED


def _is_prose(before: str, word: str) -> bool:
    """`token type`, `the password for`: words, not a value; `--token VALUE` is none."""
    if word == REDACTED or before[-1] not in " \t":
        return word == REDACTED
    return before.rstrip(" \t")[-1] not in ":=" and not before.startswith("--")


NOTHING_KNOWN = Redactor()
"""Finds shapes only."""
