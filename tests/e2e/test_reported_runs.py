"""What other tools were reported to do to their users, tried here: hangs, losses, leftovers.

`tests/output/test_reported.py` has the reports that are about text alone. Each test is named after
what must be so; what it runs is what the report ran, as far as it was given.
"""

from __future__ import annotations

import os
import pty
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.client import Client
from sandboxd.model import Captured, ExecRequest, Result
from tests.confined import REQUIRED_TIERS
from tests.contract.test_tiers import eventually, processes_named

SOON_S = 8.0
"""Far below the time that what is left in the background would take."""


@pytest.fixture
def client(daemon: Any, workspace: Path) -> Iterator[Client]:
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        yield client


def run(client: Client, text: str, **more: Any) -> Result:
    begun = time.monotonic()
    result = client.exec(text, approve="all", **more)
    assert time.monotonic() - begun < SOON_S
    return result


def out(result: Result) -> Captured:
    found = result.output or result.stdout
    assert found is not None
    return found


def nap() -> str:
    """A number of seconds that nobody else sleeps for."""
    return f"79.{os.getpid()}{time.monotonic_ns() % 1_000_000}"


# --------------------------------------------------------------------------- an inherited pipe

DOUBLE_FORK = """import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep({0})
    os._exit(0)
os.wait()
print("started")
"""


@pytest.mark.parametrize(
    ("text", "shown", "code"),
    [
        ("echo done; sleep {0} &", "done\n", 0),
        ("echo done; sleep {0} >/dev/null &", "done\n", 0),
        ("bash -c 'sleep {0} &'", "", 0),
        ("(sleep {0}; echo never) & echo passed; exit 7", "passed\n", 7),
        ("setsid sleep {0} & echo done", "done\n", 0),
        ("nohup sleep {0} >/dev/null 2>&1 & echo done", "done\n", 0),
        ("python3 server.py", "started\n", 0),
        ("exec > >(tee -a f) 2>&1 && echo inside && exit 3", "inside\n", 3),
    ],
)
def test_the_call_returns_with_its_shell_whoever_holds_the_pipe(
    client: Client, workspace: Path, text: str, shown: str, code: int
) -> None:
    seconds = nap()
    (workspace / "server.py").write_text(DOUBLE_FORK.format(seconds))
    result = run(client, text.format(seconds), merge=True)
    assert (out(result).text, result.exit_code) == (shown, code)
    assert not processes_named(f"sleep\0{seconds}\0")
    assert not processes_named("python3\0server.py\0")


def test_a_fifo_that_is_read_for_ever_ends_with_the_time_limit(client: Client) -> None:
    text = "mkfifo p; (while :; do echo c; sleep 1; done) >p & cat p"
    result = run(client, text, timeout_s=2)
    assert (result.timed_out, result.exit_code) == (True, 124)
    assert out(result).text.startswith("c\n")
    assert not processes_named("cat\0p\0")


def test_the_last_bytes_before_the_exit_are_not_cut(client: Client) -> None:
    result = run(
        client, "head -c 3000000 /dev/zero | tr '\\0' x; printf '\\nEND'; exit", merge=True
    )
    assert (out(result).total_bytes, out(result).text[-4:]) == (3_000_004, "\nEND")


def test_a_command_that_ends_at_once_is_answered_at_once(client: Client) -> None:
    run(client, "true")
    took = []
    for _ in range(10):
        begun = time.monotonic()
        assert run(client, "echo hi").exit_code == 0
        took.append(time.monotonic() - begun)
    assert min(took) < 0.2


# --------------------------------------------------------------------------- bounds and partial output


@pytest.mark.parametrize("way", ["timeout", "crash"])
def test_what_was_printed_before_a_bad_end_is_kept_and_bounded(client: Client, way: str) -> None:
    text = "echo first; yes | head -c 20000000; echo last; "
    text += "sleep 60" if way == "timeout" else "kill -SEGV $$"
    result = run(client, text, timeout_s=4 if way == "timeout" else None)
    shown = out(result)
    assert result.timed_out == (way == "timeout")
    assert shown.total_bytes == 20_000_011
    assert shown.text.startswith("first\ny\n")
    assert shown.text.endswith("y\nlast\n")
    assert len(shown.text) < 70_000


def test_three_hundred_kilobytes_are_no_timeout_and_no_deadlock(client: Client) -> None:
    result = run(client, "head -c 300000 /dev/zero | tr '\\0' x | fold -w 100 >&2", timeout_s=60)
    assert not result.timed_out
    assert result.stderr is not None
    assert result.stderr.total_bytes == 302_999


