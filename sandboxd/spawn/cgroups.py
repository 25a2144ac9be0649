"""Control groups: what bounds the memory, processes and processor time of a run as a whole.

Limits of setrlimit(2) hold for one process each (memory, processor time), or count other processes
of the user too (number of processes). Where the daemon may make a control group, a run gets one of
its own. It is looked for when a limit first asks for one, never on the way of other runs.

Where groups are made (cgroup v2): in the nearest folder, from our own group upwards, that hands the
controllers to its children and that we may write: a user's systemd manager has such folders. Or in
our own group, when nobody but us is in it (a service or scope with Delegate=yes): a group either
holds processes or hands out controllers, so we move into a leaf of it first. No limit is made higher
than that of the groups we leave. Of cgroup v1 only `pids` is used, where root may.

Init joins by a descriptor that the daemon has opened: later it neither sees the folder nor may write
there. What was hit is read from the group's own events when the run is over.

Sources: cgroups(7), Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/pids.rst.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

PREFIX = "sandboxd-run-"
LEAF = "sandboxd-self"
REMOVE_S = 0.05
REMOVE_TRIES = 100
LAST_S = 1.0
CPU_LOOK_S = 0.25
EVENTS = {"memory": ("memory.events", "oom_kill"), "pids": ("pids.events", "max")}
MAXIMA = {"memory": "memory.max", "pids": "pids.max"}
V2_CONTROLLERS = ("memory", "pids")


@dataclass(frozen=True)
class Place:
    """A folder in which groups can be made, and the controllers that they have there."""

    folder: str
    controllers: frozenset[str]
    highest: dict[str, int] = field(default_factory=dict)
    """What our own groups bound, by controller."""
    counts_cpu: bool = False


class Group:
    """The groups of one run: one folder in each place."""

    def __init__(self, places: Iterable[Place], name: str, wanted: dict[str, int]) -> None:
        """`wanted`: the bound by controller. Raises OSError; nothing is left then."""
        self.folders: list[str] = []
        self.descriptors: list[int] = []
        self.bounded = frozenset(wanted)
        self._cpu_file = ""
        try:
            for place in places:
                self._make(place, name, wanted)
        except OSError:
            self.close()
            self._remove()
            raise

    def _make(self, place: Place, name: str, wanted: dict[str, int]) -> None:
        folder = os.path.join(place.folder, name)
        os.mkdir(folder, 0o700)
        self.folders.append(folder)
        for controller in place.controllers & wanted.keys():
            bound = min(wanted[controller], place.highest.get(controller, wanted[controller]))
            _write(os.path.join(folder, MAXIMA[controller]), str(bound))
            if controller == "memory":
                with contextlib.suppress(OSError):  # a kernel without swap accounting
                    _write(os.path.join(folder, "memory.swap.max"), "0")
        if place.counts_cpu:
            self._cpu_file = os.path.join(folder, "cpu.stat")
        procs = os.path.join(folder, "cgroup.procs")
        self.descriptors.append(os.open(procs, os.O_WRONLY | os.O_CLOEXEC))

    def hit(self) -> str | None:
        """`memory` or `processes`, when that bound was reached; memory kills, so it goes first."""
        for controller, word in (("memory", "memory"), ("pids", "processes")):
            name, key = EVENTS[controller]
            if controller in self.bounded and any(
                _entry(os.path.join(folder, name), key) for folder in self.folders
            ):
                return word
        return None

    @property
    def cpu_s(self) -> float:
        """Processor time that the run has used; 0 where nobody counts it."""
        return _entry(self._cpu_file, "usage_usec") / 1e6 if self._cpu_file else 0.0

    def close(self) -> None:
        """The descriptors are handed over, or not needed any more."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def remove(self, tries: int = REMOVE_TRIES) -> None:
        """Remove the folders, once the last process has really left."""
        self.close()
        if not self._remove() and tries:
            asyncio.get_running_loop().call_later(REMOVE_S, self.remove, tries - 1)

    def remove_now(self) -> None:
        """The same at the end of the daemon, when nobody waits for a loop any more."""
        deadline = time.monotonic() + LAST_S
        while not self._remove() and time.monotonic() < deadline:
            time.sleep(0.005)

    def _remove(self) -> bool:
        for folder in list(self.folders):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                continue
            self.folders.remove(folder)
        return not self.folders


