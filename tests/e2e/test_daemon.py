"""The daemon's life, with the real engine: start, second start, stop, kill, load, attacks."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sandboxd.client import Client
from sandboxd.errors import ArgumentsTooLong, InvalidArgument, Refusal, SessionUnknown
from sandboxd.protocol.messages import OutputPart, OutputRead

CLI = [sys.executable, "-m", "sandboxd"]


def sandboxd(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *words], capture_output=True, text=True, timeout=60, check=False, **more
    )


def wait_until(condition: Callable[[], bool], within_s: float = 20) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def is_still(measure: Callable[[], int], for_s: float = 0.5) -> bool:
    """Whether a number stays as it is for a while."""
    before = measure()
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        if measure() != before:
            return False
        time.sleep(0.02)
    return True


def is_running(mark: str) -> bool:
    return subprocess.run(["pgrep", "-f", mark], check=False, stdout=-3).returncode == 0


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# --------------------------------------------------------------------------- start and stop


def test_detach_returns_when_the_daemon_answers(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    done = sandboxd("serve", "--socket", path, "--detach", "--json")
    told = json.loads(done.stdout)
    try:
        assert told["socket"] == path
        with Client.connect(path, workspace=str(tmp_path)) as client:
            assert client.status().pid == told["pid"]
        assert os.getsid(told["pid"]) != os.getsid(0)
    finally:
        os.kill(told["pid"], signal.SIGTERM)
    wait_until(lambda: not os.path.exists(path))


def test_a_detached_daemon_holds_no_descriptor_of_its_caller(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    read, write = os.pipe()
    done = sandboxd("serve", "--socket", path, "--detach", "--json", pass_fds=[write])
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], 10)
        assert ready
        assert os.read(read, 1) == b""
    finally:
        os.close(read)
        os.kill(json.loads(done.stdout)["pid"], signal.SIGTERM)
    wait_until(lambda: not os.path.exists(path))


def test_a_second_daemon_says_who_holds_the_socket(daemon: Any) -> None:
    for how in ([], ["--detach"]):
        done = sandboxd("serve", "--socket", daemon.socket, *how)
        assert done.returncode == 125
        assert str(daemon.pid) in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", [[], ["--detach"]])
def test_an_unusable_socket_path_is_one_sentence(tmp_path: Path, how: list[str]) -> None:
    for path in (tmp_path / "no" / "folder", tmp_path / ("x" * 200), Path("/proc/s")):
        done = sandboxd("serve", "--socket", str(path), *how)
        assert done.returncode == 125, path
        assert done.stderr.startswith("sandboxd: ")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_orderly_stop_ends_runs_and_removes_the_socket(
    own_daemon: Any, workspace: Path, number: int
) -> None:
    running = own_daemon()
    mark = f"{500 + number}.{os.getpid()}"
    with (
        Client.connect(running.socket, workspace=str(workspace)) as client,
        ThreadPoolExecutor() as pool,
    ):
        call = pool.submit(client.exec, ["sleep", mark], approve="all")
        wait_until(lambda: is_running(f"sleep {mark}"))
        assert running.stop(number) == 0
        with pytest.raises(Refusal):
            call.result(30)
    assert not is_running(f"sleep {mark}")
    assert not os.path.exists(running.socket)


def test_under_nohup_a_hangup_is_ignored(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    words = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *CLI, "serve", "--socket", path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stdin=-3, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on ")
        process.send_signal(signal.SIGHUP)
        with Client.connect(path, workspace=str(tmp_path)) as client:
            assert client.exec(["true"], approve="all").exit_code == 0
        process.terminate()
        assert process.wait(30) == 0


def test_kill_9_ends_runs_and_a_new_daemon_takes_the_socket(
    own_daemon: Any, workspace: Path
) -> None:
    running = own_daemon()
    mark = f"600.{os.getpid()}"
    with (
        Client.connect(running.socket, workspace=str(workspace)) as client,
        ThreadPoolExecutor() as pool,
    ):
        script = f"sleep {mark} & setsid sleep {mark} & sleep {mark}"
        call = pool.submit(client.exec, script, approve="all")
        wait_until(lambda: is_running(f"sleep {mark}"))
        running.stop(signal.SIGKILL)
        with pytest.raises(Refusal):
            call.result(30)
    wait_until(lambda: not is_running(f"sleep {mark}"))
    done = sandboxd("serve", "--socket", running.socket, "--detach", "--json")
    assert done.returncode == 0, done.stderr
    os.kill(json.loads(done.stdout)["pid"], signal.SIGTERM)
    wait_until(lambda: not os.path.exists(running.socket))


def test_a_named_socket_that_nobody_answers_is_not_replaced_by_the_own_engine(
    tmp_path: Path,
) -> None:
    done = sandboxd("exec", "--socket", str(tmp_path / "none"), "--", "true")
    assert done.returncode == 125
    assert "no daemon answers" in done.stderr


def test_without_a_daemon_the_engine_runs_in_process(tmp_path: Path) -> None:
    done = sandboxd("exec", "--approve", "all", "--", "echo", "hi", cwd=tmp_path, stdin=-3)
    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr


def test_stdio_serves_one_client_until_it_closes(tmp_path: Path) -> None:
    lines = [
        {"id": 1, "method": "initialize", "params": {"protocol_version": 1, "cwd": str(tmp_path)}},
        {"id": 2, "method": "command.exec", "params": {"argv": ["echo", "hi"], "approve": "all"}},
    ]
    with subprocess.Popen(
        [*CLI, "serve", "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in lines:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **line}) + "\n")
        process.stdin.flush()
        answers = {}
        while 2 not in answers:
            message = json.loads(process.stdout.readline())
            answers[message.get("id")] = message
        process.stdin.close()
        assert process.wait(30) == 0
    assert answers[2]["result"]["stdout"]["text"] == "hi\n"


# --------------------------------------------------------------------------- requests


def test_too_long_arguments_are_refused_by_name(daemon: Any, workspace: Path) -> None:
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        for argv in (["true", "x" * 140_000], ["true", *["y" * 100_000] * 100]):
            with pytest.raises(ArgumentsTooLong):
                client.exec(argv, approve="all")
        assert client.exec(["true", "x" * 100_000], approve="all").exit_code == 0


def test_a_nul_in_an_argument_is_refused(daemon: Any, workspace: Path) -> None:
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        for command in (["echo", "a\0b"], "echo a\0b"):
            with pytest.raises(InvalidArgument):
                client.exec(command, approve="all")


def test_what_a_reply_left_out_can_be_read(daemon: Any, workspace: Path) -> None:
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        captured = client.exec("seq 1 100000", approve="all").stdout
        assert captured is not None
        assert captured.omitted_lines > 0
        assert captured.output_id is not None
        part = client.call(
            "output.read",
            OutputRead(output_id=captured.output_id, from_line=50_000, count=2),
            OutputPart,
        )
        assert (part.text, part.total_lines) == ("50000\n50001\n", 100_000)


def test_a_closed_session_is_gone(daemon: Any, workspace: Path) -> None:
    from sandboxd.protocol.messages import Done, SessionClose

    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        assert client.session is not None
        closing = SessionClose(session_id=client.session.session_id)
        client.call("session.close", closing, Done)
        with pytest.raises(SessionUnknown):
            client.call("session.close", closing, Done)


# --------------------------------------------------------------------------- load


def descriptors_of(pid: int) -> int:
    """How many are open; the zygote lets only root look."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:
        assert os.geteuid() != 0
        return 0


