"""A profile with its variables filled in for one session: what one run may touch.

The one place that looks at the disk to know which roots exist, who owns the workspace and which
protected names need a word in the gaps; tiers turn the policy into a plan without looking again.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable

from sandboxd import config
from sandboxd.model import Limits, Policy
from sandboxd.profiles import Profile, fill_in

COMMON_PROTECTED = ("hooks", "config", "config.worktree")
"""In a linked worktree's common directory, which is writable as a whole."""


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
) -> Policy:
    """The policy of one run. `path` is the run's PATH; `hidden` what the engine itself hides."""
    common = linked_common_folder(workspace)
    variables = {
        "WORKSPACE": workspace,
        "HOME": home if os.path.isabs(home) else "",
        "TMP": private_tmp,
        "GIT_COMMON_DIR": common or "",
    }
    writable = [root for root in _fill(profile.write, variables) if os.path.isdir(root)]
    denied = [*_fill(profile.deny, variables), *hidden]
    protected, notes = _protected(profile, workspace, common)
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
        denied=tuple(dict.fromkeys(denied)),
        protected=(*protected, *own),
        own=tuple(own),
        private_tmp=private_tmp,
        visible=_visible([workspace, cwd, *own_folders(), *path.split(":")]),
        network=profile.network,
        unix_sockets=profile.unix_sockets,
        limits=Limits(**merged),
        approval=profile.approval,
        min_tier=profile.min_tier,
        owner=workspace_owner(workspace),
        notes=tuple(notes),
    )


def _fill(texts: Iterable[str], variables: dict[str, str]) -> list[str]:
    filled = (fill_in(text, variables) for text in texts)
    return [os.path.normpath(path) for path in filled if path is not None]


def _protected(profile: Profile, workspace: str, common: str | None) -> tuple[list[str], list[str]]:
    """Absolute protected paths, and words about those that cannot be pinned."""
    names = [*profile.protect]
    git = os.path.join(workspace, ".git")
    if os.path.isfile(git):
        names.append(".git")  # a worktree's or submodule's pointer: rewriting it repoints git
    paths = [os.path.join(workspace, name) for name in names]
    if common is not None:
        paths += [os.path.join(common, name) for name in COMMON_PROTECTED]
    links = [path for path in paths if os.path.islink(path)]
    notes = [f"{path} is a symbolic link: the link itself can be replaced" for path in links]
    return paths, notes


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


def own_folders() -> list[str]:
    """Where sandboxd's code and interpreter lie: nothing a run writes may end up there."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    is_venv = sys.prefix != sys.base_prefix
    installed = os.path.basename(package) in ("site-packages", "dist-packages")
    code = package if installed else os.path.join(package, "sandboxd")
    return [os.path.realpath(code), *([os.path.realpath(sys.prefix)] if is_venv else [])]


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
    private = config.private_folder()
    for folder in folders:
        if not folder.startswith("/tmp/") or is_inside(folder, [private]):
            continue
        shown.append(os.path.dirname(folder) if os.path.basename(folder) == "bin" else folder)
    existing = [os.path.realpath(folder) for folder in shown if _is_plain_folder(folder)]
    return tuple(path for path in dict.fromkeys(existing) if path != "/tmp")


def _is_plain_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
