"""The far end: greets with one byte, then echoes, sends or swallows as the first line says."""

from __future__ import annotations

import socket
import threading

BLOCK = bytes(1 << 20)


def serve(connection: socket.socket) -> None:
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"!")
        order = b""
        while not order.endswith(b"\n"):
            piece = connection.recv(1)
            if not piece:
                return
            order += piece
        if order.startswith(b"send "):
            for _ in range(int(order[5:])):
                connection.sendall(BLOCK)
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
