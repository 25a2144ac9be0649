"""Signals as something to poll for, instead of exceptions in the middle of a write.

A module of its own because it uses `_signal` (the `signal` module imports enum and costs more
than the rest). Signals that the caller ignores stay ignored: `nohup` and a shell's background
jobs mean it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # CPython's own, without stubs
import os

SIGHUP: int = int(_signal.SIGHUP)
SIGINT: int = int(_signal.SIGINT)
SIGPIPE: int = int(_signal.SIGPIPE)
SIGTERM: int = int(_signal.SIGTERM)
SIGTSTP: int = int(_signal.SIGTSTP)
SIGCONT: int = int(_signal.SIGCONT)
SIGWINCH: int = int(_signal.SIGWINCH)
_NAMES = {SIGHUP: "HUP", SIGINT: "INT", SIGTERM: "TERM"}


def signal_name(number: int) -> str:
    return _NAMES[number]


class Interrupts:
    """While the context lasts, INT, TERM, HUP and what is named make `fileno()` readable."""

    def __init__(self, also: tuple[int, ...] = ()) -> None:
        self._numbers = (*_NAMES, *also)
        self._caught: list[int] = []
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        for number in self._numbers:
            before = _signal.getsignal(number)
            if before != _signal.SIG_IGN:
                self._before[number] = before
                _signal.signal(number, self._note)
        _signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        _signal.set_wakeup_fd(-1)
        for number, before in self._before.items():
            _signal.signal(number, before)
        os.close(self._read)
        os.close(self._write)

    def _note(self, number: int, _frame: object) -> None:
        self._caught.append(int(number))

    def fileno(self) -> int:
        return self._read

    def has_caught(self) -> bool:
        return bool(self._caught)

    def caught(self) -> list[int]:
        """The signals since the last call."""
        try:
            os.read(self._read, 512)
        except BlockingIOError:
            pass
        caught, self._caught = self._caught, []
        return caught
