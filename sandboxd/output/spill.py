"""The raw stream on disk, so that what the ring left out can still be read.

A spill never harms the run that it records: whatever the disk says (ENOSPC, EDQUOT, EIO, a
folder that is gone), writing stops and counting goes on. What is kept is always a prefix of the
stream. The file is made by us alone (`O_EXCL`, `O_NOFOLLOW`, 0600) in a folder that only
sandboxd writes to.

Lines are numbered from 1 and end at LF, as `sed -n` counts them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from bisect import bisect_right
from collections.abc import Iterator

_STRIDE = 1 << 20
"""A line number is remembered about once in so many bytes."""
_READ_BYTES = 1 << 18


class Quota:
    """Bytes that several spills may use together; what is not granted is not written."""

    def __init__(self, limit_bytes: int) -> None:
        self.left_bytes = max(limit_bytes, 0)

    def take(self, wanted: int) -> int:
        granted = min(wanted, self.left_bytes)
        self.left_bytes -= granted
        return granted

    def give_back(self, count: int) -> None:
        self.left_bytes += count


def make_room(folder: str, limit_bytes: int) -> None:
    """Delete the oldest streams of a folder until the rest come to at most `limit_bytes`."""
    try:
        with os.scandir(folder) as entries:
            streams = [entry for entry in entries if entry.name.endswith(".raw")]
            found = [(entry.stat(follow_symlinks=False), entry.path) for entry in streams]
    except OSError:
        return
    left_bytes = sum(status.st_size for status, _ in found)
    for status, path in sorted(found, key=lambda it: it[0].st_mtime_ns):
        if left_bytes <= limit_bytes:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
            left_bytes -= status.st_size


class Spill:
    """One stream in one file of `folder`; `quota` is bytes of its own or shared with others.

    `output_id` is None when nothing can be read back. `kept_bytes` is how much of
    `total_bytes` the file holds.
    """

    def __init__(self, folder: str, quota: int | Quota) -> None:
        self.total_bytes = 0
        self.total_lines = 0
        self.kept_bytes = 0
        self.failure: str | None = None
        """Why not everything was kept, in the system's words or ours."""
        self._kept_lines = 0
        self._marks: list[tuple[int, int]] = [(0, 0)]
        """(LFs before, offset), ascending."""
        self._quota = quota if isinstance(quota, Quota) else Quota(quota)
        self._is_writing = True
        name = secrets.token_hex(8)
        self.path = os.path.join(folder, f"{name}.raw")
        self.output_id: str | None = name
        self._fd = self._open()

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self.path, flags, 0o600)
        except OSError as error:
            self.output_id = None
            self._stop(error.strerror or "cannot be created")
            return -1

    def write(self, chunk: bytes, n_lines: int | None = None) -> None:
        """Keep what the quota and the disk allow; never raises for the disk's sake.

        `n_lines` is the number of LFs where it is known: counting costs as much as writing.
        """
        n_lines = chunk.count(b"\n") if n_lines is None else n_lines
        self.total_bytes += len(chunk)
        self.total_lines += n_lines
        if not self._is_writing:
            return
        granted = self._quota.take(len(chunk))
        written = self._write_all(chunk[:granted] if granted < len(chunk) else chunk)
        self._quota.give_back(granted - written)
        is_whole = written == len(chunk)
        self._note_lines(n_lines if is_whole else chunk.count(b"\n", 0, written))
        if granted < len(chunk):
            self._stop("quota is used up")

    def close(self) -> None:
        """No more will be written; the kept part stays readable until `remove`."""
        self._is_writing = False
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Delete the file and give its bytes back to the quota."""
        self.close()
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        self._quota.give_back(self.kept_bytes)
        self.kept_bytes = 0
        self.output_id = None

    # ------------------------------------------------------------------ reading

    def read_bytes(self, from_byte: int, count: int) -> bytes:
        """`count` bytes of the kept part from offset `from_byte` (0 is the first), or fewer."""
        start = max(from_byte, 0)
        count = min(max(count, 0), self.kept_bytes - start)
        if count <= 0:
            return b""
        with _Reader(self) as fd:
            return b"".join(_read_range(fd, start, start + count))

    def read_lines(self, from_line: int, count: int) -> bytes:
        """`count` lines of the kept part from line `from_line` (1 is the first), LFs included."""
        if count <= 0:
            return b""
        first = max(from_line, 1)
        start = self._offset_of_line(first)
        end = self._offset_of_line(first + count)
        return self.read_bytes(start, end - start)

    def _offset_of_line(self, line: int) -> int:
        """Where a line starts; the end of the kept part when there is no such line."""
        skip = line - 1
        if skip > self._kept_lines:
            return self.kept_bytes
        lines, offset = self._marks[bisect_right(self._marks, (skip, 1 << 63)) - 1]
        if lines == skip and offset == 0:
            return 0
        with _Reader(self) as fd:
            for block in _read_range(fd, offset, self.kept_bytes):
                here = block.count(b"\n")
                if lines + here >= skip:
                    return offset + _after_line_feeds(block, skip - lines)
                lines += here
                offset += len(block)
        return self.kept_bytes

    # ------------------------------------------------------------------ writing

    def _write_all(self, data: bytes) -> int:
        written = 0
        view = memoryview(data)
        try:
            while written < len(data):
                written += os.write(self._fd, view[written:])
        except OSError as error:
            self._stop(error.strerror or "write failed")
        self.kept_bytes += written
        return written

    def _note_lines(self, n_lines: int) -> None:
        self._kept_lines += n_lines
        if self.kept_bytes - self._marks[-1][1] >= _STRIDE:
            self._marks.append((self._kept_lines, self.kept_bytes))

    def _stop(self, why: str) -> None:
        self._is_writing = False
        self.failure = self.failure or why


class _Reader:
    """A descriptor to read from: the spill's own, or the file opened again after `close`."""

    def __init__(self, spill: Spill) -> None:
        self._is_ours = spill._fd < 0
        self._fd = spill._fd
        self._path = spill.path

    def __enter__(self) -> int:
        if self._is_ours:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return self._fd

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            os.close(self._fd)


def _read_range(fd: int, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        block = os.pread(fd, min(_READ_BYTES, end - start), start)
        if not block:
            return
        yield block
        start += len(block)


def _after_line_feeds(block: bytes, count: int) -> int:
    position = 0
    for _ in range(count):
        position = block.index(b"\n", position) + 1
    return position
