"""One stream of one run: a ring for the reply, and the raw bytes on disk once the ring omits.

A small stream never touches the disk: until more has come than the ring shows, the ring has
everything, so the spill file is made only then and gets what came before first.
"""

from __future__ import annotations

import contextlib

from sandboxd.model import Captured
from sandboxd.output.kept import MANY
from sandboxd.output.ring import Ring
from sandboxd.output.spill import Spill, make_room

SPILL_QUOTA = 64 * 1024 * 1024
"""Of one stream."""
FOLDER_QUOTA = 512 * 1024 * 1024
"""Of a session: its oldest streams make room for a new one."""


class Capture:
    """Feed it chunks; `finish` gives what a person would read, with true counts."""

    def __init__(
        self,
        folder: str,
        head_bytes: int,
        tail_bytes: int,
        quota: int = SPILL_QUOTA,
        *,
        head_lines: int = MANY,
        tail_lines: int = MANY,
    ) -> None:
        self._folder = folder
        self._ring = Ring(head_bytes, tail_bytes, head_lines, tail_lines)
        self._limit = min(head_bytes + tail_bytes, head_lines + tail_lines)
        """What a stream of more bytes than this may have to leave out: a line is a byte at least."""
        self._early: list[bytes] | None = []
        self._early_bytes = 0
        self._quota = quota
        self._spill: Spill | None = None

    def feed(self, chunk: bytes) -> None:
        n_lines = chunk.count(b"\n")
        self._ring.feed(chunk, n_lines)
        if self._spill is not None:
            self._spill.write(chunk, n_lines)
        elif self._early is not None:
            self._early.append(chunk)
            self._early_bytes += len(chunk)
            if self._early_bytes > self._limit:
                self._open_spill()

    def _open_spill(self) -> None:
        early, self._early = self._early or [], None
        with contextlib.suppress(OSError):  # a disk that cannot take it never harms the run
            make_room(self._folder, FOLDER_QUOTA - self._quota)
            self._spill = Spill(self._folder, self._quota)
            for chunk in early:
                self._spill.write(chunk)

    def finish(self) -> Captured:
        """Close the spill and take the snapshot."""
        if self._spill is not None:
            self._spill.close()
        return self._ring.snapshot(self._spill.output_id if self._spill is not None else None)

    def snapshot(self) -> Captured:
        """What there is so far."""
        return self._ring.snapshot(None)
