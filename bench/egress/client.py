"""The near end, run inside a tier: measures one way to the server and prints JSON.

Arguments: host, port, and the proxy's port or 0.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import time

CONNECTS, ECHOES, MEGABYTES = 60, 600, 256


def connect(host: str, port: int, proxy: int) -> socket.socket:
    """A connection whose greeting has been read."""
    if not proxy:
        made = socket.create_connection((host, port), 10)
    else:
        made = socket.create_connection(("127.0.0.1", proxy), 10)
        made.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += made.recv(1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert made.recv(1) == b"!"
    return made


def main() -> None:
    host, port, proxy = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
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
