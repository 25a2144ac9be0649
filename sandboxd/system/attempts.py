"""The attacks and the ordinary work that `sandboxd verify` tries inside a tier. Stand-alone.

Run as `python -I -c THIS_TEXT JSON` within a run: only the standard library may be imported and
nothing of sandboxd. Each `try_NAME` is one row of profiles/probes.yaml and is tried in a process
of its own, so that one that succeeds cannot help the next. It returns when it got through, raises
OSError when it was stopped, `Skipped` when it would harm the host or the host cannot tell.

Every victim (files, process, sockets, terminal) was made by the verifier and is named in the JSON.
This file is long because its whole text is handed to an interpreter inside the run.
PTRACE_SEIZE and never PTRACE_ATTACH: attaching stops the victim. Numbers of system calls: the
kernel's tables; those above 424 are the same on every architecture.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import resource
import select
import signal
import socket
import sys
import termios
import time
from collections.abc import Callable, Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    Facts = dict[str, str | int | bool]

LIMIT_S = 3
IS_ARM = os.uname().machine in ("aarch64", "arm64")
_libc = ctypes.CDLL(None, use_errno=True)

CALLS = {  # name: (x86_64, aarch64)
    "ptrace": (101, 117),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "mount": (165, 40),
    "sethostname": (170, 161),
    "setxattr": (188, 5),
    "sched_setaffinity": (203, 122),
    "sched_getaffinity": (204, 123),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "perf_event_open": (298, 241),
    "prlimit64": (302, 261),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
}
CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000
MSG_FASTOPEN, IPPROTO_MPTCP, AF_PACKET, AF_VSOCK = 0x20000000, 262, 17, 40
PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17
X32_BIT = 0x40000000

HOST_DEVICES = ("kvm", "fuse", "net/tun", "mem", "vda", "sda", "nvme0n1", "dm-0", "loop-control")


class Skipped(Exception):
    """Not tried, and why."""


def syscall(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_ulong]) -> int:
    passed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *passed)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_ulong]) -> int:
    return syscall(CALLS[name][IS_ARM], *arguments)


def reaches_the_kernel(number: int, *arguments: int) -> None:
    """Senseless arguments: EINVAL or EFAULT mean that the call itself is not refused."""
    try:
        syscall(number, *arguments)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EFAULT, errno.EBADF):
            raise


class Attempts:
    """What is tried. `facts` are the verifier's."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def path(self, name: str) -> str:
        return str(self.facts[name])

    def number(self, name: str) -> int:
        return int(self.facts[name])

    def refuse_on_host(self) -> None:
        if self.facts["is_unconfined_root"]:
            raise Skipped("would change the host: root without a boundary")

    # -- ordinary work

    def try_work_in_workspace(self) -> None:
        put("made")
        os.rename("made", "kept")
        assert read("kept") == b"x"
        os.unlink("kept")

    def try_run_programs(self) -> None:
        assert os.system("true && echo a | grep -q a") == 0

    def try_use_devices(self) -> None:
        put("/dev/null")
        assert len(os.read(os.open("/dev/urandom", os.O_RDONLY), 4)) == 4

    def try_open_terminal(self) -> None:
        _, slave = os.openpty()
        assert os.isatty(slave)

    def try_use_temporary_folder(self) -> None:
        put(os.environ["TMPDIR"] + "/mine")

    def try_share_memory(self) -> None:
        put("/dev/shm/verify-own")
        os.unlink("/dev/shm/verify-own")

    def try_pair_of_sockets(self) -> None:
        one, other = socket.socketpair()
        one.send(b"x")
        assert other.recv(1) == b"x"

    def try_own_loopback(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), 1).close()

    def try_socket_in_workspace(self) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("own.sock")
            server.listen()
            self.connect_to("own.sock")

    def try_same_user(self) -> None:
        assert os.getuid() == self.facts["uid"]

    # -- secrets and files outside

    def try_read_secret(self) -> None:
        self.check_secret(self.path("secret"))

    def check_secret(self, path: str) -> None:
        """We are told the digest only: what we do not read we do not know."""
        assert hashlib.sha256(read(path)).hexdigest() == self.facts["secret_digest"]

    def try_list_secrets(self) -> None:
        if not os.listdir(os.path.dirname(self.path("secret"))):
            raise FileNotFoundError(errno.ENOENT, "empty")

    def try_stat_secret(self) -> None:
        os.stat(self.path("secret"))

    def try_read_secret_by_link(self) -> None:
        os.symlink(self.path("secret"), "key")
        self.check_secret("key")

    def try_read_replaced_secret(self) -> None:
        """A login that the host renews while we run, as `npm login` does: written beside, renamed
        over. A mount over the old file goes with it."""
        self.ask_host("replaced_secret")
        self.check_secret(self.path("replaced_secret"))

    def try_append_home_file(self) -> None:
        put(self.path("home_file"))

    def try_create_outside(self) -> None:
        put(self.path("outside") + "/new")

    def try_append_outside(self) -> None:
        put(self.path("victim_file"))

    def try_truncate_outside(self) -> None:
        os.truncate(self.path("victim_file"), 0)

    def try_chmod_outside(self) -> None:
        os.chmod(self.path("victim_file"), 0o600)

    def try_utimes_outside(self) -> None:
        os.utime(self.path("victim_file"), (1, 1))

    def try_xattr_outside(self) -> None:
        try:
            call("setxattr", os.fsencode(self.path("victim_file")), b"user.verify", b"x", 1, 0)
        except OSError as error:
            if error.errno == errno.ENOTSUP:
                raise Skipped("the file system has no extended attributes") from None
            raise

    def try_unlink_outside(self) -> None:
        os.unlink(self.path("outside") + "/to_unlink")

    def try_rename_in(self) -> None:
        os.rename(self.path("outside") + "/to_rename", "stolen")

    def try_rename_out(self) -> None:
        put("mine")
        os.rename("mine", self.path("outside") + "/planted")

    def try_link_in(self) -> None:
        os.link(self.path("victim_file"), "linked")

    def try_write_through_link(self) -> None:
        os.symlink(self.path("victim_file"), "way")
        put("way")

    def try_write_through_proc_root(self) -> None:
        put("/proc/self/root" + self.path("victim_file"))

    def try_write_through_hard_link(self) -> None:
        put("hard")

    # -- what runs later, outside

    def try_append_hook(self) -> None:
        put(".git/hooks/pre-commit")

    def try_new_hook(self) -> None:
        put(".git/hooks/post-checkout")

    def try_git_config(self) -> None:
        put(".git/config")

    def try_move_git(self) -> None:
        os.rename(".git", "moved")
        os.rename("moved", ".git")

    def try_move_head(self) -> None:
        """Without it the workspace's own root can pose as a bare repository."""
        os.rename(".git/HEAD", "HEAD")
        os.rename("HEAD", ".git/HEAD")

    def try_plant_commondir(self) -> None:
        put(".git/commondir")
        os.unlink(".git/commondir")

    def try_envrc(self) -> None:
        put(".envrc")

    def try_replaced_envrc(self) -> None:
        """The same with a name in the workspace, as an editor saves it."""
        self.ask_host("replaced_protected")
        put(".mcp.json")

    def try_agent_settings(self) -> None:
        put(".claude/settings.json")

    def try_create_protected(self) -> None:
        os.mkdir(".idea")

    def try_setuid_bit(self) -> None:
        put("program")
        os.chmod("program", 0o4755)
        os.unlink("program")

    # -- network and sockets

    def try_tcp_to_host(self) -> None:
        socket.create_connection(("127.0.0.1", self.number("tcp_port")), 1).close()

    def try_tcp_fast_open(self) -> None:
        with socket.socket() as client:
            client.sendto(b"x", MSG_FASTOPEN, ("127.0.0.1", self.number("tcp_port")))

    def try_mptcp(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP) as client:
            client.settimeout(1)
            client.connect(("127.0.0.1", self.number("tcp_port")))

    def try_udp_to_host(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(("127.0.0.1", self.number("udp_port")))
            client.send(b"hello")
            answered, _, _ = select.select([client], [], [], 0.3)
            if not answered or client.recv(16) != b"heard":
                raise OSError(errno.ECONNREFUSED, "nobody heard it")

    def try_packet_socket(self) -> None:
        socket.socket(AF_PACKET, socket.SOCK_RAW).close()

    def try_vsock(self) -> None:
        socket.socket(AF_VSOCK).close()

    def try_daemon_socket(self) -> None:
        self.connect_to(self.path("daemon_socket"))

    def try_host_socket(self) -> None:
        self.connect_to(self.path("host_socket"))

    def try_host_socket_by_link(self) -> None:
        os.symlink(self.path("host_socket"), "socket-link")
        self.connect_to("socket-link")

    def try_host_socket_relative(self) -> None:
        self.connect_to(os.path.relpath(self.path("host_socket")))

    def try_abstract_socket(self) -> None:
        self.connect_to("\0" + self.path("abstract_socket"))

    def try_unix_datagram(self) -> None:
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close()

    def try_late_socket(self) -> None:
        """Made by the host while we run: no list of paths can know it."""
        self.ask_host("late_socket")
        self.connect_to(self.path("late_socket"))

    def try_dns(self) -> None:
        """Any answer means that a resolver of the host's was reached; the name exists nowhere."""
        name = b"".join(
            bytes([len(part)]) + part for part in (self.path("mark").encode(), b"invalid")
        )
        question = b"\x5e\x01\1\0\0\1\0\0\0\0\0\0" + name + b"\0\0\1\0\1"
        servers = [line.split()[1] for line in read("/etc/resolv.conf").decode().splitlines()
                   if line.startswith("nameserver ")]  # fmt: skip
        failed = OSError(errno.ENETUNREACH, "no resolver is named")
        for server in servers[:2]:
            family = socket.AF_INET6 if ":" in server else socket.AF_INET
            try:
                with socket.socket(family, socket.SOCK_DGRAM) as client:
                    client.settimeout(0.3)
                    client.connect((server, 53))
                    client.send(question)
                    client.recv(512)
            except OSError as error:
                failed = error
            else:
                return
        raise failed

    def try_private_address(self) -> None:
        self.has_way_to("10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "fd00::1")

    def try_metadata_address(self) -> None:
        self.has_way_to("169.254.169.254", "fd00:ec2::254")

    def has_way_to(self, *addresses: str) -> None:
        """Whether a route leads to any of these: connecting a datagram socket sends nothing."""
        failed = OSError(errno.ENETUNREACH, "no route")
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                with socket.socket(family, socket.SOCK_DGRAM) as client:
                    client.connect((address, 9))
            except OSError as error:
                failed = error
            else:
                return
        raise failed

    def ask_host(self, wish: str) -> None:
        """Have the verifier do something outside, and wait until it has."""
        put(f"wish-{wish}")
        deadline = time.monotonic() + LIMIT_S - 1
        while not os.path.exists(f"done-{wish}"):
            assert time.monotonic() < deadline, "the verifier did not answer"
            time.sleep(0.005)

    def connect_to(self, address: str) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(address)

    # -- other processes

    def try_signal_process(self) -> None:
        os.kill(self.number("victim"), 0)

    def try_stop_process(self) -> None:
        os.kill(self.number("victim"), signal.SIGSTOP)
        os.kill(self.number("victim"), signal.SIGCONT)

    def try_trace_process(self) -> None:
        call("ptrace", PTRACE_SEIZE, self.number("victim"), 0, 0)

    def try_read_memory(self) -> None:
        os.close(os.open(f"/proc/{self.number('victim')}/mem", os.O_RDONLY))

    def try_read_environment(self) -> None:
        assert b"VERIFY" in read(f"/proc/{self.number('victim')}/environ")

    def try_walk_through_process(self) -> None:
        os.listdir(f"/proc/{self.number('victim')}/root/")

    def try_copy_memory(self) -> None:
        space = ctypes.create_string_buffer(8)
        vector = (ctypes.c_ulong * 2)(ctypes.addressof(space), 8)
        try:
            call("process_vm_readv", self.number("victim"), vector, 1, vector, 1, 0)
        except OSError as error:
            if error.errno != errno.EFAULT:
                raise

    def try_see_process(self) -> None:
        assert b"VERIFY" in read(f"/proc/{self.number('victim')}/cmdline")

    def try_limit_process(self) -> None:
        limits = (ctypes.c_ulong * 2)()
        call("prlimit64", self.number("victim"), resource.RLIMIT_CORE, 0, limits)
        call("prlimit64", self.number("victim"), resource.RLIMIT_CORE, limits, 0)

    def try_pin_process(self) -> None:
        processors = (ctypes.c_ulong * 128)()
        size = ctypes.sizeof(processors)
        call("sched_getaffinity", 0, size, processors)
        call("sched_setaffinity", self.number("victim"), size, processors)

    def try_slow_process(self) -> None:
        os.setpriority(os.PRIO_PROCESS, self.number("victim"), 19)

    # -- the kernel

    def try_user_namespace(self) -> None:
        call("unshare", CLONE_NEWUSER)

    def try_clone3(self) -> None:
        reaches_the_kernel(435, 0, 0)

    def try_mount(self) -> None:
        self.refuse_on_host()
        call("mount", b"none", b"/mnt", b"tmpfs", 0, 0)

    def try_remount(self) -> None:
        self.refuse_on_host()
        call("mount", 0, b"/", 0, 4096 | 32, 0)

    def try_join_namespace(self) -> None:
        call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)

    def try_chroot(self) -> None:
        call("chroot", b".")

    def try_pivot_root(self) -> None:
        self.refuse_on_host()
        call("pivot_root", b".", b".")

    def try_hostname(self) -> None:
        name = os.uname().nodename.encode()
        call("sethostname", name, len(name))

    def try_io_uring(self) -> None:
        reaches_the_kernel(425, 1, 0)

    def try_bpf(self) -> None:
        reaches_the_kernel(CALLS["bpf"][IS_ARM], 0, 0, 0)

    def try_perf(self) -> None:
        reaches_the_kernel(CALLS["perf_event_open"][IS_ARM], 0, 0, 0, 0, 0)

    def try_userfaultfd(self) -> None:
        os.close(call("userfaultfd", 0))

    def try_add_key(self) -> None:
        call("add_key", b"user", b"verify", b"x", 1, -2)  # the process's own keyring

    def try_keyctl(self) -> None:
        call("keyctl", 0, -3, 0)

    def try_x32_numbers(self) -> None:
        if IS_ARM:
            raise Skipped("only x86_64 has x32 numbers")
        syscall(X32_BIT + 39)

    def try_type_into_terminal(self) -> None:
        _, slave = os.openpty()
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        fcntl.ioctl(slave, termios.TIOCSTI, b"x")

    def try_core_pattern(self) -> None:
        os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))

    def try_sysrq(self) -> None:
        os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))

    def try_kernel_log(self) -> None:
        os.close(os.open("/dev/kmsg", os.O_WRONLY))

    def try_host_devices(self) -> None:
        """Any one that opens: virtual machines, mounts, network interfaces, disks, memory."""
        failed = OSError(errno.ENOENT, "none is there")
        for name in HOST_DEVICES:
            try:
                os.close(os.open(f"/dev/{name}", os.O_RDWR | os.O_NONBLOCK))
            except OSError as error:
                failed = error if error.errno != errno.ENOENT else failed
            else:
                return
        raise failed

    def try_host_terminal(self) -> None:
        os.close(os.open(self.path("terminal"), os.O_RDWR | os.O_NOCTTY))

    def try_host_shared_memory(self) -> None:
        os.close(os.open(self.path("shared_memory"), os.O_WRONLY))  # not O_CREAT: the host's one

    # -- what is inherited

    def try_keep_privileges(self) -> None:
        with open("/proc/self/status", encoding="ascii") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        found = [status[name].strip() for name in ("NoNewPrivs", "Seccomp", "CapEff", "CapPrm")]
        if found == ["1", "2", "0" * 16, "0" * 16]:
            raise PermissionError(errno.EPERM, "none left")

    def try_inherited_descriptor(self) -> None:
        if not self.facts["descriptors"]:
            raise FileNotFoundError(errno.EBADF, "only 0, 1 and 2")

    def try_environment_secret(self) -> None:
        if not any("VERIFY" in name for name in os.environ):
            raise FileNotFoundError(errno.ENOENT, "not in the environment")

    def try_outlive_run(self) -> None:
        """A survivor that has left session and group; the verifier looks whether it is gone and
        overrules this answer. It is known by the mark in our arguments."""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.closerange(3, 1024)  # the answer's pipe would stay open
                time.sleep(600)
            os._exit(0)