def test_lines_bound_what_is_shown_and_the_rest_can_be_read(client: Client) -> None:
    asked = ExecRequest(command="seq 1000", approve="all", head_lines=2, tail_lines=3)
    shown = out(client.run(asked))
    assert shown.text.startswith("1\n2\n[")
    assert shown.text.endswith("\n998\n999\n1000\n")
    assert shown.omitted_lines == 995
    assert shown.output_id is not None


def test_nothing_printed_is_not_nothing_yet(client: Client) -> None:
    result = run(client, "true")
    assert (result.exit_code, out(result)) == (0, Captured(text="", total_bytes=0, total_lines=0))


# --------------------------------------------------------------------------- leftovers


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
@pytest.mark.parametrize("end", ["timeout", "leader", "cancel"])
def test_nothing_is_left_in_any_tier(client: Client, workspace: Path, tier: str, end: str) -> None:
    """Plain, in a session of its own, forked twice, nohup, ignoring TERM, stopped."""
    seconds = nap()
    (workspace / "twice.py").write_text(
        DOUBLE_FORK.format(0).replace(
            "time.sleep(0)", f"os.execvp('sleep', ['sleep', '{seconds}'])"
        )
    )
    text = f"""
        sleep {seconds} &
        setsid sleep {seconds} &
        (setsid sleep {seconds} &)
        nohup sleep {seconds} >/dev/null 2>&1 &
        (trap '' TERM HUP INT; exec sleep {seconds}) &
        sleep {seconds} & kill -STOP $!
        python3 twice.py >/dev/null
        echo ready
    """
    text += "exit 0" if end == "leader" else f"exec sleep {seconds}"
    if end == "cancel":

        def stop(_: Any) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(client, text, tier=tier, on_output=stop)
    else:
        result = run(client, text, tier=tier, timeout_s=2.5 if end == "timeout" else None)
        assert out(result).text == "ready\n"
    assert eventually(lambda: not processes_named(f"sleep\0{seconds}\0"))


def test_sixty_floods_into_nothing_are_counted_and_gone(client: Client) -> None:
    result = run(client, "for n in $(seq 60); do sleep 78.125 >/dev/null & done; exit 0")
    assert (result.exit_code, result.survivors) == (0, 60)
    assert not processes_named("sleep\00078.125\0")


def test_a_server_meant_to_stay_lives_in_a_terminal_and_beyond_its_call(client: Client) -> None:
    seconds = nap()
    started = client.terminal_start(f"echo up; exec sleep {seconds}", approve="all")
    assert "up" in client.terminal_read(started.terminal_id, wait_s=0.5).live
    assert run(client, "true").exit_code == 0
    assert len(processes_named(f"sleep\0{seconds}\0")) == 1
    client.terminal_kill(started.terminal_id)
    assert not processes_named(f"sleep\0{seconds}\0")


def test_a_finished_command_is_not_waiting_for_input(client: Client) -> None:
    started = client.terminal_start("cat </dev/null; exit 3", approve="all")
    reading = client.terminal_read(started.terminal_id, wait_s=20)
    assert (reading.state, reading.exit_code, reading.password) == ("exited", 3, False)


def test_a_prompt_of_any_wording_is_a_password_prompt(client: Client) -> None:
    text = "printf '\\xe5\\xaf\\x86\\xe7\\xa0\\x81> '; stty -echo; read -r x; echo got ${#x}"
    started = client.terminal_start(text, approve="all")
    reading = client.terminal_read(started.terminal_id, wait_s=20)
    assert (reading.state, reading.password) == ("waiting_for_input", True)
    client.terminal_write(started.terminal_id, "hunter2\n")
    reading = client.terminal_read(started.terminal_id, wait_s=20)
    assert "got 7" in "\n".join(reading.lines)
    assert "hunter2" not in "\n".join(reading.lines)


# --------------------------------------------------------------------------- the end of a pty


def test_what_a_pty_holds_is_still_there_after_its_program_has_ended(client: Client) -> None:
    started = client.terminal_start("seq 400", approve="all")
    time.sleep(1.0)
    reading = client.terminal_read(started.terminal_id)
    assert (reading.state, reading.exit_code) == ("exited", 0)
    assert reading.lines == tuple(str(number) for number in range(1, 401))


def test_the_end_of_a_pty_is_an_end_and_no_error() -> None:
    """EIO on Linux; what is read before it is whole."""
    master, slave = pty.openpty()
    os.write(slave, b"all\n")
    os.close(slave)
    assert os.read(master, 100) == b"all\r\n"
    with pytest.raises(OSError, match="Input/output error"):
        os.read(master, 100)
    os.close(master)