class Places:
    """Where this daemon may make groups; looked up once."""

    def __init__(self, proc: str = "/proc/self") -> None:
        self._proc = proc
        self._found: list[Place] | None = None
        self._made = 0

    def find(self, ours: Iterable[int] = ()) -> list[Place]:
        """The places, best first; `ours` are the processes that may move into a leaf with us."""
        if self._found is None:
            own, mounts = _own_groups(self._proc), _mounts(self._proc)
            found = [_place_v2(mounts.get("", ""), own.get(""), {os.getpid(), *ours})]
            found.append(_place_v1(mounts.get("pids", ""), own.get("pids"), "pids"))
            self._found = [place for place in found if place is not None]
            for place in self._found:
                _sweep(place.folder)
        return self._found

    def group(self, wanted: dict[str, int], *, counts_cpu: bool) -> Group | None:
        """A group that bounds what it can of `wanted`; None when it could bound or count nothing."""
        places = self._found or []
        chosen = [
            p for p in places if p.controllers & wanted.keys() or (counts_cpu and p.counts_cpu)
        ]
        held = {name for place in chosen for name in place.controllers}
        if not chosen:
            return None
        self._made += 1
        name = f"{PREFIX}{os.getpid()}-{self._made}"
        return Group(chosen, name, {name: value for name, value in wanted.items() if name in held})

    def controllers(self) -> frozenset[str]:
        return frozenset(name for place in self._found or [] for name in place.controllers)

    def counts_cpu(self) -> bool:
        return any(place.counts_cpu for place in self._found or [])


def _own_groups(proc: str) -> dict[str, str]:
    """Our group by controller; the unified hierarchy's has the empty name."""
    found = {}
    for line in _text(f"{proc}/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in controllers.split(","):
            found[name] = path
    return found


def _mounts(proc: str) -> dict[str, str]:
    """Where the hierarchies are mounted, by the same names (proc_pid_mountinfo(5))."""
    found: dict[str, str] = {}
    for line in _text(f"{proc}/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        point, kind = before.split()[4], after.split()
        if kind[:1] == ["cgroup2"]:
            found.setdefault("", point)
        elif kind[:1] == ["cgroup"]:
            for name in kind[-1].split(","):
                found.setdefault(name, point)
    return found


def _place_v2(mount: str, own: str | None, ours: set[int]) -> Place | None:
    if not mount or own is None or "/.." in own:  # outside what this mount shows
        return None
    top, folder = mount, os.path.join(mount, own.lstrip("/")).rstrip("/")
    highest: dict[str, int] = {}
    if (place := _in_own_group(folder, ours)) is not None:
        return place
    while True:
        for name, bound in _bounds(folder).items():
            highest[name] = min(bound, highest.get(name, bound))
        if folder == top:
            break
        folder = os.path.dirname(folder)
        handed = set(_text(f"{folder}/cgroup.subtree_control").split())
        if handed & set(V2_CONTROLLERS) and _may_make(folder):
            return Place(folder, frozenset(handed & set(V2_CONTROLLERS)), highest, True)
    if _may_make(top):
        handed = set(_text(f"{top}/cgroup.subtree_control").split())
        return Place(top, frozenset(handed & set(V2_CONTROLLERS)), highest, True)
    return None


def _in_own_group(folder: str, ours: set[int]) -> Place | None:
    """Our own group as the place, when it is ours alone and can hand controllers out."""
    has = set(_text(f"{folder}/cgroup.controllers").split()) & set(V2_CONTROLLERS)
    if not has or not _may_make(folder):
        return None
    procs = {int(pid) for pid in _text(f"{folder}/cgroup.procs").split()}
    if not procs <= ours:
        return None
    leaf = os.path.join(folder, LEAF)
    try:
        os.makedirs(leaf, exist_ok=True)
        for pid in procs:
            _write(f"{leaf}/cgroup.procs", str(pid))
        _write(f"{folder}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(has)))
    except OSError:
        return None
    return Place(folder, frozenset(has), {}, True)


def _place_v1(mount: str, own: str | None, controller: str) -> Place | None:
    if not mount or own is None:
        return None
    folder = os.path.join(mount, own.lstrip("/")).rstrip("/")
    return Place(folder, frozenset({controller})) if _may_make(folder) else None


def _may_make(folder: str) -> bool:
    """Whether a group can be made there and entered from ours: tried, because modes do not tell."""
    probe = os.path.join(folder, f"{PREFIX}{os.getpid()}-probe")
    try:
        os.mkdir(probe, 0o700)
    except OSError:
        return False
    try:
        with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE) as moved:
            _write(f"{probe}/cgroup.procs", str(moved.pid))
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(probe)
    return True


def _bounds(folder: str) -> dict[str, int]:
    texts = {name: _text(f"{folder}/{file}").strip() for name, file in MAXIMA.items()}
    return {name: int(text) for name, text in texts.items() if text.isdigit()}


def _sweep(folder: str) -> None:
    """Remove empty groups of daemons that are no more."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            pid = name.removeprefix(PREFIX).partition("-")[0]
            if name.startswith(PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(folder, name))


def _entry(file: str, key: str) -> int:
    """A number from a file of `key number` lines; 0 when it is not there."""
    for line in _text(file).splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
