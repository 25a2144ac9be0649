"""Leaving out covers for names that are not there.

A plan names every denied and protected path that could exist; most never do, and trying each in
the child costs more than the mounts that are made. What appears after the look is Landlock's and
the guardian's to hold, as it is when it appears a moment after the launch.

What is absent stays absent while the nearest folder above it that exists does not change. There are
few of those folders, so a run pays one lstat(2) for each and nothing for the names.
"""

from __future__ import annotations

import os
import time

import msgspec
from msgspec import Struct

from sandboxd.confine.guardian.names import SETTLED_NS, Stamp, look
from sandboxd.model import LaunchPlan, MountStep

COVERS = ("blank", "readonly", "pin")
MAX_PLANS = 64
Steps = tuple[MountStep, ...]


class Part(Struct, frozen=True):
    """A folder that exists, as it was found, and which of the names below it were absent."""

    stamp: Stamp
    paths: tuple[str, ...]
    absent: frozenset[str]


class Trimmed:
    """The steps of one plan, and what is left of them while no folder has changed."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.parts: dict[str, Part] = {}
        self.unsettled = tuple(step.path for step in steps if step.kind in COVERS)
        """Names to be looked at in any case."""
        self.left: Steps = ()

    def now(self, now_ns: int) -> Steps:
        changed = self.unsettled
        for folder, part in list(self.parts.items()):
            if look(folder) != part.stamp:
                changed += self.parts.pop(folder).paths
        if changed:
            absent = self._look_at(changed, now_ns).union(*(p.absent for p in self.parts.values()))
            self.left = tuple(
                step for step in self.steps if step.kind not in COVERS or step.path not in absent
            )
        return self.left

    def _look_at(self, paths: tuple[str, ...], now_ns: int) -> frozenset[str]:
        """Those that are absent. The folders they depend on are remembered where they are settled:
        a later change is sure to show in the stamp of such a one."""
        stamps: dict[str, Stamp] = {}
        below: dict[str, list[str]] = {}
        for path in dict.fromkeys(paths):
            below.setdefault(_existing_parent(path, stamps), []).append(path)
        gone: set[str] = set()
        unsettled: list[str] = []
        for folder, names in below.items():
            absent = frozenset(name for name in names if look(name) is None)
            gone |= absent
            stamp = stamps[folder]
            is_settled = stamp.is_folder and now_ns - stamp.changed_ns >= SETTLED_NS  # no link
            if not is_settled or folder in self.parts:
                unsettled += names
            else:
                self.parts[folder] = Part(stamp, tuple(names), absent)
        self.unsettled = tuple(unsettled)
        return frozenset(gone)


def _existing_parent(path: str, stamps: dict[str, Stamp]) -> str:
    """The nearest folder above that exists, with its stamp noted before anything in it is looked at."""
    parent = os.path.dirname(path)
    while parent not in stamps:
        stamp = look(parent)
        if stamp is not None:
            stamps[parent] = stamp
            break
        parent = os.path.dirname(parent)
    return parent


class Present:
    """Knows which folders have not changed since it looked; one for each engine."""

    def __init__(self) -> None:
        self._known: dict[int, Trimmed] = {}

    def trimmed(self, plan: LaunchPlan) -> LaunchPlan:
        """The plan without covers of absent names; as it is where no Landlock stands below them."""
        if plan.landlock is None or not plan.mounts:
            return plan
        known = self._known.get(id(plan.mounts))
        if known is None or known.steps is not plan.mounts:
            if len(self._known) >= MAX_PLANS:
                self._known.clear()
            known = self._known[id(plan.mounts)] = Trimmed(plan.mounts)
        return msgspec.structs.replace(plan, mounts=known.now(time.time_ns()))
