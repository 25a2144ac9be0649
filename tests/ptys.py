"""Programs on a real pty, for tests: session leaders with the pty as their controlling terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class OnPty:
    """One program on a pty; everything it printed is in `seen`."""

    def __init__(self, pid: int, master: int) -> None:
        self.pid = pid
        self.master = master
        self.seen = b""
        self.status: int | None = None

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def pump(self, seconds: float = 0.05) -> bool:
        """Read what comes within `seconds`; False at the end of file."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            chunk = os.read(self.master, 65536)
        except OSError:
            return False
        self.seen += chunk
        return bool(chunk)

    def until(self, done: Callable[[], bool], seconds: float = 20) -> bool:
        """Read on until something is so; False when it never was."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            if not self.pump():
                return done()
        return True

    def expect(self, text: bytes, seconds: float = 20) -> None:
        assert self.until(lambda: text in self.seen, seconds), (text, self.seen[-2000:])

    def wait(self, seconds: float = 20) -> int:
        """Its exit code, 128 + n for a signal."""
        deadline = time.monotonic() + seconds
        while self.status is None and time.monotonic() < deadline:
            self.pump(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
        assert self.status is not None, ("still there", self.seen[-2000:])
        code = os.waitstatus_to_exitcode(self.status)
        return code if code >= 0 else 128 - code


@contextmanager
def on_pty(
    argv: list[str],
    *,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    size: tuple[int, int] = (24, 80),
) -> Iterator[OnPty]:
    """Start a program; afterwards its session is gone."""
    pid, master = pty.fork()
    if pid == 0:
        try:
            if cwd:
                os.chdir(cwd)
            os.execvpe(argv[0], argv, env if env is not None else dict(os.environ))
        finally:
            os._exit(127)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    running = OnPty(pid, master)
    try:
        yield running
    finally:
        if running.status is None:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(master)
