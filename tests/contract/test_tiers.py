"""One contract over every tier: what each must allow, hold and clean up, really run."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sandboxd.confine.select import Ladder, mechanisms
from sandboxd.model import Limits, NetworkMode
from sandboxd.spawn.launcher import Launcher, LaunchFailed
from tests.confined import (
    ATTEMPT,
    BENEATH,
    REQUIRED_TIERS,
    Ground,
    make_ground,
    mechanism,
    plan_for,
    python_in,
    read,
    run_in,
    run_plan,
    with_launcher,
    write,
)

FORMS = [*REQUIRED_TIERS, *([BENEATH] if "bubblewrap" in REQUIRED_TIERS else [])]
KERNEL = [name for name in FORMS if name != "containment"]


@dataclass(frozen=True)
class Telling:
    """What a mechanism can tell of a run, and what it adds to one."""

    names_signals: bool = True
    waits_for_survivors: bool = True
    leads_its_session: bool = True
    extra_environment: frozenset[str] = frozenset()
    failed_starts: tuple[tuple[str, int], ...] = (("exec", 2), ("exec", 13), ("exec", 7))
    """Stage and errno for a missing program, one without its mode, too long arguments."""


TELLING = {
    BENEATH: Telling(
        names_signals=False,
        waits_for_survivors=False,
        leads_its_session=False,
        extra_environment=frozenset({"PWD"}),
        failed_starts=(("mount.helper", 0), ("mount.helper", 0), ("exec", 7)),
    )
}
"""bwrap stands between: sandboxd/confine/bubblewrap.py says why each."""


def telling(tier: str) -> Telling:
    return TELLING.get(tier, Telling())


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


@pytest.fixture(params=FORMS)
def tier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=KERNEL)
def kernel_tier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_probe_finds_every_required_tier(tier: str) -> None:
    async def main(launcher: Launcher) -> None:
        async def run(plan: object) -> tuple[int, bytes]:
            ended, output = await run_plan(launcher, plan)  # type: ignore[arg-type]
            return ended.code, output.encode()

        found = await Ladder(mechanisms(), run).probe(mechanism(tier), NetworkMode.HOST)
        assert found.available, found

    with_launcher(main)  # type: ignore[arg-type]


def test_a_run_writes_its_workspace_and_its_temporary_folder(tier: str, ground: Ground) -> None:
    script = 'echo one > made && mv made kept && mkdir -p a/b && echo two > "$TMPDIR/t" && cat kept "$TMPDIR/t"'
    ended, output = run_in(tier, ground, ["/bin/sh", "-c", script])
    assert (ended.code, output) == (0, "one\ntwo\n")
    assert read(ground.workspace + "/kept") == "one\n"


def test_the_exit_status_is_the_programs_own(tier: str, ground: Ground) -> None:
    async def main(launcher: Launcher) -> list[tuple[int, int | None]]:
        found = []
        for script in ("exit 7", "kill -9 $$", "kill -TERM $$", "true"):
            ended, _ = await run_plan(launcher, plan_for(tier, ground, ["/bin/sh", "-c", script]))
            found.append((ended.code, ended.signal))
        return found

    expected = [(7, None), (137, 9), (143, 15), (0, None)]
    if not telling(tier).names_signals:
        expected = [(code, None) for code, _ in expected]
    assert with_launcher(main) == expected  # type: ignore[arg-type]


def test_only_standard_descriptors_reach_the_program(tier: str, ground: Ground) -> None:
    code = "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))"
    # listdir itself holds the fourth one open while it looks.
    assert python_in(tier, ground, code) == "[0, 1, 2, 3]"


def test_the_environment_is_the_plans_and_nothing_of_ours(tier: str, ground: Ground) -> None:
    os.environ["CANARY_OF_THE_DAEMON"] = "x"
    try:
        _, output = run_in(tier, ground, ["/usr/bin/env"])
    finally:
        del os.environ["CANARY_OF_THE_DAEMON"]
    names = {line.partition("=")[0] for line in output.splitlines()}
    assert names == {"PATH", "HOME", "TMPDIR", *telling(tier).extra_environment}


def test_a_run_has_a_session_and_group_of_its_own(tier: str, ground: Ground) -> None:
    code = "import os; print(os.getpid() == os.getsid(0) == os.getpgrp(), os.getsid(0))"
    leads, session = python_in(tier, ground, code).split()
    assert leads == str(telling(tier).leads_its_session)
    assert int(session) != 0  # a session led from outside the process ids of the run


def test_signals_have_their_default_actions(tier: str, ground: Ground) -> None:
    ended, output = run_in(
        tier, ground, ["/bin/sh", "-c", "grep -E 'SigIgn|SigBlk' /proc/self/status"]
    )
    assert ended.code == 0
    # glibc's posix_spawn ignores its own signals 32 and 33, which no program uses.
    own = 1 << 31 | 1 << 32
    assert [int(line.split()[1], 16) & ~own for line in output.splitlines()] == [0, 0]


def test_survivors_are_counted_and_killed(tier: str, ground: Ground) -> None:
    marker = f"86{os.getpid()}"
    script = f"sleep {marker} & setsid sleep {marker} & (setsid nohup sleep {marker} >/dev/null 2>&1 &) ; echo done"
    begun = time.monotonic()
    ended, output = run_in(tier, ground, ["/bin/sh", "-c", script])
    survivors = 3 if telling(tier).waits_for_survivors else 0
    assert (ended.code, output, ended.survivors) == (0, "done\n", survivors)
    assert time.monotonic() - begun < 10
    assert not processes_named(f"sleep\0{marker}\0")


def test_a_child_that_ends_by_itself_is_waited_for(tier: str, ground: Ground) -> None:
    script = "(sleep 0.05; echo late) & echo early"
    ended, output = run_in(tier, ground, ["/bin/sh", "-c", script])
    expected = "early\nlate\n" if telling(tier).waits_for_survivors else "early\n"
    assert (output, ended.survivors) == (expected, 0)


def test_kill_ends_what_ignores_every_signal(tier: str, ground: Ground) -> None:
    marker = f"87{os.getpid()}"

    async def main(launcher: Launcher) -> int:
        null = os.open(os.devnull, os.O_RDWR)
        script = f"trap '' TERM INT HUP; setsid sleep {marker} & sleep {marker}"
        child = await launcher.launch(
            plan_for(tier, ground, ["/bin/bash", "-c", script]), (null, null, null)
        )
        os.close(null)
        await asyncio.sleep(0.2)
        child.signal(15)
        await asyncio.sleep(0.2)
        assert not child.is_done
        child.kill()
        return (await asyncio.wait_for(child.wait(), 10)).code

    assert with_launcher(main) == 137  # type: ignore[arg-type]
    assert not processes_named(f"sleep\0{marker}\0")


def test_a_run_that_stops_its_own_init_is_ended_all_the_same(tier: str, ground: Ground) -> None:
    marker = f"89{os.getpid()}"

    async def main(launcher: Launcher) -> int:
        null = os.open(os.devnull, os.O_RDWR)
        script = f"sleep 0.2; kill -STOP $PPID; setsid sleep {marker} & sleep {marker}"
        plan = plan_for(tier, ground, ["/bin/bash", "-c", script])
        child = await launcher.launch(plan, (null, null, null))
        os.close(null)
        await asyncio.sleep(0.6)
        child.kill()
        return (await asyncio.wait_for(child.wait(), 15)).code

    assert with_launcher(main) == 137  # type: ignore[arg-type]
    assert eventually(lambda: not processes_named(f"sleep\0{marker}\0"))


def test_a_signal_reaches_the_program_and_not_only_what_stands_around_it(
    tier: str, ground: Ground
) -> None:
    ready = ground.workspace + "/ready"
    script = f"trap 'echo caught; exit 5' TERM; echo up > {ready}; while :; do sleep 0.02; done"

    async def main(launcher: Launcher) -> tuple[int, bytes]:
        read_end, write_end = os.pipe()
        plan = plan_for(tier, ground, ["/bin/bash", "-c", script])
        child = await launcher.launch(plan, (write_end, write_end, write_end))
        os.close(write_end)
        while not os.path.exists(ready):
            await asyncio.sleep(0.01)
        child.signal(15)
        ended = await asyncio.wait_for(child.wait(), 10)
        with os.fdopen(read_end, "rb") as file:
            return ended.code, file.read().splitlines()[-1]  # bash may name its sleep's end first

    assert with_launcher(main) == (5, b"caught")  # type: ignore[arg-type]


def test_an_init_stopped_before_its_first_word_does_not_hang_the_launch(
    tier: str, ground: Ground
) -> None:
    """Where the stop comes too late the run simply ends; it never hangs and leaves nothing."""

    async def main(launcher: Launcher) -> str:
        launcher.start_limit_s = 1.0
        plan = plan_for(tier, ground, ["/bin/bash", "-c", "kill -STOP $PPID"])
        try:
            ended, _ = await run_plan(launcher, plan, 3)
        except (LaunchFailed, TimeoutError) as error:
            return type(error).__name__
        return str(ended.code)

    assert with_launcher(main) in ("LaunchFailed", "TimeoutError", "0", "1")  # type: ignore[arg-type]
    assert not children_of(os.getpid())


def test_nothing_is_left_when_the_daemon_side_vanishes(tier: str, ground: Ground) -> None:
    marker = f"88{os.getpid()}"
    code = f"""
