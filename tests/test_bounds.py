"""Limits of a run as a whole: floods and hogs are held, said to be a limit, and nothing is left.

Every loop here is bounded, and each is far below what the machine has, so that a limit that did not
hold would show and harm nobody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.bounds import CPU_GAP, MEMORY_GAP, OTHERS_GAP, ROOT_GAP, Bounds
from sandboxd.engine import Engine
from sandboxd.model import Limits, Result
from sandboxd.pipeline import run_command
from sandboxd.sessions import Session
from sandboxd.spawn import cgroups
from tests.confined import REQUIRED_TIERS, VIEWED
from tests.guarded import Channel, Gate, make_gate

FLOOD = """
import os, sys, time
made = 0
for _ in range(300):
    try:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
    except BlockingIOError as error:
        print('made', made, flush=True)
        raise
    made += 1
print('made', made)
os.kill(os.getpid(), 9)
"""
"""Ends by a failure either way, and what it made dies with the run."""
HOG = "kept = [bytearray(1 << 20) for _ in range(600)]; print('had it all')"
BURN = "import os; os.fork(); os.fork()\nwhile True: pass"


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    yield from make_gate("namespaces", monkeypatch)


def python(gate: Gate, code: str, limits: Limits, engine_bounds: Bounds | None = None) -> Result:
    async def work(engine: Engine, session: Session) -> Result:
        if engine_bounds is not None:
            engine.bounds = engine_bounds
        argv = ["/usr/bin/env", "python3", "-I", "-c", code]
        request = gate.request(argv, "all", limits=limits)
        return await run_command(engine, session, request, Channel())

    result: Result = gate.engine(work)
    return result


def words(result: Result) -> str:
    return "".join(part.text for part in (result.stdout, result.stderr) if part is not None)


class Nowhere(cgroups.Places):
    """A host where no control group can be made."""

    def find(self, ours: object = ()) -> list[cgroups.Place]:
        self._found = []
        return []


def places() -> cgroups.Places:
    found = cgroups.Places()
    found.find()
    return found


HAS_PIDS = "pids" in places().controllers()
HAS_MEMORY = "memory" in places().controllers()
COUNTS_CPU = places().counts_cpu()


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_a_flood_of_processes_is_held_and_called_a_limit(tier: str, gate: Gate) -> None:
    gate.tier = tier
    if os.getuid() == 0 and not HAS_PIDS:
        pytest.fail("root without a pids group: nothing would hold the flood")
    result = python(gate, FLOOD, Limits(processes=40))
    made = int(words(result).split("made ")[1].split()[0])
    assert made < 300
    assert result.limit == "processes", words(result)
    assert result.attribution is not None
    assert (result.attribution.primary, result.attribution.origin) == ("workflow", "limit")
    if tier in ("namespaces", "bubblewrap") or HAS_PIDS:
        assert 37 <= made <= 40  # the program itself and env count too
        assert not [gap for gap in result.tier.gaps if gap in (ROOT_GAP, OTHERS_GAP)]


def test_without_a_group_the_namespace_of_the_run_bounds_it_or_the_gaps_say_so(gate: Gate) -> None:
    code = FLOOD if os.getuid() else "print('made 0'); raise SystemExit(1)"
    result = python(gate, code, Limits(processes=40), Bounds(Nowhere()))
    if os.getuid() == 0:
        assert ROOT_GAP in result.tier.gaps
        return
    assert 37 <= int(words(result).split("made ")[1].split()[0]) <= 40
    assert result.limit == "processes"


def test_the_daemon_answers_while_a_flood_is_held(gate: Gate) -> None:
    if os.getuid() == 0 and not HAS_PIDS:
        pytest.fail("root without a pids group: nothing would hold the flood")
    slowest = 0.0

    async def work(engine: Engine, session: Session) -> Result:
        import asyncio

        nonlocal slowest
        text = (
            "n=0; while [ $n -lt 2000 ]; do (exec sleep 5) 2>/dev/null & n=$((n+1)); done; exit 3"
        )
        request = gate.request(["/bin/bash", "-c", text], "all", limits=Limits(processes=30))
        flood = asyncio.ensure_future(run_command(engine, session, request, Channel()))
        deadline = time.monotonic() + 3
        while not flood.done() and time.monotonic() < deadline:
            begun = time.monotonic()
            await engine.classify(session, command="ls -la", argv=None)
            await asyncio.sleep(0.01)
            slowest = max(slowest, time.monotonic() - begun)
        flood.cancel()
        await asyncio.gather(flood, return_exceptions=True)
        return None  # type: ignore[return-value]

    gate.engine(work)
    assert slowest < 1


ORPHANS = """
import os, time
refused = 0
for _ in range(120):
    try:
        pid = os.fork()
    except BlockingIOError:
        refused += 1
        time.sleep(0.005)
        continue
    if pid == 0:
        try:
            if os.fork() == 0:
                time.sleep(0.2)
        except BlockingIOError:
            os._exit(1)
        os._exit(0)
    refused += os.waitpid(pid, 0)[1] != 0
time.sleep(0.8)
print(refused > 0, 'alive', sum(open(f'/proc/{n}/stat').read().split()[2] == 'Z'
                                for n in os.listdir('/proc') if n.isdigit()))
