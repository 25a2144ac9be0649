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


class Private:
    """A /dev and a /proc of the run's own, as detached trees; and what covers denied names.

    Made beneath the places where they are shown, so that the view can become read-only in one
    step between their making and their showing. Needs nothing of the run.
    """

    def __init__(self) -> None:
        self.trees: dict[str, int] = {}
        self.blank_folder = self.blank_file = self.texts = -1

    def make(self, kinds: list[str]) -> None:
        """`kinds`: `proc` and `dev`, those that the plan's steps show."""
        kind, path = "mount", "/"
        try:
            linux.mount(None, b"/", None, linux.MS_REC | linux.MS_SLAVE)
            devices = {name: copy_device(name) for name in DEVICES}
            for kind in kinds:
                path = "/" + kind
                if kind == "proc":
                    private_proc()
                else:
                    self.make_blanks()
                    private_dev(devices)
                tree = linux.open_tree(linux.AT_FDCWD, path.encode())
                if kind == "dev":
                    linux.mount_setattr(tree, b"", set_=linux.MOUNT_ATTR_RDONLY)
                self.trees[path] = tree
        except OSError as error:
            raise SetUpFailed(f"mount.{kind}", error.errno or 0, path) from None

    def make_blanks(self) -> None:
        """An empty file and an empty folder that nobody may open, in a tmpfs that private_dev
        covers: they have no name in the run's view."""
        flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
        linux.mount(b"tmpfs", b"/dev", b"tmpfs", flags, b"mode=0755,size=8m")
        os.mkdir("/dev/folder", 0)
        os.close(os.open("/dev/file", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0))
        opening = linux.O_PATH | os.O_CLOEXEC
        self.blank_folder = os.open("/dev/folder", opening)
        self.blank_file = os.open("/dev/file", opening)
        self.texts = os.open("/dev", opening | os.O_DIRECTORY)

    def text(self, text: str) -> int:
        """A tree of one file with this text; before the view becomes read-only."""
        name = f"text-{len(text)}-{hash(text)}"
        flags = os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC
        fd = os.open(name, flags, 0o444, dir_fd=self.texts)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
        tree = linux.open_tree(self.texts, name.encode())
        linux.mount_setattr(tree, b"", set_=linux.MOUNT_ATTR_RDONLY)
        return tree

    def blank(self, path: str) -> None:
        """Cover a denied file or folder; what is absent or out of reach needs no cover."""
        try:
            is_folder = os.stat(path).st_mode & 0o170000 == 0o040000
        except OSError:
            return
        tree = linux.open_tree(self.blank_folder if is_folder else self.blank_file, b"")
        linux.move_mount(tree, linux.AT_FDCWD, os.fsencode(path))
        os.close(tree)


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

    def build(self, private: Private) -> None:
        stage, path = "mount", "/"
        try:
            trees = self.copy_trees()
            texts = {
                path: private.text(text or "")
                for kind, path, text in self.steps
                if kind in ("text", "copy")
            }
            linux.mount_setattr(
                linux.AT_FDCWD,
                b"/",
                set_=linux.MOUNT_ATTR_RDONLY | linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV,
                recursive=True,
            )
            for stage, path, _ in self.steps:
                if stage in ("dev", "proc"):
                    linux.move_mount(private.trees[path], linux.AT_FDCWD, path.encode())
                elif stage in ("bind", "tmp", "visible"):
                    if path in trees:
                        self.attach(trees[path], path)
                elif stage in ("pin", "readonly"):
                    pin_at(path, linux.MOUNT_ATTR_RDONLY if stage == "readonly" else 0)
                elif stage == "blank":
                    private.blank(path)
                elif stage in ("text", "copy"):
                    show_text(path, texts[path])
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


def copy_device(name: str) -> int:
    """A detached copy of one of the host's device files; -1 where it has none."""
    try:
        return linux.open_tree(linux.AT_FDCWD, f"/dev/{name}".encode())
    except OSError:
        return -1


def private_dev(devices: dict[str, int]) -> None:
    """A tmpfs with the harmless devices, an own devpts and an own shm; see tty(4), devpts."""
    linux.mount(
        b"tmpfs", b"/dev", b"tmpfs", linux.MS_NOSUID | linux.MS_NOEXEC, b"mode=0755,size=1m"
    )
    for name, tree in devices.items():
        if tree < 0:
            continue
        os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        linux.move_mount(tree, linux.AT_FDCWD, f"/dev/{name}".encode())
        os.close(tree)
    for folder in ("pts", "shm"):
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


def private_proc() -> None:
    """A /proc of our pid namespace; when the host's is masked (EPERM) there can be none."""
    try:
        linux.mount(b"proc", b"/proc", b"proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    except PermissionError:
        raise SetUpFailed("proc", errno.EPERM, "/proc") from None
    for name in DANGEROUS_PROC:
        path = f"/proc/{name}".encode()
        try:
            linux.mount(path, path, None, linux.MS_BIND | linux.MS_REC)
        except FileNotFoundError:
            continue
        linux.mount_setattr(linux.AT_FDCWD, path, set_=linux.MOUNT_ATTR_RDONLY, recursive=True)


def show_text(path: str, tree: int) -> None:
    """Cover a file by the one that Private.text made; a link is followed to what it names."""
    if not os.path.exists(path):
        return
    target = os.open(path, linux.O_PATH | os.O_CLOEXEC)
    linux.move_mount(tree, target, b"")
    os.close(target)
    os.close(tree)


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
