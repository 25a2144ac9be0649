"""Keys by name, and what typed text makes of a shell's input line.

A pure module of its own because it decides what is judged: at a shell's prompt a line runs when it
is entered, however it came there. Text is followed character by character; a key that completes,
recalls or moves makes the line unreadable, and an unreadable line is never taken for a harmless one.

Sources: readline(3), default key bindings; xterm's ctlseqs for the codes of keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sandboxd.errors import InvalidRequest

_NAMED = {
    "enter": "\r",
    "return": "\r",
    "tab": "\t",
    "escape": "\x1b",
    "esc": "\x1b",
    "space": " ",
    "backspace": "\x7f",
    "delete": "\x1b[3~",
    "insert": "\x1b[2~",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "page-up": "\x1b[5~",
    "page-down": "\x1b[6~",
    "f1": "\x1bOP",
    "f2": "\x1bOQ",
    "f3": "\x1bOR",
    "f4": "\x1bOS",
    "f5": "\x1b[15~",
    "f6": "\x1b[17~",
    "f7": "\x1b[18~",
    "f8": "\x1b[19~",
    "f9": "\x1b[20~",
    "f10": "\x1b[21~",
    "f11": "\x1b[23~",
    "f12": "\x1b[24~",
    "ctrl-space": "\0",
    "ctrl-\\": "\x1c",
    "ctrl-]": "\x1d",
    "ctrl-^": "\x1e",
    "ctrl-_": "\x1f",
    **{f"ctrl-{chr(97 + n)}": chr(1 + n) for n in range(26)},
}

MAX_LINE = 65_536
"""Characters; a longer line is not followed."""

_ENTERS = "\r\n"
_ERASES = "\x08\x7f"
_FORGETS = "\x03\x15"
"""Ctrl-C and Ctrl-U: the line is gone."""
_HARMLESS = "\x04\x0c\x1a"
"""Ctrl-D, Ctrl-L, Ctrl-Z."""
_EDITS = "\t\x01\x02\x05\x06\x0b\x0e\x10\x12\x14\x17\x19"
"""Completion, movement, history, killing and yanking: afterwards we do not know the line."""
_EDITING_SEQUENCES = ("[A", "[B", "[C", "[D", "[H", "[F", "[3~", "[2~", "[5~", "[6~")


def key(name: str) -> str:
    """The characters a key sends: `enter`, `up`, `ctrl-c`, `C-c`, `^C`, `alt-x`, or one character.

    Raises InvalidRequest for a name nobody knows.
    """
    if len(name) == 1:
        return name
    lowered = name.lower().replace("_", "-")
    for prefix in ("c-", "control-", "^"):
        if lowered.startswith(prefix) and len(lowered) > len(prefix):
            lowered = "ctrl-" + lowered[len(prefix) :]
            break
    for prefix in ("alt-", "m-", "meta-"):
        if lowered.startswith(prefix) and len(name) > len(prefix):
            return "\x1b" + key(name[len(prefix) :])
    if lowered not in _NAMED:
        raise InvalidRequest(
            f"wrong parameters: `keys`: there is no key {name!r}",
            hint="name a key such as enter, tab, up, escape, f1, ctrl-c, alt-x, or one character",
            data={"parameter": "keys"},
        )
    return _NAMED[lowered]


@dataclass(frozen=True)
class Line:
    """A shell's input line as far as it was typed."""

    text: str = ""
    is_readable: bool = True
    """Whether `text` is really what the shell holds."""


@dataclass(frozen=True)
class Typed:
    """What typing does: lines that are entered, in order, and the line that is begun."""

    entered: tuple[Line, ...]
    line: Line


def follow(line: Line, text: str) -> Typed:
    """Type `text` on a shell's line. A line that ends with a backslash goes on."""
    entered: list[Line] = []
    position = 0
    while position < len(text):
        end = position
        while end < len(text) and text[end].isprintable():
            end += 1
        if end > position:
            line, position = _longer(line, text[position:end]), end
            continue
        character = text[position]
        position += 1
        if character == "\x1b":
            sequence = next(
                (known for known in _EDITING_SEQUENCES if text.startswith(known, position)), None
            )
            position += len(sequence) if sequence else 0
            line = replace(line, is_readable=False)
            if sequence is None:  # a key that might run something
                entered.append(line)
        elif character in _ENTERS:
            if line.text or not line.is_readable:
                entered.append(line)
            line = _continued(line)
        else:
            line, runs = _typed(line, character)
            if runs:
                entered.append(line)
    return Typed(tuple(entered), line)


def _longer(line: Line, text: str) -> Line:
    if len(line.text) + len(text) > MAX_LINE:
        return Line((line.text + text)[:MAX_LINE], is_readable=False)
    return replace(line, text=line.text + text)


def _typed(line: Line, character: str) -> tuple[Line, bool]:
    """The line after one more control character, and whether that might run it."""
    if character in _ERASES:
        return replace(line, text=line.text[:-1]), False
    if character in _FORGETS:
        return (Line() if line.is_readable or character == "\x03" else line), False
    if character in _HARMLESS:
        return line, False
    return replace(line, is_readable=False), character not in _EDITS


def _continued(line: Line) -> Line:
    """What the shell holds after a line was entered."""
    stripped = line.text.rstrip("\\")
    if line.is_readable and (len(line.text) - len(stripped)) % 2:
        return Line(line.text + "\n")
    return Line()