def put(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"x")


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def inherited_descriptors() -> list[int]:
    """Before we open any of our own: what was passed to us besides 0, 1 and 2."""
    found = []
    for number in range(3, 1024):
        with contextlib.suppress(OSError):
            os.fstat(number)
            found.append(number)
    return found


def answers(attempt: Callable[[], None]) -> str:
    """`allowed`, `denied: ERRNO`, `skipped: why`, or `broken: what`."""
    try:
        attempt()
    except Skipped as why:
        return f"skipped: {why}"
    except TimeoutError:
        return "denied: ETIMEDOUT"
    except OSError as error:
        return f"denied: {errno.errorcode.get(error.errno or 0, 'OSError')}"
    except Exception as error:
        return f"broken: {type(error).__name__} {error}"
    return "allowed"


def tried(attempt: Callable[[], None]) -> str:
    """The answer of an attempt made in a child process of its own."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(LIMIT_S)
        os.close(read_end)
        os.write(write_end, answers(attempt).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        said = file.read(4096).decode()
    _, status = os.waitpid(pid, 0)
    return said or f"broken: ended with {os.waitstatus_to_exitcode(status)}"


def every(attempts: Attempts) -> Iterator[tuple[str, Callable[[], None]]]:
    for name in dir(attempts):
        if name.startswith("try_"):
            yield name.removeprefix("try_"), getattr(attempts, name)


def main() -> None:
    facts = json.loads(sys.argv[1])
    facts["descriptors"] = " ".join(map(str, inherited_descriptors()))
    print(json.dumps({name: tried(attempt) for name, attempt in every(Attempts(facts))}))


if __name__ == "__main__":
    main()
