"""The asyncio edge of output: drains a descriptor as fast as it fills, whoever is slow.

A pump reads always, unless it is paused on purpose, so the child never blocks on us; sinks must not block and keep their own
bounds. A few large reads per wake-up keep one flooding child from starving the loop. Reads go
straight to `os.read`: a StreamReader costs half the throughput.

End of file is `b""` on a pipe. A pty's master says EIO on Linux once nobody holds the other
side, and either may come on macOS; both are the end, not an error.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

PAUSED_LOOK_S = 0.05
READ_BYTES = 1 << 18
READS_PER_WAKE = 4


class Pump:
    """Owns `fd` and hands every chunk to each sink, in order, until the end of file.

    Must be made inside a running loop. A sink that raises gets no more chunks; the pump goes on
    for the others, and `drained` raises what it raised.
    """

    def __init__(self, fd: int, sinks: Sequence[Callable[[bytes], None]]) -> None:
        self._fd = fd
        self._sinks = list(sinks)
        self._loop = asyncio.get_running_loop()
        self._last_chunk_at = self._loop.time()
        self._is_paused = False
        self._ended = asyncio.Event()
        self._fault: Exception | None = None
        self.total_bytes = 0
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._drain)

    @property
    def is_at_end(self) -> bool:
        return self._ended.is_set()

    def add_sink(self, sink: Callable[[bytes], None]) -> None:
        """One more taker of every later chunk, after the others."""
        self._sinks.append(sink)

    def pause(self) -> None:
        """Leave what comes in the pipe, so that the writer waits."""
        if self._fd >= 0 and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if self._fd >= 0 and self._is_paused:
            self._is_paused = False
            self._last_chunk_at = self._loop.time()
            self._loop.add_reader(self._fd, self._drain)

    async def drained(self, quiet_s: float | None = None) -> bool:
        """Wait for the end of the stream: True.

        With `quiet_s` give up once no byte has arrived for so long: False (a background child
        still holds the other end); the time before the call does not count as quiet.
        """
        quiet_from = self._loop.time()
        while not self._ended.is_set():
            if quiet_s is None:
                await self._ended.wait()
                break
            if self._is_paused:
                await self._wait(PAUSED_LOOK_S)
                continue
            left = max(quiet_from, self._last_chunk_at) + quiet_s - self._loop.time()
            if left <= 0:
                break
            await self._wait(left)
        if self._fault is not None:
            raise self._fault
        return self._ended.is_set()

    def close(self) -> None:
        """Stop reading and close the descriptor; what is still in the pipe is lost."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        self._loop.remove_reader(fd)
        os.close(fd)
        self._ended.set()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            pass

    def _drain(self) -> None:
        for _ in range(READS_PER_WAKE):
            try:
                chunk = os.read(self._fd, READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # EIO: the last holder of the pty is gone
                chunk = b""
            if not chunk:
                self.close()
                return
            self._last_chunk_at = self._loop.time()
            self.total_bytes += len(chunk)
            self._hand_on(chunk)
            if self._is_paused:
                return

    def _hand_on(self, chunk: bytes) -> None:
        for sink in tuple(self._sinks):
            try:
                sink(chunk)
            except Exception as fault:  # the child must be drained whatever a sink does
                self._sinks.remove(sink)
                self._fault = self._fault or fault
