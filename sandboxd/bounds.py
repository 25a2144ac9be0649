"""One run's limits between request and end: what bounds them here, what was hit, what nothing bounds.

A module beside the pipeline because policy, launch plan and control groups meet here. A run without
such limits passes by untouched.

Where a control group is to be had it bounds the run as a whole. Else limits of setrlimit(2) stand,
and the gaps say what they do not hold. RLIMIT_NPROC counts the processes of a user in one user
namespace (since Linux 5.14), which is exactly a run where it has one of its own; elsewhere it counts
the user's others too, so they are added. The kernel never counts for root. Source: getrlimit(2).
"""

from __future__ import annotations

import asyncio
import os
import re
import signal

import msgspec

from sandboxd.model import LaunchPlan, Limits
from sandboxd.spawn import cgroups
from sandboxd.supervise import GRACE_S, Supervised
from sandboxd.system import posix

PER_NAMESPACE_SINCE = (5, 14)
ROOT_GAP = "processes: not bounded, because the kernel counts none of root's and no control group can be made"
OTHERS_GAP = "processes: counted together with the user's others, as they were when the run began"
MEMORY_GAP = "memory: bounded for each process (its address space), not for all of them together"
CPU_GAP = "processor time: bounded for each process, not for all of them together"


class Bound:
    """One run's control group, or none, and what was hit."""

    def __init__(self, group: cgroups.Group | None, cpu_s: int | None) -> None:
        self._group = group
        self._cpu_s = cpu_s if group is not None else None
        self._watching: asyncio.Future[None] | None = None
        self._is_out_of_time = False

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What init joins by."""
        return tuple(self._group.descriptors) if self._group is not None else ()

    def watch(self, run: Supervised) -> None:
        """The run has begun: count its processor time where that is wanted."""
        if self._group is not None:
            self._group.close()
            if self._cpu_s is not None:
                self._watching = asyncio.ensure_future(self._count(run, self._group, self._cpu_s))

    async def _count(self, run: Supervised, group: cgroups.Group, cpu_s: int) -> None:
        while (left := cpu_s - group.cpu_s) > 0:
            await asyncio.sleep(max(cgroups.CPU_LOOK_S, left / (os.cpu_count() or 1)))
        self._is_out_of_time = True
        run.signal(signal.SIGXCPU)
        await asyncio.sleep(GRACE_S)
        run.child.kill()

    def end(self) -> str | None:
        """The run is over: which bound it hit. The group goes as soon as it is empty."""
        if self._watching is not None:
            self._watching.cancel()
        if self._group is None:
            return None
        hit = "cpu" if self._is_out_of_time else self._group.hit()
        self._group.remove()
        return hit


class Bounds:
    """What bounds runs on this host; one for each engine."""

    def __init__(self, places: cgroups.Places | None = None) -> None:
        self._places = places or cgroups.Places()
        self._groups: list[cgroups.Group] = []

    def close(self) -> None:
        """Every run is over: leave no group behind."""
        for group in self._groups:
            group.remove_now()

    def applied(self, plan: LaunchPlan, limits: Limits, zygote: int | None) -> LaunchPlan:
        """The plan with the limits that a group will not hold, and gaps for what nothing holds."""
        if not _is_wanted(limits):
            return plan
        self._places.find([zygote] if zygote is not None else [])
        held = self._places.controllers()
        rlimits, gaps = dict(plan.rlimits), list(plan.tier.gaps)
        if limits.memory_bytes is not None:
            if "memory" in held:
                rlimits.pop("AS", None)  # reserves count there, which JVMs and Go make freely
            else:
                gaps.append(MEMORY_GAP)
        if limits.processes is not None:
            rlimits.pop("NPROC", None)
            if "pids" not in held:
                gaps += _count_by_user(plan, limits.processes, rlimits)
        if limits.cpu_s is not None and not self._places.counts_cpu():
            gaps.append(CPU_GAP)
        tier = msgspec.structs.replace(plan.tier, gaps=tuple(gaps))
        return msgspec.structs.replace(plan, rlimits=rlimits, tier=tier)

    def begin(self, plan: LaunchPlan, limits: Limits) -> Bound:
        """The group for one run. Raises OSError when it cannot be made after all."""
        if not _is_wanted(limits):
            return Bound(None, None)
        wanted = {}
        if limits.memory_bytes is not None:
            wanted["memory"] = limits.memory_bytes
        if limits.processes is not None:
            wanted["pids"] = limits.processes + own_processes(plan)
        group = self._places.group(wanted, counts_cpu=limits.cpu_s is not None)
        self._groups = [known for known in self._groups if known.folders]
        self._groups += [group] if group is not None else []
        return Bound(group, limits.cpu_s)


def _is_wanted(limits: Limits) -> bool:
    return (limits.memory_bytes, limits.processes, limits.cpu_s) != (None, None, None)


def own_processes(plan: LaunchPlan) -> int:
    """How many processes of a run are ours: its init, and a helper with its pid 1."""
    return 3 if plan.maker is not None or plan.status_fd is not None else 1


def _count_by_user(plan: LaunchPlan, processes: int, rlimits: dict[str, int]) -> list[str]:
    """Set RLIMIT_NPROC where it bounds something; the gap where it does not do exactly that."""
    uid = plan.outside_ids[0] if plan.outside_ids is not None else os.getuid()
    if uid == 0:
        return [ROOT_GAP]
    has_own = ("user" in plan.namespaces or plan.maker is not None) and plan.status_fd is None
    if has_own and _kernel() >= PER_NAMESPACE_SINCE:
        rlimits["NPROC"] = processes + (2 if plan.maker is not None else 1)
        return []
    rlimits["NPROC"] = processes + own_processes(plan) + posix.tasks_of(uid)
    return [OTHERS_GAP]


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)
