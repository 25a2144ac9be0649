"""Addresses in arguments: which host a literal URL or host word contacts.

Stricter than the programs themselves: what does not read as a plain http(s) address here is not a
network read we know. Source: curl(1) on guessed protocols, RFC 3986 for the shape.
"""

from __future__ import annotations

import re

from sandboxd.classify.findings import Finding, mutating
from sandboxd.model import Word

_URL = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?:[/?#][^\s\\]*)?\Z"
)
_GUESSED = ("ftp.", "dict.", "ldap.", "imap.", "smtp.", "pop3.")
"""Without a scheme curl takes another protocol than http for these."""


def is_plain(word: Word) -> bool:
    """Literal, or a glob whose letters can only be file names (`https://h/?q=1`)."""
    if word.is_literal:
        return True
    return word.has_glob and not word.may_be_option and not re.search(r"[$`<>]", word.text)


def url_host(text: str) -> str | None:
    """The host (with its port when one is named) of a plain http(s) address; None otherwise."""
    match = _URL.match(text)
    if match is None:
        return None
    host = match["host"].lower()
    if match["scheme"] is None and (host.startswith(_GUESSED) or ":" in host.strip("[]")):
        return None
    return f"{host}:{match['port']}" if match["port"] else host


def url_finding(word: Word) -> Finding:
    """The host that `word` contacts, or why it is not a network read we know."""
    if not is_plain(word):
        return mutating(f"the address {word.text} is not literal")
    host = url_host(word.text)
    if host is None:
        return mutating(f"{word.text} is not a plain http or https address")
    return Finding(hosts=(host,))