import asyncio, os, sys
sys.path[:0] = {[os.getcwd(), *sys.path]!r}
from tests.confined import Ground, plan_for
from sandboxd.spawn.launcher import Launcher
async def main():
    launcher = Launcher()
    null = os.open(os.devnull, os.O_RDWR)
    plan = plan_for({tier!r}, Ground({ground.top!r}), ["/bin/bash", "-c", "setsid sleep {marker} & sleep {marker}"])
    await launcher.launch(plan, (null, null, null))
    await asyncio.sleep(0.3)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    status = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code])
    assert status == -9
    assert eventually(lambda: not processes_named(f"sleep\0{marker}\0"))


def test_a_failed_start_names_its_step(tier: str, ground: Ground) -> None:
    async def main(launcher: Launcher) -> list[tuple[str, int]]:
        found = []
        missing = plan_for(tier, ground, [ground.workspace + "/missing"])
        write(ground.workspace + "/text", "no program\n")
        plain = plan_for(tier, ground, [ground.workspace + "/text"])
        long = plan_for(tier, ground, ["/bin/true", "x" * 200_000])
        for plan in (missing, plain, long):
            with pytest.raises(LaunchFailed) as caught:
                await run_plan(launcher, plan)
            found.append((caught.value.stage, caught.value.errno))
        return found

    assert with_launcher(main) == [*telling(tier).failed_starts]  # type: ignore[arg-type]


