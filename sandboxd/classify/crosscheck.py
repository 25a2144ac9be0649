"""The second reading: tree-sitter's bash grammar, which shares no code with our reader.

A `read_only` verdict that the plain lexer did not give stands only when an independent reader
sees the same commands with the same words in the same places. tree-sitter has its own blind
spots (backticks in here-documents, words split at odd blanks), so a missing node is a
disagreement only where tree-sitter is known to look. Where it sees an ERROR, bashlex is asked
instead. Disagreement never makes a verdict milder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import tree_sitter
import tree_sitter_bash

from sandboxd.model import SimpleCommand, Span

Opinion = Literal["agrees", "differs", "cannot read"]

_NOT_WORDS = frozenset(
    (
        "variable_assignment",
        "file_redirect",
        "heredoc_redirect",
        "herestring_redirect",
        "comment",
    )
)
_KEYWORD_COMMANDS = frozenset(("declaration_command", "unset_command"))
_HEREDOC_PARTS = frozenset(
    [
        "heredoc_start",
        "heredoc_body",
        "heredoc_end",
        "file_descriptor",
        "pipeline",
        "list",
        "command",
        "file_redirect",
        "herestring_redirect",
        "redirected_statement",
    ]
)
_UNCOUNTED = -1
_MAX_HAZY = 200


class SecondReader:
    """Holds the parser; one per classifier."""

    def __init__(self) -> None:
        self._parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))

    def opinion(self, text: str, commands: Sequence[SimpleCommand]) -> Opinion:
        """Whether tree-sitter finds exactly `commands` in `text`."""
        encoded = text.encode()
        root = self._parser.parse(encoded).root_node
        if root.has_error:
            return "cannot read"
        offsets = None if len(encoded) == len(text) else _character_offsets(text)
        seen = dict(_commands(root, offsets))
        return "agrees" if _same(text, seen, commands) else "differs"


def _same(text: str, seen: dict[int, int], commands: Sequence[SimpleCommand]) -> bool:
    ours: dict[int, int] = {}
    hazy: list[Span] = []
    for command in commands:
        start = command.span[0] if not command.words else command.words[0].span[0]
        if text.startswith("`", start):
            hazy.append(command.span)
        elif command.words:
            ours[start] = len({word.span for word in command.words})
    if len(hazy) > _MAX_HAZY:
        return False
    for start, count in seen.items():
        if start not in ours:
            if not any(left <= start < right for left, right in hazy):
                return False
        elif count not in (ours[start], _UNCOUNTED):
            return False
    return all(start in seen for start in ours)


def _commands(root: tree_sitter.Node, offsets: Sequence[int] | None) -> Iterator[tuple[int, int]]:
    """Each command: where its name starts, and how many words it has."""
    stack = [(root, 0)]
    while stack:
        node, extra = stack.pop()
        kind = node.type
        stray = _stray_words(node) if kind == "redirected_statement" else 0
        stack.extend((child, stray) for child in node.children)
        if kind == "command":
            words = [child for child in node.named_children if child.type not in _NOT_WORDS]
            words = _without_time(words)
            if words:
                yield _place(words[0], offsets), len(words) + extra + _stray_words(node)
        elif kind in _KEYWORD_COMMANDS or (kind == "test_command" and node.children[0].type == "["):
            yield _place(node, offsets), _UNCOUNTED


def _without_time(words: list[tree_sitter.Node]) -> list[tree_sitter.Node]:
    """`time` is a reserved word of bash and a command name for tree-sitter."""
    if not words or words[0].text != b"time":
        return words
    return words[2:] if len(words) > 1 and words[1].text == b"-p" else words[1:]


def _stray_words(node: tree_sitter.Node) -> int:
    """tree-sitter takes the words after a redirection for more targets of it."""
    count = 0
    for redirect in node.named_children:
        if redirect.type == "file_redirect":
            targets = [c for c in redirect.named_children if c.type != "file_descriptor"]
            count += max(0, len(targets) - 1)
        elif redirect.type == "heredoc_redirect":
            count += sum(c.type not in _HEREDOC_PARTS for c in redirect.named_children)
    return count


def _place(node: tree_sitter.Node, offsets: Sequence[int] | None) -> int:
    return node.start_byte if offsets is None else offsets[node.start_byte]


def _character_offsets(text: str) -> list[int]:
    """For each byte offset of the UTF-8 encoding, the character offset."""
    offsets: list[int] = []
    for index, char in enumerate(text):
        offsets.extend([index] * len(char.encode()))
    offsets.append(len(text))
    return offsets
