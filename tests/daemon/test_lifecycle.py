"""One daemon per socket; a stale file is removed only when nobody can be listening."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd import config
from sandboxd.daemon.lifecycle import held_socket
from sandboxd.errors import DaemonRunning, SocketUnusable

HOLD = """
import sys
from sandboxd.daemon.lifecycle import held_socket
with held_socket(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "s")


def holder(path: str) -> subprocess.Popen[str]:
    """Another process that holds the socket until its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_socket_is_private_and_nothing_stays_behind(path: str, tmp_path: Path) -> None:
    with held_socket(path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(path + ".lock").st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
    assert list(tmp_path.iterdir()) == []


def test_a_second_daemon_is_told_who_holds_the_socket(path: str) -> None:
    process = holder(path)
    with pytest.raises(DaemonRunning) as caught, held_socket(path):
        pass
    process.communicate()
    assert caught.value.data == {"pid": process.pid}
    assert str(process.pid) in caught.value.message


def test_a_killed_daemons_socket_is_taken_over(path: str) -> None:
    process = holder(path)
    process.kill()
    process.communicate()
    assert os.path.exists(path)
    with held_socket(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def test_somebody_who_listens_without_a_lock_is_left_alone(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        other.listen()
        with pytest.raises(DaemonRunning), held_socket(path):
            pass
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
    assert not os.path.exists(path + ".lock")


def test_a_file_that_is_no_socket_is_never_removed(path: str) -> None:
    Path(path).write_text("precious")
    with pytest.raises(SocketUnusable, match="not a socket"), held_socket(path):
        pass
    assert Path(path).read_text() == "precious"


def test_a_socket_that_replaced_ours_stays(path: str) -> None:
    with held_socket(path), socket.socket(socket.AF_UNIX) as other:
        os.unlink(path)
        other.bind(path)
    assert os.path.exists(path)


def test_a_link_in_place_of_the_lock_is_not_followed(path: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.symlink(victim, path + ".lock")
    with pytest.raises(SocketUnusable), held_socket(path):
        pass
    assert victim.read_text() == "precious"


def test_a_missing_folder_and_an_over_long_path_are_named(tmp_path: Path) -> None:
    with pytest.raises(SocketUnusable, match="no folder"), held_socket(str(tmp_path / "a" / "s")):
        pass
    long = str(tmp_path / ("x" * config.SUN_PATH_MAX))
    with pytest.raises(SocketUnusable, match=str(config.SUN_PATH_MAX)), held_socket(long):
        pass


def test_our_own_runtime_folder_is_made_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with held_socket(config.socket_path()):
        assert stat.S_IMODE(os.stat(tmp_path / "sandboxd").st_mode) == 0o700


def test_another_users_folder_in_its_place_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "sandboxd").mkdir()
    (tmp_path / "sandboxd").chmod(0o777)
    with pytest.raises(SocketUnusable, match="private"), held_socket(config.socket_path()):
        pass
