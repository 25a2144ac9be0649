"""Leaving out covers for names that are not there.

A plan names every denied and protected path that could exist; most never do, and trying each in
the child costs more than the mounts that are made. What appears after the look is Landlock's and
the guardian's to hold, as it is when it appears a moment after the launch.
"""

from __future__ import annotations

import time
from functools import lru_cache

import msgspec

from sandboxd.confine.guardian.names import Folder, look_into
from sandboxd.model import LaunchPlan, MountStep

COVERS = ("blank", "readonly", "pin")


class Present:
    """Knows which folders have not changed since it looked; one for each engine."""

    def __init__(self) -> None:
        self._folders: dict[str, Folder] = {}

    def trimmed(self, plan: LaunchPlan) -> LaunchPlan:
        """The plan without covers of absent names; as it is where no Landlock stands below them."""
        if plan.landlock is None or not plan.mounts:
            return plan
        absent = self._absent(plan.mounts)
        kept = tuple(
            step for step in plan.mounts if step.kind not in COVERS or step.path not in absent
        )
        return msgspec.structs.replace(plan, mounts=kept)

    def _absent(self, mounts: tuple[MountStep, ...]) -> set[str]:
        now_ns = time.time_ns()
        absent: set[str] = set()
        for folder, paths in _by_folder(mounts):
            found, trusted = look_into(folder, paths, self._folders.get(folder), now_ns)
            absent.update(path for path in paths if found[path] is None)
            if trusted is not None:
                self._folders[folder] = trusted
        return absent


@lru_cache(64)
def _by_folder(mounts: tuple[MountStep, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    grouped: dict[str, list[str]] = {}
    for step in mounts:
        if step.kind in COVERS:
            grouped.setdefault(step.path.rpartition("/")[0] or "/", []).append(step.path)
    return tuple((folder, tuple(paths)) for folder, paths in grouped.items())
