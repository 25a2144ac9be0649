"""From inside a run: reaching the daemon, speaking to it, stopping it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest

from sandboxd.daemon.peers import check_peer
from sandboxd.errors import PeerConfined
from tests.confined import (
    ATTEMPT,
    REQUIRED_TIERS,
    VIEWED,
    Ground,
    make_ground,
    plan_for,
    run_plan,
    with_launcher,
)

SPEAK = """
import contextlib, socket, sys
HELLO = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol_version":1,"capabilities":{},"workspace":"/"}}\\n'
try:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect(sys.argv[1])
    with contextlib.suppress(BrokenPipeError):
        s.sendall(HELLO)
    print(s.recv(65536).decode())
except OSError as error:
    print(type(error).__name__)
"""


@dataclass
class Daemon:
    pid: int
    socket: str
    ground: Ground

    def run(self, tier: str, code: str, *arguments: str) -> str:
        """The output of Python code run by this daemon in a tier."""
        words = [
            "--tier",
            tier,
            "--approve",
            "all",
            "--",
            sys.executable,
            "-I",
            "-c",
            code,
            *arguments,
        ]
        done = subprocess.run(
            [sys.executable, "-m", "sandboxd", "exec", "--socket", self.socket, *words],
            cwd=self.ground.workspace,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def wait_for_socket(path: str) -> None:
    deadline = time.monotonic() + 30
    while not os.path.exists(path):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


@pytest.fixture
def daemon(ground: Ground) -> Iterator[Daemon]:
    """A daemon whose socket lies in the workspace itself: nothing hides it by its place."""
    path = ground.workspace + "/d.sock"
    serve = [sys.executable, "-m", "sandboxd", "serve", "--socket", path]
    process = subprocess.Popen(serve, stdout=subprocess.DEVNULL)
    wait_for_socket(path)
    yield Daemon(process.pid, path, ground)
    process.terminate()
    assert process.wait(15) == 0


def test_a_socket_in_the_workspace_itself_is_covered(daemon: Daemon) -> None:
    assert daemon.run("namespaces", SPEAK, daemon.socket).strip() == "PermissionError"


def test_where_it_cannot_be_covered_the_daemon_refuses_its_own_children(daemon: Daemon) -> None:
    answer = daemon.run("landlock", SPEAK, daemon.socket).strip()
    assert "PEER_CONFINED" in answer, answer


@pytest.mark.parametrize("tier", [name for name in REQUIRED_TIERS if name != "containment"])
def test_a_socket_elsewhere_is_not_reached(tier: str, daemon: Daemon) -> None:
    """The same daemon under a second name outside the workspace (a hard link to its socket)."""
    elsewhere = daemon.ground.outside + "/d.sock"
    os.link(daemon.socket, elsewhere)
    answer = daemon.run(tier, SPEAK, elsewhere).strip()
    assert answer in ("PermissionError", "FileNotFoundError"), answer


def test_without_a_boundary_the_daemon_itself_refuses_its_own_children(daemon: Daemon) -> None:
    answer = daemon.run("containment", SPEAK, daemon.socket).strip()
    assert "PEER_CONFINED" in answer, answer


def test_a_double_forked_orphan_is_still_known_as_the_daemons_own(daemon: Daemon) -> None:
    code = f"import os, sys\nif os.fork():\n    os.wait(); sys.exit()\nos.setsid()\nif os.fork():\n    os._exit(0)\n{SPEAK}"
    answer = daemon.run("containment", code, daemon.socket).strip()
    assert "PEER_CONFINED" in answer, answer


# ------------------------------------------------------------------ each layer by itself


class Everybody:
    """In the daemon's place a server that asks nobody who they are: that layer is switched off."""

    def __init__(self, path: str) -> None:
        self.visitors = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(path)
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._socket.accept()[0].close()
                self.visitors += 1

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def asked(tier: str, ground: Ground, path: str, *, hides: bool, supervises: bool) -> str:
    """What became of a connect(2) to this socket with one layer or none in its way."""
    policy = ground.policy()
    if hides:
        policy = msgspec.structs.replace(policy, denied=(*policy.denied, os.path.dirname(path)))
    code = ATTEMPT + f"print(attempt(lambda: socket.socket(socket.AF_UNIX).connect({path!r})))"
    plan = plan_for(tier, ground, [sys.executable, "-I", "-c", code], policy)
    if not supervises:
        plan = msgspec.structs.replace(plan, seccomp=None, connect_roots=None)
    ended, output = with_launcher(lambda launcher: run_plan(launcher, plan))
    assert ended.code == 0, output
    return output.strip()


