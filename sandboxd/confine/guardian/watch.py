"""One inotify for all folders that living runs care about.

One, because closing an inotify descriptor waits for the kernel (12 ms measured) where adding and
removing a watch takes microseconds. A watch outlives its last run by a while, so that a session
of many short runs adds it once. Where there is no inotify nothing is heard, and the comparison at
a run's end stands alone.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sandboxd.system import inotify

IDLE_S = 5.0

Listener = Callable[[str, str | None], None]
"""Is told (folder, name) of a name that came, went or was replaced; name None: look at all."""


@dataclass
class Watched:
    """A folder with its watch, and who wants to hear of it."""

    path: str
    identity: tuple[int, int]
    number: int
    listeners: set[Listener] = field(default_factory=set)
    idle_since: float = 0.0
    """time.monotonic() when the last listener left."""


class Watch:
    """See the module. Lives in the event loop that it is first used in."""

    def __init__(self) -> None:
        self._fd = -1
        self._folders: dict[str, Watched] = {}
        self._numbers: dict[int, Watched] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
        self._fd = -1
        self._folders.clear()
        self._numbers.clear()

    @property
    def folders(self) -> list[str]:
        return sorted(self._folders)

    def add(self, folder: str, listener: Listener) -> bool:
        """Tell the listener of names in the folder; False when it cannot be watched."""
        if not os.access(folder, os.F_OK):  # most are absent, and an exception costs more
            return False
        try:
            found = os.lstat(folder)
            identity = (found.st_dev, found.st_ino)
            watched = self._folders.get(folder)
            if watched is None or watched.identity != identity:
                watched = self._watch(folder, identity)
        except OSError:
            return False
        watched.listeners.add(listener)
        return True

    def remove(self, folder: str, listener: Listener) -> None:
        watched = self._folders.get(folder)
        if watched is None:
            return
        watched.listeners.discard(listener)
        if not watched.listeners:
            watched.idle_since = time.monotonic()
            self._sweep_later()

    def _sweep_later(self) -> None:
        """One timer for all folders: a run has dozens, and a timer for each adds up."""
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        idle = [it for it in self._folders.values() if not it.listeners]
        for watched in idle:
            if time.monotonic() - watched.idle_since >= IDLE_S:
                self._drop_idle(watched)
            else:
                self._sweep_later()

    def _watch(self, folder: str, identity: tuple[int, int]) -> Watched:
        if self._fd < 0:
            self._fd = inotify.create()
            asyncio.get_running_loop().add_reader(self._fd, self._on_events)
        number = inotify.watch(self._fd, folder, inotify.NAMES)
        watched = Watched(folder, identity, number)
        previous = self._folders.get(folder)
        if previous is not None:
            watched.listeners |= previous.listeners
        self._folders[folder] = self._numbers[number] = watched
        return watched

    def _drop_idle(self, watched: Watched) -> None:
        if watched.listeners or self._fd < 0:
            return
        if self._folders.get(watched.path) is watched:
            del self._folders[watched.path]
        if self._numbers.get(watched.number) is watched:
            del self._numbers[watched.number]
            try:
                inotify.unwatch(self._fd, watched.number)
            except OSError:
                pass  # the folder itself is gone and its watch with it

    def _on_events(self) -> None:
        for number, mask, name in inotify.read(self._fd):
            if mask & inotify.OVERFLOW:
                for watched in list(self._folders.values()):
                    _tell(watched, None)
            elif (known := self._numbers.get(number)) is not None:
                self._on_event(known, mask, name)

    def _on_event(self, watched: Watched, mask: int, name: str) -> None:
        if mask & (inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.IGNORED):
            # The path may mean another folder now: the next run watches that one.
            if self._folders.get(watched.path) is watched:
                del self._folders[watched.path]
            if mask & inotify.IGNORED:
                self._numbers.pop(watched.number, None)
            _tell(watched, None)
        else:
            _tell(watched, name)


def _tell(watched: Watched, name: str | None) -> None:
    for listener in list(watched.listeners):
        listener(watched.path, name)
