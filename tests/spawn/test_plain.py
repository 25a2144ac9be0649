"""The child side without Linux's means: what macOS gets, run here by the same launcher."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from sandboxd.model import Exit, LaunchPlan, Pty, Tier
from sandboxd.spawn import plain
from sandboxd.spawn.launcher import Child, Launcher, LaunchFailed
from sandboxd.system import darwin

T = TypeVar("T")
TIER = Tier(name="containment", kernel=False, enforces=(), gaps=())


def plan(*argv: str, cwd: str = "/", **changes: object) -> LaunchPlan:
    values: dict[str, object] = {
        "tier": TIER,
        "argv": argv,
        "program": argv[0],
        "environment": {"PATH": "/usr/bin:/bin", "MARK": "é"},
        "cwd": cwd,
        "drop_privileges": False,
        **changes,
    }
    return LaunchPlan(**values)  # type: ignore[arg-type]


def with_launcher(work: Callable[[Launcher], Awaitable[T]]) -> T:
    async def main() -> T:
        launcher = Launcher(program=plain.__file__)
        try:
            return await work(launcher)
        finally:
            await launcher.close()

    return asyncio.run(main())


def run(made: LaunchPlan) -> tuple[Exit, bytes]:
    async def work(launcher: Launcher) -> tuple[Exit, bytes]:
        null = os.open(os.devnull, os.O_RDWR)
        read, write = os.pipe()
        child = await launcher.launch(made, (null, write, write))
        os.close(write)
        ended = await child.wait()
        os.set_blocking(read, False)
        output = b""
        with open(read, "rb", buffering=0) as pipe:
            output = pipe.read() or b""
        os.close(null)
        return ended, output

    return with_launcher(work)


def sh(text: str, **changes: object) -> tuple[Exit, bytes]:
    return run(plan("/bin/sh", "-c", text, **changes))  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_output_and_exit_code_come_back() -> None:
    ended, output = sh("echo out; echo $MARK; exit 3")
    assert (ended.code, output.decode()) == (3, "out\né\n")


def test_a_signal_is_told() -> None:
    ended, _ = sh("kill -TERM $$")
    assert (ended.code, ended.signal) == (143, signal.SIGTERM)


def test_it_is_the_leader_of_its_own_session_in_its_folder(tmp_path: Path) -> None:
    code = "import os; print(os.getpid() == os.getsid(0) == os.getpgrp(), os.getcwd())"
    _, output = run(plan(sys.executable, "-I", "-c", code, cwd=str(tmp_path)))
    assert output.decode().split() == ["True", str(tmp_path)]


def test_nothing_but_the_three_descriptors_is_inherited() -> None:
    code = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
    _, output = run(plan(sys.executable, "-I", "-c", code))
    assert output in (b"[0, 1, 2, 3]\n", b"[0, 1, 2]\n")


def test_limits_umask_and_default_signals() -> None:
    ended, output = sh("umask; ulimit -n; ulimit -c", umask=0o77, rlimits={"NOFILE": 64, "CORE": 0})
    assert output.split() == [b"0077", b"64", b"0"]
    assert sh("kill -PIPE $$; exit 9")[0].signal == signal.SIGPIPE
    assert ended.code == 0


@pytest.mark.parametrize(
    ("made", "stage"),
    [
        (plan("/nonexistent/program"), "exec"),
        (plan("/bin/true", cwd="/nonexistent"), "cwd"),
    ],
)
def test_a_step_that_fails_is_named(made: LaunchPlan, stage: str) -> None:
    with pytest.raises(LaunchFailed) as caught:
        run(made)
    assert caught.value.stage == stage
    assert caught.value.path.startswith("/nonexistent")


def test_a_large_request_arrives() -> None:
    """As a Seatbelt profile with its parameters is."""
    ended, output = run(plan("/bin/sh", "-c", 'echo "${#1}"', "sh", "x" * 100_000))
    assert (ended.code, output) == (0, b"100000\n")


def test_background_children_are_ended_and_counted() -> None:
    ended, output = sh("sleep 60 & echo $!; exec 1>&- 2>&-; sleep 0.5")
    assert ended.survivors == 1
    assert not is_alive(int(output))


def test_who_left_the_session_is_ended_as_long_as_it_was_seen() -> None:
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n os.setsid(); print(os.getpid(), flush=True); time.sleep(60)\n"
        "time.sleep(0.8)"
    )
    ended, output = run(plan(sys.executable, "-I", "-c", code))
    assert ended.survivors == 1
    assert not is_alive(int(output))


def test_an_order_to_end_ends_the_whole_tree() -> None:
    async def work(launcher: Launcher) -> tuple[Exit, float]:
        null = os.open(os.devnull, os.O_RDWR)
        text = "trap '' TERM INT HUP; sleep 60 & wait"
        child: Child = await launcher.launch(plan("/bin/sh", "-c", text), (null, null, null))
        await asyncio.sleep(0.3)
        begun = time.monotonic()
        child.kill()
        return await child.wait(), time.monotonic() - begun

    ended, took = with_launcher(work)
    assert ended.signal == signal.SIGKILL
    assert took < 5


def test_a_signal_reaches_the_group() -> None:
    async def work(launcher: Launcher) -> Exit:
        null = os.open(os.devnull, os.O_RDWR)
        child = await launcher.launch(plan("/bin/sleep", "60"), (null, null, null))
        child.signal(signal.SIGINT)
        return await child.wait()

    assert with_launcher(work).signal == signal.SIGINT


def test_the_runs_end_when_the_daemon_is_gone() -> None:
    """Without end-of-file on the channel: by looking who our parent is."""

    async def work(launcher: Launcher) -> tuple[int, int]:
        null = os.open(os.devnull, os.O_RDWR)
        child = await launcher.launch(plan("/bin/sleep", "60"), (null, null, null))
        assert launcher.zygote_pid is not None
        return child.pid, launcher.zygote_pid

    async def lose() -> int:
        launcher = Launcher(program=plain.__file__)
        pid, _ = await work(launcher)
        launcher._lose_zygote()
        return pid

    pid = asyncio.run(lose())
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid)


def test_a_terminal_of_its_own() -> None:
    async def work(launcher: Launcher) -> bytes:
        null = os.open(os.devnull, os.O_RDWR)
        made = plan("/bin/sh", "-c", "test -t 0 && stty size && tty", pty=Pty(cols=91, rows=17))
        child = await launcher.launch(made, (null, null, null))
        master = child.take_master()
        await child.wait()
        read = b""
        try:
            while chunk := os.read(master, 4096):
                read += chunk
        except OSError:
            pass  # EIO: the last slave is closed
        os.close(master)
        return read

    assert b"17 91" in with_launcher(work)


def test_children_by_libproc() -> None:
    """The edge to the system's library, by a library of the test's own."""

    class Library:
        @staticmethod
        def proc_listchildpids(pid: object, pids: object, size: int) -> int:
            pids[0], pids[1] = 7, 8  # type: ignore[index]
            return 2

    assert darwin.children(1, Library()) == [7, 8]
    assert darwin.children(os.getpid()) == [] or darwin.IS_HERE
