"""Thin calls to Linux that Python lacks: mounts, Landlock, seccomp, capabilities, raw clone.

A module of its own because the zygote (`python -I -S`) and the daemon share it; it imports only
`ctypes`, `errno`, `os` and `struct`, and nothing of sandboxd. Every function raises OSError with the
kernel's errno. Numbers and layouts come from the kernel's uapi headers (linux/mount.h,
linux/landlock.h, linux/seccomp.h, linux/capability.h, linux/prctl.h) and the system call tables
of x86_64 and aarch64; system calls added since Linux 5.0 have one number on both.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

MACHINE = os.uname().machine
_IS_ARM = MACHINE in ("aarch64", "arm64")

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
NAMESPACE_FLAGS = {
    "user": CLONE_NEWUSER,
    "mount": CLONE_NEWNS,
    "pid": CLONE_NEWPID,
    "ipc": CLONE_NEWIPC,
    "uts": CLONE_NEWUTS,
    "net": CLONE_NEWNET,
}

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
MNT_DETACH = 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8

AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = 0x80000
MOVE_MOUNT_F_EMPTY_PATH = 0x04
MOVE_MOUNT_T_EMPTY_PATH = 0x40
O_PATH = 0x200000
RESOLVE_NO_XDEV = 1

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
SECBITS_NO_ROOT_LOCKED = 0b1111_1111 & ~0b0011_0000
"""SECBIT_NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE with their locks (capabilities(7))."""

_SYS_CLONE = 220 if _IS_ARM else 56
_SYS_CAPSET = 91 if _IS_ARM else 126
_SYS_SETRESUID = 147 if _IS_ARM else 117
_SYS_SETRESGID = 149 if _IS_ARM else 119
_SYS_UNSHARE = 97 if _IS_ARM else 272
_SYS_SETNS = 268 if _IS_ARM else 308
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_CLOSE_RANGE = 436
_SYS_OPENAT2 = 437
_SYS_MOUNT_SETATTR = 442
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_ADD_RULE = 445
_SYS_LANDLOCK_RESTRICT_SELF = 446

# PyDLL keeps the GIL: the zygote calls clone(2) through it and the child must own the GIL.
_libc = ctypes.PyDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.argtypes = [ctypes.c_long] + [ctypes.c_void_p] * 6
_syscall.restype = ctypes.c_long
_prctl = _libc.prctl
_prctl.argtypes = [ctypes.c_int] + [ctypes.c_void_p] * 4
_prctl.restype = ctypes.c_int

Pointer = int | bytes | None


def _call(number: int, *arguments: Pointer) -> int:
    padded = arguments + (0,) * (6 - len(arguments))
    result: int = _syscall(number, *padded)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def prctl(option: int, a: Pointer = 0, b: Pointer = 0, c: Pointer = 0, d: Pointer = 0) -> int:
    """prctl(2)."""
    result: int = _prctl(option, a, b, c, d)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def clone(flags: int) -> int:
    """clone(2) without a new stack, like fork(2): 0 in the child.

    Python's own fork handlers do not run; the caller must be single-threaded.
    """
    return _call(_SYS_CLONE, flags | 17)  # SIGCHLD


def setresuid(uid: int) -> None:
    """Become `uid` for good: real, effective and saved (this thread; we have only one)."""
    _call(_SYS_SETRESUID, uid, uid, uid)


def setresgid(gid: int) -> None:
    """Become group `gid` for good."""
    _call(_SYS_SETRESGID, gid, gid, gid)


def unshare(flags: int) -> None:
    """unshare(2)."""
    _call(_SYS_UNSHARE, flags)


def setns(fd: int, kind: int) -> None:
    """setns(2): enter the namespace behind `fd`, which must be of this kind (CLONE_NEW*)."""
    _call(_SYS_SETNS, fd, kind)


def close_from(first: int) -> None:
    """Close every descriptor from `first` up: close_range(2)."""
    _call(_SYS_CLOSE_RANGE, first, 0xFFFFFFFF, 0)


# --------------------------------------------------------------------------- mounts


def mount(
    source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None
) -> None:
    """mount(2)."""
    _call(40 if _IS_ARM else 165, source, target, kind, flags, data)


def unmount(target: bytes) -> None:
    """umount2(2) with MNT_DETACH."""
    _call(39 if _IS_ARM else 166, target, MNT_DETACH)


def open_tree(folder_fd: int, path: bytes) -> int:
    """A detached recursive copy of the mount tree at `path` (or of `folder_fd` when empty)."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | (0 if path else AT_EMPTY_PATH)
    return _call(_SYS_OPEN_TREE, folder_fd, path, flags)


def move_mount(tree_fd: int, target_fd: int, target: bytes) -> None:
    """Attach a detached tree at `target` (or at `target_fd` itself when the path is empty)."""
    flags = MOVE_MOUNT_F_EMPTY_PATH | (0 if target else MOVE_MOUNT_T_EMPTY_PATH)
    _call(_SYS_MOVE_MOUNT, tree_fd, b"", target_fd, target, flags)


def mount_setattr(
    folder_fd: int, path: bytes, *, set_: int = 0, clear: int = 0, recursive: bool = False
) -> None:
    """mount_setattr(2), Linux 5.12."""
    attributes = struct.pack("=QQQQ", set_, clear, 0, 0)
    flags = (AT_RECURSIVE if recursive else 0) | (0 if path else AT_EMPTY_PATH)
    _call(_SYS_MOUNT_SETATTR, folder_fd, path, flags, attributes, len(attributes))


