"""Whatever bytes come, a connection answers with typed errors or not at all, and the next call works."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "daemon"))

from plain_engine import PlainEngine, run_plain

from sandboxd.daemon.connection import Connection
from sandboxd.daemon.host import Host
from sandboxd.protocol.methods import METHODS

NAMES = [method.name for method in METHODS]
LONG = {"command.exec", "terminal.attach", "approval.attach", "terminal.start", "tier.verify"}
"""They start programs, or last; the others are called with whatever comes."""
CODES = {-32700, -32600, -32601, -32602, -32000, -32001, -32002}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
words = st.sampled_from(
    [
        "command",
        "argv",
        "cwd",
        "env",
        "path",
        "request_id",
        "answer",
        "session_id",
        "run_id",
        "id",
        "protocol_version",
        "workspace",
        "capabilities",
        "output_id",
        "terminal_id",
        "tool",
        "text",
    ]
)
calls = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", 2])},
    optional={
        "id": st.one_of(st.integers(0, 3), st.text(max_size=3), values),
        "method": st.sampled_from([name for name in NAMES if name not in LONG] + ["x", ""]),
        "params": st.dictionaries(words, values, max_size=4) | values,
        "result": values,
        "error": values,
        "more": values,
    },
)
lines = st.one_of(
    calls.map(lambda call: json.dumps(call).encode()),
    st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"")),
    calls.map(lambda call: json.dumps(call).encode()[:-3]),
)


class Wire(asyncio.Transport):
    """The far end of a connection, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def conversation(said: list[bytes], cuts: list[int]) -> bytes:
    connection = Connection(Host(PlainEngine(), run=run_plain))  # type: ignore[arg-type]
    wire = Wire()
    connection.connection_made(wire)
    data = b"\n".join([*said, b'{"jsonrpc":"2.0","id":"last","method":"status"}', b""])
    start = 0
    for cut in sorted({cut % len(data) for cut in cuts} | {len(data)}):
        connection.data_received(data[start:cut])
        start = cut
    for _ in range(2000):
        await asyncio.sleep(0)
        if b'"id":"last"' in wire.sent:
            break
    connection.connection_lost(None)
    await connection.finished()
    return bytes(wire.sent)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(lines, max_size=12), st.lists(st.integers(0, 4000), max_size=6))
def test_every_line_is_answered_by_the_protocol_and_the_next_call_works(
    said: list[bytes], cuts: list[int]
) -> None:
    answers = [
        msgspec.json.decode(line)
        for line in asyncio.run(conversation(said, cuts)).split(b"\n")
        if line
    ]
    for answer in answers:
        assert answer["jsonrpc"] == "2.0"
        if "error" in answer:
            assert answer["error"]["code"] in CODES
            data = answer["error"]["data"]
            assert {"code", "origin", "message", "hint"} <= set(data)
            # Only a plain engine's own gaps may be faults here: it lacks a part of the real one.
    last = [answer for answer in answers if answer.get("id") == "last"]
    assert len(last) == 1
    assert last[0]["result"]["connections"] == 1