def test_limits_bind(tier: str, ground: Ground) -> None:
    policy = ground.policy(limits=Limits(file_bytes=1000, open_files=20))
    code = ATTEMPT + "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    code += (
        "print(attempt(lambda: put('f') or open('f', 'ab', 0).write(b'x' * 2000) == 2000 or 1 / 0))"
    )
    _, output = run_in(tier, ground, [sys.executable, "-c", code], policy)
    assert "ZeroDivisionError" in output or "EFBIG" in output, output
    assert os.path.getsize(ground.workspace + "/f") <= 1000
    _, output = run_in(tier, ground, ["/bin/sh", "-c", "ulimit -n; ulimit -c"], policy)
    assert output == "20\n0\n"


def test_many_runs_leave_no_descriptor_and_no_zombie(tier: str, ground: Ground) -> None:
    async def main(launcher: Launcher) -> None:
        plan = plan_for(tier, ground, ["/bin/true"])
        await run_plan(launcher, plan)
        await settled(launcher)
        before = open_descriptors(launcher)
        results = await asyncio.gather(*(run_plan(launcher, plan, 60) for _ in range(60)))
        assert {ended.code for ended, _ in results} == {0}
        await settled(launcher)
        assert children_of(launcher.zygote_pid) == []
        assert open_descriptors(launcher) == before

    with_launcher(main)  # type: ignore[arg-type]


