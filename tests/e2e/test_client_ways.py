"""The clients' ways to a server and back to it: private servers, lost connections, streams."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sandboxd
from sandboxd import AsyncClient, Client, errors
from sandboxd.model import ApprovalReply
from sandboxd.protocol.file_messages import FsGrep


def until(done: Callable[[], bool], limit_s: float = 20) -> None:
    deadline = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.02)


def runs(mark: str) -> bool:
    found = subprocess.run(["pgrep", "-f", mark], check=False, stdout=subprocess.DEVNULL)
    return found.returncode == 0


@pytest.fixture
def client(daemon: Any, workspace: Path) -> Iterator[Client]:
    with Client.connect(daemon.socket, workspace=str(workspace)) as connected:
        yield connected


def test_both_clients_are_names_of_the_package_and_have_the_same_methods() -> None:
    assert sandboxd.Client is Client
    public = {name for name in dir(AsyncClient) if not name.startswith("_")} - {"session"}
    assert public - {name for name in dir(Client) if not name.startswith("_")} == set()
    assert Client.exec.__doc__ == AsyncClient.exec.__doc__


def test_a_private_server_ends_with_its_client(workspace: Path) -> None:
    with Client.spawn(workspace=str(workspace)) as client:
        server = client.status().pid
        assert client.exec("echo hi").stdout.text == "hi\n"  # type: ignore[union-attr]
        assert client.status().socket is None
    assert not os.path.exists(f"/proc/{server}")


def test_a_command_that_leads_to_a_server_is_a_way_and_its_environment_is_its_own(
    workspace: Path,
) -> None:
    """What ssh does: another shell, another environment, stdin and stdout passed through."""
    far = f"cd / && env -i HOME=/ PATH=/usr/bin:/bin PYTHONPATH={os.environ['PYTHONPATH']} "
    words = ["sh", "-c", far + f"{sys.executable} -m sandboxd serve --stdio; true"]

    def approver(ask: Any) -> Any:
        return ApprovalReply(answer="deny", reason="from here")

    async def test() -> None:
        options: Any = {"workspace": str(workspace), "approver": approver}
        async with await AsyncClient.spawn(words, **options) as client:
            result = await client.exec(["sh", "-c", "pwd; echo $PYTHONPATH."], approve="all")
            assert result.stdout is not None
            assert result.stdout.text == f"{workspace}\n.\n"
            with pytest.raises(errors.ApprovalDenied, match="from here"):
                await client.exec("touch x")

    asyncio.run(test())


@pytest.mark.parametrize("words", [["/no/such/ssh"], ["false"], ["sh", "-c", "echo not json"]])
def test_a_command_that_leads_nowhere_is_a_typed_error(words: list[str], workspace: Path) -> None:
    with pytest.raises((errors.DaemonUnreachable, errors.Fault)):
        Client.spawn(words, workspace=str(workspace))


def test_the_next_call_connects_again_and_finds_its_session(daemon: Any, workspace: Path) -> None:
    asked: list[str] = []

    def approver(ask: Any) -> Any:
        asked.append(ask.command)
        return "session"

    with Client.connect(daemon.socket, workspace=str(workspace), approver=approver) as client:
        assert client.session is not None
        name = client.session.session_id
        client.exec("touch a; echo kept > /tmp/kept")
        client._dialed.connected.shutdown(2)  # type: ignore[union-attr]
        with pytest.raises(errors.DaemonUnreachable):
            client.status()
        result = client.exec("touch a; echo kept > /tmp/kept")
        assert result.decision.approved_by == "session"
        assert client.exec("cat /tmp/kept").stdout.text == "kept\n"  # type: ignore[union-attr]
        assert client.session.session_id == name
    assert asked == ["touch a; echo kept > /tmp/kept"]


def test_a_daemon_that_was_killed_and_started_again_is_found_again(
    own_daemon: Any, workspace: Path
) -> None:
    first = own_daemon()

    async def test() -> None:
        client = await AsyncClient.connect(first.socket, workspace=str(workspace))
        call = asyncio.create_task(client.exec(["sleep", "791.5"], approve="all"))
        while not runs("sleep 791.5"):
            await asyncio.sleep(0.05)
        first.process.kill()
        with pytest.raises(errors.DaemonUnreachable):
            await call
        with pytest.raises(errors.DaemonUnreachable):
            await client.status()
        from tests.e2e.conftest import start_daemon

        again = start_daemon(first.socket)
        try:
            results = await asyncio.gather(*(client.exec(["echo", str(n)]) for n in range(5)))
            assert [result.exit_code for result in results] == [0] * 5
        finally:
            await client.close()
            again.process.terminate()
            again.process.wait(30)
        with pytest.raises(errors.DaemonUnreachable, match="is closed"):
            await client.status()

    asyncio.run(test())
    until(lambda: not runs("sleep 791.5"))


def test_a_stream_can_be_written_to_and_other_calls_go_on_meanwhile(client: Client) -> None:
    with client.stream(["cat"], approve="all", stdin_open=True) as run:
        run.write("one\n")
        seen = []
        for piece in run:
            seen += piece.lines or ()
            if seen == ["one"]:
                assert client.classify("ls").class_.value == "read_only"
                run.write("two\n", eof=True)
    assert seen == ["one", "two"]
    assert run.result.exit_code == 0


def test_leaving_a_stream_early_ends_the_run(client: Client) -> None:
    with client.stream(["sh", "-c", "echo go; sleep 792.5"], approve="all") as run:
        assert next(iter(run)).lines == ("go",)
    assert not runs("sleep 792.5")
    with pytest.raises(errors.Cancelled):
        _ = run.result
    assert client.exec(["true"]).exit_code == 0

    async def test() -> None:
        async with await AsyncClient.spawn(workspace="/var/tmp") as own:
            words = ["sh", "-c", "echo go; sleep 793.5"]
            async with own.stream(words, approve="all") as run:
                async for piece in run:
                    assert piece.lines == ("go",)
                    break
            assert not runs("sleep 793.5")

    asyncio.run(test())


def test_an_exception_while_waiting_ends_the_run_first(client: Client) -> None:
    class Full(Exception):
        pass

    def full(output: Any) -> None:
        raise Full

    with pytest.raises(Full):
        client.exec(["sh", "-c", "echo x; sleep 794.5"], approve="all", on_output=full)
    assert not runs("sleep 794.5")
    assert client.exec(["true"]).exit_code == 0


def test_refusals_of_a_stream_are_raised_where_it_is_read(client: Client) -> None:
    with pytest.raises(errors.ApprovalRequired), client.stream("touch x") as run:
        list(run)
    with pytest.raises(errors.InvalidRequest, match="timeout"):
        client.exec("ls", timeout_s="long")  # type: ignore[arg-type]


def test_the_blocking_client_works_inside_a_running_event_loop(
    daemon: Any, workspace: Path
) -> None:
    async def test() -> int:
        with Client.connect(daemon.socket, workspace=str(workspace)) as client:
            return client.exec(["true"]).exit_code

    assert asyncio.run(test()) == 0


def test_a_terminal_is_an_object_that_ends_with_its_block(client: Client) -> None:
    with client.terminal(["sh", "-c", "read x; echo got $x; sleep 795.5"], approve="all") as one:
        assert one.read(wait_s=20).state == "waiting_for_input"
        one.write("it\n")
        until(lambda: "got it" in "".join((*(r := one.read()).lines, *r.live)))
        assert [entry.terminal_id for entry in client.terminals()] == [one.id]
    until(lambda: not runs("sleep 795.5"))


def test_files_are_read_and_changed_through_the_gate_by_both_clients(
    client: Client, daemon: Any, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\ntwo\n")
    assert client.files.read("a.txt", numbered=False).text == "one\ntwo\n"
    changed = client.files.edit("a.txt", ("two", "three"), approve="mutating")
    assert (changed.action, (workspace / "a.txt").read_text()) == ("update", "one\nthree\n")
    assert client.files.glob("*.txt").paths == ("a.txt",)
    assert [found.path for found in client.files.grep(FsGrep(pattern="thr")).files] == ["a.txt"]
    client.files.undo(changed.change_id, approve="mutating")
    assert (workspace / "a.txt").read_text() == "one\ntwo\n"

    async def test() -> None:
        async with await AsyncClient.connect(daemon.socket, workspace=str(workspace)) as other:
            with pytest.raises(errors.Refusal):
                await other.files.write("/usr/outside", "x", approve="all")
            written = await other.files.write("b/c.txt", "x\n", approve="mutating")
            assert written.created_directories == ("b",)
            assert [
                os.path.basename(entry.name) for entry in (await other.files.list("b")).entries
            ] == ["c.txt"]

    asyncio.run(test())
