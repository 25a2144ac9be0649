"""Which names and which values are secret, whatever the file.

In doubt a value is secret: a setting that is missing shows itself at once, a token that leaks does
not. Sources for the prefixes: the publishers' own documentation of their token formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_PARTS = (
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "apikey",
    "authorization",
    "authident",
    "privatekey",
    "accesskey",
    "signingkey",
    "credential",
    "cookie",
    "extraheader",
    "httpheader",
    "httpproxyauth",
    "smtppass",
)
_WHOLE = frozenset({"auth", "pass", "pwd", "pw", "otp", "pat", "key", "login", "bearer"})
_HARMLESS_ENDS = ("helper", "helpers", "provider", "providers", "store", "file", "usehttppath")
"""Names of what keeps a secret, not of the secret."""

_VALUE = re.compile(
    r"\b(?:gh[oprsu]_|github_pat_|glpat-|npm_|pypi-|xox[abeoprs]-|sk-|rk_live_|AKIA|ASIA|AIza|ya29\.|"
    r"dckr_pat_|hf_|dop_v1_|shpat_|SG\.|eyJ)[A-Za-z0-9_.-]{10,}"
    r"|-----BEGIN|\b(?:basic|bearer)\s+[A-Za-z0-9+/_.=-]{6,}"
    r"|(?:pass(?:word|wd)?|token|secret|authorization)\s*[=:]",
    re.IGNORECASE,
)
_BLOB = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^\s\"'<>]*)")


Hides = Callable[[str], bool]
Cleans = Callable[[str], str | None]


class Judge(NamedTuple):
    """What a format asks of each name and each value."""

    is_secret_name: Hides
    without_secrets: Cleans


def is_secret_name(name: str) -> bool:
    """Whether the value of a key of this name is to be taken out; of `//host/:_authToken` the last
    part counts."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    last = re.sub(r"[^a-z0-9]", "", re.split(r"[:./]", name.lower())[-1])
    if last.endswith(_HARMLESS_ENDS):
        return False
    return last in _WHOLE or any(part in plain for part in _PARTS)


def without_secrets(value: str) -> str | None:
    """The value, logins taken out of its addresses; None when it is a secret itself."""
    cleaned = _URL.sub(_without_login, value)
    if _SECRET_ADDRESS in cleaned or _VALUE.search(cleaned):
        return None
    for blob in _BLOB.findall(_URL.sub("", cleaned)):
        if (
            "/" not in blob.strip("/")
            and any(each.isdigit() for each in blob)
            and not blob.isdigit()
        ):
            return None
    return cleaned


STRICT = Judge(is_secret_name, without_secrets)
LENIENT = Judge(lambda name: False, lambda value: value)
"""Takes nothing out: what differs from it was secret."""
_SECRET_ADDRESS = "\0"


def _without_login(match: re.Match[str]) -> str:
    """An address without what stands before its `@`; one that cannot be read is a secret."""
    scheme, rest = match[1], match[2]
    if scheme.lower() in ("ssh", "git+ssh"):
        user = rest.partition("@")[0]
        return match[0] if ":" not in user or "@" not in rest else _SECRET_ADDRESS
    authority, slash, path = rest.partition("/")
    host = authority.rpartition("@")[2]
    port = host.rpartition("]")[2].partition(":")[2]
    if port and not re.fullmatch(r"\d{1,5}|\$\{?\w+\}?", port.partition("?")[0]):
        return _SECRET_ADDRESS  # a password with a slash in it
    if re.search(r"[^/@]*:[^/]*@", path):
        return _SECRET_ADDRESS
    before, question, query = path.partition("?")
    if question and (is_secret_name(query) or re.search(r"(?:sig|key|auth)\w*=", query, re.I)):
        question = query = ""
    return f"{scheme}://{host}{slash}{before}{question}{query}"
