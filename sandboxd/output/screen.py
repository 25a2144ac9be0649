"""What a person's own terminal may be sent: the stream as it comes, minus what reads or forges.

A module of its own because it is a boundary. A program in a sandbox draws on a terminal outside of
it; colours, cursor and modes are its business. These are not, and are dropped whole:
- what makes the terminal answer, because the answer is typed at whoever reads next: ENQ, DECID, DA,
  DSR, DECREQTPARM, DECRQM, XTVERSION, window reports, DECRQSS and other DCS, colour queries;
- OSC except links (8): the clipboard (52), titles, notifications, working directory;
- APC, PM, SOS, media copy, and C1 controls in either coding.

Bytes in, bytes out; a sequence that is cut by the chunks is held back until it is whole, bounded.
Sources: ECMA-48; xterm's ctlseqs. Loaded by the command line's fast path: no imports.
"""

from __future__ import annotations

MAX_SEQUENCE = 256
"""A longer control sequence has no meaning."""
MAX_LINK = 4096

ESC, BEL, CAN, SUB, ENQ = 0x1B, 0x07, 0x18, 0x1A, 0x05
_STRINGS = b"PX^_]"
_REPORTS = b"cnqtxyvwi"
"""Final bytes of sequences that ask, print or speak to the window; DECSCUSR (` q`) is none."""
_TEXT, _ESCAPE, _CSI, _STRING, _LINK = range(5)
_C1_STRINGS = (0x90, 0x98, 0x9D, 0x9E, 0x9F)


class ScreenFilter:
    """Feed bytes of the run, pass on what comes back; `restore()` undoes modes that were left set."""

    def __init__(self) -> None:
        self._state = _TEXT
        self._held = bytearray()
        self._utf8_left = 0
        self._lead = 0
        self._is_ending = False
        """An ESC was seen inside a string."""
        self._modes: set[bytes] = set()

    def feed(self, chunk: bytes) -> bytes:
        out = bytearray()
        position = 0
        while position < len(chunk):
            if self._state == _TEXT and not self._utf8_left:
                position = self._pass_text(chunk, position, out)
                if position >= len(chunk):
                    break
            self._take(chunk[position], out)
            position += 1
        return bytes(out)

    def restore(self) -> bytes:
        """What brings the terminal back from what the run has left behind."""
        reset = b"".join(b"\x1b[?" + mode + b"l" for mode in sorted(self._modes) if mode != b"25")
        return reset + b"\x1b[?25h\x1b[0m\x1b(B" if self._modes or reset else b""

    def _pass_text(self, chunk: bytes, position: int, out: bytearray) -> int:
        """Plain ASCII in bulk, up to the next byte that needs care."""
        end = position
        while end < len(chunk) and (0x20 <= chunk[end] < 0x7F or chunk[end] in b"\n\r\t\b"):
            end += 1
        out += chunk[position:end]
        return end

    def _take(self, byte: int, out: bytearray) -> None:
        if self._state == _TEXT:
            self._text(byte, out)
        elif self._state == _ESCAPE:
            self._escape(byte, out)
        elif self._state == _CSI:
            self._control(byte, out)
        else:
            self._string(byte, out)

    # -- text

    def _text(self, byte: int, out: bytearray) -> None:
        if self._utf8_left and 0x80 <= byte < 0xC0:
            self._continue(byte, out)
            return
        if self._utf8_left:
            self._utf8_left = 0
            self._held.clear()
        if byte == ESC:
            self._begin(_ESCAPE, byte)
        elif 0xC2 <= byte < 0xF5:
            self._utf8_left = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
            self._held[:] = bytes((byte,))
        elif byte < 0x80 and byte != ENQ:
            out.append(byte)

    def _continue(self, byte: int, out: bytearray) -> None:
        """One more byte of a character; a C1 control in UTF-8 is what its ESC form is."""
        self._held.append(byte)
        self._utf8_left -= 1
        if self._utf8_left:
            return
        character = bytes(self._held)
        self._held.clear()
        if character[0] != 0xC2 or character[1] >= 0xA0:
            out += character
        elif character[1] == 0x9B:
            self._begin(_CSI, ESC)
            self._held += b"["
        elif character[1] in _C1_STRINGS:
            self._begin(_STRING, ESC)

    def _begin(self, state: int, byte: int) -> None:
        self._state = state
        self._held[:] = bytes((byte,))
        self._is_ending = False

    def _end(self) -> None:
        self._state = _TEXT
        self._held.clear()

    # -- sequences

    def _escape(self, byte: int, out: bytearray) -> None:
        if byte == ESC:
            self._begin(_ESCAPE, byte)
        elif byte in (CAN, SUB):
            self._end()
        elif byte == 0x5B:
            self._held.append(byte)
            self._state = _CSI
        elif byte in _STRINGS:
            self._held.append(byte)
            self._state = _LINK if byte == 0x5D else _STRING
        elif 0x20 <= byte < 0x30:
            self._held.append(byte)
            if len(self._held) > 8:
                self._end()
        else:
            if 0x30 <= byte < 0x7F and not (byte == 0x5A and len(self._held) == 1):  # DECID
                out += self._held
                out.append(byte)
            self._end()

    def _control(self, byte: int, out: bytearray) -> None:
        if byte == ESC:
            self._begin(_ESCAPE, byte)
        elif byte in (CAN, SUB):
            self._end()
        elif 0x20 <= byte < 0x40:
            self._held.append(byte)
            if len(self._held) > MAX_SEQUENCE:
                self._state = _CSI
                del self._held[MAX_SEQUENCE:]
        elif 0x40 <= byte < 0x7F:
            if len(self._held) < MAX_SEQUENCE and not self._asks(byte):
                out += self._held
                out.append(byte)
                self._note_modes(byte)
            self._end()
        elif byte < 0x20 and byte != ENQ:  # executed in the middle of a sequence: ECMA-48 5.5
            out.append(byte)

    def _asks(self, final: int) -> bool:
        body = bytes(self._held[2:])
        if final == 0x71 and body.endswith(b" "):
            return False
        if final == 0x70:
            return b"$" in body
        if final == 0x75:
            return b"?" in body
        if final == 0x53:  # XTSMGRAPHICS; SU without the mark
            return b"?" in body
        return final in _REPORTS

    def _note_modes(self, final: int) -> None:
        if self._held[2:3] != b"?" or final not in b"hl":
            return
        for mode in bytes(self._held[3:]).split(b";"):
            is_on = final == 0x68
            if mode in (b"7", b"12"):  # on anyway, or only a blinking cursor
                continue
            left = is_on if mode != b"25" else not is_on
            (self._modes.add if left else self._modes.discard)(mode)

    def _string(self, byte: int, out: bytearray) -> None:
        """A string up to ST, BEL, CAN or SUB; only a link is passed on."""
        if self._is_ending:
            if byte == 0x5C:
                self._finish_string(b"\x1b\\", out)
            else:
                self._begin(_ESCAPE, ESC)
                self._escape(byte, out)
        elif byte == ESC:
            self._is_ending = True
        elif byte in (CAN, SUB):
            self._end()
        elif byte == BEL:
            self._finish_string(b"\x07", out)
        elif self._state == _LINK:
            if 0x20 <= byte < 0x7F and len(self._held) < MAX_LINK:
                self._held.append(byte)
            else:
                self._state = _STRING

    def _finish_string(self, end: bytes, out: bytearray) -> None:
        if self._state == _LINK and self._held.startswith(b"\x1b]8;"):
            out += self._held + end
        self._end()
