"""Brace expansion of literal words, as bash does it before every other expansion.

Apart from the word scanner because it works on the raw spelling of a word: each result is
scanned again for quotes. What is not certain (expansions inside, unbalanced braces, mixed
sequences, many results) yields None, and the word is then treated as not literal.
Source: bash(1), "Brace Expansion".
"""

from __future__ import annotations

import re

_ATOM = re.compile(r"\\.|'[^']*'|\"[^\"\\$`]*\"|[^\\'\"$`]", re.DOTALL)
_NUMBERS = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?\Z")
_LETTERS = re.compile(r"([a-z])\.\.([a-z])\Z|([A-Z])\.\.([A-Z])\Z")

MAX_RESULTS = 256


def has_braces(raw: str) -> bool:
    """Whether a brace expansion is possible at all in this raw word."""
    opened = raw.find("{")
    return opened >= 0 and (raw.find(",", opened) >= 0 or raw.find("..", opened) >= 0)


def expand_braces(raw: str) -> list[str] | None:
    """The raw words that bash makes of `raw`, or None when that is not certain."""
    atoms: list[str] = []
    position = 0
    while position < len(raw):
        match = _ATOM.match(raw, position)
        if match is None:
            return None
        atoms.append(match[0])
        position = match.end()
    try:
        results, rest = _sequence(atoms, 0, closing=False)
    except _Uncertain:
        return None
    if rest != len(atoms) or len(results) > MAX_RESULTS:
        return None
    return results


class _Uncertain(Exception):
    pass


def _sequence(atoms: list[str], index: int, *, closing: bool) -> tuple[list[str], int]:
    """Expand until the end, or (inside braces) until a `,` or `}` of this level."""
    results = [""]
    while index < len(atoms):
        atom = atoms[index]
        if closing and atom in (",", "}"):
            return results, index
        if atom == "}":
            raise _Uncertain
        if atom == "{":
            pieces, index = _group(atoms, index + 1)
        else:
            pieces, index = [atom], index + 1
        if len(results) * len(pieces) > MAX_RESULTS:
            raise _Uncertain
        results = [left + right for left in results for right in pieces]
    if closing:
        raise _Uncertain
    return results, index


def _group(atoms: list[str], index: int) -> tuple[list[str], int]:
    """The alternatives of one group; `index` stands after its `{`."""
    start = index
    alternatives: list[str] = []
    commas = 0
    while True:
        pieces, index = _sequence(atoms, index, closing=True)
        alternatives.extend(pieces)
        if len(alternatives) > MAX_RESULTS:
            raise _Uncertain
        if atoms[index] == "}":
            break
        commas += 1
        index += 1
    if commas:
        return alternatives, index + 1
    counted = _counted("".join(atoms[start:index]))
    if counted is not None:
        return counted, index + 1
    return ["{" + piece + "}" for piece in alternatives], index + 1


def _counted(body: str) -> list[str] | None:
    """`1..5`, `01..10..2`, `a..e`; None when the body is no sequence."""
    if ".." not in body:
        return None
    if numbers := _NUMBERS.match(body):
        return _numbers(numbers)
    if letters := _LETTERS.match(body):
        first, last = sorted(ord(letter) for letter in letters.groups() if letter)
        run = [chr(code) for code in range(first, last + 1)]
        return run if body[0] <= body[-1] else run[::-1]
    raise _Uncertain


def _numbers(match: re.Match[str]) -> list[str]:
    first, last = int(match[1]), int(match[2])
    step = abs(int(match[3] or 1)) or 1
    if abs(last - first) // step >= MAX_RESULTS:
        raise _Uncertain
    run = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    width = max(len(match[1]), len(match[2])) if _is_padded(match[1]) or _is_padded(match[2]) else 0
    return [str(number).zfill(width) for number in run]


def _is_padded(number: str) -> bool:
    digits = number.lstrip("-")
    return len(digits) > 1 and digits[0] == "0"
