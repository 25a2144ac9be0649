"""One writer at a time for each canonical file, across threads, clients and processes of a user.

flock(2) on a file of the private state folder, one of `SHARDS` chosen by a hash of the path: two
files that share one wait for each other and nothing worse. The kernel lets go when a process dies.
A holder notes in the lock file which temporary file it has made, so that whoever comes next, or
`sweep`, removes what a killed one left behind. Nobody holds a lock while a person is being asked.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from sandboxd.errors import FileBusy

SHARDS = 4096
WAIT_S = 30.0
"""How long a writer waits for another one; each holds it for milliseconds."""
TEMPORARY = ".sandboxd~"
"""The ending of every temporary file of ours: nothing else is ever swept."""


class Held:
    """The locks of one operation, and where it notes the temporary file that it makes."""

    def __init__(self, fds: dict[str, int]) -> None:
        self._fds = fds

    def note(self, path: str, temporary: str) -> None:
        """Remember `temporary` (a full path) until the lock of `path` is released."""
        fd, noted = self._fds[shard_of(path)], os.fsencode(temporary)
        os.pwrite(fd, noted, 0)
        os.ftruncate(fd, len(noted))


def shard_of(path: str) -> str:
    number = int.from_bytes(hashlib.sha256(os.fsencode(path)).digest()[:4], "big") % SHARDS
    return f"{number:04x}"


class Locks:
    """The locks that lie in one private folder."""

    def __init__(self, folder: str, *, wait_s: float = WAIT_S) -> None:
        self._folder = folder
        self._wait_s = wait_s
        self._threads: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    @contextmanager
    def holding(self, paths: Iterable[str]) -> Iterator[Held]:
        """Hold every path's lock, always in one order. Raises FileBusy (retryable)."""
        deadline = time.monotonic() + self._wait_s
        fds: dict[str, int] = {}
        with ExitStack() as stack:
            for shard in sorted({shard_of(path) for path in paths}):
                fds[shard] = stack.enter_context(self._one(shard, deadline))
            yield Held(fds)

    @contextmanager
    def _one(self, shard: str, deadline: float) -> Iterator[int]:
        thread = self._thread_lock(shard)
        if not thread.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise _busy()
        try:
            fd = self._open(shard)
            try:
                _wait_for(fd, deadline)
                _clean(fd)
                yield fd
                if os.fstat(fd).st_size:
                    os.ftruncate(fd, 0)
            finally:
                os.close(fd)
        finally:
            thread.release()

    def _open(self, shard: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        path = os.path.join(self._folder, shard)
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            return os.open(path, flags, 0o600)

    def _thread_lock(self, shard: str) -> threading.Lock:
        """Threads of this process queue here, instead of asking the kernel again and again."""
        with self._guard:
            return self._threads.setdefault(shard, threading.Lock())

    def sweep(self) -> int:
        """Remove what killed writers left behind; how many lock files were looked after."""
        count = 0
        try:
            names = os.listdir(self._folder)
        except (FileNotFoundError, PermissionError):  # none yet, or closed to a sandboxd in a run
            return 0
        for name in names:
            path = os.path.join(self._folder, name)
            if os.lstat(path).st_size:
                with self._one(name, time.monotonic() + 1):
                    count += 1
        return count


def _wait_for(fd: int, deadline: float) -> None:
    pause_s = 0.0002
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise _busy() from None
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.01)


def _clean(fd: int) -> None:
    """Remove the temporary file that a killed holder noted."""
    noted = os.fsdecode(os.pread(fd, 4096, 0))
    if not noted:
        return
    if noted.endswith(TEMPORARY):
        try:
            os.unlink(noted)
        except OSError:
            pass  # renamed into place already, or its folder is gone
    os.ftruncate(fd, 0)


def _busy() -> FileBusy:
    return FileBusy(
        "another writer has held this file for too long", hint="try again in a few seconds"
    )
