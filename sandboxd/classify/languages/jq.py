"""jq: its programs cannot write or run anything, so only its options are closed.

Some options take two words (`--arg NAME VALUE`) and every option may stand anywhere.
Source: jq 1.7 manual, "Invoking jq".
"""

from __future__ import annotations

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import Context, Finding, joined, mutating

_TWO = frozenset(("--arg", "--argjson", "--slurpfile", "--rawfile"))
_ONE = frozenset(("--indent", "-L", "-f", "--from-file"))


def jq(arguments: Arguments, context: Context) -> Finding:
    """Closed options; the operands behind the program are read."""
    operands = []
    found: list[Finding] = []
    words = list(arguments.words)
    while words:
        word = words.pop(0)
        if not word.text.startswith("-") or word.text == "-":
            operands.append(word)
        elif word.is_literal and not _is_known(word.text, arguments):
            found.append(mutating(f"jq: the option {word.text} is not known to be harmless"))
        else:
            count = 2 if word.text in _TWO else 1 if word.text in _ONE else 0
            del words[:count]
    files = (
        operands if any(w.text in ("-f", "--from-file") for w in arguments.words) else operands[1:]
    )
    paths = [context.path(word.text) for word in files if word.is_literal and word.text != "-"]
    return joined([*found, Finding(read_paths=tuple(path for path in paths if path))])


def _is_known(text: str, arguments: Arguments) -> bool:
    flags = arguments.entry.flags
    if text.startswith("--"):
        return text.partition("=")[0] in flags
    return all("-" + letter in flags for letter in text[1:])