def test_a_killed_zygote_is_replaced(tier: str, ground: Ground) -> None:
    async def main(launcher: Launcher) -> int:
        plan = plan_for(tier, ground, ["/bin/true"])
        await run_plan(launcher, plan)
        assert launcher.zygote_pid is not None
        os.kill(launcher.zygote_pid, 9)
        while launcher.zygote_pid is not None:
            await asyncio.sleep(0.01)
        ended, _ = await run_plan(launcher, plan)
        return ended.code

    assert with_launcher(main) == 0  # type: ignore[arg-type]


# ------------------------------------------------------------------ kernel tiers


OUTSIDE_ATTACKS = {
    "append": "put(P)",
    "create": "put(D + '/new')",
    "truncate": "os.truncate(P, 0)",
    "unlink": "os.unlink(P)",
    "rename_out": "os.rename(P, 'stolen')",
    "rename_in": "os.rename('mine', D + '/planted')",
    "link": "os.link(P, 'linked')",
    "mkdir": "os.mkdir(D + '/folder')",
    "symlink": "(os.symlink(P, 'way'), put('way'))",
    "dotdot": "put('../outside/file')",
    "proc_root": "put('/proc/self/root' + P)",
}


@pytest.mark.parametrize("attack", OUTSIDE_ATTACKS)
def test_nothing_outside_the_workspace_can_be_changed(
    kernel_tier: str, ground: Ground, attack: str
) -> None:
    code = ATTEMPT + f"put('mine'); P, D = {ground.outside + '/file'!r}, {ground.outside!r}\n"
    code += f"print(attempt(lambda: {OUTSIDE_ATTACKS[attack]}))"
    assert python_in(kernel_tier, ground, code) in ("EROFS", "EACCES", "EPERM", "EXDEV")
    assert os.listdir(ground.outside) == ["file"]
    assert read(ground.outside + "/file") == "outside\n"


def test_denied_files_give_nothing_away(kernel_tier: str, ground: Ground) -> None:
    code = ATTEMPT + f"H = {ground.home!r}\n"
    for path in ("/.ssh/id_rsa", "/.netrc"):
        code += f"print(attempt(lambda: open(H + {path!r}).read()))\n"
    code += "print(attempt(lambda: os.listdir(H + '/.ssh')))\n"
    answers = python_in(kernel_tier, ground, code).split("\n")
    assert set(answers) <= {"ENOENT", "EACCES"}, answers


def test_no_privilege_is_left(kernel_tier: str, ground: Ground) -> None:
    script = "grep -E 'NoNewPrivs|Seccomp:|CapEff|CapPrm|CapBnd|CapAmb' /proc/self/status"
    _, output = run_in(kernel_tier, ground, ["/bin/sh", "-c", script])
    found = dict(line.split(":\t") for line in output.splitlines())
    nothing = "0000000000000000"
    bounding = found.pop("CapBnd")
    assert found == {
        "CapPrm": nothing,
        "CapEff": nothing,
        "CapAmb": nothing,
        "NoNewPrivs": "1",
        "Seccomp": "2",
    }
    if os.getuid() == 0 or kernel_tier in ("namespaces", "bubblewrap", BENEATH):
        assert bounding == nothing


