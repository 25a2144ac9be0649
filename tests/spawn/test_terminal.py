"""Runs on a pty of their own, in every tier: what programs see of it, and what keys do."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import pytest

from sandboxd.model import Invocation, LaunchPlan, Pty
from sandboxd.output.capture import Capture
from sandboxd.spawn.launcher import Launcher
from sandboxd.spawn.waiting import Sight, State, Tty, terminal_state
from sandboxd.supervise import Outcome, Supervised
from tests.confined import ATTEMPT, REQUIRED_TIERS, Ground, make_ground, mechanism

PRIVATE_DEV = [tier for tier in REQUIRED_TIERS if tier in ("namespaces", "bubblewrap")]
WITHIN_S = 20.0
BASH = ["/bin/bash", "--noprofile", "--norc"]


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


class Typist:
    """One run on a pty and somebody before it."""

    def __init__(self, run: Supervised) -> None:
        self.run = run
        self.seen = b""
        self.stops: list[int] = []

    async def type(self, text: str) -> None:
        await asyncio.wait_for(self.run.write(text.encode()), 20)

    async def sees(self, text: str) -> None:
        await self.comes(lambda: text.encode() in self.seen)

    async def comes(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            assert time.monotonic() < deadline, self.seen[-2000:]
            await asyncio.sleep(0.01)

    async def waits(self, expected: Sight) -> None:
        master = self.run.master
        assert master is not None
        tty, root = Tty.of(master), self.run.child.pid
        deadline = time.monotonic() + WITHIN_S
        while (sight := terminal_state(master, tty, root)) != expected:
            assert time.monotonic() < deadline, (sight, self.seen[-2000:])
            await asyncio.sleep(0.02)


Work = Callable[[Typist], Awaitable[None]]


def plan_on_pty(tier: str, ground: Ground, argv: list[str], pty: Pty) -> LaunchPlan:
    policy = ground.policy()
    rung = mechanism(tier)
    invocation = Invocation(
        program=argv[0],
        argv=tuple(argv),
        environment={
            "PATH": os.environ["PATH"],
            "HOME": ground.home,
            "TERM": "xterm",
            "SHELL": "/bin/sh",
            "TMPDIR": rung.temp_path(policy),
        },
        cwd=ground.workspace,
        has_terminal=True,
    )
    return msgspec.structs.replace(rung.plan(invocation, policy), pty=pty)


def at_pty(
    tier: str, ground: Ground, argv: list[str], work: Work | None = None, pty: Pty | None = None
) -> tuple[Outcome, Typist]:
    """Run a program on a pty, somebody working at it; how it ended and what was seen."""

    async def main() -> tuple[Outcome, Typist]:
        launcher = Launcher()
        launcher.start()
        size = pty or Pty()
        names = ["output", *(n for fd, n in ((1, "stdout"), (2, "stderr")) if fd not in size.fds)]
        run = Supervised(
            {name: Capture("/nonexistent", 1 << 22, 1 << 22) for name in names},
            lambda stream, chunk: hear(stream, chunk),
        )
        typist = Typist(run)

        def hear(stream: str, chunk: bytes) -> None:
            if stream == "output":
                typist.seen += chunk

        try:
            await run.start(launcher, plan_on_pty(tier, ground, argv, size), has_stdin=True)
            run.child.on_stop(typist.stops.append)
            ending = asyncio.ensure_future(run.outcome(WITHIN_S))
            if work is not None:
                await work(typist)
            return await ending, typist
        finally:
            await launcher.close()

    return asyncio.run(main())


def text_of(outcome: Outcome) -> str:
    assert outcome.output is not None
    return outcome.output.text


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_program_is_on_a_terminal_of_the_size_asked_for(tier: str, ground: Ground) -> None:
    code = (
        "import os, sys; print([os.isatty(fd) for fd in (0, 1, 2)], os.get_terminal_size(0));"
        "print(os.tcgetpgrp(0) == os.getpgrp()); open('/dev/tty', 'w').write('to tty\\n')"
    )
    outcome, _ = at_pty(
        tier, ground, [sys.executable, "-I", "-c", code], pty=Pty(cols=101, rows=37)
    )
    assert outcome.exit.code == 0, text_of(outcome)
    assert text_of(outcome).splitlines() == [
        "[True, True, True] os.terminal_size(columns=101, lines=37)",
        "True",
        "to tty",
    ]


@pytest.mark.parametrize("tier", PRIVATE_DEV)
def test_tty_has_a_name_inside_and_tmux_works(tier: str, ground: Ground) -> None:
    text = (
        "tty; perl -MPOSIX -e 'print ttyname(0), chr(10)';"
        "TMUX_TMPDIR=$TMPDIR tmux -f /dev/null new-session 'echo from tmux; tty; sleep 0.5'"
    )
    outcome, typist = at_pty(tier, ground, [*BASH, "-c", text])
    assert typist.seen.startswith(b"/dev/pts/0\r\n/dev/pts/0\r\n"), typist.seen
    assert b"from tmux" in typist.seen
    assert b"/dev/pts/1" in typist.seen
    assert outcome.exit.code == 0


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_ctrl_c_interrupts_the_foreground_only(tier: str, ground: Ground) -> None:
    async def work(typist: Typist) -> None:
        await typist.sees("begun")
        await typist.type("\x03")

    text = "trap 'echo shell too' INT; sh -c 'echo begun; exec sleep 60'; echo after $?"
    outcome, _ = at_pty(tier, ground, [*BASH, "-c", text], work)
    assert outcome.duration_s < 20
    assert text_of(outcome).splitlines()[-1] == "after 130"


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_ctrl_z_stops_the_program_and_is_told(tier: str, ground: Ground) -> None:
    async def work(typist: Typist) -> None:
        await typist.sees("begun")
        await typist.type("\x1a")
        await typist.comes(lambda: bool(typist.stops))
        typist.run.signal(signal.SIGCONT)
        await typist.type("go on\n")

    code = "print('begun', flush=True); print('got', input(), flush=True)"
    outcome, typist = at_pty(tier, ground, [sys.executable, "-I", "-c", code], work)
    assert (outcome.exit.code, typist.stops) == (0, [signal.SIGTSTP])
    assert text_of(outcome).splitlines()[-1] == "got go on"


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_job_control_works_in_a_shell(tier: str, ground: Ground) -> None:
    async def work(typist: Typist) -> None:
        await typist.waits(Sight(State.AT_PROMPT, is_shell=True))
        await typist.type("sh -c 'echo be''gun; exec sleep 60'\n")
        await typist.sees("begun")
        await typist.type("\x1a")
        await typist.sees("Stopped")
        await typist.waits(Sight(State.AT_PROMPT, is_shell=True))
        await typist.type("fg\n")
        await typist.comes(lambda: typist.seen.count(b"exec sleep 60'\r\n") >= 3)
        await typist.type("\x03")
        await typist.waits(Sight(State.AT_PROMPT, is_shell=True))
        await typist.type("exit 7\n")

    outcome, typist = at_pty(tier, ground, [*BASH, "-i"], work)
    assert outcome.exit.code == 7
    assert b"no job control" not in typist.seen
    assert b"Stopped" in typist.seen


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_a_password_prompt_is_seen_through_the_tier(tier: str, ground: Ground) -> None:
    async def work(typist: Typist) -> None:
        await typist.waits(Sight(State.WAITING_FOR_INPUT, is_password=True))
        await typist.type("secret\n")

    code = "import getpass; print(len(getpass.getpass()))"
    outcome, typist = at_pty(tier, ground, [sys.executable, "-I", "-c", code], work)
    assert outcome.exit.code == 0
    assert b"secret" not in typist.seen


def test_a_new_size_reaches_the_program(ground: Ground) -> None:
    async def work(typist: Typist) -> None:
        await typist.sees("begun")
        typist.run.resize(120, 50)
        await typist.sees("50 120")

    text = "trap 'stty size; exit' WINCH; echo begun; while :; do sleep 0.05; done"
    at_pty("namespaces", ground, [*BASH, "-c", text], work)


def test_end_of_input_is_typed(ground: Ground) -> None:
    async def work(typist: Typist) -> None:
        await typist.waits(Sight(State.WAITING_FOR_INPUT))
        await typist.type("no line feed")
        typist.run.close_stdin()

    outcome, _ = at_pty("namespaces", ground, ["/bin/cat"], work)
    assert (outcome.exit.code, text_of(outcome)) == (0, "no line feedno line feed")


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_nothing_that_was_printed_before_the_end_is_lost(tier: str, ground: Ground) -> None:
    outcome, typist = at_pty(
        tier, ground, [*BASH, "-c", "stty -opost; seq 1 200000; echo END; exit 3"]
    )
    assert outcome.exit.code == 3
    assert typist.seen == "".join(f"{n}\n" for n in range(1, 200001)).encode() + b"END\n"


def test_only_the_descriptors_named_are_the_terminal(ground: Ground) -> None:
    code = (
        "import os, sys; sys.stderr.write('to stderr\\n'); sys.stdout.write('to stdout\\n');"
        "open('/dev/tty', 'w').write(str([os.isatty(fd) for fd in (0, 1, 2)]))"
    )
    outcome, _ = at_pty(
        "namespaces", ground, [sys.executable, "-I", "-c", code], pty=Pty(fds=(0, 2))
    )
    assert outcome.stdout is not None
    assert outcome.stdout.text == "to stdout\n"
    assert text_of(outcome) == "to stderr\n[True, False, True]"


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_nothing_is_left_of_a_terminal_that_is_killed(tier: str, ground: Ground) -> None:
    async def work(typist: Typist) -> None:
        await typist.sees("begun")
        typist.run.cancel()

    text = "trap '' TERM HUP; setsid sleep 71.25 & nohup sleep 71.25 & (sleep 71.25 &) & echo begun; sleep 71.25"
    outcome, _ = at_pty(tier, ground, [*BASH, "-c", text], work)
    assert outcome.exit.signal == signal.SIGKILL
    left = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                left += [name] if file.read().split(b"\0")[:2] == [b"sleep", b"71.25"] else []
        except OSError:
            continue
    assert left == []


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_a_program_that_cannot_start_on_a_terminal_is_said(tier: str, ground: Ground) -> None:
    from sandboxd.spawn.launcher import LaunchFailed

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(LaunchFailed, match="exec"):
        at_pty(tier, ground, ["/etc/passwd"])
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("tier", [name for name in REQUIRED_TIERS if name != "containment"])
def test_nothing_can_be_typed_into_the_runs_own_terminal(tier: str, ground: Ground) -> None:
    """TIOCSTI and TIOCLINUX, also with bits in the number that the kernel does not look at."""
    number = {"x86_64": 16, "aarch64": 29}[os.uname().machine]
    code = ATTEMPT + (
        "for request in (0x5412, 0x541C, 0x100005412):\n"
        f"    print(attempt(lambda: syscall({number}, 0, request, b'x')))"
    )
    outcome, _ = at_pty(tier, ground, [sys.executable, "-I", "-c", code])
    assert text_of(outcome).split() == ["EPERM"] * 3
