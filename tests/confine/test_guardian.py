"""The guardian: what it costs to hear nothing, and what the next start finishes after a crash."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from sandboxd import config
from sandboxd.confine.guardian.aside import PREFIX, Store, open_beneath
from sandboxd.confine.guardian.guardian import Guardian
from sandboxd.confine.guardian.journal import FOLDER, Watched
from sandboxd.confine.guardian.watch import Watch
from sandboxd.engine import Engine
from sandboxd.sessions import Session
from tests.confined import read, write
from tests.guarded import Gate, git, make_gate, until


@pytest.fixture(params=["namespaces", "landlock"])
def gate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    for made in make_gate(request.param, monkeypatch):
        git("init", "-q", made.ground.workspace)
        write(made.ground.workspace + "/.mcp.json", "kept\n")
        yield made


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    for made in make_gate("namespaces", monkeypatch):
        git("init", "-q", made.ground.workspace)
        yield made


# ------------------------------------------------------------------ after a crash

PLANT_LATER = """
import time
while not os.path.exists('go'):
    time.sleep(0.01)
put('.envrc')
os.mkdir('.vscode')
put('.vscode/tasks.json')
attempt(lambda: put('.mcp.json'))
put('planted')
time.sleep(60)
"""


def killed_while_a_run_plants(gate: Gate) -> None:
    """An engine of its own process is stopped, its run plants, then the engine is killed."""
    code = f"""
    from tests.confined import Ground
    from tests.guarded import Gate
    Gate(Ground({gate.ground.top!r}), {gate.tier!r}).python({PLANT_LATER!r})
    """
    engine = subprocess.Popen(
        [sys.executable, "-B", "-c", textwrap.dedent(code)], env=os.environ.copy()
    )
    workspace = gate.ground.workspace
    try:
        wait_for(lambda: journals(gate) != [], engine)
        time.sleep(0.3)  # the journal is written before the launch
        engine.send_signal(signal.SIGSTOP)
        write(workspace + "/go", "")
        wait_for(lambda: os.path.exists(workspace + "/planted"), engine)
    finally:
        engine.kill()
        engine.wait()
    wait_for(lambda: not runs_in(workspace), None)


def journals(gate: Gate) -> list[str]:
    folder = os.path.join(gate.folder, FOLDER)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return [name for name in names if name.endswith(".json")]


def runs_in(workspace: str) -> bool:
    """Whether a process still has the workspace as its working directory."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == workspace:
                return True
        except OSError:
            continue
    return False


def wait_for(condition: object, process: subprocess.Popen[bytes] | None) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 30
    while not condition():
        assert process is None or process.poll() is None, "the engine ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_next_start_finishes_what_a_killed_engine_began(gate: Gate) -> None:
    workspace = gate.ground.workspace
    killed_while_a_run_plants(gate)
    assert os.path.exists(workspace + "/.envrc")
    result = gate.sh("true")
    assert sorted(os.listdir(workspace)) == [".git", ".mcp.json", "go", "planted"]
    assert read(workspace + "/.mcp.json") == "kept\n"
    expected = {f"{workspace}/.envrc", f"{workspace}/.vscode"}
    if gate.tier == "landlock":
        expected.add(f"{workspace}/.mcp.json")
    assert set(result.set_aside) == expected
    assert journals(gate) == []
    assert gate.sh("true").set_aside == ()


def test_a_living_run_of_another_engine_is_left_alone(masked: Gate) -> None:
    async def work(engine: Engine, session: Session) -> None:
        run = watched(masked, session)
        guard = engine.guardian.begin(run)
        write(masked.ground.workspace + "/.envrc", "x")
        assert Guardian().sweep(config.temp_folder()).set_aside == []
        assert engine.guardian.finish(guard).set_aside == [masked.ground.workspace + "/.envrc"]

    masked.engine(work)


def test_a_plant_that_had_lost_its_name_already_is_carried_away(masked: Gate) -> None:
    """The engine died between renaming a plant and moving it: nothing of ours stays behind."""
    workspace = masked.ground.workspace

    async def work(engine: Engine, session: Session) -> None:
        guard = Guardian().begin(watched(masked, session))
        harmless = f"{workspace}/{PREFIX}0123"
        guard.journal.note(harmless)
        write(harmless, "plant")
        os.close(guard.journal._fd)  # as the kernel does for a killed process
        engine.guardian.sweep(config.temp_folder())

    masked.engine(work)
    assert os.listdir(workspace) == [".git"]
    assert journals(masked) == []


