"""What a session's temporary folder and caches hold, against what its profile says they may.

Nothing is deleted and no run is stopped: the result says it, and how to be rid of it. Adding up a
folder takes long, so it is done in a thread after runs that may have written, at most every
EVERY_S, and told with the next result; a note in the session's folder carries it over processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import msgspec

from sandboxd.model import Result

NOTE = "usage"
EVERY_S = 10.0
CLOSE_WITHIN_S = 0.5
MAX_ENTRIES = 500_000


class Quota:
    """One for each engine."""

    def __init__(self) -> None:
        self._measured: dict[str, float] = {}
        self._working: set[asyncio.Task[None]] = set()

    def told(self, result: Result, folder: str, tmp: str, limit: int | None) -> Result:
        """The result, with a notice when the session at `folder` was over its limit; looks again soon."""
        if limit is None:
            return result
        self._look_soon(folder, tmp)
        held = _noted(folder)
        if held <= limit:
            return result
        notice = (
            f"the session's temporary folder and caches hold {held / 1e9:.2f} GB, over the "
            f"{limit / 1e9:.2f} GB of its profile; they go with the session (`session.close`), or "
            "remove them from inside: rm -rf $XDG_CACHE_HOME"
        )
        return msgspec.structs.replace(result, notices=(*result.notices, notice))

    async def close(self) -> None:
        """Let what is being added up finish, for a moment."""
        if self._working:
            await asyncio.wait(self._working, timeout=CLOSE_WITHIN_S)

    def _look_soon(self, folder: str, tmp: str) -> None:
        if time.monotonic() - self._measured.get(folder, -EVERY_S) < EVERY_S:
            return
        self._measured[folder] = time.monotonic()
        task = asyncio.ensure_future(asyncio.to_thread(_measure, folder, tmp))
        self._working.add(task)
        task.add_done_callback(self._working.discard)


def _noted(folder: str) -> int:
    try:
        with open(os.path.join(folder, NOTE), encoding="ascii") as file:
            return int(file.read(32))
    except (OSError, ValueError):
        return 0


def _measure(folder: str, tmp: str) -> None:
    held = size_of(tmp)
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        fd = os.open(os.path.join(folder, NOTE), flags, 0o600)
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(str(held))


def size_of(top: str) -> int:
    """Bytes on disk below a folder, links not followed; a lower bound where it holds very much."""
    held, seen, queue = 0, 0, [top]
    while queue and seen < MAX_ENTRIES:
        with contextlib.suppress(OSError), os.scandir(queue.pop()) as entries:
            for entry in entries:
                seen += 1
                with contextlib.suppress(OSError):
                    held += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(entry.path)
    return held
