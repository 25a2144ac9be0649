"""The seccomp filter, assembled in place from `profiles/seccomp.yaml`.

Hand assembly takes microseconds where importing a binding takes 70 ms. The filter is a list of
blocks `if nr == N { checks; return answer }` that fall through to `allow`; since Linux 5.11 the
kernel skips it for calls it always allows, so its length costs nothing on hot calls. Another
architecture's calls kill the process; x32 numbers answer ENOSYS. Sources: seccomp(2),
linux/filter.h, linux/seccomp.h.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from typing import Literal

import msgspec

from sandboxd.confine import syscalls

LOAD, JEQ, JGE, JSET, RET = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NR_OFFSET, ARCH_OFFSET, ARGS_OFFSET = 0, 4, 16
X32_BIT = 0x40000000

NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. In clone(2) the low
byte is the exit signal, and 0x80 there is no signal that exists."""
SETID_MODES = 0o6000
CREATING = 0o100 | 0o20000000
"""O_CREAT and the own bit of O_TMPFILE: only then does open(2) look at its mode."""
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

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
    """Assembles blocks for one architecture."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.code: list[Instruction] = [
            (LOAD, 0, 0, ARCH_OFFSET),
            (JEQ, 1, 0, syscalls.AUDIT_ARCH[syscalls.ARCHITECTURES[machine]]),
            (RET, 0, 0, KILL),
            (LOAD, 0, 0, NR_OFFSET),
        ]
        if machine == "x86_64":
            self.code += [(JGE, 0, 1, X32_BIT), (RET, 0, 0, ERRNO | errno.ENOSYS)]

    def block(self, name: str, body: list[Instruction]) -> None:
        """`if nr == name: body`, then nr is loaded again for the next block."""
        number = syscalls.number(name, self.machine)
        if number is not None:
            reload = (LOAD, 0, 0, NR_OFFSET)
            self.code += [(JEQ, 0, len(body) + 1, number), *body, reload]

    def deny(self, name: str, answer: int) -> None:
        number = syscalls.number(name, self.machine)
        if number is not None:
            self.code += [(JEQ, 0, 1, number), (RET, 0, 0, ERRNO | answer)]

    def deny_bits(self, name: str, argument: int, bits: int, answer: int) -> None:
        """Deny when any of `bits` is set in the low word of an argument."""
        self.block(name, [_load(argument), (JSET, 0, 1, bits), (RET, 0, 0, ERRNO | answer)])

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
                (RET, 0, 0, ERRNO | answer),
            ],
        )

    def deny_values(self, name: str, argument: int, values: Iterable[int], answer: int) -> None:
        """Deny when the low word of an argument is one of `values`."""
        checks: list[Instruction] = [_load(argument)]
        for value in values:
            checks += [(JEQ, 0, 1, value), (RET, 0, 0, ERRNO | answer)]
        self.block(name, checks)

    def allow_only(self, name: str, argument: int, values: Iterable[int], answer: int) -> None:
        """Deny unless the low word of an argument is one of `values`."""
        allowed = [*values]
        checks: list[Instruction] = [_load(argument)]
        for place, value in enumerate(allowed):
            checks.append((JEQ, len(allowed) - place, 0, value))
        checks.append((RET, 0, 0, ERRNO | answer))
        self.block(name, checks)

    def assemble(self) -> bytes:
        code = [*self.code, (RET, 0, 0, ALLOW)]
        return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _load(argument: int) -> Instruction:
    """Load the low 32 bits of argument n (both architectures are little-endian)."""
    return (LOAD, 0, 0, ARGS_OFFSET + 8 * argument)


def assemble(
    groups: Iterable[Group], machine: str, *, has_pid_namespace: bool, allows_internet: bool
) -> bytes:
    """The filter as an array of struct sock_filter.

    `allows_internet` is false where network `off` has no network namespace behind it.
    """
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
            _SPECIAL[special](made, answer, allows_internet)
    return made.assemble()


def _setuid_modes(made: Filter, answer: int, _: bool) -> None:
    for name, argument in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)):
        made.deny_bits(name, argument, SETID_MODES, answer)
    for name, argument in (("creat", 1), ("mknod", 1), ("mknodat", 2)):
        made.deny_bits(name, argument, SETID_MODES, answer)
    made.deny_bits_when("open", (1, CREATING), (2, SETID_MODES), answer)
    made.deny_bits_when("openat", (2, CREATING), (3, SETID_MODES), answer)


def _terminal_injection(made: Filter, answer: int, _: bool) -> None:
    made.deny_values("ioctl", 1, (TIOCSTI, TIOCLINUX), answer)


def _socket_families(made: Filter, answer: int, allows_internet: bool) -> None:
    families = (AF_INET, AF_INET6, AF_NETLINK) if allows_internet else ()
    made.allow_only("socket", 0, families, answer)


def _own_process_only(made: Filter, answer: int, _: bool) -> None:
    for name in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam"):
        made.allow_only(name, 0, (0,), answer)
    for name in ("sched_setattr", "migrate_pages", "move_pages"):
        made.allow_only(name, 0, (0,), answer)
    for name in ("setpriority", "ioprio_set"):
        made.allow_only(name, 1, (0,), answer)


_SPECIAL = {
    "setuid_modes": _setuid_modes,
    "terminal_injection": _terminal_injection,
    "socket_families": _socket_families,
    "own_process_only": _own_process_only,
}
