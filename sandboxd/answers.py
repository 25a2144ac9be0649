"""What a policy says of one path: may it be read, may it be written, and which entry decides.

Pure: nothing is looked up, so the answer can be held against any tier's own evaluator. Paths are
absolute with links resolved, as the kernel sees them; `resolved` gives a policy whose entries are so
too. The nearest entry decides: a writable folder inside a denied one may be written, a denied name
inside a writable one may not be read.
"""

from __future__ import annotations

import os
from typing import Literal

import msgspec
from msgspec import Struct

from sandboxd.model import Policy
from sandboxd.policy import is_inside

Operation = Literal["read", "write"]
Kind = Literal[
    "denied",
    "redacted",
    "protected",
    "own",
    "writable",
    "temporary",
    "device",
    "readable",
    "outside",
]
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm")


class PathAnswer(Struct, frozen=True):
    """`entry` is the path in the policy that decides; None when no entry speaks of it."""

    allowed: bool
    kind: Kind
    entry: str | None = None


def allows(
    policy: Policy, operation: Operation, path: str, *, has_private_tmp: bool = True
) -> PathAnswer:
    """The answer for one operation. `has_private_tmp`: the tier shows the session's temporary
    folder as /tmp; in the others it lies where it lies."""
    path = os.path.normpath(path)
    shown = _nearest(path, [copy.path for copy in policy.shown])
    is_hosts_tmp = has_private_tmp and is_inside(path, ["/tmp"])
    is_away = is_hosts_tmp and not is_inside(path, [*policy.writable, *policy.visible])
    denied = None if is_away else _nearest(path, list(policy.denied))
    root = _nearest(path, [*policy.writable, policy.private_tmp])
    if denied is not None and len(denied) >= len(root or ""):
        return PathAnswer(False, "denied", denied)
    if shown == path:
        return PathAnswer(operation == "read", "redacted", shown)
    if operation == "read":
        return PathAnswer(True, "temporary" if is_away else "readable")
    return _writing(policy, path, root, has_private_tmp)


def _writing(policy: Policy, path: str, root: str | None, has_private_tmp: bool) -> PathAnswer:
    kept = _nearest(path, list(policy.protected))
    if kept is not None:
        return PathAnswer(False, "own" if kept in policy.own else "protected", kept)
    if root is not None and root != policy.private_tmp:
        return PathAnswer(True, "writable", root)
    if root is not None or (has_private_tmp and is_inside(path, ["/tmp"])):
        seen = _nearest(path, list(policy.visible))
        if seen is None:
            return PathAnswer(True, "temporary", policy.private_tmp)
    if is_inside(path, DEVICES):
        return PathAnswer(True, "device")
    return PathAnswer(False, "outside")


def _nearest(path: str, entries: list[str]) -> str | None:
    """The deepest entry that is the path or a folder above it."""
    found = [entry for entry in entries if is_inside(path, [entry])]
    return max(found, key=len, default=None)


def resolved(policy: Policy) -> Policy:
    """The policy with links in its entries followed, beside the entries as written."""

    def both(paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*paths, *map(os.path.realpath, paths)]))

    return msgspec.structs.replace(
        policy,
        writable=both(policy.writable),
        denied=both(policy.denied),
        protected=both(policy.protected),
    )
