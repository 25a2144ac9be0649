"""Descriptors are drained to the end, in order, whoever is slow or broken."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import time
from collections.abc import Awaitable, Callable

import pytest

from sandboxd.output.pump import Pump
from sandboxd.output.ring import Ring


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(bounded())


def test_everything_arrives_in_order_until_the_end() -> None:
    async def test() -> None:
        child = subprocess.Popen(["seq", "300000"], stdout=subprocess.PIPE)
        assert child.stdout is not None
        chunks: list[bytes] = []
        pump = Pump(os.dup(child.stdout.fileno()), [chunks.append])
        child.stdout.close()
        assert await pump.drained() is True
        assert child.wait() == 0
        assert b"".join(chunks) == b"".join(b"%d\n" % n for n in range(1, 300_001))
        assert pump.is_at_end

    run(test)


def test_every_sink_gets_every_chunk() -> None:
    async def test() -> None:
        reader, writer = os.pipe()
        ring, copy = Ring(), bytearray()
        pump = Pump(reader, [ring.feed, copy.extend])
        os.write(writer, b"hello\n")
        os.close(writer)
        await pump.drained()
        assert ring.snapshot().text == "hello\n"
        assert bytes(copy) == b"hello\n"

    run(test)


def test_a_holder_that_stays_quiet_does_not_hang_the_call() -> None:
    async def test() -> None:
        reader, writer = os.pipe()
        chunks: list[bytes] = []
        pump = Pump(reader, [chunks.append])
        os.write(writer, b"before")
        started = time.monotonic()
        assert await pump.drained(quiet_s=0.1) is False
        assert 0.05 < time.monotonic() - started < 10
        assert chunks == [b"before"]
        pump.close()
        os.close(writer)

    run(test)


def test_bytes_that_keep_coming_keep_it_waiting() -> None:
    async def test() -> None:
        reader, writer = os.pipe()
        chunks: list[bytes] = []
        pump = Pump(reader, [chunks.append])

        async def trickle() -> None:
            for _ in range(6):
                os.write(writer, b".")
                await asyncio.sleep(0.1)
            os.close(writer)

        writing = asyncio.create_task(trickle())
        assert await pump.drained(quiet_s=3) is True
        assert b"".join(chunks) == b"......"
        await writing

    run(test)


def test_the_end_of_a_pty_is_not_an_error() -> None:
    async def test() -> None:
        master, slave = pty.openpty()
        chunks: list[bytes] = []
        pump = Pump(master, [chunks.append])
        os.write(slave, b"last words")
        os.close(slave)
        assert await pump.drained() is True
        assert b"".join(chunks) == b"last words"

    run(test)


def test_a_broken_sink_stops_neither_the_child_nor_the_others() -> None:
    async def test() -> None:
        reader, writer = os.pipe()
        chunks: list[bytes] = []

        def broken(chunk: bytes) -> None:
            raise KeyError("broken")

        pump = Pump(reader, [broken, chunks.append])
        os.write(writer, b"one")
        await asyncio.sleep(0.05)
        os.write(writer, b"two")
        os.close(writer)
        with pytest.raises(KeyError, match="broken"):
            await pump.drained()
        assert b"".join(chunks) == b"onetwo"

    run(test)


def test_a_flood_does_not_starve_the_loop() -> None:
    async def test() -> None:
        child = subprocess.Popen(["yes"], stdout=subprocess.PIPE)
        assert child.stdout is not None
        ring = Ring()
        pump = Pump(os.dup(child.stdout.fileno()), [ring.feed])
        child.stdout.close()
        turns = 0
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            await asyncio.sleep(0)
            turns += 1
        child.kill()
        child.wait()
        await pump.drained()
        assert turns > 20
        assert ring.total_bytes == pump.total_bytes > 1_000_000

    run(test)


def test_close_gives_the_descriptor_back_once() -> None:
    async def test() -> None:
        reader, writer = os.pipe()
        pump = Pump(reader, [])
        pump.close()
        pump.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(reader)
        os.close(writer)
        assert await pump.drained() is True

    run(test)