"""


@pytest.mark.parametrize("tier", VIEWED)
def test_orphans_at_the_limit_are_reaped_and_end_nothing(tier: str, gate: Gate) -> None:
    """What reaps them needs no process of its own for that."""
    gate.tier = tier
    result = python(gate, ORPHANS, Limits(processes=8))
    assert words(result).strip() == ("True alive 0" if os.getuid() or HAS_PIDS else "False alive 0")
    assert result.exit_code == 0


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_a_memory_hog_is_held_and_called_a_limit(tier: str, gate: Gate) -> None:
    gate.tier = tier
    result = python(gate, HOG, Limits(memory_bytes=256 << 20))
    assert "had it all" not in words(result)
    assert result.exit_code != 0
    assert result.limit == "memory", words(result)
    assert result.attribution is not None
    assert result.attribution.origin == "limit"
    assert (MEMORY_GAP in result.tier.gaps) is not HAS_MEMORY


def test_processor_time_is_counted_over_all_processes_where_a_group_counts_it(gate: Gate) -> None:
    result = python(gate, BURN, Limits(cpu_s=1, wall_s=20))
    assert (result.limit, result.timed_out) == ("cpu", False)
    assert (CPU_GAP in result.tier.gaps) is not COUNTS_CPU


def test_processor_time_of_one_process_is_bounded_without_a_group(gate: Gate) -> None:
    result = python(gate, "while True: pass", Limits(cpu_s=1, wall_s=20), Bounds(Nowhere()))
    assert (result.exit_code, result.signal, result.limit) == (152, "SIGXCPU", "cpu")
    assert CPU_GAP in result.tier.gaps


def test_a_run_without_such_limits_never_looks_for_a_group(gate: Gate) -> None:
    class Strict(cgroups.Places):
        def find(self, ours: object = ()) -> list[cgroups.Place]:
            raise AssertionError("looked")

    result = python(gate, "print(1)", Limits(open_files=100, wall_s=60), Bounds(Strict()))
    assert result.exit_code == 0
    assert any("memory and number of processes: not limited" in gap for gap in result.tier.gaps)


def test_no_group_is_left(gate: Gate) -> None:
    python(gate, "print(1)", Limits(processes=40, cpu_s=5))
    for place in places().find():
        assert [n for n in os.listdir(place.folder) if n.startswith(cgroups.PREFIX)] == []


# ------------------------------------------------------------------ where groups are made


class Host:
    """A made-up /proc/self and hierarchy: which folders hand out what, and who owns them."""

    def __init__(self, top: Path, own: str) -> None:
        self.mount = top / "cgroup"
        self.proc = top / "proc"
        self.mount.mkdir()
        self.proc.mkdir()
        (self.proc / "cgroup").write_text(f"0::{own}\n")
        line = f"30 23 0:26 / {self.mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
        (self.proc / "mountinfo").write_text(line)

    def group(
        self, path: str, *, has: str = "", hands: str = "", procs: str = "", **files: str
    ) -> Path:
        folder = self.mount / path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text(has)
        (folder / "cgroup.subtree_control").write_text(hands)
        (folder / "cgroup.procs").write_text(procs)
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)
        return folder

    def place(self, monkeypatch: pytest.MonkeyPatch, writable: list[Path]) -> cgroups.Place | None:
        monkeypatch.setattr(cgroups, "_may_make", lambda folder: Path(folder) in writable)
        found = cgroups.Places(str(self.proc)).find()
        return found[0] if found else None


def test_a_users_manager_hands_controllers_to_its_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, "/user.slice/user@1000.service/app.slice/term.scope")
    host.group("/", has="cpu memory pids", hands="cpu memory pids")
    host.group("/user.slice", has="memory pids", hands="memory pids")
    host.group("/user.slice/user@1000.service", has="memory pids", hands="memory pids")
    slice_ = host.group(
        "/user.slice/user@1000.service/app.slice", has="memory pids", hands="memory pids"
    )
    host.group(
        "/user.slice/user@1000.service/app.slice/term.scope",
        has="memory pids", procs="1\n", memory_max="1000000\n", pids_max="max\n",
    )  # fmt: skip
    place = host.place(monkeypatch, [slice_, slice_ / "term.scope", slice_.parent])
    assert place is not None
    assert place.folder == str(slice_)
    assert place.controllers == {"memory", "pids"}
    assert place.highest == {"memory": 1000000}


def test_a_login_session_whose_folders_are_roots_has_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, "/user.slice/session-3.scope")
    host.group("/", hands="memory pids")
    host.group("/user.slice", hands="memory pids")
    host.group("/user.slice/session-3.scope", has="memory pids", procs="1\n")
    assert host.place(monkeypatch, []) is None


def test_a_delegated_group_of_our_own_is_emptied_into_a_leaf_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, "/system.slice/sandboxd.service")
    host.group("/system.slice", hands="memory pids")
    own = host.group("/system.slice/sandboxd.service", has="memory pids", procs=f"{os.getpid()}\n")
    (own / cgroups.LEAF).mkdir()
    (own / cgroups.LEAF / "cgroup.procs").write_text("")
    place = host.place(monkeypatch, [own])
    assert place is not None
    assert place.folder == str(own)
    assert (own / cgroups.LEAF / "cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_a_group_shared_with_others_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, "/ours.scope")
    host.group("/", has="memory pids")
    own = host.group("/ours.scope", has="memory pids", procs=f"{os.getpid()}\n1\n")
    assert host.place(monkeypatch, [own]) is None
    assert not (own / cgroups.LEAF).exists()
