"""dd operands: `if=` reads, `of=` writes, `of=` on a device cannot be undone. Source: dd(1)."""

from __future__ import annotations

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import Context, Finding, joined, mutating
from sandboxd.classify.redirects import write_to
from sandboxd.model import Word

_HARMLESS = frozenset(
    ("if", "bs", "ibs", "obs", "cbs", "count", "skip", "iseek", "status", "conv", "iflag")
)


def dd(arguments: Arguments, context: Context) -> Finding:
    """Every operand has the form NAME=VALUE; one that is not known is mutating."""
    return joined(_operand(word, context) for word in arguments.words)


def _operand(word: Word, context: Context) -> Finding:
    name, equals, value = word.text.partition("=")
    if equals and name == "of":
        target = Word(text=value, span=word.span, is_literal=word.is_literal)
        return write_to(target, context.path)
    if not equals or name not in _HARMLESS or (word.may_split and not word.is_literal):
        return mutating(f"dd: {word.text} is not known to be harmless")
    path = context.path(value) if name == "if" and word.is_literal else None
    return Finding(read_paths=(path,)) if path else Finding()
