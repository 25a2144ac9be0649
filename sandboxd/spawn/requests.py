"""A launch plan as the zygote reads it: plain values that marshal carries, text as bytes.

The daemon's side; what each entry means is said where it is used, in `init`, `ground` and `view`.
"""

from __future__ import annotations

import marshal
import os
import sys
from typing import Any

import msgspec

from sandboxd.model import LaunchPlan, Maker

_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


def request_of(run_id: int, plan: LaunchPlan) -> bytes:
    """The plan as marshal carries it; text as the bytes that execve(2) takes."""
    rules = plan.landlock
    return marshal.dumps(
        {
            "id": run_id,
            "namespaces": list(plan.namespaces),
            "inside_ids": plan.inside_ids,
            "outside_ids": plan.outside_ids,
            "mounts": [msgspec.structs.astuple(step) for step in plan.mounts],
            "landlock": msgspec.to_builtins(rules) if rules is not None else None,
            "seccomp": plan.seccomp,
            "connect_secret": plan.connect_secret,
            "connect_roots": list(plan.connect_roots) if plan.connect_roots is not None else None,
            "network": msgspec.to_builtins(plan.network) if plan.network is not None else None,
            "drop_privileges": plan.drop_privileges,
            "rlimits": plan.rlimits,
            "umask": plan.umask,
            "cwd": plan.cwd,
            "is_joined": plan.maker is not None,
            "maker": _maker(plan.maker) if plan.maker is not None else None,
            "passed": plan.passed,
            "status_fd": plan.status_fd,
            "tells_cwd": plan.tells_cwd,
            "keeps_background": plan.keeps_background,
            "pty": (plan.pty.cols, plan.pty.rows, plan.pty.fds) if plan.pty is not None else None,
            "program": os.fsencode(plan.program),
            "argv": [_bytes(argument) for argument in plan.argv],
            "environment": {
                _bytes(name): _bytes(value) for name, value in plan.environment.items()
            },
        }
    )


def _bytes(text: str) -> bytes:
    """As os.fsencode, which costs four times as much, and an environment has a hundred words."""
    return text.encode(_ENCODING, _ERRORS)


def _maker(maker: Maker) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(maker),
        "program": os.fsencode(maker.program),
        "argv": [os.fsencode(argument) for argument in maker.argv],
    }
