"""A real tmux as the judge of what a person sees. Fails where tmux is missing: no silent skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_WAIT_S = 20.0


class Tmux:
    """One detached pane that shows, unchanged, the bytes it is given."""

    def __init__(self, columns: int, rows: int, history: int = 2000) -> None:
        program = shutil.which("tmux")
        assert program is not None, "tmux is missing: it judges the renderer (apt install tmux)"
        self.rows = rows
        self._program = program
        self._folder = Path(tempfile.mkdtemp(prefix="tmux-"))
        self._fifo = self._folder / "fifo"
        os.mkfifo(self._fifo)
        self._round = 0
        size = ("-x", str(columns), "-y", str(rows))
        settings = self._folder / "settings"  # and none of the person who runs the tests
        settings.write_text(f"set -g history-limit {history}\n")
        self._run(
            "-f",
            str(settings),
            "new-session",
            "-d",
            *size,
            f"stty raw -echo; exec cat {self._fifo}",
        )
        self._pipe = os.open(self._fifo, os.O_WRONLY)

    def _run(self, *arguments: str) -> str:
        socket = str(self._folder / "socket")
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
        environment.pop("TMUX", None)
        done = subprocess.run(
            [self._program, "-u", "-S", socket, *arguments],
            env=environment,
            capture_output=True,
            timeout=_WAIT_S,
            check=True,
        )
        return done.stdout.decode()

    def close(self) -> None:
        self._run("kill-server")
        os.close(self._pipe)
        shutil.rmtree(self._folder, ignore_errors=True)

    def lines(self, lines: Sequence[bytes]) -> list[str]:
        """Each line as it ends up in a row of its own, trailing blanks removed."""
        shown: list[str] = []
        room = self.rows - 1
        for start in range(0, len(lines), room):
            shown += self._batch(lines[start : start + room])
        return shown

    def screen(self, data: bytes) -> list[str]:
        """The screen, scrolled-out rows included, after `data` on an empty one; LF means CR LF."""
        self._run("send-keys", "-R")
        self._run("clear-history")
        self._write(b"\x1bc" + data.replace(b"\n", b"\r\n"))
        self._round += 1
        mark = f"<{self._round}>"
        self._write(b"\x1b\\\x18\x1b(B\x1b[m\x1b]2;" + mark.encode() + b"\x1b\\")
        self._wait_for(mark, "display-message", "-p", "#{pane_title}")
        rows = self._run("capture-pane", "-p", "-S", "-").split("\n")
        return _without_blank_end([row.rstrip() for row in rows])

    def _batch(self, lines: Sequence[bytes]) -> list[str]:
        self._round += 1
        mark = f"<{self._round}>"
        parts = [b"\x1b\\\x18\x1b(B\x1b[m\x1b[H\x1b[2J"]
        for row, line in enumerate(lines, 1):
            # Each line starts where a LF would leave it: column 0, saved there, nothing pending.
            parts.append(b"\x1b\\\x18\x1b(B\x1b[m\x0f\x1b[%d;1H\x1b7" % row + line)
        parts.append(b"\x1b\\\x18\x1b(B\x1b[m\x0f\x1b[%d;1H" % self.rows + mark.encode())
        self._write(b"".join(parts))
        rows = self._wait_for(mark, "capture-pane", "-p").split("\n")
        return [row.rstrip() for row in rows[: len(lines)]]

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._pipe, view) :]

    def _wait_for(self, mark: str, *command: str) -> str:
        deadline = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline:
            shown = self._run(*command)
            if mark in shown:
                return shown
            time.sleep(0.01)
        raise AssertionError("tmux did not show what it was sent")


def _without_blank_end(rows: list[str]) -> list[str]:
    while rows and not rows[-1]:
        rows.pop()
    return rows
