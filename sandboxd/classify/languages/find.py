"""find and fd expressions: a closed list of tests, and every command they would run.

`-delete` and the writing actions are listed in the table; `-exec` and its kin are graded as the
command they run, with `{}` standing for a name that begins with its start point. Source: find(1).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import Context, Finding, destructive, joined, mutating
from sandboxd.classify.wrappers import replaced, run_words
from sandboxd.model import Word

_RUNNERS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_LEADING = frozenset(("-H", "-L", "-P"))
_OPERATORS = frozenset(("(", ")", "!", ","))


def find(arguments: Arguments, context: Context) -> Finding:
    """Every start point, test and action; what the table does not list is mutating."""
    words = arguments.words
    found: list[Finding] = []
    index, roots = _start_points(words, context, found)
    # Start points that come from a list begin as they like.
    roots += [word for word in words if word.text.startswith("-files0-from")]
    while index < len(words):
        index = _expression_word(words, index, roots, arguments, context, found)
    return joined(found)


def _start_points(
    words: Sequence[Word], context: Context, found: list[Finding]
) -> tuple[int, list[Word]]:
    roots: list[Word] = []
    index = 0
    while index < len(words):
        word = words[index]
        if word.is_literal and (word.text.startswith("-") or word.text in _OPERATORS):
            if word.text not in _LEADING and word.text != "--":
                break
        elif word.may_be_option or (word.may_split and not word.is_literal and "$" in word.text):
            found.append(mutating(f"find: {word.text} could become an action"))
        elif word.text.startswith("-"):
            break
        else:
            roots.append(word)
        index += 1
    return index, roots


def _expression_word(
    words: Sequence[Word],
    index: int,
    roots: Sequence[Word],
    arguments: Arguments,
    context: Context,
    found: list[Finding],
) -> int:
    """Judge the word at `index`; returns where the next one stands."""
    word = words[index]
    if not word.is_literal:
        found.append(mutating(f"find: {word.text} could become an action"))
        return index + 1
    if word.text in _OPERATORS:
        return index + 1
    if word.text in _RUNNERS:
        return _runner(words, index, roots, context, found)
    flag = arguments.entry.flags.get(word.text)
    if flag is None:
        found.append(mutating(f"find: {word.text} is not known to be harmless"))
        return index + 1
    if flag.class_.severity > 0:
        own = destructive if flag.class_ == "destructive" else mutating
        found.append(own(f"find: {word.text} deletes or writes files", "find"))
    if flag.kind is None:
        return index + 1
    value = words[index + 1] if index + 1 < len(words) else None
    if value is not None and value.may_split and not value.is_literal:
        found.append(mutating(f"find: {value.text} may become several words"))
    if value is not None and flag.kind == "out":
        path = context.path(value.text)
        found.append(Finding(write_paths=(path or value.text,)))
    return index + 2


def _runner(
    words: Sequence[Word],
    index: int,
    roots: Sequence[Word],
    context: Context,
    found: list[Finding],
) -> int:
    end = index + 1
    while end < len(words) and not _is_end(words, end):
        end += 1
    is_safe = words[index].text in ("-exec", "-ok") and all(_starts_plainly(root) for root in roots)
    # `+` puts many names in one place.
    is_many = end < len(words) and words[end].text == "+"
    inner = [replaced(word, "{}", is_safe, is_many=is_many) for word in words[index + 1 : end]]
    # Nothing may be found: what the command reads is not known to be read.
    found.append(structs.replace(run_words(inner, context), read_paths=()))
    if end >= len(words):
        found.append(mutating(f"find: {words[index].text} does not end"))
    return end + 1


def _is_end(words: Sequence[Word], index: int) -> bool:
    text = words[index].text
    return text == ";" or (text == "+" and words[index - 1].text == "{}")


def _starts_plainly(root: Word) -> bool:
    return not root.may_be_option and not root.text.startswith(("-", "$", "`"))


def fd(arguments: Arguments, context: Context) -> Finding:
    """`fd PATTERN -x COMMAND...`: everything behind `-x` or `-X` is the command."""
    words = arguments.words
    for index, word in enumerate(words):
        if word.text in ("-x", "-X", "--exec", "--exec-batch"):
            is_many = word.text in ("-X", "--exec-batch")
            inner = [_placeholder(item, is_many) for item in words[index + 1 :] if item.text != ";"]
            if not any(not item.is_literal for item in inner):
                inner.append(_placeholder(Word(text="{}", span=word.span), is_many))
            return run_words(inner, context)
        if word.text.startswith(("--exec", "-x", "-X")):
            return mutating("fd runs a command")
    return Finding()


def _placeholder(word: Word, is_many: bool) -> Word:
    for mark in ("{}", "{/}", "{//}", "{.}", "{/.}"):
        if mark in word.text:
            return Word(
                text=word.text,
                span=word.span,
                is_literal=False,
                may_split=is_many,
                may_be_option=True,
            )
    return word
