"""Our filter, interpreted: call by call on both architectures, and against libseccomp's compiler."""

from __future__ import annotations

import errno
import os
import platform
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.confine import syscalls
from sandboxd.confine.seccomp import CONNECT_SECRET, Sockets, assemble
from sandboxd.confine.tier import filter_groups, filter_program
from tests.confine import bpf

MACHINES = ("x86_64", "aarch64")
EVERYTHING = Sockets(internet=True, unix=True)
EPERM, ENOSYS = bpf.ERRNO | errno.EPERM, bpf.ERRNO | errno.ENOSYS
ALLOW, NOTIFY = bpf.ALLOW, bpf.NOTIFY


def program(machine: str, *, pids: bool = True, sockets: Sockets = EVERYTHING) -> bytes:
    return assemble(filter_groups(), machine, has_pid_namespace=pids, sockets=sockets)


def answer(
    machine: str,
    call: str | int,
    *arguments: int,
    pids: bool = True,
    sockets: Sockets = EVERYTHING,
) -> int | None:
    """What the filter says; None when the architecture has no such call."""
    number = call if isinstance(call, int) else NUMBERS.get(call, {}).get(machine)
    if isinstance(call, str) and number is None:
        number = syscalls.number(call, machine)
    if number is None:
        return None
    made = program(machine, pids=pids, sockets=sockets)
    return bpf.run(made, bpf.seccomp_data(number, bpf.ARCHITECTURES[machine], arguments))


NUMBERS = {  # ordinary calls, which the filter does not name
    "read": {"x86_64": 0, "aarch64": 63},
    "write": {"x86_64": 1, "aarch64": 64},
    "mmap": {"x86_64": 9, "aarch64": 222},
    "execve": {"x86_64": 59, "aarch64": 221},
    "getpid": {"x86_64": 39, "aarch64": 172},
    "bind": {"x86_64": 49, "aarch64": 200},
    "futex": {"x86_64": 202, "aarch64": 98},
    "ptrace": {"x86_64": 101, "aarch64": 117},
    "newfstatat": {"x86_64": 262, "aarch64": 79},
    "landlock_restrict_self": {"x86_64": 446, "aarch64": 446},
    "not assigned yet": {"x86_64": 999, "aarch64": 999},
}
AT_FDCWD = -100
O_CREAT, O_WRONLY, O_TMPFILE = 0o100, 0o1, 0o20200000
SIGCHLD = 17
NEWUSER, NEWNET, NEWTIME, CLONE_VM = 0x10000000, 0x40000000, 0x80, 0x100
STREAM, DGRAM, RAW, SEQPACKET, CLOEXEC = 1, 2, 3, 5, 0o2000000
HIGH = 1 << 32

