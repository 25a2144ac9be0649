"""A person's terminal on one side, a run's pty on the other.

A module of its own because it alone changes the person's terminal. The terminal itself is never
passed in. While it is taken every key goes to the run as a byte, so Ctrl-C and Ctrl-Z act inside;
it is given back whenever the run stops or ends, without what the run has left set.
Source: termios(3), cfmakeraw; credentials(7) for who may take a terminal.
"""

from __future__ import annotations

import os
import termios

from sandboxd.cli import stdio
from sandboxd.output.screen import ScreenFilter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd.cli.jsonline import Object


class Relay:
    """The terminal that some of fds 0 to 2 are."""

    def __init__(self, kinds: list[str]) -> None:
        self.fds = [number for number in (0, 1, 2) if kinds[number] == stdio.TERMINAL]
        self._shown_on = next((fd for fd in (1, 2) if fd in self.fds), self.fds[0])
        self._screen = ScreenFilter()
        self._before: list[int | list[bytes | int]] | None = None

    @property
    def has_keys(self) -> bool:
        return 0 in self.fds

    def pty(self) -> Object:
        """The pty to ask for: of this terminal's size, in the same places."""
        return {**self.size(), "fds": list(self.fds)}

    def size(self) -> Object:
        try:
            size = os.get_terminal_size(self.fds[0])
        except OSError:
            return {"cols": 80, "rows": 24}
        return {
            "cols": min(max(size.columns, 1), 1000),
            "rows": min(max(size.lines, 1), 1000),
        }

    def take(self) -> None:
        """Let keys through as they are; nothing when we are in the background."""
        if not self.has_keys or self._before is not None:
            return
        try:
            if os.tcgetpgrp(0) != os.getpgrp():
                return
            self._before = termios.tcgetattr(0)
            termios.tcsetattr(0, termios.TCSADRAIN, _raw(termios.tcgetattr(0)))
        except (OSError, termios.error):
            self._before = None

    def give_back(self) -> None:
        """As it was before, also what the run had set on the screen."""
        restored = self._screen.restore()
        self._screen = ScreenFilter()
        try:
            if restored:
                stdio.write_all(self._shown_on, restored)
            if self._before is not None:
                termios.tcsetattr(0, termios.TCSADRAIN, self._before)
        except (OSError, termios.error):
            pass  # it has gone
        self._before = None

    def show(self, data: bytes) -> None:
        """Raises OSError when the terminal has gone."""
        shown = self._screen.feed(data)
        if shown:
            stdio.write_all(self._shown_on, shown)


def _raw(
    settings: list[int | list[bytes | int]],
) -> list[int | list[bytes | int]]:
    """As cfmakeraw(3) makes it."""
    iflag, oflag, cflag, lflag, ispeed, ospeed, cc = settings
    assert isinstance(iflag, int)
    assert isinstance(oflag, int)
    assert isinstance(cflag, int)
    assert isinstance(lflag, int)
    assert isinstance(cc, list)
    iflag &= ~(
        termios.IGNBRK
        | termios.BRKINT
        | termios.PARMRK
        | termios.ISTRIP
        | termios.INLCR
        | termios.IGNCR
        | termios.ICRNL
        | termios.IXON
    )
    oflag &= ~termios.OPOST
    lflag &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
    cflag = cflag & ~(termios.CSIZE | termios.PARENB) | termios.CS8
    cc[termios.VMIN], cc[termios.VTIME] = 1, 0
    return [iflag, oflag, cflag, lflag, ispeed, ospeed, cc]
