"""The vocabulary of terminal output: control characters and sequences by their standard names.

Names are those of ECMA-48 (5th edition); DECSC, DECRC and the private forms are DEC's, REP's
limit to ASCII and the C1 controls in UTF-8 follow what terminals do. Only the names that mean
something to a reader of captured output are listed; a sequence that is not listed is recognised
by its form (`CSI` parameters, intermediates, one final; a string up to its terminator) and
dropped whole. Patterns for the fast path live here too, because each of them is a claim about
the same grammar.
"""

from __future__ import annotations

import re

# C0 (ECMA-48 section 8.3, coded 00-1F) and DEL
BEL = "\x07"
BS = "\x08"
HT = "\x09"
LF = "\x0a"
CR = "\x0d"
CAN = "\x18"
SUB = "\x1a"
ESC = "\x1b"
DEL = "\x7f"

# Second characters of an escape sequence (Fe: the C1 controls in their 7-bit form)
IND = "D"
NEL = "E"
RI = "M"
DCS = "P"
SOS = "X"
CSI = "["
ST = "\\"
OSC = "]"
PM = "^"
APC = "_"
DECSC = "7"
DECRC = "8"
STRING_INTRODUCERS = frozenset((DCS, SOS, OSC, PM, APC))

# Final characters of control sequences
ICH = "@"
CUU = "A"
CUD = "B"
CUF = "C"
CUB = "D"
CNL = "E"
CPL = "F"
CHA = "G"
CUP = "H"
CHT = "I"
ED = "J"
EL = "K"
DCH = "P"
ECH = "X"
CBT = "Z"
HPA = "`"
HPR = "a"
REP = "b"
VPA = "d"
VPR = "e"
HVP = "f"
SGR = "m"
SCOSC = "s"
SCORC = "u"

MAX_PARAMETERS = 256
"""Characters of a sequence's parameters that are kept; no meaning needs more."""

# What the slow path reads by. Text is everything that is neither C0, DEL nor C1.
HARMLESS = bytes((*range(7), 0x0B, 0x0C, *range(0x0E, 0x18), 0x19, *range(0x1C, 0x20), 0x7F))
"""Controls that do nothing to a line and end no sequence or string; they only stop REP."""
HARMLESS_AS_NUL = bytes.maketrans(HARMLESS, bytes(len(HARMLESS)))
REPEAT = re.compile(rb"(?:\x1b\[|\xc2\x9b)(?:[^@-~\x1b\xc2]|\xc2[^\x80-\x9f])*+b")
TOKEN = re.compile(
    r"([^\x00-\x1f\x7f-\x9f]+)"  # text
    r"|\x1b\[([0-9;]*+)([@-~])"  # a plain control sequence: its parameters, its final
    r"|([\x00-\x1f\x7f-\x9f])"  # any other control
)
"""Everything that can stand where no sequence has begun; matches follow each other without a gap."""
IS_TEXT, IS_SEQUENCE = 1, 3
"""The last group of a TOKEN that is text, or a sequence."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
STRING_END = re.compile(r"[\x07\x18\x1a\x1b\x80-\x9f]")

# What the fast path asks of bytes.
C1_BYTES = re.compile(rb"\xc2[\x80-\x9f]")
CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
RARE_C0 = tuple(bytes((code,)) for code in (*range(0x20), 0x7F) if code not in b"\b\t\n\r\x1b")
"""The C0 controls that do nothing to a line, and DEL."""

COLOUR = re.compile(r"\x1b\[[0-9;:]*+m")

NO_EFFECT = re.compile(
    r"\x1b\[(?:[0-9;:]*m|0?K|[<-?][0-9;:<-?]*[@-~]|[0-9;]*[hlnqrtc])"  # SGR, EL at the end, modes
    r"|\x1b\][^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[()*+][0-~]|\x1b[=>]"  # character sets, keypad
)
"""Whole sequences that change nothing in a line whose cursor stands at its end.

A match begins with ESC, which starts anew in every state, so taking it out is exact as long as
no other ESC, CR, BS or C1 is left in the line afterwards.
"""

_OTHER_THAN_COLOUR = re.compile(rb"\x1b(?!\[[0-9;:]*+[mK])")
_ROW_MOVE = re.compile(rb"\x1b\[[^@-~\n\x1b]*+[ABEFHJdef]")
_ROW_MOVE_C1 = re.compile(rb"\xc2[\x84\x85\x8d\x9b]")
_ROW_ESCAPE = re.compile(rb"\x1b[DEM]")
_ROW_ESCAPES = (b"\x1bD", b"\x1bE", b"\x1bM")


def row_moves(data: bytes) -> list[int]:
    """Where something begins that could leave the current row, ascending.

    A superset, decided exactly by the editor. Each search starts with a literal: an alternation
    costs several times as much.
    """
    starts: list[int] = []
    if b"\x1b" in data and not _is_only_colour(data):
        starts = [match.start() for match in _ROW_MOVE.finditer(data)]
        if any(escape in data for escape in _ROW_ESCAPES):
            starts += [match.start() for match in _ROW_ESCAPE.finditer(data)]
    if b"\xc2" in data:
        starts += [match.start() for match in _ROW_MOVE_C1.finditer(data)]
    return sorted(starts)


def _is_only_colour(data: bytes) -> bool:
    """Whether every escape is SGR or EL."""
    return _OTHER_THAN_COLOUR.search(data) is None


def bare(data: bytes) -> bytes:
    """Without digits, SGR and EL: all of it shorter, with every other sequence still to be seen.

    Several times faster than a pattern. Without its digits every SGR is the same three bytes;
    that can make something look like a sequence that is none, but it hides none.
    """
    rest = data.translate(None, b"0123456789;:").replace(b"\x1b[m", b"")
    return rest.replace(b"\x1b[K", b"") if b"\x1b" in rest else rest
