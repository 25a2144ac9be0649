"""A profile with its variables filled in for one session: what one run may touch.

The one place that looks at the disk to know which roots exist, who owns the workspace and which
protected names need a word in the gaps; tiers turn the policy into a plan without looking again.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

from sandboxd import config
from sandboxd.filling import HERE, filled
from sandboxd.model import Limits, Policy
from sandboxd.profiles import PROJECT_FILE, Profile

GIT_PROTECTED = ("hooks", "config", "config.worktree", "commondir", "gitdir")
"""In every git folder that may be written: what makes git run a program, or look elsewhere for it
(gitrepository-layout(5))."""
WORKTREE_PROTECTED = ("commondir", "gitdir", "config.worktree")
"""In a git folder's entry for one of its linked worktrees."""
EMPTY: Mapping[str, str] = MappingProxyType({})
MAX_NESTED = 64
"""How many submodules and worktrees are looked up; more are named in the gaps."""
MAX_GITMODULES = 64 * 1024


def build_policy(
    profile: Profile,
    *,
    workspace: str,
    home: str,
    private_tmp: str,
    path: str,
    cwd: str,
    limits: Limits | None = None,
    hidden: Iterable[str] = (),
    environment: Mapping[str, str] = EMPTY,
    system: str = HERE,
) -> Policy:
    """The policy of one run. `path` is the run's PATH, `environment` the session's (for
    `${env:NAME}`), `hidden` what the engine itself hides; `system` is for plans of another one."""
    common = linked_common_folder(workspace)
    places = filled(
        profile,
        workspace=workspace,
        home=home,
        tmp=private_tmp,
        common=common,
        env=environment,
        system=system,
    )
    protected, pinned, notes = _protected(profile, workspace, common)
    writable = [root for root in places.write if os.path.isdir(root)]
    if profile.bounds:
        writable = _within(writable, places.bounds, notes)
    own = [folder for folder in own_folders() if is_inside(folder, writable)]
    if workspace == home:
        notes.append(
            "the workspace is the home folder: everything in it but the denied names is writable"
        )
    merged = {
        **{k: getattr(profile.limits, k) for k in profile.limits.__struct_fields__},
        **(
            {k: v for k in limits.__struct_fields__ if (v := getattr(limits, k)) is not None}
            if limits
            else {}
        ),
    }
    return Policy(
        profile=profile.name,
        workspace=workspace,
        writable=tuple(dict.fromkeys(writable)),
        denied=tuple(dict.fromkeys((*places.deny, *hidden))),
        redacted=places.redact,
        protected=(*protected, *own),
        pinned=tuple(pinned),
        own=tuple(own),
        private_tmp=private_tmp,
        visible=_visible([workspace, cwd, *own_folders(), *path.split(":")]),
        network=profile.network,
        egress=profile.egress,
        unix_sockets=profile.unix_sockets,
        limits=Limits(**merged),
        approval=profile.approval,
        min_tier=profile.min_tier,
        owner=workspace_owner(workspace),
        notes=tuple(notes),
    )


def _within(roots: list[str], bounds: tuple[str, ...], notes: list[str]) -> list[str]:
    """The roots that really lie in the bounds: a project may name a folder, not lead out by a link."""
    real = [os.path.realpath(bound) for bound in bounds]
    kept = [root for root in roots if os.path.realpath(root) == root and is_inside(root, real)]
    notes += [f"{root} is a link and stays read-only" for root in roots if root not in kept]
    return kept


def _protected(
    profile: Profile, workspace: str, common: str | None
) -> tuple[list[str], list[str], list[str]]:
    """Absolute protected paths, folders that must stay in place for them, and words about what
    cannot be held."""
    git = os.path.join(workspace, ".git")
    names = [*profile.protect, PROJECT_FILE]
    if os.path.isfile(git):
        names.append(".git")  # a worktree's or submodule's pointer: rewriting it repoints git
    paths = [os.path.join(workspace, name) for name in names]
    pinned: list[str] = []
    notes: list[str] = []
    is_held = any(name.startswith(".git/") for name in names)
    for folder in (git, common) if is_held else ():
        if folder is not None and _is_plain_folder(folder):
            paths += [os.path.join(folder, name) for name in GIT_PROTECTED]
            pinned.append(folder)
            _add_nested(folder, paths, pinned, notes)
    if is_held:
        _add_submodules(workspace, paths, pinned)
    paths = list(dict.fromkeys(paths))
    links = [path for path in paths if os.path.islink(path)]
    notes += [f"{path} is a symbolic link: the link itself can be replaced" for path in links]
    return paths, sorted(dict.fromkeys(pinned)), notes