@pytest.mark.parametrize("tier", VIEWED)
def test_the_hidden_folder_alone_keeps_a_run_out(tier: str, ground: Ground) -> None:
    os.mkdir(ground.top + "/private")
    server = Everybody(ground.top + "/private/s")
    try:
        for hides, answers in ((True, ("ENOENT", "EACCES")), (False, ("ALLOWED",))):
            found = asked(tier, ground, ground.top + "/private/s", hides=hides, supervises=False)
            assert found in answers
        assert server.visitors == 1
    finally:
        server.close()


@pytest.mark.parametrize("tier", [name for name in REQUIRED_TIERS if name != "containment"])
def test_the_supervised_connect_alone_keeps_a_run_out(tier: str, ground: Ground) -> None:
    server = Everybody(ground.outside + "/s")
    try:
        found = asked(tier, ground, ground.outside + "/s", hides=False, supervises=True)
        assert found == "EPERM"
        assert server.visitors == 0
    finally:
        server.close()


@pytest.mark.parametrize("tier", [name for name in REQUIRED_TIERS if name != "containment"])
def test_the_daemons_look_at_its_peer_alone_keeps_a_run_out(tier: str, ground: Ground) -> None:
    """The daemon's own check, and a run that nothing keeps from connecting."""
    refusals: list[str] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(ground.outside + "/s")
    listener.listen()

    def serve() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as connected:
            try:
                check_peer(connected, lambda _: False)
                refusals.append("let in")
            except PeerConfined as refusal:
                refusals.append(refusal.code)

    threading.Thread(target=serve, daemon=True).start()
    found = asked(tier, ground, ground.outside + "/s", hides=False, supervises=False)
    assert (found, refusals) == ("ALLOWED", ["PEER_CONFINED"])
    listener.close()


@pytest.mark.parametrize("tier", [name for name in REQUIRED_TIERS if name != "containment"])
@pytest.mark.parametrize(
    "attack", ["os.kill(D, 0)", "os.kill(D, 19)", "os.kill(D, 9)", "syscall(302, D, 0, 0, 0)"]
)
def test_the_daemon_cannot_be_signalled_or_limited(tier: str, attack: str, daemon: Daemon) -> None:
    code = ATTEMPT + f"D = {daemon.pid}\nprint(attempt(lambda: {attack}))"
    assert daemon.run(tier, code).strip() in ("ESRCH", "EPERM")


def test_a_peer_that_gave_up_privileges_by_itself_is_refused(daemon: Daemon) -> None:
    """A sandbox of somebody else's: no_new_privs is set there and not in the daemon."""
    code = "import ctypes; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n" + SPEAK
    done = subprocess.run(
        [sys.executable, "-c", code, daemon.socket], capture_output=True, text=True, check=True
    )
    assert "PEER_CONFINED" in done.stdout, done.stdout
    answer = json.loads(done.stdout.splitlines()[0])
    assert answer["error"]["data"]["hint"]


def test_a_socket_in_a_folder_of_everybody_hides_itself_and_no_more(ground: Ground) -> None:
    """The folder of a socket is hidden only when it is the daemon's alone: never /tmp as a whole."""
    path = f"/tmp/sandboxd-test-{os.getpid()}.sock"
    serve = [sys.executable, "-m", "sandboxd", "serve", "--socket", path]
    process = subprocess.Popen(serve, stdout=subprocess.DEVNULL)
    try:
        wait_for_socket(path)
        daemon = Daemon(process.pid, path, ground)
        for tier in REQUIRED_TIERS:
            assert daemon.run(tier, "open('made', 'w').close(); print('fine')").strip() == "fine"
        assert daemon.run("namespaces", SPEAK, path).strip() == "FileNotFoundError"
    finally:
        process.terminate()
        process.wait(15)
