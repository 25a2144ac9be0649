"""Sessions: shared, resumed, expired, closed; and never seen by each other."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd import Client, errors
from sandboxd import engine as engine_module
from sandboxd.engine import Engine
from sandboxd.model import Result


@pytest.fixture
def name() -> str:
    return f"test-{secrets.token_hex(6)}"


def text(result: Result) -> str:
    assert result.stdout is not None
    return result.stdout.text


@pytest.fixture
def two(daemon: Any, workspace: Path) -> Iterator[tuple[Client, Client]]:
    """Two clients of one daemon and one workspace, each in a session of its own."""
    with (
        Client.connect(daemon.socket, workspace=str(workspace)) as one,
        Client.connect(daemon.socket, workspace=str(workspace)) as other,
    ):
        yield one, other


def test_clients_of_one_session_share_its_tmp_and_outlive_each_other(
    daemon: Any, workspace: Path, name: str
) -> None:
    options: Any = {"workspace": str(workspace), "session_id": name}
    with Client.connect(daemon.socket, **options) as stays:
        with Client.connect(daemon.socket, **options) as goes:
            goes.exec("echo shared > /tmp/file", approve="all")
            [entry] = [one for one in stays.sessions() if one.session_id == name]
            assert (entry.clients, entry.lasting) == (2, True)
        assert text(stays.exec("cat /tmp/file")) == "shared\n"
        [entry] = [one for one in stays.sessions() if one.session_id == name]
        assert entry.clients == 1


def test_sessions_see_nothing_of_each_other(two: tuple[Client, Client]) -> None:
    one, other = two
    one.exec("echo mine > /tmp/file", approve="all")
    assert other.exec("cat /tmp/file").exit_code == 1
    big = one.exec(["seq", "100000"], approve="all")
    assert big.stdout is not None
    assert big.stdout.output_id is not None
    assert one.read_output(big.stdout.output_id, from_line=50000, count=1) == "50000\n"
    with pytest.raises(errors.OutputUnknown):
        other.read_output(big.stdout.output_id, from_line=1, count=1)
    with one.terminal(["sleep", "60"], approve="all") as terminal:
        with pytest.raises(errors.RunUnknown):
            other.terminal_read(terminal.id)
        assert other.terminals() == ()
    with one.stream(["sleep", "60"], approve="all") as run, pytest.raises(errors.RunUnknown):
        other.terminate(run.id)


def test_a_session_of_another_workspace_is_refused(
    daemon: Any, workspace: Path, tmp_path: Path, name: str
) -> None:
    with (
        Client.connect(daemon.socket, workspace=str(workspace), session_id=name),
        pytest.raises(errors.WorkspaceRefused, match="belongs to the workspace"),
    ):
        Client.connect(daemon.socket, workspace=str(tmp_path), session_id=name)


def test_closing_a_session_ends_its_runs_and_tells_its_clients(two: tuple[Client, Client]) -> None:
    one, other = two
    assert one.session is not None
    with one.stream(["sh", "-c", "echo on; sleep 60"], approve="all") as run:
        assert next(iter(run)).lines == ("on",)
        other.close_session(one.session.session_id)
        with pytest.raises(errors.Cancelled):
            _ = run.result
    with pytest.raises(errors.SessionUnknown, match="has been closed"):
        one.exec(["true"])
    with pytest.raises(errors.SessionUnknown):
        other.close_session(one.session.session_id)


def test_the_command_line_has_one_session_for_a_workspace_or_the_one_that_is_named(
    daemon: Any, workspace: Path, name: str
) -> None:
    def run(*words: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "sandboxd", "exec", "--approve", "all", *words],
            cwd=workspace,
            env={**os.environ, "SANDBOXD_SOCKET": daemon.socket, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    run("-c", "echo kept > /tmp/file")
    assert run("-c", "cat /tmp/file") == "kept\n"
    assert run("--session", name, "-c", "cat /tmp/file") == ""
    run("--session", name, "-c", "echo named > /tmp/file")
    assert run("-c", "cat /tmp/file", SANDBOXD_SESSION=name) == "named\n"


def test_a_session_is_closed_some_time_after_its_last_client_and_not_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine_module, "RESUME_S", 0.3)

    async def main() -> None:
        engine = await Engine.create()
        try:
            here = str(tmp_path)
            first = engine.open_session(workspace=here, cwd=here)
            second = engine.open_session(workspace=here, cwd=here, session_id=first.id)
            engine.release_session(second)
            await asyncio.sleep(0.5)
            assert engine.sessions() == [second], "the first client has it open"
            engine.release_session(first)
            await asyncio.sleep(0.1)
            again = engine.open_session(workspace=here, cwd=here, session_id=first.id)
            await asyncio.sleep(0.5)
            assert engine.sessions() == [again], "it was resumed in time"
            assert again.shared is first.shared
            engine.release_session(again)
            await asyncio.sleep(0.5)
            assert (engine.sessions(), os.path.exists(first.folder)) == ([], False)
        finally:
            await engine.close()

    asyncio.run(main())


def test_a_folder_that_was_swept_in_its_sleep_is_made_again(
    daemon: Any, workspace: Path, name: str
) -> None:
    import shutil

    from sandboxd import config

    with Client.connect(daemon.socket, workspace=str(workspace), session_id=name) as client:
        folder = os.path.join(config.temp_folder(), name)
        shutil.rmtree(folder)
        assert client.exec(["true"]).exit_code == 0
        assert os.path.isdir(folder)
        client.close_session(name)
    assert not os.path.exists(folder)


def test_what_nobody_has_used_for_a_day_is_swept_and_what_is_used_is_not(tmp_path: Path) -> None:
    from sandboxd import config, sessions

    base = Path(config.temp_folder())
    old, new = base / f"old-{secrets.token_hex(4)}", base / f"new-{secrets.token_hex(4)}"
    for folder in (old, new):
        (folder / "tmp").mkdir(parents=True)
    day_ago = time.time() - sessions.IDLE_S - 60
    os.utime(old, (day_ago, day_ago))
    sessions.sweep_idle()
    assert (old.exists(), new.exists()) == (False, True)
    new.joinpath("tmp").rmdir()
    new.rmdir()


def test_sessions_are_bounded_and_the_idlest_that_nobody_has_open_makes_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine_module, "MAX_SESSIONS", 2)

    async def main() -> None:
        engine = await Engine.create()
        try:
            here = str(tmp_path)
            first, second = (engine.open_session(workspace=here, cwd=here) for _ in "12")
            with pytest.raises(errors.Overloaded):
                engine.open_session(workspace=here, cwd=here)
            engine.release_session(first)
            third = engine.open_session(workspace=here, cwd=here)
            assert engine.sessions() == [second, third]
            assert not os.path.exists(first.folder)
        finally:
            await engine.close()

    asyncio.run(main())
