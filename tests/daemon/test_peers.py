"""Who may talk to the daemon: this user's processes, unless they are confined."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandboxd.daemon.peers import check_peer
from sandboxd.errors import PeerConfined, PeerRefused

CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
WAIT = "sys.stdin.read()"
NO_NEW_PRIVS = "import ctypes; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); "


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        listening.settimeout(30)
        yield listening


def check(
    listening: socket.socket,
    script: str,
    is_own_child: Callable[[int], bool] = lambda _: False,
    prefix: tuple[str, ...] = (),
) -> int:
    """Check a process that connects and waits; returns its pid."""
    words = [*prefix, sys.executable, "-c", script, listening.getsockname()]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        connected, _ = listening.accept()
        with connected:
            if "exit" in script:
                process.wait()
            check_peer(connected, is_own_child)
        return process.pid


def test_a_process_of_this_user_may_talk(listening: socket.socket) -> None:
    check(listening, CONNECT + WAIT)


def test_a_descendant_of_the_zygote_may_not(listening: socket.socket) -> None:
    asked: list[int] = []

    def is_own_child(pid: int) -> bool:
        asked.append(pid)
        return True

    with pytest.raises(PeerConfined, match="started by this daemon"):
        check(listening, CONNECT + WAIT, is_own_child)
    assert len(asked) == 1


def test_a_process_with_no_new_privs_may_not(listening: socket.socket) -> None:
    with pytest.raises(PeerConfined, match="no_new_privs"):
        check(listening, NO_NEW_PRIVS + CONNECT + WAIT)


@pytest.mark.parametrize("kind", ["user", "pid"])
def test_a_process_in_another_namespace_may_not(listening: socket.socket, kind: str) -> None:
    prefix = ("unshare", "--map-root-user", f"--{kind}", "--fork")
    with pytest.raises(PeerConfined, match="namespace"):
        check(listening, CONNECT + WAIT, prefix=prefix)


def test_a_process_that_has_exited_may_not(listening: socket.socket) -> None:
    with pytest.raises(PeerConfined):
        check(listening, CONNECT + "sys.exit()")


def test_another_user_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root the peer becomes another user; otherwise the daemon is made to be one."""
    script = CONNECT
    if os.geteuid() == 0:
        script = "import os, socket, sys; os.setuid(65534); " + CONNECT
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        os.chmod(folder, 0o755)
        listening.bind(os.path.join(folder, "s"))
        listening.listen()
        listening.settimeout(30)
        os.chmod(listening.getsockname(), 0o666)
        with pytest.raises(PeerRefused, match="belongs to user"):
            check(listening, script + WAIT)


def test_a_confined_daemon_accepts_peers_confined_like_itself(tmp_path: Path) -> None:
    """The agent's whole container may have no_new_privs set: then it says nothing."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(tmp_path / "own"))
                listening.listen()
                check(listening, CONNECT + WAIT)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