def watched(gate: Gate, session: Session) -> Watched:
    return Watched(
        run_id="r-1",
        policy=gate.ground.policy(),
        is_masked=True,
        is_reader=False,
        session_folder=session.folder,
    )


# ------------------------------------------------------------------ nothing left over


def test_a_run_leaves_no_journal_no_watch_and_no_descriptor(masked: Gate) -> None:
    async def work(engine: Engine, session: Session) -> None:
        engine.guardian.finish(engine.guardian.begin(watched(masked, session)))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            engine.guardian.finish(engine.guardian.begin(watched(masked, session)))
        assert len(os.listdir("/proc/self/fd")) == before
        assert masked.ground.workspace in engine.guardian.watch.folders

    masked.engine(work)
    assert journals(masked) == []


def test_guarding_a_run_does_not_grow_with_the_workspace(masked: Gate) -> None:
    """Many files beside the protected names: the median stays within three times."""
    workspace = masked.ground.workspace

    def median(engine: Engine, session: Session) -> float:
        times = []
        run = watched(masked, session)
        for _ in range(60):
            begun = time.perf_counter()
            engine.guardian.finish(engine.guardian.begin(run))
            times.append(time.perf_counter() - begun)
        return sorted(times)[len(times) // 4]

    async def work(engine: Engine, session: Session) -> None:
        few = median(engine, session)
        for number in range(5000):
            os.close(os.open(f"{workspace}/f{number}", os.O_CREAT | os.O_WRONLY))
        os.makedirs(workspace + "/deep/er/still")
        await asyncio.sleep(0.1)
        assert median(engine, session) < 3 * few

    masked.engine(work)


# ------------------------------------------------------------------ watching


def test_a_folder_is_watched_for_as_long_as_somebody_listens(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxd.confine.guardian.watch.IDLE_S", 0.05)
    folder = str(tmp_path)

    async def main() -> None:
        watch, heard = Watch(), []

        def listener(place: str, name: str | None) -> None:
            heard.append((place, name))

        assert watch.add(folder, listener)
        write(folder + "/a", "")
        await until(lambda: (folder, "a") in heard, "the name is heard of")
        watch.remove(folder, listener)
        await until(lambda: watch.folders == [], "the watch is dropped")
        watch.close()

    asyncio.run(main())


def test_a_folder_made_anew_under_its_name_is_watched_anew(tmp_path: object) -> None:
    folder = str(tmp_path) + "/folder"
    os.mkdir(folder)

    async def main() -> None:
        watch, heard = Watch(), []

        def listener(place: str, name: str | None) -> None:
            heard.append(name)

        watch.add(folder, listener)
        os.rename(folder, folder + ".old")
        os.mkdir(folder)
        await until(lambda: None in heard, "the listener is told to look at all")
        watch.add(folder, listener)
        write(folder + "/new", "")
        await until(lambda: "new" in heard, "the new folder's name is heard of")
        watch.close()

    asyncio.run(main())


def test_what_is_not_there_cannot_be_watched(tmp_path: object) -> None:
    async def main() -> None:
        watch = Watch()
        assert not watch.add(f"{tmp_path}/absent", lambda place, name: None)
        watch.close()

    asyncio.run(main())


# ------------------------------------------------------------------ moving away


def test_a_folder_is_opened_without_following_a_link_on_the_way(tmp_path: object) -> None:
    top = str(tmp_path)
    os.makedirs(top + "/real/inner")
    os.symlink("real", top + "/link")
    os.close(open_beneath(top, top + "/real/inner"))
    for place in (top + "/link/inner", os.path.dirname(top)):
        with pytest.raises(OSError):
            open_beneath(top, place)


def test_too_much_stays_under_its_harmless_name(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another file system than the store's, where moving means copying."""
    monkeypatch.setattr("sandboxd.confine.guardian.aside.MAX_BYTES", 10)
    with_shm = f"/dev/shm/guardian-{os.getpid()}"
    os.mkdir(with_shm)
    try:
        write(with_shm + "/.envrc", "x" * 100)
        noted: list[str] = []
        where = Store(str(tmp_path) + "/store", noted.append).take(with_shm, with_shm + "/.envrc")
        assert [where] == noted
        assert [name[: len(PREFIX)] for name in os.listdir(with_shm)] == [PREFIX]
    finally:
        subprocess.run(["rm", "-rf", with_shm], check=True)
