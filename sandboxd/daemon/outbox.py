"""Lines waiting for one client: kept in order, counted, and handed to the transport in pieces.

A module of its own because asyncio's transport keeps what it could not send in one flat buffer
and moves it all after every send (Python 3.11), which is slow from about a megabyte on. It gets
at most `TRANSPORT_BYTES` at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque

TRANSPORT_BYTES = 256 * 1024


class Outbox:
    """The way out of one connection; nothing here ever blocks or drops."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_paused = False
        transport.set_write_buffer_limits(high=TRANSPORT_BYTES)

    @property
    def queued_bytes(self) -> int:
        return self._waiting_bytes + self._transport.get_write_buffer_size()

    @property
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def put(self, line: bytes) -> None:
        if self._is_paused:
            self._lines.append(line)
            self._waiting_bytes += len(line)
        elif not self._transport.is_closing():
            self._transport.write(line)

    def pause(self) -> None:
        """The transport has enough (asyncio's `pause_writing`)."""
        self._is_paused = True

    def resume(self) -> None:
        """The transport wants more (asyncio's `resume_writing`)."""
        self._is_paused = False
        while self._lines and not self._is_paused:
            line = self._lines.popleft()
            self._waiting_bytes -= len(line)
            self._transport.write(line)

    def close(self) -> None:
        """Send what the transport has and hang up."""
        self._transport.close()
