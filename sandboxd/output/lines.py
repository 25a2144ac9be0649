"""Complete lines to text, fast: bytes first, and the editor only for lines that need it.

A line is a pure function of its bytes, so a blob of lines can be rendered whole, late, in
pieces or never. Most output holds no control byte at all and is only decoded; colour and other
sequences without effect are taken out for the blob at once; what still holds a control is
edited line by line. Tabs stay tabs in lines that need no editing.
"""

from __future__ import annotations

from sandboxd.output import escapes
from sandboxd.output.cells import CAP
from sandboxd.output.editor import Editor

FOLD = 65536
"""A longer line is always edited, so that one still growing can be folded into cells."""

_SHORT = 256


def has_controls(data: bytes) -> bool:
    """Whether any control byte but HT and LF is in there: where it is long, one memchr each
    instead of a character class."""
    if len(data) < _SHORT:
        return escapes.CONTROL_BYTES.search(data) is not None
    if b"\x1b" in data or b"\r" in data or b"\x08" in data:
        return True
    if any(code in data for code in escapes.RARE_C0):
        return True
    return b"\xc2" in data and escapes.C1_BYTES.search(data) is not None


def render_line(line: bytes) -> str:
    """One line without its LF as a person would see it."""
    line = line.rstrip(b"\r")
    if len(line) <= FOLD:
        text = _without_sequences(line.decode("utf-8", "replace"))
        if len(text) <= CAP // 2 and escapes.CONTROL.search(text) is None:
            return text
    editor = Editor()
    editor.feed(line)
    return editor.text()


def render_lines(blob: bytes) -> str:
    """Lines, each with its LF (the last may lack it), as a person would see them."""
    if not has_controls(blob):
        if _has_no_long_line(blob):
            return blob.decode("utf-8", "replace")
        return _one_by_one(blob)
    text = blob.decode("utf-8", "replace")
    while "\r\n" in text:
        text = "\n".join(text.split("\r\n"))
    return _edit_where_needed(blob, _without_sequences(text))


def _without_sequences(text: str) -> str:
    """Take out what has no effect; colour alone is an order of magnitude cheaper to find.

    Colour may only be taken out by itself when it is all there is: what stands around it could
    otherwise close up to a sequence that was never written.
    """
    if "\x1b" not in text:
        return text
    stripped = "".join(escapes.COLOUR.split(text))
    return "".join(escapes.NO_EFFECT.split(text)) if "\x1b" in stripped else stripped


def least_size(blob: bytes) -> int | None:
    """Fewest bytes of text that the lines can come to, where that is known without rendering."""
    rest = escapes.bare(blob) if b"\x1b" in blob else blob
    return None if has_controls(rest) or not _has_no_long_line(blob) else len(rest)


def _has_no_long_line(blob: bytes) -> bool:
    """Whether every line has at most CAP / 2 bytes, hence at most CAP columns."""
    position, end = 0, len(blob)
    while end - position > CAP // 2:
        border = blob.rfind(b"\n", position, position + CAP // 2 + 1)
        if border < 0:
            return False
        position = border + 1
    return True


def _one_by_one(blob: bytes) -> str:
    return "\n".join(map(render_line, blob.split(b"\n")))


def _edit_where_needed(blob: bytes, stripped: str) -> str:
    """Keep the stripped lines that hold no control and are short; edit the others from source."""
    if _is_clean(stripped):
        return stripped
    lines = stripped.split("\n")
    source = blob.split(b"\n")
    for at, line in enumerate(lines):
        if len(line) > CAP // 2 or len(source[at]) > CAP or escapes.CONTROL.search(line):
            lines[at] = render_line(source[at])
    return "\n".join(lines)


def _is_clean(text: str) -> bool:
    data = text.encode("utf-8", "replace")
    return not has_controls(data) and _has_no_long_line(data)
