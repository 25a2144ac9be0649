"""What a person may set outside sandboxd that a sandbox cannot do for them; part of `doctor`."""

from __future__ import annotations

import os
import shutil
import subprocess

import msgspec

SECONDS = 5.0


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One recommendation: what to do, why, and the very command."""

    about: str
    why: str
    command: str


def advise() -> list[Advice]:
    """What applies to this person and host; nothing is changed."""
    found = [_bare_repositories()]
    return [advice for advice in found if advice is not None]


def _bare_repositories() -> Advice | None:
    """git runs programs that a planted repository without working tree names, as soon as somebody
    changes into it, unless told to take such repositories only by name (git-config(1))."""
    git = shutil.which("git")
    if git is None or _is_set(git, "safe.bareRepository"):
        return None
    return Advice(
        about="safe.bareRepository",
        why="a run can plant a bare repository in a subfolder, and git obeys its configuration when "
        "you change into it; plain and linked repositories are not affected",
        command="git config --global safe.bareRepository explicit",
    )


def _is_set(git: str, key: str) -> bool:
    """Whether the person or the system has decided; a git that fails is none to advise about."""
    try:
        done = subprocess.run(
            [git, "config", "--get", key],
            cwd=os.path.abspath(os.sep),
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode != 1
