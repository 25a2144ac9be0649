"""Arithmetic: when `$(( ))`, `(( ))`, a subscript or an offset can run a command.

Bash evaluates the *values* of variables as expressions again, so `x='a[$(cmd)]'; echo $((x))`
runs cmd. Arithmetic is therefore harmless only when every variable in it is known to hold a
number: never assigned in the text, or assigned numbers only. It is apart from the word reader
because this is a judgement over the whole text and not over one word.
Source: bash(1), "ARITHMETIC EVALUATION".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sandboxd.classify.reading import Draft, Notice
from sandboxd.model import Assignment, Span

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_ASSIGNED = re.compile(
    r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*+)\s*+(?:\[[^\]\[]*+\]\s*+)?(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
    r"|(?:\+\+|--)\s*([A-Za-z_][A-Za-z0-9_]*)"
)
_SETTERS = frozenset(
    [
        "read",
        "mapfile",
        "readarray",
        "getopts",
        "printf",
        "declare",
        "typeset",
        "local",
        "export",
        "readonly",
        "let",
        "unset",
    ]
)
_FILLED_BY_SHELL = frozenset(
    [
        "_",
        "REPLY",
        "MAPFILE",
        "OPTARG",
        "DIRSTACK",
        "FUNCNAME",
        "PWD",
        "OLDPWD",
        "IFS",
        "PIPESTATUS",
        "SHELLOPTS",
    ]
)
_FILLED_PREFIXES = ("BASH", "COMP", "READLINE", "PS", "PROMPT", "HIST")
_PRINTERS = frozenset(("seq", "wc", "date", "nproc", "id", "stat", "grep"))
_PRINTS_NUMBER: dict[str, tuple[tuple[str, ...], ...]] = {
    "date": (("+%s",), ("+%Y",), ("+%j",)),
    "id": (("-u",), ("-g",)),
    "nproc": ((),),
    "wc": (("-l",), ("-c",), ("-w",), ("-m",)),
}
"""Operands with which a command prints one number and nothing else."""


def _holds_text(name: str) -> bool:
    """Variables that the shell itself fills with text of commands, arguments or input."""
    return name in _FILLED_BY_SHELL or (name.startswith(_FILLED_PREFIXES) and name != "BASHPID")


def arithmetic_end(text: str, start: int, end: int) -> int | None:
    """Offset of the `))` that closes the arithmetic begun before `start`; None when the two
    parentheses are not closed together and it is a nested subshell instead."""
    depth = 0
    position = start
    while position < end:
        char = text[position]
        if char == "\\":
            position += 1
        elif char == "(":
            depth += 1
        elif char == ")":
            if depth == 0:
                return position if text.startswith("))", position) else None
            depth -= 1
        position += 1
    return None


def is_one_expression(raw: str) -> bool:
    """Whether a raw word is exactly one `$(( ))`."""
    if not raw.startswith("$(("):
        return False
    close = arithmetic_end(raw, 3, len(raw))
    return close is not None and close + 2 == len(raw)


def is_integer(text: str) -> bool:
    return _INTEGER.match(text) is not None


class Arithmetic:
    """Which names arithmetic evaluates, and which names may hold something else than a number."""

    def __init__(self) -> None:
        self._uses: list[tuple[frozenset[str], Span]] = []
        self._tainted: set[str] = set()
        self._all_tainted = False

    def use(self, names: Iterable[str], span: Span) -> None:
        used = frozenset(names)
        if used:
            self._uses.append((used, span))

    def taint(self, name: str) -> None:
        self._tainted.add(name)

    def absorb(self, other: Arithmetic) -> None:
        self._uses.extend(other._uses)
        self._tainted |= other._tainted
        self._all_tainted |= other._all_tainted

    def assigned_in(self, expression: str) -> list[str]:
        """The names an expression assigns (always numbers)."""
        return [match[1] or match[2] for match in _ASSIGNED.finditer(expression)]

    def take_assignment(self, assignment: Assignment, *, is_number: bool) -> None:
        value = assignment.value
        literal_number = value is not None and value.is_literal and is_integer(value.text)
        if not (is_number or literal_number):
            self._tainted.add(assignment.name)

    def take_setter(self, draft: Draft) -> None:
        """Builtins that assign: every name they mention may hold anything afterwards."""
        if draft.name not in _SETTERS and not draft.name.endswith(("read", "command", "builtin")):
            return
        for word in draft.words[1:]:
            if not word.is_literal:
                self._all_tainted = True
            self._tainted.add(word.text.split("=", 1)[0].split("[", 1)[0].rstrip("+"))

    def prints_number(self, drafts: Sequence[Draft]) -> bool:
        """Whether these commands are one pipeline whose output can only be numbers: whatever
        comes before the last command must end in its pipe, or it would be printed too."""
        if not drafts or not all(draft.is_piped_to for draft in drafts[:-1]):
            return False
        last = drafts[-1]
        has_output_redirect = any(one.operator != "<" for one in last.redirects)
        return not has_output_redirect and self._is_printer(last)

    def _is_printer(self, draft: Draft) -> bool:
        if not draft.words or any(not word.is_literal for word in draft.words):
            return False
        operands = tuple(word.text for word in draft.words[1:])
        if draft.name == "seq":
            return bool(operands) and all(is_integer(operand) for operand in operands)
        if draft.name == "stat":
            return len(operands) == 3 and operands[:2] == ("-c", "%s")
        if draft.name == "grep":
            plain = not any(operand.startswith("-") for operand in operands[1:])
            return operands[:1] == ("-c",) and len(operands) in (2, 3) and plain
        return operands in _PRINTS_NUMBER.get(draft.name, ())

    def notices(self, foreign: Iterable[str], functions: Iterable[str]) -> list[Notice]:
        """The uses that may evaluate something else than a number. `foreign` are names that the
        request's environment sets to something else than a number; a function may shadow a
        command that prints numbers."""
        tainted = self._tainted | set(foreign)
        is_shadowed = not _PRINTERS.isdisjoint(functions)
        return [
            Notice(
                "arithmetic",
                "a variable in an arithmetic expression may hold a subscript that runs a command",
                span,
            )
            for names, span in self._uses
            if self._all_tainted
            or is_shadowed
            or names & tainted
            or any(_holds_text(name) for name in names)
        ]
