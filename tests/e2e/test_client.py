"""The Python clients against a real daemon: typed results, the classes of errors.py, callbacks."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from sandboxd import errors
from sandboxd.client import AsyncClient, Client
from sandboxd.model import ApprovalAsk, ApprovalReply, CommandClass, ExecRequest
from sandboxd.protocol.messages import CommandOutput


@pytest.fixture
def client(daemon: Any, workspace: Path) -> Any:
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        yield client


def test_a_result_is_typed_and_complete(client: Client, workspace: Path) -> None:
    result = client.exec("echo out; echo err >&2; touch made; exit 4", approve="all")
    assert (result.exit_code, result.cwd) == (4, str(workspace))
    assert result.stdout is not None
    assert result.stderr is not None
    assert (result.stdout.text, result.stderr.text) == ("out\n", "err\n")
    assert result.tier.kernel
    assert result.decision.approved_by == "caller"


def test_input_cwd_env_and_merge_arrive(client: Client, workspace: Path) -> None:
    (workspace / "in").mkdir()
    result = client.exec(
        "cat; pwd; echo $A >&2",
        cwd=str(workspace / "in"),
        env={"A": "b"},
        stdin=b"bytes\n",
        merge=True,
        approve="all",
    )
    assert result.output is not None
    assert result.output.text == f"bytes\n{workspace}/in\nb\n"


def test_output_is_handed_over_as_it_comes(client: Client) -> None:
    seen: list[CommandOutput] = []
    moments: list[float] = []

    def on_output(output: CommandOutput) -> None:
        seen.append(output)
        moments.append(time.monotonic())

    client.exec("echo one; sleep 0.5; echo two", approve="all", on_output=on_output)
    assert [output.lines for output in seen] == [("one",), ("two",)]
    assert moments[1] - moments[0] > 0.3


def test_classify_tiers_and_status_are_typed(client: Client) -> None:
    verdict = client.classify("rm -rf build")
    assert verdict.class_ in (CommandClass.MUTATING, CommandClass.DESTRUCTIVE)
    assert "containment" in {rung.tier.name for rung in client.tiers()}
    assert client.status().connections >= 1


@pytest.mark.parametrize(
    ("command", "options", "error"),
    [
        (["no-such-program"], {}, errors.ProgramMissing),
        (["/etc/passwd"], {}, errors.NotExecutable),
        (["true"], {"tier": "nope"}, errors.UnknownTier),
        (["true"], {"tier": "seatbelt"}, errors.TierUnavailable),
        (["true"], {"cwd": "/no/such/folder"}, errors.CwdMissing),
    ],
)
def test_refusals_are_raised_as_their_own_class(
    client: Client, command: list[str], options: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.exec(command, approve="all", **options)  # type: ignore[arg-type]
    assert client.exec(["true"], approve="all").exit_code == 0


def test_unknown_profiles_and_sockets_nobody_answers_are_raised_by_connect(
    daemon: Any, workspace: Path
) -> None:
    with pytest.raises(errors.UnknownProfile):
        Client.connect(daemon.socket, workspace=str(workspace), profile="nope")
    with pytest.raises(errors.DaemonUnreachable):
        Client.connect(str(workspace / "none"))


def test_an_approver_is_asked_and_its_word_counts(daemon: Any, workspace: Path) -> None:
    asked: list[str] = []
    answers = iter(["deny", ApprovalReply(answer="once"), "boom"])

    def approver(ask: ApprovalAsk) -> Any:
        asked.append(ask.command)
        answer = next(answers)
        if answer == "boom":
            raise RuntimeError("the person's terminal is gone")
        return answer

    (workspace / "victim").touch()
    with Client.connect(daemon.socket, workspace=str(workspace), approver=approver) as client:
        with pytest.raises(errors.ApprovalDenied):
            client.exec("rm -rf victim")
        assert (workspace / "victim").exists()
        assert client.exec("rm -rf victim").decision.approved_by == "person"
        assert not (workspace / "victim").exists()
        with pytest.raises(errors.ApprovalDenied, match="terminal is gone"):
            client.exec("rm -rf other")
    assert asked == ["rm -rf victim", "rm -rf victim", "rm -rf other"]


def test_many_calls_at_once_and_their_outputs_are_not_mixed(daemon: Any, workspace: Path) -> None:
    async def test() -> None:
        async with await AsyncClient.connect(daemon.socket, workspace=str(workspace)) as client:
            seen: dict[int, list[str]] = {number: [] for number in range(20)}

            def collect(number: int) -> Any:
                return lambda output: seen[number].extend(output.lines or ())

            results = await asyncio.gather(
                *(
                    client.exec(["echo", str(number)], approve="all", on_output=collect(number))
                    for number in seen
                )
            )
            assert [result.exit_code for result in results] == [0] * 20
            assert seen == {number: [str(number)] for number in range(20)}

    asyncio.run(test())


def test_cancelling_the_task_ends_the_run(daemon: Any, workspace: Path) -> None:
    mark = "700.125"

    def is_running() -> bool:
        found = subprocess.run(["pgrep", "-f", f"sleep {mark}"], check=False, stdout=-3)
        return found.returncode == 0

    async def test() -> None:
        async with await AsyncClient.connect(daemon.socket, workspace=str(workspace)) as client:
            call = asyncio.create_task(client.exec(["sleep", mark], approve="all"))
            while not is_running():
                await asyncio.sleep(0.02)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            for _ in range(500):
                if not is_running():
                    break
                await asyncio.sleep(0.02)
            assert not is_running()
            assert (await client.exec(["true"], approve="all")).exit_code == 0

    asyncio.run(test())


def test_a_daemon_that_dies_is_an_error_and_no_hang(own_daemon: Any, workspace: Path) -> None:
    running = own_daemon()

    async def test() -> None:
        client = await AsyncClient.connect(running.socket, workspace=str(workspace))
        call = asyncio.create_task(client.exec(["sleep", "30"], approve="all"))
        await asyncio.sleep(0.5)
        running.process.kill()
        with pytest.raises(errors.DaemonUnreachable):
            await asyncio.wait_for(call, 30)
        with pytest.raises(errors.DaemonUnreachable):
            await client.status()
        await client.close()

    asyncio.run(test())


def test_everything_a_request_can_say_goes_through_run(client: Client) -> None:
    request = ExecRequest(argv=("printf", "ab"), approve="all", stream="raw", head_bytes=1)
    pieces: list[str | None] = []
    client.run(request, lambda output: pieces.append(output.bytes_b64))
    assert pieces == ["YWI="]


def test_terminals_are_methods_of_both_clients(daemon: Any, workspace: Path) -> None:
    """The same session is joined by its id, so one client types into what the other has started."""

    async def answered(session_id: str, terminal_id: str) -> None:
        async with await AsyncClient.connect(
            daemon.socket, workspace=str(workspace), session_id=session_id
        ) as joined:
            assert [entry.terminal_id for entry in await joined.terminals()] == [terminal_id]
            await joined.terminal_resize(terminal_id, 100, 30)
            await joined.terminal_write(terminal_id, "yes\n")
            reading = await joined.terminal_read(terminal_id, wait_s=20)
            assert (reading.state, reading.exit_code) == ("exited", 0)
            assert "got yes" in "\n".join(reading.lines)
            other = await joined.terminal_start(["sleep", "60"], approve="all")
            await joined.terminal_kill(other.terminal_id)
            with pytest.raises(errors.RunUnknown):
                await joined.terminal_write(other.terminal_id, keys=["enter"])

    with Client.connect(daemon.socket, workspace=str(workspace)) as starter:
        asked = "read -p 'go on? ' x; echo got $x"
        started = starter.terminal_start(asked, approve="all", cols=90)
        reading = starter.terminal_read(started.terminal_id, wait_s=20)
        assert (reading.state, reading.live) == ("waiting_for_input", ("go on? ",))
        assert starter.session is not None
        asyncio.run(answered(starter.session.session_id, started.terminal_id))
