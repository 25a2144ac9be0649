"""Bytes as they arrive, cut into lines, with the protocol's limit on a line's length.

A module of its own because server and clients share it. A line over the limit is never
buffered: the rest of it is skipped up to its newline, and the stream goes on behind it.
"""

from __future__ import annotations

from sandboxd.protocol.wire import LINE_LIMIT


class LineSplitter:
    """Feed it chunks; it hands out whole lines without their newline."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._pending: list[bytes] = []
        self._size = 0
        self._is_skipping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """The lines that `chunk` completes; None stands for one that was over the limit."""
        *complete, rest = chunk.split(b"\n")
        lines = [self._finish(piece) for piece in complete]
        self._keep(rest)
        return lines

    @property
    def has_partial_line(self) -> bool:
        return bool(self._size) or self._is_skipping

    def _finish(self, piece: bytes) -> bytes | None:
        self._keep(piece)
        line = None if self._is_skipping else b"".join(self._pending)
        self._pending.clear()
        self._size = 0
        self._is_skipping = False
        return line

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size >= self._limit:
            self._pending.clear()
            self._is_skipping = True
        elif piece:
            self._pending.append(piece)
