"""Ways to reach a process of the same user outside the run: the daemon, an editor, a browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.confined import ATTEMPT, REQUIRED_TIERS, VIEWED, Ground, make_ground, python_in, read

KERNEL = [name for name in REQUIRED_TIERS if name != "containment"]

ATTACKS = {
    "signal": "os.kill(V, 0)",
    "stop": "os.kill(V, 19)",
    "ptrace_seize": "syscall(101, 0x4206, V, 0, 0)",
    "read_memory": "open(f'/proc/{V}/mem', 'rb').read(1)",
    "read_environment": "open(f'/proc/{V}/environ', 'rb').read()",
    "walk_root": "os.listdir(f'/proc/{V}/root')",
    "walk_cwd": "os.listdir(f'/proc/{V}/cwd')",
    "open_descriptor": "os.open(f'/proc/{V}/fd/0', os.O_RDONLY)",
    "pidfd_getfd": "syscall(438, os.pidfd_open(V), 0, 0)",
    "process_vm_readv": "syscall(310, V, IOVEC, 1, IOVEC, 1, 0)",
    "prlimit": "syscall(302, V, 0, LIMIT, 0)",
    "affinity": "os.sched_setaffinity(V, {0})",
    "priority": "os.setpriority(os.PRIO_PROCESS, V, 19)",
}


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


@pytest.fixture
def victim() -> Iterator[int]:
    """A process of this user, with the secret in its environment."""
    code = "import time; print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={"SECRET": "canary-env"}
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("tier", KERNEL)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_process_outside_cannot_be_touched(
    tier: str, attack: str, ground: Ground, victim: int
) -> None:
    code = ATTEMPT + f"V = {victim}; LIMIT = (ctypes.c_ulong * 2)(1, 1)\n"
    code += "BUFFER = ctypes.create_string_buffer(8)\n"
    code += "IOVEC = (ctypes.c_ulong * 2)(ctypes.addressof(BUFFER), 8)\n"
    code += f"print(attempt(lambda: {ATTACKS[attack]}))"
    assert python_in(tier, ground, code) in ("ESRCH", "EPERM", "ENOENT", "EACCES")
    assert "(python" in read(f"/proc/{victim}/stat")
    assert read(f"/proc/{victim}/stat").rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("tier", VIEWED)
def test_the_hosts_processes_cannot_be_seen(tier: str, ground: Ground, victim: int) -> None:
    code = "import os; print(sum(name.isdigit() for name in os.listdir('/proc')))"
    assert int(python_in(tier, ground, code)) <= 3


@pytest.mark.parametrize("tier", VIEWED)
def test_the_status_of_a_run_cannot_be_forged_through_init(tier: str, ground: Ground) -> None:
    code = (
        ATTEMPT
        + """
init = os.pidfd_open(1)
for number in range(12):
    print(attempt(lambda: syscall(438, init, number, 0)))
print(attempt(lambda: open('/proc/1/mem', 'r+b')))
print(attempt(lambda: syscall(101, 0x4206, 1, 0, 0)))
"""
    )
    assert set(python_in(tier, ground, code).split()) <= {"EACCES", "EPERM"}


@pytest.mark.parametrize("tier", [name for name in KERNEL if name == "landlock"])
def test_init_beside_the_run_cannot_be_made_to_lie_either(tier: str, ground: Ground) -> None:
    """Without a pid namespace init is the program's parent, with the same user."""
    code = (
        ATTEMPT
        + """
parent = os.getppid()
init = os.pidfd_open(parent)
for number in range(12):
    print(attempt(lambda: syscall(438, init, number, 0)))
print(attempt(lambda: open(f'/proc/{parent}/mem', 'r+b')))
print(attempt(lambda: os.open(f'/proc/{parent}/fd/3', os.O_RDWR)))
print(attempt(lambda: syscall(101, 0x4206, parent, 0, 0)))
"""
    )
    assert set(python_in(tier, ground, code).split()) <= {"EACCES", "EPERM"}
