"""A workspace with a scope around it, for tests of the files stage."""

from __future__ import annotations

import os
from pathlib import Path

from sandboxd.files.guard import Scope
from sandboxd.model import Policy


def scope_of(base: Path, *, owner: tuple[int, int] | None = None, **more: object) -> Scope:
    """`base/work` is the workspace, `base/tmp` the session's own /tmp, `base/home` the home."""
    for name in ("work", "tmp", "home"):
        (base / name).mkdir(exist_ok=True)
    work = str(base / "work")
    policy = Policy(
        profile="default",
        workspace=work,
        writable=(work,),
        denied=(f"{base}/home/.ssh", f"{work}/secret"),
        protected=(f"{work}/.git/hooks", f"{work}/.envrc", f"{work}/.vscode"),
        private_tmp=str(base / "tmp"),
        visible=(str(base),),
        owner=owner,
    )
    read_roots = more.pop("read_roots", ())
    assert isinstance(read_roots, tuple)
    return Scope.of(policy, cwd=os.path.join(work, str(more.pop("cwd", ""))).rstrip("/"),
                    home=str(base / "home"), read_roots=read_roots)  # fmt: skip
