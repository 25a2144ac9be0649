"""The approval key: a digest over everything that one approval covers.

The unit is a pipeline or compound command of the top-level list. Its key covers the words and
operators as written (assignment prefixes, redirection targets and here-document bodies are
among them), the folder it runs in, the digest of its standard input, the request's environment,
the shell and the profile; never a prefix of the raw text, and nothing that is not covered can
change what runs. Blanks and comments are not part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

_VERSION = 1


def unit_key(
    tokens: Sequence[str],
    *,
    directory: str,
    profile: str,
    shell: str,
    environment: Mapping[str, str | None],
    stdin_digest: str | None,
) -> str:
    """The key of one unit; `directory` is where it runs, after every `cd` before it."""
    covered = [
        _VERSION,
        "unit",
        tuple(tokens),
        directory,
        profile,
        shell,
        sorted(environment.items()),
        stdin_digest,
    ]
    return _digest(covered)


def whole_key(unit_keys: Iterable[tuple[str, str]]) -> str:
    """The key of a whole text: each unit with what joins it to the one before."""
    return _digest([_VERSION, "whole", list(unit_keys)])


def _digest(covered: list[object]) -> str:
    """`repr` of nested lists of strings and None is one to one, and quick."""
    encoded = repr(covered).encode(errors="surrogatepass")
    return hashlib.blake2b(encoded, digest_size=32).hexdigest()
