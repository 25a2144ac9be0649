"""The hash chain: each row's hash covers the row and the hash before it. Pure functions.

    hash(n) = sha256(hash(n - 1) + json([seq, at_us, kind, session_id, run_id, payload]))

A row that is changed, removed from the middle or put in shows at `verify`, unless whoever did
it computed every later hash anew: the chain has no key, because whoever can write the log's
file could read a key kept beside it. It tells accident and casual editing from an intact
record; a copy of the newest hash kept elsewhere makes it proof against the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

GENESIS = bytes(32)
"""Stands where row 1 needs the hash before it."""

Row = tuple[int, int, str, str | None, str | None, str]
"""seq, at_us, kind, session_id, run_id, payload (JSON text)."""


def link(previous: bytes, row: Row) -> bytes:
    """The hash of `row` when it follows the row whose hash is `previous`."""
    return hashlib.sha256(previous + msgspec.json.encode(row)).digest()


def broken_links(
    rows: Iterable[tuple[Row, bytes]], previous: bytes = GENESIS, expected: int = 1
) -> Iterator[str]:
    """One sentence for each place where the chain does not hold, in order.

    `previous` and `expected` are the hash before the first row and its number. Checking goes on
    from the hash that is stored, so one changed row is one sentence.
    """
    for row, stored in rows:
        seq = row[0]
        if seq != expected:
            yield _gap(expected, seq)
        elif not _holds(previous, row, stored):
            yield f"event {seq}: the row or its hash was changed"
        previous, expected = stored, seq + 1


def _holds(previous: bytes, row: Row, stored: bytes) -> bool:
    try:
        return link(previous, row) == stored
    except (TypeError, ValueError):  # a column of another type, text that is not UTF-8
        return False


def _gap(expected: int, found: int) -> str:
    if found < expected:
        return f"event {found}: number is out of order"
    last = found - 1
    which = f"event {expected} is" if last == expected else f"events {expected} to {last} are"
    return f"{which} missing"
