"""awk programs: read token by token; what could run a command, write or load is mutating.

Dangerous are `system`, pipes (`|`, `|&`), output redirection (`>`, `>>` outside a comparison in
parentheses), `getline < "-"` with a computed name, `@load`, `@include`, `@f()` indirect calls and
gawk's extensions. Source: gawk manual, sections 4.10, 5.6, 8.1.3, 9.1.
"""

from __future__ import annotations

import re

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import NOTHING, Context, Finding, mutating

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\\\n)
      | (?P<comment>\#[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.]))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)?)
      | (?P<sign>\|\||&&|>=|>>|>|\|&|\||<=|==|!=|!~|\+\+|--|\+=|-=|\*=|/=|%=|\^=|\*\*=?|[{}()\[\],;~!<+\-*/%^=?:$@\n])
    """,
    re.VERBOSE,
)
_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?(?:[^\]\\\n]|\\.)*\])*/")
_DANGEROUS = frozenset(("system", "dl", "extension", "PROCINFO", "BINMODE"))
_OPERAND_ENDS = frozenset((")", "]", "$", "++", "--"))
_STARTS_REGEX_AFTER = frozenset(
    ("return", "print", "printf", "in", "case", "do", "else", "exit", "not")
)


class _Problem(Exception):
    """Why the program is not known to only read."""


def program_problem(text: str) -> str | None:
    """None when the program only computes and prints; else why not, or why it is not read."""
    try:
        _check(list(_tokens(text)))
    except _Problem as problem:
        return str(problem)
    return None


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        kind, token = _next_token(text, at, found)
        at += len(token)
        if kind not in ("space", "comment"):
            found.append((kind, token))
    return found


def _next_token(text: str, at: int, before: list[tuple[str, str]]) -> tuple[str, str]:
    if text[at] == "/" and _regex_may_start(before):
        match = _REGEX.match(text, at)
        if match is None:
            raise _Problem("a pattern does not end")
        _refuse_slash_in_brackets(match[0])
        return "regex", match[0]
    token = _TOKEN.match(text, at)
    if token is None or token.lastgroup is None:
        raise _Problem(f"{text[at]!r} is not understood")
    return token.lastgroup, token[0]


def _refuse_slash_in_brackets(pattern: str) -> None:
    """awks differ on whether `/` inside `[..]` ends the pattern: not guessed."""
    if re.search(r"(?<!\\)/", pattern[1:-1]):
        raise _Problem("a slash stands inside brackets of a pattern")


def _regex_may_start(before: list[tuple[str, str]]) -> bool:
    """Whether `/` starts a pattern here; where awk's own grammar has to decide, nobody guesses."""
    if not before:
        return True
    kind, token = before[-1]
    if kind in ("number", "string", "regex"):
        return False
    if kind == "name":
        return token in _STARTS_REGEX_AFTER
    if token == "$" or (token == ")" and _closes_condition(before)):
        raise _Problem("a slash that is a division or a pattern")
    return token not in _OPERAND_ENDS


def _closes_condition(before: list[tuple[str, str]]) -> bool:
    """Whether the last `)` ends `if (..)`, `while (..)` or `for (..)`."""
    depth = 0
    for index in range(len(before) - 1, -1, -1):
        token = before[index]
        if token == ("sign", ")"):
            depth += 1
        elif token == ("sign", "("):
            depth -= 1
            if depth == 0:
                return index > 0 and before[index - 1][1] in ("if", "while", "for")
    return True


def _check(tokens: list[tuple[str, str]]) -> None:
    for index, (kind, token) in enumerate(tokens):
        if kind == "name":
            _check_name(token, tokens, index)
        elif kind == "sign":
            _check_sign(token, tokens, index)


def _check_name(token: str, tokens: list[tuple[str, str]], index: int) -> None:
    if "::" in token:
        raise _Problem(f"{token} belongs to an extension")
    if token == "getline":
        _check_getline(tokens, index)
    elif token in _DANGEROUS:
        raise _Problem(f"{token} runs commands or touches files")


def _check_getline(tokens: list[tuple[str, str]], index: int) -> None:
    """Plain `getline` and `getline < "file"` read; everything else may run a command."""
    rest = tokens[index + 1 : index + 5]
    position = next((i for i, item in enumerate(rest) if item[1] == "<"), None)
    if position is None:
        return
    target = rest[position + 1] if position + 1 < len(rest) else ("", "")
    if target[0] != "string" or target[1].startswith('"/inet') or "\\" in target[1]:
        raise _Problem("getline reads from a computed or network name")


def _check_sign(token: str, tokens: list[tuple[str, str]], index: int) -> None:
    if token in ("|", "|&"):
        raise _Problem("a pipe runs a command")
    if token == "@":
        raise _Problem("@ loads code or calls indirectly")
    if token == ">>":
        raise _Problem(">> writes to a file")
    if token == ">" and _may_be_output(tokens, index):
        raise _Problem("> writes to a file")


def _may_be_output(tokens: list[tuple[str, str]], index: int) -> bool:
    """`>` is output only after `print` in the same statement; inside parentheses it compares."""
    inner = 0
    for position in range(index - 1, -1, -1):
        kind, token = tokens[position]
        if kind == "name" and inner == 0 and token in ("print", "printf"):
            return not _goes_to_console(tokens, index)
        if kind != "sign":
            continue
        if token in (")", "]"):
            inner += 1
        elif token in ("(", "["):
            if inner == 0:
                return False
            inner -= 1
        elif inner == 0 and (token in (";", "{", "}") or _ends_statement(tokens, position)):
            return False
    return False


def _ends_statement(tokens: list[tuple[str, str]], position: int) -> bool:
    """A newline does, unless the statement goes on behind a comma or an operator."""
    if tokens[position][1] != "\n":
        return False
    before = next((t for _, t in reversed(tokens[:position]) if t != "\n"), "")
    return before not in (",", "&&", "||", "?", ":")


def _goes_to_console(tokens: list[tuple[str, str]], index: int) -> bool:
    """`print > "/dev/stderr"` and nothing behind it."""
    behind = tokens[index + 1 : index + 3]
    target = behind[0] if behind else ("", "")
    end = behind[1][1] if len(behind) > 1 else ";"
    return target[1] in ('"/dev/stderr"', '"/dev/stdout"') and end in (";", "}", "\n")


def awk(arguments: Arguments, context: Context) -> Finding:
    """The program: the first operand, unless `-f` names a file that nobody has read."""
    programs = [*arguments.values("-e", "--source")] or list(arguments.operands[:1])
    if not programs:
        return mutating("the awk program is missing", "awk.program")
    if not all(word.is_literal for word in programs):
        return mutating("the awk program is only known when it runs", "awk.program")
    for word in programs:
        problem = program_problem(word.text)
        if problem:
            return mutating(f"the awk program: {problem}", "awk.program")
    for word in arguments.values("-v", "--assign"):
        if not word.is_literal and "=" not in word.text.split("$")[0]:
            return mutating("the variable that -v sets is not literal", "awk.program")
    return NOTHING
