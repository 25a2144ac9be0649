"""A real daemon, and the real command line with and without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CLI = [sys.executable, "-m", "sandboxd"]


@pytest.fixture(scope="session", autouse=True)
def byte_code() -> Iterator[None]:
    """Let the many processes of these tests share byte code, outside the checkout."""
    with (
        tempfile.TemporaryDirectory(prefix="sbx-") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PYTHONPYCACHEPREFIX", folder)
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@dataclass
class Daemon:
    process: subprocess.Popen[str]
    socket: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it; returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)


def start_daemon(socket: str) -> Daemon:
    process = subprocess.Popen(
        [*CLI, "serve", "--socket", socket],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("listening on ")
    return Daemon(process, socket)


@pytest.fixture(scope="session")
def daemon(byte_code: None) -> Iterator[Daemon]:
    """One daemon for everything that does not stop it."""
    with tempfile.TemporaryDirectory(prefix="sbx-") as folder:
        running = start_daemon(os.path.join(folder, "s"))
        yield running
        assert running.stop() == 0
        assert os.listdir(folder) == []


@pytest.fixture
def own_daemon() -> Iterator[Callable[[], Daemon]]:
    """Daemons that a test may stop or kill."""
    started: list[Daemon] = []
    with tempfile.TemporaryDirectory(prefix="sbx-") as folder:

        def start() -> Daemon:
            started.append(start_daemon(os.path.join(folder, f"s{len(started)}")))
            return started[-1]

        yield start
        for one in started:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


class Running(subprocess.Popen[bytes]):
    """A process that does not outlive a test that failed."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)


class Cli:
    """`sandboxd` in the workspace, through the daemon or in process."""

    def __init__(self, way: str, workspace: Path, socket: str | None) -> None:
        self.way = way
        self.workspace = workspace
        self.environment = dict(os.environ)
        if socket is not None:
            self.environment["SANDBOXD_SOCKET"] = socket

    def words(self, *words: str) -> list[str]:
        command, *rest = words
        way = ["--no-daemon"] if self.way == "embedded" else []
        return [*CLI, command, *way, *rest]

    def start(self, *words: str, **more: Any) -> Running:
        more.setdefault("cwd", self.workspace)
        more.setdefault("env", self.environment)
        for name in ("stdin", "stdout", "stderr"):
            more.setdefault(name, subprocess.PIPE)
        return Running(self.words(*words), **more)

    def __call__(
        self, *words: str, input: bytes | None = None, **more: Any
    ) -> subprocess.CompletedProcess[bytes]:
        if input is None:
            more.setdefault("stdin", subprocess.DEVNULL)
        with self.start(*words, **more) as process:
            out, err = process.communicate(input, timeout=90)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def exec(self, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        """`exec` with everything approved beforehand."""
        return self("exec", "--approve", "all", *words, **more)


@pytest.fixture(params=["daemon", "embedded"])
def cli(request: pytest.FixtureRequest, workspace: Path) -> Cli:
    """Both ways, which must behave the same."""
    if request.param == "daemon":
        return Cli("daemon", workspace, request.getfixturevalue("daemon").socket)
    return Cli("embedded", workspace, None)


@pytest.fixture
def daemon_cli(daemon: Daemon, workspace: Path) -> Cli:
    return Cli("daemon", workspace, daemon.socket)
