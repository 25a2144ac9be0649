"""The engine in this process, behind the same protocol as the daemon's.

A module of its own because it loads everything the fast path avoids. The event loop runs in a
thread; the command line talks to it through a socket pair with the very code that talks to a
daemon. When the command line dies, however it dies, the zygote and the run die with it.
"""

from __future__ import annotations

import _socket
import asyncio
import socket
import threading

from sandboxd.cli.jsonline import Link
from sandboxd.daemon.server import serve_one

CLOSE_WITHIN_S = 15


class Embedded:
    """One engine, started at once; `connected` is the socket that leads to it."""

    def __init__(self) -> None:
        """Raises whatever kept the engine from starting."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.connected = ours
        self._theirs = theirs
        self._is_ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="sandboxd engine", daemon=True)
        self._thread.start()
        self._is_ready.wait()
        if self._error is not None:
            ours.close()
            raise self._error

    def take_link(self) -> Link:
        """`connected` as a link, for whoever takes it to close."""
        return Link(_socket.socket(fileno=self.connected.detach()))

    def close(self) -> None:
        """Wait until runs and zygote are gone; the link must be closed before."""
        self._thread.join(CLOSE_WITHIN_S)

    def _serve(self) -> None:
        try:
            asyncio.run(serve_one(self._theirs, is_ready=self._is_ready.set))
        except BaseException as error:
            self._error = error
        finally:
            self._is_ready.set()
