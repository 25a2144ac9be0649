"""Tells binary output from text, so that a picture is counted and not rendered.

A NUL alone proves nothing: `find -print0` and `git ls-files -z` are text. From each NUL on the
next bytes are looked at, and the stream is binary when they hold many NULs, control characters
that no text has, or broken UTF-8. The verdict depends on the stream, not on how it was cut, and
it is final: what follows is only counted, except for a readable end.
"""

from __future__ import annotations

import re

SAMPLE_BYTES = 512
_ALIEN_SHARE = 0.05
_NUL_SHARE = 0.3
_ENOUGH_BYTES = 32
_ALIEN = re.compile(r"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f\ufffd]")


class BinaryWatch:
    """Passes text on and stops for good when the stream turns out to be binary."""

    def __init__(self) -> None:
        self.is_binary = False
        self._sample = b""
        """What follows a NUL, until there is enough of it to judge."""

    def text_part(self, chunk: bytes) -> bytes:
        """The bytes that are now known to be text, in order; none once binary."""
        if self.is_binary:
            return b""
        if not self._sample and b"\0" not in chunk:
            return chunk
        return b"".join(self._known_text(self._sample + chunk))

    def undecided(self) -> bytes:
        """Bytes held back because too few follow the NUL to be sure."""
        return self._sample

    def looks_binary(self) -> bool:
        """The verdict if nothing more came."""
        return self.is_binary or _is_binary(self._sample)

    def _known_text(self, data: bytes) -> list[bytes]:
        text: list[bytes] = []
        position = 0
        while (nul := data.find(b"\0", position)) >= 0:
            text.append(data[position:nul])
            sample = data[nul : nul + SAMPLE_BYTES]
            if len(sample) < SAMPLE_BYTES:
                self._sample = sample
                return text
            if _is_binary(sample):
                self.is_binary = True
                self._sample = b""
                return text
            text.append(sample)
            position = nul + SAMPLE_BYTES
        self._sample = b""
        text.append(data[position:])
        return text


def _is_binary(sample: bytes) -> bool:
    if len(sample) >= _ENOUGH_BYTES and sample.count(0) > _NUL_SHARE * len(sample):
        return True
    aliens = len(_ALIEN.findall(sample.decode("utf-8", "replace")))
    return aliens > _ALIEN_SHARE * len(sample) + 1  # one: a character cut at the end


def readable_end(data: bytes) -> bytes:
    """The whole lines of text at the end of binary output: the message after the picture."""
    lines = data.split(b"\n")
    kept = len(lines)
    while kept > 1 and _is_text(lines[kept - 1]):
        kept -= 1
    return b"\n".join(lines[kept:])


def text_end(lines: bytes) -> int:
    """Where the text ends that whole lines begin with: before the header of the picture."""
    end = len(lines)
    while end > 0:
        start = lines.rfind(b"\n", 0, end - 1) + 1
        if _is_text(lines[start:end]):
            break
        end = start
    return end


def _is_text(line: bytes) -> bool:
    return b"\0" not in line and _ALIEN.search(line.decode("utf-8", "replace")) is None
