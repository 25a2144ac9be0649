"""The approval key: a digest over everything that one approval covers.

The unit is a pipeline or compound command of the top-level list. Its key covers the words and
operators as written (assignment prefixes, redirection targets and here-document bodies are
among them), the folder it runs in, the digest of its standard input, the request's environment,
the shell and the profile; never a prefix of the raw text, and nothing that is not covered can
change what runs. Blanks and comments are not part of it.

A unit is spelled connector, folder, number of tokens, tokens, with NUL between them. No token
holds a NUL (such texts are not read) and a folder is followed by a number, so no two units are
spelled alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

_VERSION = 2


Covered = tuple[str, str, tuple[str, ...]]
"""One unit: what joins it to the unit before, the folder it runs in, its tokens as written."""


@lru_cache(maxsize=64)
def shared_part(
    profile: str,
    shell: str,
    overlay: tuple[tuple[str, str | None], ...],
    stdin_digest: str | None,
) -> str:
    """What all units of a text share; `overlay` is the request's environment, sorted. Spelled by
    `repr`, which is one to one on nested strings and None."""
    return f"{(_VERSION, profile, shell, overlay, stdin_digest)!r}"


def unit_key(shared: str, unit: Covered) -> str:
    """The key of one unit by itself; what joins it to others is not part of it."""
    _, folder, tokens = unit
    return _digest(["unit", shared, folder, str(len(tokens)), *tokens])


def whole_key(shared: str, units: Sequence[Covered]) -> str:
    """The key of a whole text: each unit with what joins it to the one before."""
    spelled = ["whole", shared]
    for connector, folder, tokens in units:
        spelled += (connector, folder, str(len(tokens)))
        spelled += tokens
    return _digest(spelled)


def _digest(spelled: list[str]) -> str:
    encoded = "\0".join(spelled).encode(errors="surrogatepass")
    return blake2b(encoded, digest_size=32).hexdigest()