def _add_nested(git: str, paths: list[str], pinned: list[str], notes: list[str]) -> None:
    """The git folders inside a git folder: of linked worktrees and of submodules."""
    worktrees = _folders(os.path.join(git, "worktrees"))
    modules = _module_folders(os.path.join(git, "modules"))
    for folders, names in ((worktrees, WORKTREE_PROTECTED), (modules, GIT_PROTECTED)):
        if len(folders) > MAX_NESTED:
            notes.append(
                f"{os.path.dirname(folders[0])} has over {MAX_NESTED} entries: the rest is not protected"
            )
        for folder in folders[:MAX_NESTED]:
            paths += [os.path.join(folder, name) for name in names]
            pinned += [os.path.dirname(folder), folder]


def _module_folders(modules: str) -> list[str]:
    """Git folders of submodules; a submodule's name may hold a slash."""
    found = []
    for folder in _folders(modules):
        is_git = os.path.lexists(os.path.join(folder, "HEAD"))
        found += [folder] if is_git else _folders(folder)
    return found


def _folders(parent: str) -> list[str]:
    """The plain folders in a folder; none when it is absent or a link."""
    if not _is_plain_folder(parent):
        return []
    with os.scandir(parent) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))


def _add_submodules(workspace: str, paths: list[str], pinned: list[str]) -> None:
    """The `.git` of each submodule that .gitmodules names, and the folders that lead to it."""
    try:
        fd = os.open(os.path.join(workspace, ".gitmodules"), os.O_RDONLY | os.O_NOFOLLOW)
        with open(fd, encoding="utf-8", errors="replace") as file:
            lines = file.read(MAX_GITMODULES).splitlines()
    except OSError:
        return
    values = [line.partition("=") for line in lines if line.strip().startswith("path")]
    for value in [after.strip() for before, _, after in values if before.strip() == "path"][
        :MAX_NESTED
    ]:
        steps = value.split("/")
        if not value or "" in steps or ".." in steps or "." in steps:
            continue
        folders = [os.path.join(workspace, *steps[: n + 1]) for n in range(len(steps))]
        if not all(_is_plain_folder(folder) for folder in folders):
            continue
        git = os.path.join(folders[-1], ".git")
        is_folder = _is_plain_folder(git)
        paths += [os.path.join(git, name) for name in GIT_PROTECTED] if is_folder else [git]
        pinned += [*folders, git] if is_folder else folders


def linked_common_folder(workspace: str) -> str | None:
    """The common git folder of a linked worktree, when both sides name each other.

    The `.git` file lies in the workspace, where a run could have written it; only the pointer
    back, which lies in the repository, makes it true (gitrepository-layout(5)).
    """
    try:
        with open(os.path.join(workspace, ".git"), encoding="utf-8") as file:
            first = file.read(4096)
        if not first.startswith("gitdir: "):
            return None
        git_folder = os.path.join(workspace, first[len("gitdir: ") :].rstrip("\n"))
        with open(os.path.join(git_folder, "gitdir"), encoding="utf-8") as file:
            back = file.read(4096).rstrip("\n")
        if os.path.realpath(back) != os.path.realpath(os.path.join(workspace, ".git")):
            return None
        common = os.path.realpath(os.path.join(git_folder, "..", ".."))
    except (OSError, UnicodeDecodeError):
        return None
    return common if os.path.isfile(os.path.join(common, "HEAD")) else None


@cache
def own_folders() -> tuple[str, ...]:
    """Where sandboxd's code and interpreter lie: nothing a run writes may end up there."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    is_venv = sys.prefix != sys.base_prefix
    installed = os.path.basename(package) in ("site-packages", "dist-packages")
    code = package if installed else os.path.join(package, "sandboxd")
    return (os.path.realpath(code), *((os.path.realpath(sys.prefix),) if is_venv else ()))


def workspace_owner(workspace: str) -> tuple[int, int] | None:
    """The ids a root daemon takes on for its runs: those of the workspace's owner."""
    if os.getuid() != 0:
        return None
    found = os.stat(workspace)
    return found.st_uid, found.st_gid


def is_inside(path: str, roots: Iterable[str]) -> bool:
    """Whether `path` is one of the folders or lies below one, by name."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _visible(folders: Iterable[str]) -> tuple[str, ...]:
    """Folders below the host's /tmp that a private /tmp would hide and the run needs to see."""
    shown: list[str] = []
    private = [config.private_folder(), config.temp_base()]
    for folder in folders:
        if not folder.startswith("/tmp/") or is_inside(folder, private):
            continue
        shown.append(os.path.dirname(folder) if os.path.basename(folder) == "bin" else folder)
    existing = [os.path.realpath(folder) for folder in shown if _is_plain_folder(folder)]
    return tuple(path for path in dict.fromkeys(existing) if path != "/tmp")


def _is_plain_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
