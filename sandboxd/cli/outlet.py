"""Passing raw output on to a pipe or file at the pace of whoever reads it, losing nothing.

A module of its own because of a conflict: a server never waits for a slow client (it leaves
output out and counts it), while `--raw` promises every byte. So the link is read as fast as it
comes, and a thread per descriptor writes what has gathered, in at most `FULL_BYTES` of memory.
The descriptor itself stays blocking: others may share it.
"""

from __future__ import annotations

import _thread
import os

from sandboxd.cli.stdio import write_all

FULL_BYTES = 8 * 1024 * 1024


class Outlet:
    """Bytes on their way to one descriptor. `fileno()` is readable when it has run dry or failed."""

    def __init__(self, number: int) -> None:
        self.error: OSError | None = None
        self._number = number
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._is_writing = False
        self._lock = _thread.allocate_lock()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    @property
    def is_dry(self) -> bool:
        """Nothing is left to write, or writing has failed."""
        return self.error is not None or not self._is_writing

    @property
    def is_full(self) -> bool:
        return self.error is None and self._gathered_bytes >= FULL_BYTES

    def put(self, data: bytes) -> None:
        """Take bytes over; never blocks. After a failure they are dropped: see `error`."""
        with self._lock:
            if self.error is not None:
                return
            self._gathered.append(data)
            self._gathered_bytes += len(data)
            if self._is_writing:
                return
            self._is_writing = True
        _thread.start_new_thread(self._drain, ())

    def noticed(self) -> None:
        """Forget what made `fileno()` readable."""
        try:
            os.read(self._read, 512)
        except BlockingIOError:
            pass

    def _drain(self) -> None:
        while True:
            with self._lock:
                data = b"".join(self._gathered)
                self._gathered.clear()
                self._gathered_bytes = 0
                if not data:
                    self._is_writing = False
                    break
            try:
                write_all(self._number, data)
            except OSError as error:
                self.error = error
                break
        try:
            os.write(self._write, b"x")
        except BlockingIOError:
            pass