KERNEL_ATTACKS = {
    "unshare": "os.unshare(0x10000000) if hasattr(os, 'unshare') else syscall(272, 0x10000000)",
    "clone3": "syscall(435, 0, 0)",
    "mount": "syscall(165, b'none', b'/mnt', b'tmpfs', 0, 0)",
    "setns": "syscall(308, 0, 0)",
    "pivot_root": "syscall(155, b'.', b'.')",
    "io_uring": "syscall(425, 1, 0)",
    "bpf": "syscall(321, 0, 0, 0)",
    "perf": "syscall(298, 0, 0, 0, 0, 0)",
    "userfaultfd": "syscall(323, 0)",
    "add_key": "syscall(248, b'user', b'x', b'y', 1, -4)",
    "keyctl": "syscall(250, 0, -3, 0)",
    "x32": "syscall(0x40000000 + 39)",
    "unix_datagram": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "unix_raw": "socket.socket(socket.AF_UNIX, socket.SOCK_RAW)",
    "unix_datagram_pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "vsock": "socket.socket(40)",
    "packet": "socket.socket(17)",
    "setuid_bit": "(put('p'), os.chmod('p', 0o4755))",
    "setgid_bit": "(put('p'), os.chmod('p', 0o2755))",
    "setuid_create": "os.open('q', os.O_CREAT | os.O_WRONLY, 0o4755)",
    "tiocsti": "__import__('fcntl').ioctl(0, 0x5412, b'x')",
}


@pytest.mark.parametrize("attack", KERNEL_ATTACKS)
def test_dangerous_calls_are_refused(kernel_tier: str, ground: Ground, attack: str) -> None:
    if os.uname().machine != "x86_64" and "syscall" in KERNEL_ATTACKS[attack]:
        pytest.fail("write the numbers of this architecture into KERNEL_ATTACKS")
    code = ATTEMPT + f"print(attempt(lambda: {KERNEL_ATTACKS[attack]}))"
    assert python_in(kernel_tier, ground, code) in ("EPERM", "ENOSYS", "ESRCH")


@pytest.mark.parametrize(
    "code",
    [
        "a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'",
        "m, s = os.openpty(); assert os.isatty(s); os.ttyname(s)",
        "open('/dev/null', 'w').write('x'); assert open('/dev/urandom', 'rb').read(4)",
        "import threading; t = threading.Thread(target=print); t.start(); t.join()",
        "assert os.fork() == 0 or os.wait()[1] == 0",
        "import subprocess; assert subprocess.run(['sh', '-c', 'echo a | cat'], capture_output=True).stdout == b'a\\n'",
        "from multiprocessing import Pool, Semaphore; Semaphore()",
        "put('exe'); os.chmod('exe', 0o755)",
    ],
)
def test_ordinary_work_is_not_in_the_way(kernel_tier: str, ground: Ground, code: str) -> None:
    assert run_in(kernel_tier, ground, [sys.executable, "-c", ATTEMPT + code])[0].code == 0


def test_network_off_reaches_nothing(kernel_tier: str, ground: Ground) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = (
            ATTEMPT
            + f"""
def fastopen():
    s = socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1', {port}))
print(attempt(lambda: socket.create_connection(('127.0.0.1', {port}), 2)))
print(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))))
print(attempt(fastopen))
print(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(('127.0.0.1', {port}))))
"""
        )
        answers = python_in(kernel_tier, ground, code, ground.policy(NetworkMode.OFF)).split("\n")
        assert set(answers) <= {
            "ECONNREFUSED",
            "ENETUNREACH",
            "EPERM",
            "EPROTONOSUPPORT",
            "ENOPROTOOPT",
        }, answers
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


# ------------------------------------------------------------------ looking at the host


def processes_named(cmdline: str) -> list[int]:
    """Pids whose command line starts so (NUL after each argument)."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="replace") as file:
                if file.read().startswith(cmdline):
                    found.append(int(name))
        except OSError:
            continue
    return found


async def settled(launcher: Launcher) -> None:
    """Wait until the inits of finished runs have left; an AssertionError when one stays."""
    for _ in range(500):
        if launcher.running == 0:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{launcher.running} inits are still there")


def open_descriptors(launcher: Launcher) -> list[int]:
    """Of this process, and of the zygote where we may look (it is not dumpable: root may)."""
    pids = [os.getpid(), *([launcher.zygote_pid] if os.getuid() == 0 else [])]
    return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]


def children_of(pid: int | None) -> list[str]:
    return read(f"/proc/{pid}/task/{pid}/children").split()


def eventually(is_true: object, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if is_true():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False
