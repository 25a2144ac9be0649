"""The protocol beside a bare asyncio echo over the same kind of socket: requests a second, latency.

    python bench/protocol/compare.py [--seconds 3] [--clients 1,10,100]

Both servers run in a process of their own; the clients are the same raw connections, which send a line
and wait for the answer's line. Shown as ratios to the echo, which is what a line costs at all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ECHO = """
import asyncio, sys
class Echo(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write(data)
async def main():
    server = await asyncio.get_running_loop().create_unix_server(Echo, sys.argv[1])
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def line(number: int, method: str, params: dict[str, object]) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


async def connected(path: str, hello: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)
    if hello:
        writer.write(hello)
        await reader.readline()
    return reader, writer


async def one(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    asked: bytes,
    until: float,
    taken: list[float],
) -> None:
    while (before := time.perf_counter()) < until:
        writer.write(asked)
        answer = await reader.readline()
        assert answer
        while answer.startswith(b'{"method"'):  # a notification on the way
            answer = await reader.readline()
        taken.append(time.perf_counter() - before)
    writer.close()


async def measure(
    path: str, clients: int, hello: bytes, asked: bytes, seconds: float
) -> dict[str, float]:
    """All are connected before the clock starts."""
    taken: list[float] = []
    ends = [await connected(path, hello) for _ in range(clients)]
    begun = time.perf_counter()
    await asyncio.gather(*(one(*end, asked, begun + seconds, taken) for end in ends))
    took = time.perf_counter() - begun
    taken.sort()
    return {
        "per_second": len(taken) / took,
        "median_ms": taken[len(taken) // 2] * 1000,
        "p99_ms": taken[int(len(taken) * 0.99)] * 1000,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="The protocol beside a bare echo.")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--clients", default="1,10,100")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bp-", dir="/tmp") as top:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": top + "/state"}
        serve = [sys.executable, "-m", "sandboxd", "serve", "--socket", top + "/s"]
        servers = [
            subprocess.Popen(words, stdout=subprocess.PIPE, env=env)
            for words in ([sys.executable, "-c", ECHO, top + "/e"], serve)
        ]
        try:
            for server in servers:
                assert server.stdout is not None
                server.stdout.readline()
            report(arguments, top)
        finally:
            for server in servers:
                server.terminate()
                server.wait()
    return 0


def report(arguments: argparse.Namespace, top: str) -> None:
    hello = line(0, "initialize", {"protocol_version": 1, "workspace": "/var/tmp"})
    classify = line(1, "classify", {"command": "ls -la | head -5"})
    execute = line(1, "command.exec", {"argv": ["/bin/true"], "approve": "all"})
    sys.stdout.write("clients  what          per second  median ms   p99 ms   of echo\n")
    for clients in map(int, arguments.clients.split(",")):
        rows = [
            ("echo", top + "/e", b"", classify),
            ("classify", top + "/s", hello, classify),
            ("command.exec", top + "/s", hello, execute),
        ]
        base = 0.0
        for name, path, opening, asked in rows:
            found = asyncio.run(measure(path, clients, opening, asked, arguments.seconds))
            base = base or found["per_second"]
            sys.stdout.write(
                f"{clients:7}  {name:12}  {found['per_second']:10.0f}  {found['median_ms']:9.2f}  "
                f"{found['p99_ms']:7.2f}  {found['per_second'] / base:8.3f}\n"
            )


if __name__ == "__main__":
    sys.exit(main())
