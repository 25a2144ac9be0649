"""From inside a run: answering approvals, taking sessions, drawing on the approver's terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from sandboxd import Client, errors
from sandboxd.model import ExecRequest
from tests.confined import ATTEMPT, REQUIRED_TIERS, Ground, make_ground

KERNEL = [name for name in REQUIRED_TIERS if name != "containment"]

ANSWER = """
import json, socket, sys
def say(method, **params):
    try:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(5)
        s.connect(sys.argv[1])
        hello = {"protocol_version": 1, "workspace": "/usr", "session_id": sys.argv[3]}
        for number, (name, what) in enumerate([("initialize", hello), (method, params)]):
            line = {"jsonrpc": "2.0", "id": number, "method": name, "params": what}
            s.sendall(json.dumps(line).encode() + b"\\n")
        data = b""
        while chunk := s.recv(65536):
            data += chunk
            if b'"id":1' in data or b"PEER" in data:
                break
        return data.decode()
    except OSError as error:
        return type(error).__name__
print(say("approval.resolve", request_id=sys.argv[2], answer="once"))
print(say("approval.attach"))
print(say("session.close", session_id=sys.argv[3]))
"""
REFUSED = (
    "",
    "ConnectionResetError",
    "PermissionError",
    "FileNotFoundError",
    "BrokenPipeError",
    "ConnectionRefusedError",
)


@dataclass
class Scene:
    """A daemon, an approver in a terminal, a question that waits, and a client that runs attacks."""

    socket: str
    ground: Ground
    approver: subprocess.Popen[bytes]
    tty: str
    client: Client
    victim: Client

    def attack(self, tier: str, code: str, *arguments: str) -> str:
        request = ExecRequest(
            argv=(sys.executable, "-I", "-c", code, *arguments), tier=tier, approve="all"
        )
        result = self.client.run(request)
        assert result.stdout is not None
        assert result.exit_code == 0, result.stderr
        return result.stdout.text


@pytest.fixture
def scene() -> Iterator[Scene]:
    for ground in make_ground():
        path = ground.outside + "/d.sock"
        words = [sys.executable, "-m", "sandboxd"]
        daemon = subprocess.Popen([*words, "serve", "--socket", path], stdout=subprocess.PIPE)
        assert daemon.stdout is not None
        daemon.stdout.readline()
        master, slave = pty.openpty()
        approver = subprocess.Popen(
            [*words, "approve", "--socket", path], stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True,
        )  # fmt: skip
        seen = b""
        while b"waiting for questions" not in seen:
            seen += os.read(master, 4096)
        drain = threading.Thread(target=_drain, args=(master,), daemon=True)
        drain.start()
        try:
            with (
                Client.connect(path, workspace=ground.workspace) as client,
                Client.connect(path, workspace=ground.workspace) as victim,
            ):
                yield Scene(path, ground, approver, os.ttyname(slave), client, victim)
        finally:
            approver.kill()
            approver.wait()
            daemon.terminate()
            assert daemon.wait(30) == 0
            os.close(slave)


def _drain(master: int) -> None:
    try:
        while os.read(master, 65536):
            pass
    except OSError:
        return


def waiting(scene: Scene) -> str:
    deadline = time.monotonic() + 30
    while not (found := scene.client.approvals()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found[0].ask.request_id


def test_nothing_inside_any_tier_answers_attaches_or_closes_a_session(scene: Scene) -> None:
    assert scene.victim.session is not None
    name = scene.victim.session.session_id
    with ThreadPoolExecutor() as pool:
        call = pool.submit(scene.victim.exec, "touch never")
        request_id = waiting(scene)
        for tier in REQUIRED_TIERS:
            said = scene.attack(tier, ANSWER, scene.socket, request_id, name)
            for line in said.split("\n"):
                assert line in REFUSED or "PEER_CONFINED" in line, (tier, line)
            assert '"result"' not in said
        assert [entry.ask.request_id for entry in scene.client.approvals()] == [request_id]
        assert name in {one.session_id for one in scene.client.sessions()}
        scene.client.answer(request_id, "deny")
        with pytest.raises(errors.ApprovalDenied):
            call.result(20)
    assert not os.path.exists(scene.ground.workspace + "/never")


def test_the_approver_cannot_be_killed_traced_or_written_to(scene: Scene) -> None:
    pid = scene.approver.pid
    code = ATTEMPT + (
        f"P, T = {pid}, {scene.tty!r}\n"
        "import fcntl\n"
        "def steal():\n"
        "    fd = os.open(T, os.O_RDWR | os.O_NOCTTY)\n"
        "    fcntl.ioctl(fd, 0x5412, b'y')\n"
        "for attack in (lambda: os.kill(P, 9), lambda: os.kill(P, 2), lambda: syscall(101, 16, P, 0, 0),\n"
        "               lambda: put(f'/proc/{P}/mem'), steal):\n"
        "    print(attempt(attack))\n"
    )
    listing = "import os\nprint(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))"
    for tier in KERNEL:
        said = scene.attack(tier, code).split()
        assert len(said) == 5
        assert "ALLOWED" not in said, (tier, said)
        # and no descriptor of the daemon's is there to speak through (3 is the listing's own)
        assert scene.attack(tier, listing).strip() in ("[0, 1, 2, 3]", "[0, 1, 2]")
    assert scene.approver.poll() is None


def test_of_answers_at_the_same_time_one_counts(scene: Scene) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(4):
            call = pool.submit(scene.victim.exec, f"touch raced-{number}")
            request_id = waiting(scene)
            clients = [
                Client.connect(scene.socket, workspace=scene.ground.workspace) for _ in "1234"
            ]
            answers = ["deny", "once", "deny", "once"]
            given = [
                pool.submit(one.answer, request_id, answer)  # type: ignore[arg-type]
                for one, answer in zip(clients, answers, strict=True)
            ]
            counted = []
            for one in given:
                try:
                    counted.append(one.result(20))
                except errors.ApprovalUnknown:
                    continue
            assert len(counted) == 1
            error = call.exception(20)
            assert isinstance(error, errors.ApprovalDenied) == (counted[0] == "deny")
            for client in clients:
                client.close()


def test_a_killed_approver_leaves_no_answer(scene: Scene) -> None:
    with ThreadPoolExecutor() as pool:
        call = pool.submit(scene.victim.exec, "touch never")
        waiting(scene)
        scene.approver.send_signal(signal.SIGKILL)
        with pytest.raises(errors.ApprovalRequired):
            call.result(20)
