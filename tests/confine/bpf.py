"""The classic BPF machine as seccomp runs it, and libseccomp's own compiler as an oracle.

Written from seccomp(2) and Documentation/networking/filter.rst, not from our assembler: it knows
every instruction that seccomp permits and that either side emits, and fails on any other.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
import tempfile
from collections.abc import Sequence

ALLOW, KILL_PROCESS, ERRNO, NOTIFY = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
UNKNOWN = -1
"""libseccomp's number for a name it does not know."""
MASK = 0xFFFFFFFF
MAX_INSTRUCTIONS = 4096
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def seccomp_data(number: int, architecture: int, arguments: Sequence[int] = ()) -> bytes:
    """struct seccomp_data: number, architecture, instruction pointer, six arguments."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    wide = [value & 0xFFFFFFFFFFFFFFFF for value in padded]
    return struct.pack("<IIQ6Q", number & MASK, architecture, 0, *wide)


def run(program: bytes, data: bytes) -> int:
    """The program's answer for one call."""
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    assert 0 < len(code) <= MAX_INSTRUCTIONS
    accumulator, place = 0, 0
    while True:
        operation, when_true, when_false, value = code[place]
        place += 1
        if operation == 0x20:  # LD W ABS
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:  # ALU AND K
            accumulator &= value
        elif operation == 0x05:  # JMP JA
            place += value
        elif operation in _JUMPS:
            place += when_true if _JUMPS[operation](accumulator, value) else when_false
        elif operation == 0x06:  # RET K
            return value
        else:
            raise AssertionError(f"no such instruction: {operation:#x}")


_JUMPS = {
    0x15: lambda a, k: a == k,
    0x25: lambda a, k: a > k,
    0x35: lambda a, k: a >= k,
    0x45: lambda a, k: bool(a & k),
}


class Oracle:
    """libseccomp: a filter that allows all but the calls it is given, for one architecture."""

    NATIVE = 0
    ATTRIBUTE_BAD_ARCHITECTURE = 2  # SCMP_FLTATR_ACT_BADARCH

    def __init__(self, machine: str) -> None:
        name = ctypes.util.find_library("seccomp")
        assert name is not None, "libseccomp is needed as an oracle (Debian: libseccomp2)"
        self.library = ctypes.CDLL(name, use_errno=True)
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.library.seccomp_init.argtypes = [ctypes.c_uint32]
        self.token = ARCHITECTURES[machine]
        self.context = ctypes.c_void_p(self.library.seccomp_init(ALLOW))
        self.library.seccomp_attr_set(
            self.context, self.ATTRIBUTE_BAD_ARCHITECTURE, ctypes.c_uint32(KILL_PROCESS)
        )
        if not self.is_native():
            self._must(self.library.seccomp_arch_remove(self.context, self.NATIVE))
            self._must(self.library.seccomp_arch_add(self.context, ctypes.c_uint32(self.token)))

    def is_native(self) -> bool:
        self.library.seccomp_arch_native.restype = ctypes.c_uint32
        return bool(self.library.seccomp_arch_native() == self.token)

    def number(self, call: str) -> int:
        """The call's number as libseccomp knows it; negative when the architecture has none."""
        resolve = self.library.seccomp_syscall_resolve_name_arch
        return int(resolve(ctypes.c_uint32(self.token), call.encode()))

    def deny(self, call: str, answer: int) -> bool:
        """Add the rule; False when the library is too old to know the call. Rules are given by the
        numbers of the machine we run on, whatever architecture they are for."""
        number = int(self.library.seccomp_syscall_resolve_name(call.encode()))
        if number == UNKNOWN:
            return False
        self._must(
            self.library.seccomp_rule_add(
                self.context, ctypes.c_uint32(ERRNO | answer), ctypes.c_int(number), 0
            )
        )
        return True

    def program(self) -> bytes:
        with tempfile.TemporaryFile() as file:
            self._must(self.library.seccomp_export_bpf(self.context, file.fileno()))
            file.seek(0)
            return file.read()

    @staticmethod
    def _must(result: int) -> None:
        assert result == 0, f"libseccomp said {result}"
