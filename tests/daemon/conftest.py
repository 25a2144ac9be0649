"""A served socket around the plain engine, and a raw client that speaks lines to it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from plain_engine import PlainEngine, run_plain

from sandboxd.daemon.host import Host
from sandboxd.daemon.server import Server


class RawClient:
    """Lines out, lines in, nothing checked."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, **message: Any) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def call(self, number: Any, method: str, **params: Any) -> None:
        self.send(id=number, method=method, params=params)

    def initialize(self, **more: Any) -> None:
        self.call(0, "initialize", protocol_version=1, workspace="/tmp", **more)

    async def line(self) -> dict[str, Any]:
        data = await asyncio.wait_for(self.reader.readline(), 30)
        assert data, "the server hung up"
        return json.loads(data)

    async def answer(self, number: Any) -> dict[str, Any]:
        """The answer to one call; notifications before it are passed over."""
        while True:
            message = await self.line()
            if "method" not in message and message.get("id") == number:
                return message

    async def is_hung_up(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(), 30) is not None
        except ConnectionError:
            return True


class Served:
    """One server on a socket, with as many raw clients as a test wants."""

    def __init__(self, path: str, server: Server, engine: PlainEngine) -> None:
        self.path = path
        self.server = server
        self.engine = engine

    async def client(self) -> RawClient:
        reader, writer = await asyncio.open_unix_connection(self.path, limit=64 * 1024 * 1024)
        return RawClient(reader, writer)

    async def session(self, **more: Any) -> RawClient:
        client = await self.client()
        client.initialize(**more)
        assert "result" in await client.answer(0)
        return client


@pytest.fixture
def serving(tmp_path: Path) -> Any:
    @asynccontextmanager
    async def start() -> AsyncIterator[Served]:
        engine = PlainEngine()
        path = str(tmp_path / "s")
        server = Server(Host(engine, run=run_plain, socket=path))
        acceptor = await asyncio.get_running_loop().create_unix_server(server.open_connection, path)
        try:
            yield Served(path, server, engine)
        finally:
            acceptor.close()
            await server.close()

    return start
