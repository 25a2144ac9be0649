"""The approval key: a digest over everything that one approval covers.

The unit is a pipeline or compound command of the top-level list. Its key covers the words and
operators as written (assignment prefixes, redirection targets and here-document bodies are
among them), the folder it runs in, the digest of its standard input, the request's environment,
the shell and the profile; never a prefix of the raw text, and nothing that is not covered can
change what runs. Blanks and comments are not part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

_VERSION = 1


Covered = tuple[str, str, tuple[str, ...]]
"""One unit: what joins it to the unit before, the folder it runs in, its tokens as written."""


class Keys:
    """The keys of one text: what all its units share is encoded once."""

    def __init__(
        self,
        *,
        profile: str,
        shell: str,
        environment: Mapping[str, str | None],
        stdin_digest: str | None,
    ) -> None:
        overlay = sorted(environment.items()) if environment else ()
        self._shared = f"{(_VERSION, profile, shell, overlay, stdin_digest)!r}"

    def unit(self, covered: Covered) -> str:
        """The key of one unit by itself; what joins it to others is not part of it."""
        return _digest(f"unit{self._shared}{covered[1:]!r}")

    def whole(self, units: Sequence[Covered]) -> str:
        """The key of a whole text: each unit with what joins it to the one before."""
        return _digest(f"whole{self._shared}{units!r}")


def _digest(covered: str) -> str:
    """The digest of text built by `repr`, which is one to one on nested strings and None."""
    encoded = covered.encode(errors="surrogatepass")
    return hashlib.blake2b(encoded, digest_size=32).hexdigest()