EXPECTED: list[tuple[str, tuple[int, ...], int]] = [
    *((name, (), ALLOW) for name in NUMBERS),
    ("mount", (), EPERM),
    ("umount2", (), EPERM),
    ("pivot_root", (), EPERM),
    ("setns", (), EPERM),
    ("open_tree", (), EPERM),
    ("open_tree_attr", (), EPERM),
    ("unshare", (0,), ALLOW),
    ("unshare", (0x400,), ALLOW),  # CLONE_FILES: threads use it
    ("unshare", (NEWUSER,), EPERM),
    ("unshare", (NEWTIME,), EPERM),
    ("unshare", (HIGH | NEWUSER,), EPERM),
    ("clone", (SIGCHLD,), ALLOW),
    ("clone", (CLONE_VM | 0x4000 | SIGCHLD,), ALLOW),
    ("clone", (NEWUSER | SIGCHLD,), EPERM),
    ("clone", (NEWNET | SIGCHLD,), EPERM),
    ("clone3", (), ENOSYS),
    ("openat2", (), ENOSYS),
    ("io_uring_setup", (), EPERM),
    ("io_uring_enter", (), EPERM),
    ("add_key", (), EPERM),
    ("keyctl", (), EPERM),
    ("bpf", (), EPERM),
    ("userfaultfd", (), EPERM),
    ("perf_event_open", (), EPERM),
    ("open_by_handle_at", (), EPERM),
    ("chmod", (0, 0o755), ALLOW),
    ("chmod", (0, 0o1777), ALLOW),
    ("chmod", (0, 0o4755), EPERM),
    ("fchmod", (0, 0o2755), EPERM),
    ("fchmodat", (AT_FDCWD, 0, 0o4000), EPERM),
    ("fchmodat2", (AT_FDCWD, 0, 0o6755), EPERM),
    ("fchmodat2", (AT_FDCWD, 0, 0o755), ALLOW),
    ("creat", (0, 0o4755), EPERM),
    ("mknodat", (AT_FDCWD, 0, 0o104755), EPERM),
    ("mknodat", (AT_FDCWD, 0, 0o010644), ALLOW),  # a FIFO
    ("open", (0, O_WRONLY, 0o4755), ALLOW),  # the mode counts only when it creates
    ("open", (0, O_WRONLY | O_CREAT, 0o4755), EPERM),
    ("openat", (AT_FDCWD, 0, O_WRONLY | O_CREAT, 0o644), ALLOW),
    ("openat", (AT_FDCWD, 0, O_WRONLY | O_CREAT, 0o2755), EPERM),
    ("openat", (AT_FDCWD, 0, O_WRONLY | O_TMPFILE, 0o4755), EPERM),
    ("ioctl", (0, 0x5401), ALLOW),  # TCGETS
    ("ioctl", (0, 0x5412), EPERM),  # TIOCSTI
    ("ioctl", (0, 0x541C), EPERM),  # TIOCLINUX
    ("ioctl", (0, HIGH | 0x5412), EPERM),  # the kernel looks at the low word only
    ("socket", (2, STREAM, 0), ALLOW),
    ("socket", (10, DGRAM, 0), ALLOW),
    ("socket", (16, RAW, 0), ALLOW),  # netlink: node's list of interfaces
    ("socket", (17, RAW, 0), EPERM),  # packet
    ("socket", (40, STREAM, 0), EPERM),  # vsock
    ("socket", (38, SEQPACKET, 0), EPERM),  # alg
    ("socket", (1, STREAM, 0), ALLOW),
    ("socket", (1, STREAM | CLOEXEC, 0), ALLOW),
    ("socket", (1, SEQPACKET, 0), ALLOW),
    ("socket", (1, DGRAM, 0), EPERM),
    ("socket", (1, RAW, 0), EPERM),  # a datagram socket by another name
    ("socketpair", (1, STREAM, 0), ALLOW),
    ("socketpair", (1, DGRAM | CLOEXEC, 0), EPERM),
    ("connect", (3, 0, 16), NOTIFY),
    ("prlimit64", (4711, 0, 0, 0), ALLOW),  # another process is not there to be named
]
NO_UNIX = Sockets(internet=True, unix=False)
NOTHING = Sockets(internet=False, unix=False)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("call", "arguments", "expected"), EXPECTED)
def test_call_by_call(machine: str, call: str, arguments: tuple[int, ...], expected: int) -> None:
    assert answer(machine, call, *arguments) in (expected, None)


def test_what_only_x86_64_has_is_none_on_aarch64_and_nothing_else_is_passed_over() -> None:
    missing = {
        call for call, arguments, _ in EXPECTED if answer("aarch64", call, *arguments) is None
    }
    assert missing == {"open", "chmod", "creat"}
    assert not [
        call for call, arguments, _ in EXPECTED if answer("x86_64", call, *arguments) is None
    ]


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_follow_what_the_tier_can_supervise(machine: str) -> None:
    def said(sockets: Sockets, call: str, *arguments: int) -> int | None:
        return answer(machine, call, *arguments, sockets=sockets)

    assert said(NO_UNIX, "socket", 1, STREAM, 0) == EPERM
    assert said(NO_UNIX, "socket", 2, STREAM, 0) == ALLOW
    assert said(NO_UNIX, "connect", 3, 0, 16) == ALLOW
    assert said(NOTHING, "socket", 2, STREAM, 0) == EPERM
    assert said(NOTHING, "socketpair", 1, STREAM, 0) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_inits_own_connect_is_known_by_both_its_secret_words(machine: str) -> None:
    length, descriptor = CONNECT_SECRET
    own = (descriptor << 32 | 3, 0, length << 32 | 16)
    assert answer(machine, "connect", *own) == ALLOW
    assert answer(machine, "connect", 3, 0, own[2]) == NOTIFY
    assert answer(machine, "connect", own[0], 0, 16) == NOTIFY


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("call", "own", "other"),
    [
        ("prlimit64", (0, 1), (4711, 1)),
        ("sched_setaffinity", (0,), (4711,)),
        ("setpriority", (0, 0, 5), (0, 4711, 5)),
        ("ioprio_set", (1, 0), (1, 4711)),
        ("migrate_pages", (0,), (4711,)),
    ],
)
def test_other_processes_are_out_of_reach_where_their_ids_are_shared(
    machine: str, call: str, own: tuple[int, ...], other: tuple[int, ...]
) -> None:
    assert answer(machine, call, *own, pids=False) == ALLOW
    assert answer(machine, call, *other, pids=False) == EPERM
    assert answer(machine, call, *other, pids=True) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_architecture_kill(machine: str) -> None:
    foreign = {"x86_64": 0x40000003, "aarch64": 0x40000028}[machine]  # i386, 32-bit ARM
    made = program(machine)
    for number in range(500):
        assert bpf.run(made, bpf.seccomp_data(number, foreign)) == bpf.KILL_PROCESS


