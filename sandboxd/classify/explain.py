"""A verdict for people: the command with the deciding part marked, why, and what would help.

Pure text from text; the command line prints it and nothing parses it.
"""

from __future__ import annotations

import unicodedata

from sandboxd.model import Reason, Span, Verdict

_MEANING = {
    "read_only": "only reads",
    "mutating": "can change files or state, or run another program",
    "destructive": "can delete or lose something that cannot be brought back",
}
_REMEDIES = {
    "arithmetic": "use plain numbers in the arithmetic, or compute the value beforehand",
    "assignment": "leave out the assignment",
    "control-character": "replace the unusual blank or control character by a plain space",
    "environment": "do not set that variable for this run",
    "function-shadows": "rename the function so that it does not hide a known command",
    "indirection": "name the variable itself instead of expanding its name",
    "local-program": "use the command's bare name, so that PATH decides which program it is",
    "name": "write the program's name out",
    "program-writable": "take folders that a run can write out of PATH",
    "prompt-expansion": "leave out `@P`",
    "readings-differ": "write it more plainly, one command at a time",
    "redirect": "print instead of writing to a file, or write to /dev/null",
    "shell": "run it with bash",
    "subscript": "test a plain variable name without a subscript",
    "unknown-command": "describe the command in a command table of the profile, if it only reads",
    "unparsed": "write it more plainly, or put it into a script file and run that",
}


def explain(text: str, verdict: Verdict) -> str:
    """Several lines, without a trailing newline."""
    lines: list[str] = []
    reasons = verdict.reasons
    place = next((reason.span for reason in reasons if reason.span is not None), None)
    lines.extend(_marked(text, place))
    lines.append("")
    lines.append(_headline(verdict))
    lines.extend(f"  - {reason.message} [{reason.rule}]" for reason in reasons)
    if verdict.class_.value != "read_only":
        lines.extend(_remedies(text, reasons))
    lines.extend(_listed(verdict))
    return "\n".join(lines)


def _headline(verdict: Verdict) -> str:
    if not verdict.parsed:
        return "cannot be read: asked each time, and treated as if it were destructive"
    remembered = "" if verdict.cacheable else "; an approval is not remembered"
    return f"{verdict.class_.value}: {_MEANING[verdict.class_.value]}{remembered}"


def _marked(text: str, place: Span | None) -> list[str]:
    """Every line of the command, and carets below the part that decided."""
    lines: list[str] = []
    start = 0
    for line in text.split("\n"):
        end = start + len(line)
        lines.append("  " + _shown(line))
        if (
            place is not None
            and place[0] <= end
            and place[1] > start
            and (line or place[0] == start)
        ):
            first, last = max(place[0], start) - start, min(place[1], end) - start
            if last > first or place[0] == place[1]:
                carets = "^" * max(_columns(_shown(line[first:last])), 1)
                lines.append("  " + " " * _columns(_shown(line[:first])) + carets)
        start = end + 1
    return lines


def _shown(line: str) -> str:
    """Control characters made visible; a tab keeps its place as one blank."""
    return "".join(
        " " if char == "\t" else char if char.isprintable() else ascii(char)[1:-1] for char in line
    )


def _columns(text: str) -> int:
    """Terminal columns: wide characters take two, combining ones none."""
    width = 0
    for char in text:
        if not unicodedata.combining(char):
            width += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return width


def _remedies(text: str, reasons: tuple[Reason, ...]) -> list[str]:
    found: dict[str, None] = {}
    for reason in reasons:
        remedy = _REMEDIES.get(reason.rule)
        if remedy is None and reason.span is not None:
            part = " ".join(text[reason.span[0] : reason.span[1]].split())
            short = part if len(part) <= 60 else part[:57] + "..."
            remedy = f"leave out `{short}`, or use a form of it that only reads"
        if remedy is not None:
            found[remedy] = None
    return ["to make it read_only:", *(f"  - {remedy}" for remedy in found)] if found else []


def _listed(verdict: Verdict) -> list[str]:
    groups = (
        ("reads", verdict.read_paths),
        ("writes", verdict.write_paths),
        ("hosts", verdict.hosts),
        ("programs", verdict.programs),
    )
    return [f"{name}: {', '.join(values)}" for name, values in groups if values]