def test_two_hundred_parallel_calls_succeed_and_leave_nothing(
    own_daemon: Any, workspace: Path
) -> None:
    running = own_daemon()
    words = [*CLI, "exec", "--socket", running.socket, "--approve", "all", "--", "true"]

    def call(_: int) -> int:
        return subprocess.run(words, cwd=workspace, stdin=-3, check=False).returncode

    assert call(0) == 0
    # The daemon warms up after it answers: it starts the second reader and probes a tier.
    wait_until(lambda: is_still(lambda: descriptors_of(running.pid), for_s=1.5))
    zygote = children_of(running.pid)
    before = descriptors_of(running.pid), [descriptors_of(pid) for pid in zygote]
    with ThreadPoolExecutor(200) as pool:
        codes = list(pool.map(call, range(200)))
    assert codes == [0] * 200
    wait_until(lambda: descriptors_of(running.pid) <= before[0])
    assert [descriptors_of(pid) for pid in zygote] == before[1]
    assert children_of(running.pid) == zygote
    left = [child for pid in zygote for child in children_of(pid)]
    assert len(left) <= 1, "more than the init that waits for the next run"


def test_many_connections_that_say_nothing_do_not_disturb(daemon: Any, workspace: Path) -> None:
    silent = []
    try:
        for _ in range(300):
            one = socket.socket(socket.AF_UNIX)
            one.connect(daemon.socket)
            silent.append(one)
        with Client.connect(daemon.socket, workspace=str(workspace)) as client:
            assert client.exec(["true"], approve="all").exit_code == 0
            assert client.status().connections >= 301
    finally:
        for one in silent:
            one.close()
    with Client(_connected(daemon.socket)) as client:
        wait_until(lambda: client.status().connections < 100)


def _connected(path: str) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(path)
    return connected


# --------------------------------------------------------------------------- out of reach


CONNECT = "import socket; s = socket.socket(socket.AF_UNIX); s.connect({!r}); print('connected')"


@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
def test_a_run_cannot_reach_the_daemons_socket(daemon: Any, workspace: Path, tier: str) -> None:
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        argv = ["/usr/bin/python3", "-c", CONNECT.format(daemon.socket)]
        result = client.exec(argv, approve="all", tier=tier)
    assert result.exit_code != 0
    assert result.stdout is not None
    assert "connected" not in result.stdout.text


def test_a_run_without_a_kernel_tier_is_refused_at_the_socket(daemon: Any, workspace: Path) -> None:
    script = CONNECT.format(daemon.socket) + "; print(s.recv(4096).decode())"
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        argv = ["/usr/bin/python3", "-c", script]
        result = client.exec(argv, approve="all", tier="containment")
    assert result.stdout is not None
    assert "PEER_CONFINED" in result.stdout.text


def test_a_run_cannot_signal_the_daemon(daemon: Any, workspace: Path) -> None:
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        result = client.exec(f"kill -0 {daemon.pid}", approve="all", tier="namespaces")
    assert result.exit_code != 0
