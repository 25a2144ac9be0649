"""A protected name that was not there before: is it a plant, or did an honest command make it?

`git init`, `git clone` and the checkout of a branch make such names too. What belongs to a
repository that the run itself made, or equals what this repository held before the run, is kept
and reported; but never hooks, and never keys of the configuration that make git run a program.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable

from msgspec import Struct

from sandboxd.confine.guardian import repository
from sandboxd.confine.guardian.aside import lock_beneath, read_beneath, write_beneath
from sandboxd.confine.guardian.gitconfig import Unreadable, set_back
from sandboxd.model import Policy

MAX_CONFIG = 256 * 1024
MAX_MODULES = 32
REDIRECTIONS = ("commondir", "gitdir")
CONFIGURATIONS = ("config", "config.worktree")

Take = Callable[[str], None]
"""Sets a path aside and reports it."""


class Locked(Exception):
    """git holds the lock on a configuration file: try again a little later."""


class Place(Struct, frozen=True, kw_only=True):
    """Where a run's names lie."""

    workspace: str
    git: str
    """The folder whose object store the workspace's files come from."""
    roots: tuple[str, ...]
    owner: tuple[int, int] | None
    begun_ns: int
    is_created: bool
    """Whether the run made the repository itself."""
    is_over: bool
    """Whether nothing of the run lives any more: a lock it left behind counts for nothing."""

    def root_of(self, path: str) -> str:
        """The writable root that a path lies in; the nearest one."""
        holding = [root for root in self.roots if path.startswith(root.rstrip("/") + "/")]
        return max(holding, key=len, default=self.workspace)


def git_folder(policy: Policy) -> str:
    """The workspace's own git folder, or the common one of a linked worktree."""
    own = os.path.join(policy.workspace, ".git")
    if own not in policy.protected:
        return own
    parents = (os.path.dirname(path) for path in policy.protected if path.endswith("/commondir"))
    outside = [
        folder
        for folder in parents
        if not folder.startswith(policy.workspace + "/") and "/worktrees/" not in folder
    ]
    return outside[0] if outside else own


def why_kept(place: Place, path: str) -> str | None:
    """The reason not to set it aside; None when there is none."""
    files = repository.files_of(path)
    if not files or path.startswith(place.git + "/"):
        return None
    if place.is_created:
        known = repository.tracked(place.git)
        prefix = place.workspace.rstrip("/") + "/"
        if all(file.removeprefix(prefix) in known for file in files):
            return "it belongs to the repository that this run made"
        return None
    if repository.holds_since_before(place.git, files, place.begun_ns):
        return "the repository held the same content before the run"
    return None


def is_git_busy(git_folders: list[str]) -> bool:
    """Whether a git command is at work: what it checks out may not be complete yet."""
    return any(os.path.lexists(os.path.join(folder, "index.lock")) for folder in git_folders)


def clean_repository(place: Place, git: str, take: Take, report: Callable[[str], None]) -> None:
    """Leave a repository that the run made, without what would make git run a program."""
    for folder in [git, *_modules(os.path.join(git, "modules"))]:
        for name in REDIRECTIONS:
            if os.path.lexists(os.path.join(folder, name)):
                take(os.path.join(folder, name))
        for name in CONFIGURATIONS:
            path = os.path.join(folder, name)
            keys = set_back_file(place, path, b"")
            if keys is None:
                take(path)
            elif keys:
                report(f"{path}: {', '.join(keys)} would make git run a program and was taken out")
        for hook in _hooks(os.path.join(folder, "hooks")):
            take(hook)


def set_back_file(place: Place, path: str, before: bytes) -> list[str] | None:
    """Give a configuration file the program settings it had before; the keys that were set back.
    None when it cannot be read as a configuration, and is therefore not to stay.

    Read first without git's lock, so that git is in nobody's way where nothing is to be done; then
    under it, so that nothing git writes meanwhile is lost. Raises Locked when git holds it.
    """
    text, keys = _program_changes(place, path, before)
    if not keys:
        return keys
    root = place.root_of(path)
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    if place.is_over:
        write_beneath(root, path, _encode(text), mode, place.owner)
        return keys
    try:
        with lock_beneath(root, path) as write:
            text, keys = _program_changes(place, path, before)
            if keys:
                write(_encode(text), mode, place.owner)
    except FileExistsError as error:
        raise Locked(path) from error
    return keys


def _program_changes(place: Place, path: str, before: bytes) -> tuple[str, list[str] | None]:
    data = read_beneath(place.root_of(path), path, MAX_CONFIG)
    if data is None:
        return "", None if os.path.lexists(path) else []
    try:
        return set_back(_decode(before), _decode(data))
    except Unreadable:
        return "", None


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _modules(folder: str) -> list[str]:
    """Git folders of submodules, one level deep, or two when a name holds a slash."""
    found: list[str] = []
    for path in _folders(folder):
        found += [path] if os.path.lexists(os.path.join(path, "HEAD")) else _folders(path)
    return found[:MAX_MODULES]


def _folders(parent: str) -> list[str]:
    try:
        with os.scandir(parent) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _hooks(folder: str) -> list[str]:
    if os.path.islink(folder):
        return [folder]
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if not name.endswith(".sample")]


def nested_plants(workspace: str, limit: int, begun_ns: int) -> list[str]:
    """Folders directly in the workspace that git would take for a repository since this run:
    those that look like one without a working tree. Only the first `limit` entries of the
    workspace are looked at, so that a large one costs no more."""
    found = []
    with os.scandir(workspace) as entries:
        for entry in itertools.islice(entries, limit):
            if not entry.is_dir(follow_symlinks=False):
                continue
            try:
                head = os.lstat(os.path.join(entry.path, "HEAD"))
            except OSError:
                continue
            if head.st_ctime_ns >= begun_ns and repository.is_bare(entry.path):
                found.append(entry.path)
    return sorted(found)
