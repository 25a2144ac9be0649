"""The seccomp filter, assembled in place from `profiles/seccomp.yaml`.

Hand assembly takes microseconds where importing a binding takes 70 ms. Each denied call has one
block of checks that ends in an answer; a binary search over the numbers leads to it. The search
is not there for the running program (since Linux 5.11 the kernel skips the filter for calls that
it always allows) but for the installation, which tries the filter on every call number: a linear
list of the same blocks costs each run 1 ms more. Another architecture's calls kill the process;
x32 numbers answer ENOSYS. Sources: seccomp(2), linux/filter.h, linux/seccomp.h.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from sandboxd.confine import syscalls

LOAD, AND, JUMP, JEQ, JGE, JSET, RET = 0x20, 0x54, 0x05, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERRNO, NOTIFY = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
NR_OFFSET, ARCH_OFFSET, ARGS_OFFSET = 0, 4, 16
X32_BIT = 0x40000000
LEAF = 3
"""Blocks that are looked through one by one at the end of the search."""

NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. In clone(2) the low
byte is the exit signal, and 0x80 there is no signal that exists."""
SETID_MODES = 0o6000
CREATING = 0o100 | 0o20000000
"""O_CREAT and the own bit of O_TMPFILE: only then does open(2) look at its mode."""
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_STREAM, SOCK_SEQPACKET, SOCK_TYPE_MASK = 1, 5, 0xF
CONNECT_SECRET = (0x5EC0C0DE, 0x5EC0C0DF)
"""Stand where each run's init puts random words of its own: connect(2) takes only the low halves
of its descriptor and length, and a call whose high halves hold the words is init's own."""

