"""The near end, run inside a tier: measures one way to the server and prints JSON.

Arguments: host, port, and a proxy as a URL, or a dash for none. `env` stands for HTTP_PROXY.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import statistics
import sys
import time
from urllib.parse import unquote, urlsplit

CONNECTS, ECHOES, MEGABYTES = 60, 600, 256


class Proxy:
    """Where it listens, and what is sent there for each connection."""

    def __init__(self, url: str, host: str, port: int) -> None:
        parts = urlsplit(os.environ["HTTP_PROXY"] if url == "env" else url)
        self.place = (parts.hostname or "", parts.port or 0)
        login = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            login = f"Proxy-Authorization: Basic {base64.b64encode(pair).decode()}\r\n"
        target = f"{host}:{port}"
        self.asking = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n".encode()


def connect(host: str, port: int, proxy: Proxy | None) -> socket.socket:
    """A connection whose greeting has been read."""
    if proxy is None:
        made = socket.create_connection((host, port), 10)
    else:
        made = socket.create_connection(proxy.place, 10)
        made.sendall(proxy.asking)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += made.recv(1)
        assert b" 200 " in head.split(b"\r\n")[0], head
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert made.recv(1) == b"!"
    return made


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    proxy = None if sys.argv[3] == "-" else Proxy(sys.argv[3], host, port)
    first = []
    for _ in range(CONNECTS):
        begun = time.perf_counter()
        connect(host, port, proxy).close()
        first.append(time.perf_counter() - begun)
    with connect(host, port, proxy) as line:
        line.sendall(b"echo\n")
        trips = []
        for _ in range(ECHOES):
            begun = time.perf_counter()
            line.sendall(b"x")
            line.recv(1)
            trips.append(time.perf_counter() - begun)
    with connect(host, port, proxy) as line:
        begun, left = time.perf_counter(), MEGABYTES << 20
        buffer = bytearray(1 << 20)
        line.sendall(b"send %d\n" % MEGABYTES)
        while left:
            left -= line.recv_into(buffer)
        seconds = time.perf_counter() - begun
    print(
        json.dumps(
            {
                "first byte us": statistics.median(first) * 1e6,
                "round trip us": statistics.median(trips) * 1e6,
                "GB/s": (MEGABYTES << 20) / seconds / 1e9,
            }
        )
    )


if __name__ == "__main__":
    main()
