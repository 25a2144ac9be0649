"""The run's view of the file system, built step by step in its own mount namespace.

Runs in the cloned init, as the only thing in its process. Order is safety here; the plan decides
it (`confine.namespaces.mount_steps`), and the facts that shaped it are numbered in `zygote`.
Sources: mount(2), mount_setattr(2), open_tree and move_mount (Linux 5.2), devpts, proc(5).
"""

from __future__ import annotations

import errno
import os

from sandboxd.spawn.reports import SetUpFailed
from sandboxd.system import linux

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DANGEROUS_PROC = (
    "sys",
    "sysrq-trigger",
    "irq",
    "bus",
    "fs",
    "acpi",
    "mtrr",
    "scsi",
    "latency_stats",
)
DEV_LINKS = (
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("pts/ptmx", "/dev/ptmx"),
)


class Mounts:
    """The run's view of the file system, built in place without pivot_root.

    Made before the ids change: the trees are opened by the daemon's own right (the private
    temporary folder of root's daemon lies where the workspace's owner cannot walk).
    """

    def __init__(self, steps: list[tuple[str, str, str | None]]) -> None:
        self.steps = steps
        self.sources: dict[str, int] = {}
        for kind, path, source in steps:
            if kind in ("bind", "tmp", "visible"):
                self.sources[path] = self.open_folder(source or path, kind)

    def open_folder(self, path: str, kind: str) -> int:
        try:
            flags = linux.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
            return os.open(path, flags)
        except OSError as error:
            if kind == "visible":
                return -1
            raise SetUpFailed("workspace", error.errno or 0, path) from None

    def build(self) -> None:
        stage, path = "mount", "/"
        try:
            linux.mount(None, b"/", None, linux.MS_REC | linux.MS_SLAVE)
            trees = self.copy_trees()
            devices = {name: self.copy_device(name) for name in DEVICES}
            linux.mount_setattr(
                linux.AT_FDCWD,
                b"/",
                set_=linux.MOUNT_ATTR_RDONLY | linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV,
                recursive=True,
            )
            for kind, path, source in self.steps:
                stage = kind
                if kind == "dev":
                    self.private_dev(devices)
                elif kind == "proc":
                    self.private_proc()
                elif kind in ("bind", "tmp", "visible"):
                    if path in trees:
                        self.attach(trees[path], path)
                elif kind in ("pin", "readonly"):
                    pin_at(path, linux.MOUNT_ATTR_RDONLY if kind == "readonly" else 0)
                elif kind == "blank":
                    self.blank(path)
                elif kind == "text":
                    show_text(path, source or "")
            self.finish_dev()
        except OSError as error:
            raise SetUpFailed(f"mount.{stage}", error.errno or 0, path) from None

    def copy_trees(self) -> dict[str, int]:
        """Detached copies of the roots, taken while they still have their own flags (fact 7)."""
        trees = {}
        for kind, path, _ in self.steps:
            source = self.sources.get(path, -1)
            if kind not in ("bind", "tmp", "visible") or source < 0:
                continue
            tree = linux.open_tree(source, b"")
            flags = linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV
            if kind == "visible":
                flags |= linux.MOUNT_ATTR_RDONLY
            linux.mount_setattr(tree, b"", set_=flags, recursive=True)
            trees[path] = tree
        return trees

    def copy_device(self, name: str) -> int:
        try:
            return linux.open_tree(linux.AT_FDCWD, f"/dev/{name}".encode())
        except OSError:
            return -1

    def attach(self, tree: int, path: str) -> None:
        target = os.fsencode(path)
        try:
            linux.move_mount(tree, linux.AT_FDCWD, target)
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)  # below the private /tmp, which is ours
            linux.move_mount(tree, linux.AT_FDCWD, target)
        self.check_identity(path)

    def check_identity(self, path: str) -> None:
        """The folder now at `path` is the one opened first: a swapped link cannot win."""
        there = os.stat(path)
        opened = os.fstat(self.sources[path])
        if (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino):
            raise OSError(errno.ESTALE, "swapped", path)

    def private_dev(self, devices: dict[str, int]) -> None:
        """A tmpfs with the harmless devices, an own devpts and an own shm; see tty(4), devpts."""
        linux.mount(
            b"tmpfs", b"/dev", b"tmpfs", linux.MS_NOSUID | linux.MS_NOEXEC, b"mode=0755,size=1m"
        )
        for name, tree in devices.items():
            if tree < 0:
                continue
            os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
            linux.move_mount(tree, linux.AT_FDCWD, f"/dev/{name}".encode())
        for folder in ("pts", "shm", ".blank-folder"):
            os.mkdir(f"/dev/{folder}", 0o755)
        linux.mount(
            b"devpts",
            b"/dev/pts",
            b"devpts",
            linux.MS_NOSUID | linux.MS_NOEXEC,
            b"newinstance,ptmxmode=0666,mode=0620",
        )
        linux.mount(b"tmpfs", b"/dev/shm", b"tmpfs", linux.MS_NOSUID | linux.MS_NODEV, b"mode=1777")
        for target, link in DEV_LINKS:
            os.symlink(target, link)
        os.close(os.open("/dev/.blank-file", os.O_CREAT | os.O_WRONLY, 0))
        os.chmod("/dev/.blank-folder", 0)
        for blank in (b"/dev/.blank-folder", b"/dev/.blank-file"):
            linux.mount(blank, blank, None, linux.MS_BIND)
            linux.mount_setattr(linux.AT_FDCWD, blank, set_=linux.MOUNT_ATTR_RDONLY)

    def finish_dev(self) -> None:
        """Take the blanks' names away (their mounts stay) and close /dev to new entries."""
        for blank in ("/dev/.blank-folder", "/dev/.blank-file"):
            linux.unmount(blank.encode())
        os.rmdir("/dev/.blank-folder")
        os.unlink("/dev/.blank-file")
        linux.mount_setattr(linux.AT_FDCWD, b"/dev", set_=linux.MOUNT_ATTR_RDONLY)

    def blank(self, path: str) -> None:
        """Cover a denied file or folder; what is absent or out of reach needs no cover."""
        try:
            is_folder = os.stat(path).st_mode & 0o170000 == 0o040000
        except OSError:
            return
        source = b"/dev/.blank-folder" if is_folder else b"/dev/.blank-file"
        linux.mount(source, os.fsencode(path), None, linux.MS_BIND)

    def private_proc(self) -> None:
        """A /proc of our pid namespace; when the host's is masked (EPERM) the old one stays."""
        try:
            linux.mount(
                b"proc", b"/proc", b"proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
            )
        except PermissionError:
            raise SetUpFailed("proc", errno.EPERM, "/proc") from None
        for name in DANGEROUS_PROC:
            path = f"/proc/{name}".encode()
            try:
                linux.mount(path, path, None, linux.MS_BIND | linux.MS_REC)
            except FileNotFoundError:
                continue
            linux.mount_setattr(linux.AT_FDCWD, path, set_=linux.MOUNT_ATTR_RDONLY, recursive=True)


def show_text(path: str, text: str) -> None:
    """Cover a file by a read-only one with this text; a link is followed to what it names. The
    file lies in the private /dev, and its name there is taken away again."""
    if not os.path.exists(path):
        return
    place = "/dev/.text"
    fd = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    tree = linux.open_tree(linux.AT_FDCWD, place.encode())
    flags = linux.MOUNT_ATTR_RDONLY | linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV
    linux.mount_setattr(tree, b"", set_=flags)
    target = os.open(path, linux.O_PATH | os.O_CLOEXEC)
    linux.move_mount(tree, target, b"")
    os.close(target)
    os.close(tree)
    os.unlink(place)


def pin_at(path: str, flags: int) -> None:
    """Mount a name on itself: a mount point can be neither renamed nor removed."""
    try:
        fd = os.open(path, linux.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.fstat(fd).st_mode & 0o170000 == 0o120000:
            return  # a link has no content of its own; the plan names it in the gaps
        tree = linux.open_tree(fd, b"")
        if flags:
            linux.mount_setattr(tree, b"", set_=flags, recursive=True)
        linux.move_mount(tree, fd, b"")
        os.close(tree)
    finally:
        os.close(fd)
