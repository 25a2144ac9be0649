"""tar's first word may be a bundle without a dash (`tar tf a.tar`): it is read as tar reads it.

Listing only reads as long as no option names a program. Source: GNU tar manual, "Old options".
"""

from __future__ import annotations

from sandboxd.classify.arguments import Arguments, read_arguments
from sandboxd.classify.entries import Entry
from sandboxd.classify.findings import Context, Finding, destructive, joined, mutating
from sandboxd.classify.redirects import write_to
from sandboxd.model import Word

_WRITERS = ("-c", "-x", "-r", "-u", "-A", "--create", "--extract", "--append", "--update")
_VALUED = "fbCXTgNKLVHIF"


def tar(arguments: Arguments, context: Context) -> Finding:
    """`t` lists; every other operation writes; `--remove-files` deletes what it packed."""
    words = _with_dash(arguments.words)
    if not words:
        return mutating("tar without an operation")
    read = read_arguments(words, _open(arguments.entry))
    found: list[Finding] = [mutating(f"tar: {doubt}") for doubt in read.doubts]
    if read.has("--remove-files"):
        found.append(destructive("tar --remove-files deletes what it packed"))
    if not read.has("-t", "--list") or read.has(*_WRITERS):
        found.append(mutating("tar writes files"))
        if read.has("-c", "--create"):
            found += [write_to(word, context.path) for word in read.values("-f", "--file")]
    for archive in read.values("-f", "--file"):
        found.append(_archive(archive, context))
    return joined(found)


def _with_dash(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Old style: the letters' values follow in order, as words of their own."""
    if not words or words[0].text.startswith("-") or not words[0].is_literal:
        return words
    expanded: list[Word] = []
    rest = list(words[1:])
    for letter in words[0].text:
        expanded.append(Word(text="-" + letter, span=words[0].span))
        if letter in _VALUED and rest:
            expanded.append(rest.pop(0))
    return (*expanded, *rest)


def _open(entry: Entry) -> Entry:
    """The same flags, read as GNU options."""
    return Entry(rule=entry.rule, flags=entry.flags)


def _archive(word: Word, context: Context) -> Finding:
    if not word.is_literal and word.may_be_option:
        return mutating("the archive's name could hold a host")
    if ":" in word.text.split("/")[0]:
        return mutating("an archive on another host is reached by a program")
    path = context.path(word.text) if word.is_literal and word.text != "-" else None
    return Finding(read_paths=(path,)) if path else Finding()
