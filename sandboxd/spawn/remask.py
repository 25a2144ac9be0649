"""Covering names of a living run again, from outside, after the host has replaced them.

A mount lies on a file, not on a name: when the host replaces or renames the file (an editor's
save, `git config`, `npm login`) the mount goes with it and the new file lies bare
(mount_namespaces(7)). So a short-lived child of the zygote enters the run's user and mount
namespaces and covers what is bare. It is a process of its own because a process with threads
cannot enter a user namespace (setns(2)), and it is cloned from the zygote because that takes
about a millisecond.

It holds every capability inside the run's namespaces and none outside. All it does there is to
mount a file on itself, or something empty on it: whatever path a run slips in, the run can only
lose by it.
"""

from __future__ import annotations

import os

from sandboxd.spawn.view import pin_at
from sandboxd.system import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

Step = tuple[str, str]
"""`pin`, `readonly` or `blank`, and the path; see `MountStep`."""


def run_remask(steps: list[Step], fds: list[int]) -> NoReturn:
    """Enter the namespaces (user, mount) and cover; exit code 0 when nothing is left bare."""
    code = 70
    try:
        user, mount = fds
        linux.setns(user, linux.CLONE_NEWUSER)
        linux.setns(mount, linux.CLONE_NEWNS)
        bare = [step for step in steps if is_bare(step[1])]
        failed = [path for kind, path in bare if not _cover(kind, path, mount)]
        code = 1 if failed else 0
    except BaseException:
        pass
    finally:
        os._exit(code)


def is_bare(path: str) -> bool:
    """Whether the name is there and nothing is mounted on it."""
    folder, _, name = path.rpartition("/")
    try:
        fd = os.open(folder or "/", linux.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not linux.is_mount_point(fd, os.fsencode(name))
    except OSError:
        return False
    finally:
        os.close(fd)


def _cover(kind: str, path: str, mount: int) -> bool:
    try:
        if kind == "blank":
            _blank(path, mount)
        else:
            pin_at(path, linux.MOUNT_ATTR_RDONLY if kind == "readonly" else 0)
    except OSError:
        return not is_bare(path)
    return True


def _blank(path: str, mount: int) -> None:
    fd = os.open(path, linux.O_PATH | os.O_CLOEXEC)
    try:
        tree = _empty_tree(os.fstat(fd).st_mode & 0o170000 == 0o040000, mount)
        linux.move_mount(tree, fd, b"")
        os.close(tree)
    finally:
        os.close(fd)


def _empty_tree(is_folder: bool, mount: int) -> int:
    """A detached mount of an empty folder or file that nobody may open. It is made in a mount
    namespace of our own, so that the run never sees the place where it is made."""
    linux.unshare(linux.CLONE_NEWNS)
    try:
        linux.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b"mode=0700,size=4k")
        if is_folder:
            os.mkdir("/tmp/blank", 0)
        else:
            os.close(os.open("/tmp/blank", os.O_CREAT | os.O_WRONLY, 0))
        tree = linux.open_tree(linux.AT_FDCWD, b"/tmp/blank")
    finally:
        linux.setns(mount, linux.CLONE_NEWNS)
    flags = linux.MOUNT_ATTR_RDONLY | linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV
    linux.mount_setattr(tree, b"", set_=flags)
    return tree