Instruction = tuple[int, int, int, int]


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of profiles/seccomp.yaml."""

    name: str
    reason: str
    answer: Literal["EPERM", "ENOSYS"]
    calls: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    only: Literal["no_pid_namespace"] | None = None


class Filter:
    """Collects one block for each call number of an architecture, then assembles the search."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.blocks: dict[int, list[Instruction]] = {}

    def block(self, name: str, body: list[Instruction]) -> None:
        """`if nr == name: body`; what the body lets through is allowed."""
        number = syscalls.number(name, self.machine)
        if number is not None:
            self.blocks[number] = body if body[-1] == _ALLOW else [*body, _ALLOW]

    def deny(self, name: str, answer: int) -> None:
        self.block(name, [_errno(answer)])

    def deny_bits(self, name: str, argument: int, bits: int, answer: int) -> None:
        """Deny when any of `bits` is set in the low word of an argument."""
        self.block(name, [_load(argument), (JSET, 0, 1, bits), _errno(answer)])

    def deny_bits_when(
        self, name: str, flags: tuple[int, int], mode: tuple[int, int], answer: int
    ) -> None:
        """Deny when argument `mode[0]` has bits `mode[1]` and argument `flags[0]` has `flags[1]`."""
        self.block(
            name,
            [
                _load(flags[0]),
                (JSET, 0, 3, flags[1]),
                _load(mode[0]),
                (JSET, 0, 1, mode[1]),
                _errno(answer),
            ],
        )

    def deny_values(self, name: str, argument: int, values: Iterable[int], answer: int) -> None:
        """Deny when the low word of an argument is one of `values`."""
        checks: list[Instruction] = [_load(argument)]
        for value in values:
            checks += [(JEQ, 0, 1, value), _errno(answer)]
        self.block(name, checks)

    def allow_only(self, name: str, argument: int, values: Iterable[int], answer: int) -> None:
        """Deny unless the low word of an argument is one of `values`."""
        self.block(name, [_load(argument), *_one_of([*values], answer)])

    def assemble(self) -> bytes:
        code: list[Instruction] = [
            (LOAD, 0, 0, ARCH_OFFSET),
            (JEQ, 1, 0, syscalls.AUDIT_ARCH[syscalls.ARCHITECTURES[self.machine]]),
            (RET, 0, 0, KILL),
            (LOAD, 0, 0, NR_OFFSET),
        ]
        if self.machine == "x86_64":
            code += [(JGE, 0, 1, X32_BIT), _errno(errno.ENOSYS)]
        code += _search(sorted(self.blocks.items()))
        return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _search(blocks: list[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Code that ends in a RET whatever the number is."""
    if len(blocks) <= LEAF:
        code: list[Instruction] = []
        for number, body in blocks:
            code += [(JEQ, 0, len(body), number), *body]
        return [*code, _ALLOW]
    middle = len(blocks) // 2
    left, right = _search(blocks[:middle]), _search(blocks[middle:])
    pivot = blocks[middle][0]
    if len(left) <= 255:
        return [(JGE, len(left), 0, pivot), *left, *right]
    return [(JGE, 0, 1, pivot), (JUMP, 0, 0, len(left)), *left, *right]


def _one_of(values: list[int], answer: int) -> list[Instruction]:
    """Deny unless the accumulator is one of `values`."""
    checks: list[Instruction] = [
        (JEQ, len(values) - place, 0, value) for place, value in enumerate(values)
    ]
    return [*checks, _errno(answer), _ALLOW]


_ALLOW: Instruction = (RET, 0, 0, ALLOW)


def _errno(answer: int) -> Instruction:
    return (RET, 0, 0, ERRNO | answer)


def _load(argument: int) -> Instruction:
    """Load the low 32 bits of argument n (both architectures are little-endian)."""
    return (LOAD, 0, 0, ARGS_OFFSET + 8 * argument)


def _load_high(argument: int) -> Instruction:
    """Load the high 32 bits of argument n."""
    return (LOAD, 0, 0, ARGS_OFFSET + 8 * argument + 4)


AND_TYPE: Instruction = (AND, 0, 0, SOCK_TYPE_MASK)
"""Takes SOCK_CLOEXEC and SOCK_NONBLOCK off the type."""


class Sockets(msgspec.Struct, frozen=True, kw_only=True):
    """Which sockets a run may make."""

    internet: bool
    """False where network `off` has no network namespace behind it."""
    unix: bool
    """Unix stream sockets, with connect(2) performed by init."""


def assemble(
    groups: Iterable[Group], machine: str, *, has_pid_namespace: bool, sockets: Sockets
) -> bytes:
    """The filter as an array of struct sock_filter."""
    made = Filter(machine)
    for group in groups:
        if group.only == "no_pid_namespace" and has_pid_namespace:
            continue
        answer = getattr(errno, group.answer)
        for name in group.calls:
            made.deny(name, answer)
        for name in group.masked:
            made.deny_bits(name, 0, NAMESPACE_FLAGS, answer)
        for special in group.special:
            _SPECIAL[special](made, answer, sockets)
    return made.assemble()


def _setuid_modes(made: Filter, answer: int, _: Sockets) -> None:
    for name, argument in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)):
        made.deny_bits(name, argument, SETID_MODES, answer)
    for name, argument in (("creat", 1), ("mknod", 1), ("mknodat", 2)):
        made.deny_bits(name, argument, SETID_MODES, answer)
    made.deny_bits_when("open", (1, CREATING), (2, SETID_MODES), answer)
    made.deny_bits_when("openat", (2, CREATING), (3, SETID_MODES), answer)


def _terminal_injection(made: Filter, answer: int, _: Sockets) -> None:
    made.deny_values("ioctl", 1, (TIOCSTI, TIOCLINUX), answer)


def _socket_families(made: Filter, answer: int, sockets: Sockets) -> None:
    """socket(2) by family. A Unix datagram socket is never made, not by socketpair(2) either: its
    sendto(2) carries an address, which nobody would check. SOCK_RAW is a datagram there too."""
    types = [AND_TYPE, *_one_of([SOCK_STREAM, SOCK_SEQPACKET], answer)]
    families = [AF_INET, AF_INET6, AF_NETLINK] if sockets.internet else []
    unix = [_load(1), *types] if sockets.unix else [_errno(answer)]
    made.block(
        "socket", [_load(0), (JEQ, 0, len(unix), AF_UNIX), *unix, *_one_of(families, answer)]
    )
    made.block("socketpair", [_load(1), *types])


def _supervised_connect(made: Filter, answer: int, sockets: Sockets) -> None:
    """connect(2) waits for init, which performs it on the run's own socket; init's own pass."""
    if not sockets.unix:
        return
    length, descriptor = CONNECT_SECRET
    ask: Instruction = (RET, 0, 0, NOTIFY)
    made.block(
        "connect",
        [
            _load_high(2),
            (JEQ, 1, 0, length),
            ask,
            _load_high(0),
            (JEQ, 1, 0, descriptor),
            ask,
            _ALLOW,
        ],
    )


def _own_process_only(made: Filter, answer: int, _: Sockets) -> None:
    for name in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam"):
        made.allow_only(name, 0, (0,), answer)
    for name in ("sched_setattr", "migrate_pages", "move_pages"):
        made.allow_only(name, 0, (0,), answer)
    for name in ("setpriority", "ioprio_set"):
        made.allow_only(name, 1, (0,), answer)


_SPECIAL: dict[str, Callable[[Filter, int, Sockets], None]] = {
    "setuid_modes": _setuid_modes,
    "terminal_injection": _terminal_injection,
    "socket_families": _socket_families,
    "supervised_connect": _supervised_connect,
    "own_process_only": _own_process_only,
}
