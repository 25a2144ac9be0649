"""One connection: calls, notifications, limits and what happens when the client goes."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from typing import Any

import pytest

from sandboxd.daemon import connection
from sandboxd.protocol.wire import LINE_LIMIT


def in_loop(test: Any) -> Any:
    """Run an async test to its end."""

    def run(serving: Any) -> None:
        asyncio.run(asyncio.wait_for(test(serving), 60))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def until(condition: Any, within_s: float = 20) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.01)


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@in_loop
async def test_initialize_names_server_session_tier_and_profile(serving: Any) -> None:
    async with serving() as served:
        client = await served.client()
        client.initialize(profile="farm", session_id="mine")
        result = (await client.answer(0))["result"]
        assert result["protocol_version"] == 1
        assert result["server"]["name"] == "sandboxd"
        assert (result["session_id"], result["profile"]) == ("mine", "farm")
        assert result["tier"]["name"] == "containment"


@in_loop
async def test_calls_sent_right_behind_initialize_find_its_session(serving: Any) -> None:
    async with serving() as served:
        client = await served.client()
        client.initialize()
        client.call(1, "command.exec", argv=["/bin/echo", "hi"])
        assert (await client.answer(1))["result"]["stdout"]["text"] == "hi\n"


@in_loop
async def test_what_runs_needs_a_session(serving: Any) -> None:
    async with serving() as served:
        client = await served.client()
        for number, method in enumerate(("classify", "command.exec")):
            client.call(number, method, command="ls")
            assert (await client.answer(number))["error"]["data"]["code"] == "SESSION_UNKNOWN"
        client.call(9, "status")
        assert (await client.answer(9))["result"]["connections"] == 1


@in_loop
async def test_a_second_initialize_and_another_version_are_refused(serving: Any) -> None:
    async with serving() as served:
        client = await served.client()
        client.call(1, "initialize", protocol_version=0, workspace="/tmp")
        error = (await client.answer(1))["error"]
        assert (error["code"], error["data"]["data"]["supported"]) == (-32602, [1])
        client.initialize()
        await client.answer(0)
        client.initialize()
        assert "already" in (await client.answer(0))["error"]["message"]


@in_loop
async def test_relative_folders_and_no_folder_are_refused_by_name(serving: Any) -> None:
    async with serving() as served:
        client = await served.client()
        for number, params in enumerate(
            ({"workspace": "here"}, {"workspace": "/", "cwd": "x"}, {})
        ):
            client.call(number, "initialize", protocol_version=1, **params)
            error = (await client.answer(number))["error"]
            assert error["code"] == -32602
            assert error["data"]["data"]["parameter"] == ("cwd" if number == 1 else "workspace")


@in_loop
async def test_every_broken_line_is_answered_and_the_connection_lives(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        client.send_bytes(b"nonsense\n\n  \n[]\n" + b'{"jsonrpc":"2.0","id":5,"method":"nope"}\n')
        assert (await client.line())["error"]["code"] == -32700
        assert (await client.line())["error"]["code"] == -32600
        unknown = await client.line()
        assert (unknown["id"], unknown["error"]["code"]) == (5, -32601)
        assert "command.exec" in unknown["error"]["message"]
        client.call(6, "classify", comand="ls")
        wrong = (await client.line())["error"]
        assert (wrong["code"], wrong["data"]["data"]["parameter"]) == (-32602, "comand")
        client.call(7, "command.output", run_id="a", stream="stdout")
        assert "other way" in (await client.answer(7))["error"]["message"]
        client.call(8, "classify", command="ls")
        assert (await client.answer(8))["result"]["class"] == "read_only"


@in_loop
async def test_a_line_over_the_limit_is_skipped_and_its_limit_named(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        client.send_bytes(b"x" * (LINE_LIMIT + 5) + b"\n")
        error = (await client.line())["error"]
        assert error["code"] == -32600
        assert str(LINE_LIMIT) in error["message"]
        client.call(1, "status")
        assert "result" in await client.answer(1)


@in_loop
async def test_neither_both_nor_an_empty_command(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        for number, params in enumerate(({}, {"command": "ls", "argv": ["ls"]}, {"argv": []})):
            client.call(number, "command.exec", **params)
            assert (await client.answer(number))["error"]["code"] == -32602


@in_loop
async def test_the_id_of_a_running_call_cannot_be_used_again(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        client.call(1, "command.exec", argv=["/bin/sleep", "30"])
        client.call(1, "status")
        assert "still running" in (await client.answer(1))["error"]["message"]


@in_loop
async def test_lines_come_live_and_rendered_before_the_result(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        script = "printf 'a\\rb\\n'; printf x >&2; read line; echo got $line; printf end"
        client.call(1, "command.exec", command=script, stream="lines", stdin_open=True)
        state = (await client.line())["params"]
        assert state["state"] == "running"
        first = (await client.line())["params"]
        assert (first["stream"], first["lines"]) == ("stdout", ["b"])
        client.call(2, "command.write", run_id=state["run_id"], text="word\n", eof=True)
        seen: list[tuple[str, list[str]]] = []
        while "result" not in (message := await client.line()) or message["id"] == 2:
            if message.get("method") == "command.output":
                seen.append((message["params"]["stream"], message["params"]["lines"]))
        assert sorted(seen) == [("stderr", ["x"]), ("stdout", ["end"]), ("stdout", ["got word"])]
        assert message["result"]["exit_code"] == 0


@in_loop
async def test_raw_output_is_the_bytes_themselves(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        client.call(1, "command.exec", command=r"printf 'a\rb\033[31m\377'", stream="raw")
        data = b""
        while "result" not in (message := await client.line()):
            encoded = message["params"].get("bytes_b64")
            data += base64.b64decode(encoded) if encoded else b""
        assert data == b"a\rb\x1b[31m\xff"


@in_loop
async def test_input_keeps_its_order_and_arrives_whole(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        client.call(1, "command.exec", argv=["/usr/bin/sha256sum"], run_id="r", stdin_open=True)
        pieces = [os.urandom(100_000) for _ in range(20)]
        for number, piece in enumerate(pieces):
            encoded = base64.b64encode(piece).decode()
            client.call(100 + number, "command.write", run_id="r", bytes_b64=encoded)
        client.call(99, "command.write", run_id="r", eof=True)
        import hashlib

        expected = hashlib.sha256(b"".join(pieces)).hexdigest()
        assert (await client.answer(1))["result"]["stdout"]["text"].startswith(expected)


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"run_id": "none"}, "RUN_UNKNOWN"),
        ({"run_id": "r", "bytes_b64": "%%%"}, "INVALID_REQUEST"),
        ({"run_id": "r", "bytes_b64": "AA==", "text": "x"}, "INVALID_REQUEST"),
    ],
)
def test_input_for_no_run_or_that_is_not_base64_is_refused(
    serving: Any, params: dict[str, str], code: str
) -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.session()
            client.call(1, "command.exec", argv=["/bin/cat"], run_id="r", stdin_open=True)
            client.call(2, "command.write", **params)
            assert (await client.answer(2))["error"]["data"]["code"] == code

    asyncio.run(test())


@in_loop
async def test_terminate_sends_the_named_signal(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        client.call(1, "command.exec", argv=["/bin/sleep", "30"], run_id="r")
        client.call(2, "command.terminate", run_id="r", signal="NOPE")
        assert (await client.answer(2))["error"]["data"]["data"]["parameter"] == "signal"
        client.call(3, "command.terminate", run_id="r", signal="SIGINT")
        assert (await client.answer(1))["result"]["exit_code"] == 130


@in_loop
async def test_cancel_ends_a_running_call_with_its_partial_output(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        script = "echo so far; exec sleep 30"
        client.call(1, "command.exec", command=script, stream="lines")
        await client.line()
        await client.line()
        client.send(method="cancel", params={"id": 1})
        data = (await client.answer(1))["error"]["data"]
        assert (data["code"], data["data"]) == ("CANCELLED", {"stdout": "so far\n"})
        assert not is_alive(served.engine.groups[0])


@in_loop
async def test_cancel_while_a_person_is_being_asked_answers_at_once(serving: Any) -> None:
    async with serving() as served:
        client = await served.session(capabilities={"approvals": True})
        client.call(1, "command.exec", command="rm x")
        assert (await client.line())["method"] == "approval.request"
        client.send(method="cancel", params={"id": 1})
        assert (await client.answer(1))["error"]["data"]["code"] == "CANCELLED"
        assert served.engine.groups == []


@in_loop
async def test_cancel_right_behind_the_call_leaves_nothing_running(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        client.call(1, "command.exec", argv=["/bin/sleep", "30"])
        client.send(method="cancel", params={"id": 1})
        assert (await client.answer(1))["error"]["data"]["code"] == "CANCELLED"
        assert not any(is_alive(group) for group in served.engine.groups)


@in_loop
async def test_cancel_of_nothing_is_no_error(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        client.send(method="cancel", params={"id": 77})
        client.call(1, "status")
        assert "result" in await client.answer(1)


@pytest.mark.parametrize(("answer", "code"), [("once", None), ("deny", "APPROVAL_DENIED")])
def test_a_client_that_declared_approvals_is_asked(
    serving: Any, answer: str, code: str | None
) -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.session(capabilities={"approvals": True})
            client.call(1, "command.exec", command="rm -f /tmp/no-such-file-here")
            question = await client.line()
            assert question["params"]["command"] == "rm -f /tmp/no-such-file-here"
            assert question["params"]["verdict"]["class"] == "destructive"
            client.send(id=question["id"], result={"answer": answer})
            reply = await client.answer(1)
            assert reply.get("error", {}).get("data", {}).get("code") == code

    asyncio.run(test())


@in_loop
async def test_a_client_that_did_not_declare_approvals_is_not_asked(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        client.call(1, "command.exec", command="rm x")
        assert (await client.line())["error"]["data"]["code"] == "APPROVAL_REQUIRED"


@in_loop
async def test_when_the_client_goes_its_runs_die_and_others_live(serving: Any) -> None:
    async with serving() as served:
        one, other = await served.session(), await served.session()
        one.call(1, "command.exec", argv=["/bin/sleep", "30"])
        other.call(1, "command.exec", argv=["/bin/sleep", "30"])
        await until(lambda: len(served.engine.groups) == 2)
        one.writer.close()
        await until(lambda: [is_alive(group) for group in served.engine.groups].count(True) == 1)
        assert served.server.host.connections == 1
        await until(lambda: served.server.host.runs == 1)


@in_loop
async def test_a_client_that_does_not_read_blocks_neither_run_nor_others(serving: Any) -> None:
    async with serving() as served:
        slow, other = await served.session(), await served.session()
        slow.writer.transport.pause_reading()
        slow.reader._transport.pause_reading()
        flood = "yes 0123456789012345678901234567890123456789 | head -c 60000000; exit 5"
        slow.call(1, "command.exec", command=flood, stream="lines")
        await until(lambda: served.server.host.runs == 1)
        other.call(1, "classify", command="ls")
        assert "result" in await other.answer(1)
        await until(lambda: served.server.host.runs == 0, 50)
        slow.reader._transport.resume_reading()
        lines = gap_lines = gap_bytes = 0
        while "result" not in (message := await slow.line()):
            params = message["params"]
            lines += len(params.get("lines") or ())
            gap_lines += params.get("gap_lines", 0)
            gap_bytes += params.get("gap_bytes", 0)
        assert message["result"]["exit_code"] == 5
        assert gap_bytes > 10_000_000
        # 60,000,000 bytes are 1,463,414 lines of 41 bytes and one unfinished line.
        assert lines + gap_lines == 1_463_415


@in_loop
async def test_too_many_calls_are_overload_and_nothing_is_started(serving: Any) -> None:
    async with serving() as served:
        client = await served.session(capabilities={"approvals": True})
        for number in range(1, connection.MAX_CALLS + 1):
            client.call(number, "command.exec", command="rm x")
        client.call("one more", "status")
        error = (await client.answer("one more"))["error"]
        assert (error["code"], error["data"]["retryable"]) == (-32001, True)
        assert served.engine.groups == []


@in_loop
async def test_sessions_can_be_listed_and_closed(serving: Any) -> None:
    async with serving() as served:
        client = await served.session(session_id="mine")
        client.call(1, "session.list")
        entry = (await client.answer(1))["result"]["sessions"][0]
        assert (entry["session_id"], entry["workspace"]) == ("mine", "/tmp")
        client.call(2, "session.close", session_id="mine")
        assert "result" in await client.answer(2)
        client.call(3, "session.list")
        assert (await client.answer(3))["result"]["sessions"] == []


@in_loop
async def test_a_confined_peer_is_told_so_and_hung_up_on(serving: Any) -> None:
    async with serving() as served:
        served.engine.own_children.add(os.getpid())
        client = await served.client()
        client.initialize()
        message = await client.line()
        assert (message["id"], message["error"]["data"]["code"]) == (None, "PEER_CONFINED")
        assert await client.is_hung_up()
        assert served.engine.opened == {}


@in_loop
async def test_closing_the_server_ends_every_run(serving: Any) -> None:
    async with serving() as served:
        client = await served.session()
        client.call(1, "command.exec", argv=["/bin/sleep", "30"])
        await until(lambda: served.engine.groups)
        await served.server.close()
        assert not is_alive(served.engine.groups[0])