def test_x32_numbers_are_unknown_calls() -> None:
    for number in (*range(0x40000000, 0x40000220), 0xFFFFFFFF):
        assert answer("x86_64", number) == ENOSYS


# ------------------------------------------------------------------ libseccomp as oracle


NEWEST = {"open_tree_attr", "quotactl_fd", "fchmodat2"}
"""Calls that a library of 2022 does not know yet."""


def plain_rules(machine: str) -> dict[str, int]:
    """Name to errno of every call that a group denies whatever its arguments are."""
    found = {}
    for group in filter_groups():
        for name in group.calls:
            number = syscalls.number(name, machine)
            if number is not None:
                found[name] = getattr(errno, group.answer)
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_plain_rules_are_those_that_libseccomp_compiles(machine: str) -> None:
    oracle = bpf.Oracle(machine)
    rules = plain_rules(machine)
    assert len(rules) > 40
    unknown = {name for name, error in rules.items() if not oracle.deny(name, error)}
    assert unknown <= NEWEST
    theirs, ours = oracle.program(), program(machine)
    looked_at = {
        syscalls.number(name, machine)
        for name in (syscalls.NUMBERS.keys() - rules.keys()) | unknown
    }
    for number in range(600):
        if number in looked_at:
            continue  # decided by arguments: the list above
        data = bpf.seccomp_data(number, bpf.ARCHITECTURES[machine])
        assert bpf.run(ours, data) == bpf.run(theirs, data), number
    foreign = bpf.seccomp_data(0, 0x40000003)
    assert bpf.run(ours, foreign) == bpf.run(theirs, foreign)


@pytest.mark.parametrize("machine", MACHINES)
def test_our_numbers_are_those_of_libseccomp(machine: str) -> None:
    oracle = bpf.Oracle(machine)
    for name in syscalls.NUMBERS:
        theirs, ours = oracle.number(name), syscalls.number(name, machine)
        if theirs == bpf.UNKNOWN and name in NEWEST:
            continue  # newer than the library
        assert (ours if ours is not None else -1) == max(theirs, -1), name


# ------------------------------------------------------------------ the table


def test_every_group_has_a_name_of_its_own_and_a_reason() -> None:
    groups = filter_groups()
    assert len({group.name for group in groups}) == len(groups)
    for group in groups:
        assert len(group.reason.split()) >= 5, group.name
        assert group.calls or group.masked or group.special, group.name


def test_no_call_is_denied_by_two_groups_and_every_number_is_used() -> None:
    named = [name for group in filter_groups() for name in (*group.calls, *group.masked)]
    assert len(named) == len(set(named))
    assert set(named) <= syscalls.NUMBERS.keys()


@pytest.mark.parametrize("machine", MACHINES)
@given(st.integers(0, 0xFFFFFFFF), st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_the_filter_always_ends_in_one_of_its_answers(
    machine: str, number: int, arguments: list[int]
) -> None:
    said = bpf.run(
        program(machine), bpf.seccomp_data(number, bpf.ARCHITECTURES[machine], arguments)
    )
    assert said in (ALLOW, EPERM, ENOSYS, NOTIFY)


def test_every_form_of_the_filter_fits_the_kernel() -> None:
    for machine, pids, internet, unix in product(MACHINES, *[(True, False)] * 3):
        made = program(machine, pids=pids, sockets=Sockets(internet=internet, unix=unix))
        assert len(made) // 8 <= bpf.MAX_INSTRUCTIONS


def test_this_machine_has_a_filter() -> None:
    assert os.uname().machine == platform.machine()
    assert filter_program(True, True, False) is not None