def is_mount_point(folder_fd: int, name: bytes) -> bool:
    """Whether something is mounted on the name, the file's own file system included: openat2(2)
    with RESOLVE_NO_XDEV refuses to step onto it. Raises when the name is absent."""
    how = struct.pack("=QQQ", O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, 0, RESOLVE_NO_XDEV)
    try:
        fd = _call(_SYS_OPENAT2, folder_fd, name, how, len(how))
    except OSError as error:
        if error.errno == errno.EXDEV:
            return True
        raise
    os.close(fd)
    return False


# --------------------------------------------------------------------------- privileges


def drop_bounding_set() -> None:
    """No execve of this process gives a capability from now on; those it holds it keeps."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # EINVAL: past the last one this kernel knows; EPERM: we hold none to drop


def drop_capabilities() -> None:
    """Empty every other capability set and make uid 0 unable to regain one by execve
    (capabilities(7))."""
    try:
        prctl(PR_SET_SECUREBITS, SECBITS_NO_ROOT_LOCKED)
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError:
        pass  # without CAP_SETPCAP there is nothing to lock: the sets below are what counts
    header = struct.pack("=Ii", 0x20080522, 0)
    _call(_SYS_CAPSET, header, bytes(24))


def no_new_privs() -> None:
    """execve can never raise privileges again (PR_SET_NO_NEW_PRIVS)."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def is_confined() -> bool:
    """Whether this process lives under no_new_privs and a seccomp filter: somebody's sandbox."""
    with open("/proc/self/status", "rb", buffering=0) as file:
        lines = file.read().split(b"\n")
    return b"NoNewPrivs:\t1" in lines and b"Seccomp:\t2" in lines


def install_filter(program: bytes) -> None:
    """Install a seccomp filter: `program` is an array of struct sock_filter (8 bytes each)."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header)


_SYS_SECCOMP = 277 if _IS_ARM else 317
_SYS_CONNECT = 203 if _IS_ARM else 42
_SYS_PIDFD_OPEN = 434
_SYS_PIDFD_GETFD = 438
_SECCOMP_FILTER_FLAG_NEW_LISTENER = 8


def install_supervised_filter(program: bytes) -> int:
    """Install a filter and give back its listener (seccomp_unotify(2)); needs no_new_privs."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    return _call(_SYS_SECCOMP, 1, _SECCOMP_FILTER_FLAG_NEW_LISTENER, header)


def pidfd_open(pid: int) -> int:
    """pidfd_open(2)."""
    return _call(_SYS_PIDFD_OPEN, pid, 0)


def pidfd_getfd(pidfd: int, number: int) -> int:
    """A copy of another process's descriptor: pidfd_getfd(2); close-on-exec."""
    return _call(_SYS_PIDFD_GETFD, pidfd, number, 0)


def connect(fd: int, address: bytes, high_words: tuple[int, int]) -> None:
    """connect(2) with words of our own in the halves of the registers that it does not look at:
    (of the length, of the descriptor). Our filter lets such a call through."""
    of_length, of_fd = high_words
    _call(_SYS_CONNECT, _signed(of_fd << 32 | fd), address, _signed(of_length << 32 | len(address)))


def _signed(register: int) -> int:
    return register - (1 << 64) if register >> 63 else register


# --------------------------------------------------------------------------- Landlock

LANDLOCK_EXECUTE = 1 << 0
LANDLOCK_WRITE_FILE = 1 << 1
LANDLOCK_READ_FILE = 1 << 2
LANDLOCK_READ_DIR = 1 << 3
LANDLOCK_TRUNCATE = 1 << 14
LANDLOCK_IOCTL_DEV = 1 << 15
LANDLOCK_READ = LANDLOCK_EXECUTE | LANDLOCK_READ_FILE | LANDLOCK_READ_DIR
LANDLOCK_FILE_ONLY = (
    LANDLOCK_EXECUTE
    | LANDLOCK_WRITE_FILE
    | LANDLOCK_READ_FILE
    | LANDLOCK_TRUNCATE
    | LANDLOCK_IOCTL_DEV
)
"""The rights that make sense on a file; the kernel refuses the others there with EINVAL."""


def landlock_abi() -> int:
    """The kernel's Landlock ABI version; 0 when it has none or it is switched off."""
    try:
        return _call(_SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1)
    except OSError:
        return 0


def landlock_rights(abi: int) -> int:
    """Every file-system right that this ABI can handle."""
    if abi >= 5:
        return (1 << 16) - 1
    return {1: (1 << 13) - 1, 2: (1 << 14) - 1}.get(abi, (1 << 15) - 1)


def landlock_create(abi: int) -> int:
    """A new ruleset that handles all file rights and, from ABI 6, scopes signals and sockets."""
    attributes = struct.pack("=Q", landlock_rights(abi))
    if abi >= 4:
        attributes += struct.pack("=Q", 0)
    if abi >= 6:
        attributes += struct.pack("=Q", 3)
    return _call(_SYS_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)


def landlock_allow(ruleset: int, path_fd: int, rights: int) -> None:
    """Grant `rights` beneath the file or folder `path_fd` (opened with O_PATH)."""
    _call(_SYS_LANDLOCK_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, path_fd), 0)


def landlock_restrict(ruleset: int) -> None:
    """Enforce the ruleset on this thread and what it starts; needs no_new_privs."""
    _call(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
