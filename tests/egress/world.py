"""A world of hosts for tests: names and addresses that exist here only, served on loopback.

`World` takes the place of this host's own network in a `Carrier` or an `Engine`: an address of it is
dialled as a server of the test's own. Everything else (namespaces, routes, rules, sockets, relay) is
the real thing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.server
import ipaddress
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sandboxd.egress import publish
from sandboxd.egress.carrier import Carrier
from sandboxd.egress.hosts import Address
from sandboxd.egress.outside import Outside
from sandboxd.model import Denial, Exit, LaunchPlan, Policy
from sandboxd.spawn.launcher import Launcher

PUBLIC, OTHER, PUBLIC_IPV6 = "203.0.113.5", "203.0.113.6", "2001:db8:7::5"
"""Of the documentation ranges, which nothing refuses."""


class World(Outside):
    """Servers by (address, port), names by addresses; every look-up and dial is written down."""

    def __init__(self, *, has_ipv6: bool = True) -> None:
        self.servers: dict[tuple[str, int], int] = {}
        self.hosts: dict[str, list[str]] = {}
        self.own: set[str] = set()
        self.upstream: list[tuple[str, int]] = []
        self.has_ipv6 = has_ipv6
        self.dialled: list[tuple[str, int]] = []
        self.looked_up: list[str] = []

    def is_own(self, address: Address) -> bool:
        return str(address) in self.own

    def reaches_ipv6(self) -> bool:
        return self.has_ipv6

    async def lookup(self, name: str) -> list[Address]:
        self.looked_up.append(name)
        if name not in self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "no such name in this world")
        return [ipaddress.ip_address(text) for text in self.hosts[name]]

    def begin(self, address: Address, port: int) -> socket.socket:
        self.dialled.append((str(address), port))
        local = self.servers.get((str(address), port))
        if local is None:
            raise OSError(errno.ECONNREFUSED, "nobody listens there in this world")
        return super().begin(ipaddress.ip_address("127.0.0.1"), local)

    def nameservers(self) -> list[tuple[str, int]]:
        return self.upstream


class Page(http.server.BaseHTTPRequestHandler):
    """Answers every GET with what the client asked and of whom; POST with the body's length."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._say(f"{self.headers.get('Host')} {self.path}\n".encode())

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        self._say(f"{len(self.rfile.read(size))} bytes\n".encode())

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@contextlib.contextmanager
def http_server(handler: Callable[..., http.server.BaseHTTPRequestHandler] = Page) -> Iterator[int]:
    """A web server on a loopback port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def tcp_server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on a loopback port that hands each connection to `serve` in a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=_serve_one, args=(serve, connection), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _serve_one(serve: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        serve(connection)


def echo(connection: socket.socket) -> None:
    """Send everything back; end when the other side has ended."""
    while chunk := connection.recv(65536):
        connection.sendall(chunk)


@dataclass
class Carried:
    """How a run with a way out went."""

    exit: Exit
    output: str
    denials: list[Denial] = field(default_factory=list)

    @property
    def denied(self) -> list[tuple[str | None, str]]:
        return [(denial.host, denial.rule) for denial in self.denials]


async def run_carried(
    launcher: Launcher, plan: LaunchPlan, policy: Policy, world: Outside, timeout_s: float = 30
) -> Carried:
    """Run a plan to its end with a carrier behind it, as the pipeline does."""
    denials: list[Denial] = []
    carrier = Carrier(policy.network, policy.egress, world, denials.append)
    listeners = publish.listen(policy.egress.publish)
    read_end, write_end = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        child = await launcher.launch(plan, (null, write_end, write_end))
    finally:
        os.close(null)
        os.close(write_end)
    carrier.serve(child.take_network(), listeners)
    reading = asyncio.ensure_future(asyncio.to_thread(_read_all, read_end))
    try:
        ended = await asyncio.wait_for(child.wait(), timeout_s)
    except TimeoutError:
        child.kill()
        await child.wait()
        raise
    finally:
        for address in child.unreachable:
            family = socket.AF_INET6 if address[0] == socket.AF_INET6 else socket.AF_INET
            packed = address[8:24] if family == socket.AF_INET6 else address[4:8]
            port = int.from_bytes(address[2:4], "big")
            carrier.note_refused(socket.inet_ntop(family, packed), port)
        await carrier.close()
    return Carried(ended, (await reading).decode(errors="replace"), denials)


def _read_all(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        return file.read()
