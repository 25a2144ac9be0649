"""System call numbers that the filter needs, for x86_64 and aarch64.

Facts from the kernel's tables (arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h). None: the architecture has no such call.
"""

from __future__ import annotations

NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "open": (2, None),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "connect": (42, 203),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "creat": (85, None),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "syslog": (103, 116),
    "mknod": (133, None),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "vhangup": (153, 58),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "nfsservctl": (180, 42),
    "sched_setaffinity": (203, 122),
    "lookup_dcookie": (212, 18),
    "clock_settime": (227, 112),
    "kexec_load": (246, 104),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "openat": (257, 56),
    "mknodat": (259, 33),
    "fchmodat": (268, 53),
    "unshare": (272, 97),
    "move_pages": (279, 239),
    "perf_event_open": (298, 241),
    "prlimit64": (302, 261),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    "finit_module": (313, 273),
    "sched_setattr": (314, 274),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "clone3": (435, 435),
    "openat2": (437, 437),
    "mount_setattr": (442, 442),
    "quotactl_fd": (443, 443),
    "fchmodat2": (452, 452),
    "open_tree_attr": (467, 467),
}

ARCHITECTURES = {"x86_64": 0, "aarch64": 1, "arm64": 1}
"""Machine name to column."""

AUDIT_ARCH = (0xC000003E, 0xC00000B7)
"""linux/audit.h: AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64."""


def number(name: str, machine: str) -> int | None:
    """The number of the call `name` on `machine`; None when it has none. KeyError: not listed."""
    return NUMBERS[name][ARCHITECTURES[machine]]
