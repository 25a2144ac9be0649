"""Runs in a network of their own, carried to a world of the test's: what arrives, what does not."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field

import pytest

from sandboxd.confine.namespaces import Namespaces
from sandboxd.confine.own_network import RESOLV_CONF
from sandboxd.model import Invocation, NetworkMode
from sandboxd.spawn.launcher import Launcher
from tests.confined import Ground, with_launcher
from tests.egress.running import lines, run
from tests.egress.world import (
    OTHER,
    PUBLIC,
    PUBLIC_IPV6,
    Carried,
    World,
    echo,
    http_server,
    run_carried,
    tcp_server,
)

TIERS = ["namespaces", "bubblewrap"]


@pytest.mark.parametrize("tier", TIERS)
def test_open_carries_connections_by_address_and_by_name(
    ground: Ground, world: World, tier: str
) -> None:
    world.hosts = {"web.example": [PUBLIC], "six.example": [PUBLIC_IPV6]}
    with http_server() as port:
        world.servers = {(PUBLIC, 80): port, (PUBLIC, 8123): port, (PUBLIC_IPV6, 80): port}
        code = f"""
print(fetch("{PUBLIC}"))
print(fetch("{PUBLIC}", 8123))
print(fetch("web.example"))
print(fetch("six.example"))
print(fetch("{PUBLIC_IPV6}"))
"""
        answers = lines(run(ground, world, code, tier=tier))
    assert answers == [f"{PUBLIC} /"] * 2 + ["web.example /", "six.example /", f"{PUBLIC_IPV6} /"]
    assert [it[0] for it in world.dialled] == [PUBLIC] * 3 + [PUBLIC_IPV6] * 2


def test_client_sees_the_address_that_it_asked_for(ground: Ground, world: World) -> None:
    with tcp_server(echo) as port:
        world.servers = {(PUBLIC, 7): port}
        code = f"s = socket.create_connection(('{PUBLIC}', 7)); print(s.getpeername(), s.getsockname()[0])"
        assert lines(run(ground, world, code)) == [f"('{PUBLIC}', 7) 198.18.0.2"]


@pytest.mark.parametrize("tier", TIERS)
def test_half_close_is_passed_on_and_a_megabyte_comes_back(
    ground: Ground, world: World, tier: str
) -> None:
    with tcp_server(_count) as port:
        world.servers = {(PUBLIC, 9000): port}
        code = f"""
s = socket.create_connection(("{PUBLIC}", 9000))
s.sendall(b"x" * 3_000_000)
s.shutdown(socket.SHUT_WR)
print(s.recv(100).decode(), s.recv(100))
"""
        assert lines(run(ground, world, code, tier=tier)) == ["3000000 b''"]


def test_an_end_before_the_far_host_has_answered_waits_for_it(ground: Ground, world: World) -> None:
    with tcp_server(_count) as port:
        world.servers = {(PUBLIC, 9000): port}
        code = f"""
for _ in range(20):
    s = socket.create_connection(("{PUBLIC}", 9000)); s.shutdown(socket.SHUT_WR)
    assert s.recv(100) == b"0"
s = socket.create_connection(("{PUBLIC}", 9000)); s.sendall(b"early"); s.shutdown(socket.SHUT_WR)
print(s.recv(100).decode())
"""
        assert lines(run(ground, world, code)) == ["5"]


def _count(connection: object) -> None:
    total = 0
    while chunk := connection.recv(65536):  # type: ignore[attr-defined]
        total += len(chunk)
    connection.sendall(str(total).encode())  # type: ignore[attr-defined]


def test_slow_reader_gets_everything_in_order(ground: Ground, world: World) -> None:
    size = 24_000_000
    data = bytes(range(256)) * (size // 256)
    with tcp_server(lambda connection: connection.sendall(data)) as port:
        world.servers = {(PUBLIC, 9000): port}
        code = f"""
import hashlib
s = socket.create_connection(("{PUBLIC}", 9000)); time.sleep(0.3)
digest, total = hashlib.sha256(), 0
while chunk := s.recv(30000):
    digest.update(chunk); total += len(chunk)
print(total, digest.hexdigest() == hashlib.sha256(bytes(range(256)) * ({size} // 256)).hexdigest())
"""
        assert lines(run(ground, world, code)) == [f"{size} True"]


def test_many_connections_at_once_all_arrive(ground: Ground, world: World) -> None:
    with tcp_server(echo) as port:
        world.servers = {(PUBLIC, 7): port}
        code = f"""
all = [socket.create_connection(("{PUBLIC}", 7)) for _ in range(200)]
for n, s in enumerate(all): s.sendall(b"%d" % n)
print(sum(s.recv(10) == b"%d" % n for n, s in enumerate(all)))
"""
        assert lines(run(ground, world, code)) == ["200"]


def test_client_that_registers_before_it_connects_is_carried(ground: Ground, world: World) -> None:
    """As Go, Java and node do: non-blocking, epoll first."""
    with http_server() as port:
        world.servers = {(PUBLIC, 80): port}
        code = f"""
import select
s = socket.socket(); s.setblocking(False)
poll = select.epoll(); poll.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
print(s.connect_ex(("{PUBLIC}", 80)) in (0, 115))
events = poll.poll(5); events = events if events[0][1] & select.EPOLLOUT else poll.poll(5)
s.sendall(b"GET / HTTP/1.0\\r\\nHost: me\\r\\n\\r\\n")
while not poll.poll(5)[0][1] & select.EPOLLIN: pass
time.sleep(0.2)
print(s.recv(9999).endswith(b"me /\\n"), s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
"""
        assert lines(run(ground, world, code)) == ["True", "True 0"]


def test_host_that_does_not_answer_is_a_reset_and_no_denial(ground: Ground, world: World) -> None:
    carried = run(ground, world, f"print(attempt(lambda: fetch('{PUBLIC}')))")
    assert lines(carried) == ["ConnectionResetError"]
    assert carried.denials == []


@pytest.mark.parametrize("tier", TIERS)
def test_any_resolver_is_answered_by_us_over_udp_and_tcp(
    ground: Ground, world: World, tier: str
) -> None:
    world.hosts = {"web.example": [PUBLIC]}
    code = """
question = b"\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3web\\7example\\0\\0\\1\\0\\1"
for server in ("127.0.0.1", "8.8.8.8", "2001:4860:4860::8888"):
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    u = socket.socket(family, socket.SOCK_DGRAM); u.settimeout(5)
    u.sendto(question, (server, 53)); data, peer = u.recvfrom(512)
    t = socket.create_connection((server, 53), 5); t.sendall(b"\\0\\x1d" + question)
    print(peer[0], data[-4:] == t.recv(600)[-4:] == bytes([203, 0, 113, 5]))
"""
    answers = lines(run(ground, world, code, tier=tier))
    assert answers == [f"{it} True" for it in ("127.0.0.1", "8.8.8.8", "2001:4860:4860::8888")]


def test_names_are_asked_of_the_hosts_own_servers_and_a_dead_one_is_passed_over(
    ground: Ground, world: World
) -> None:
    with UpstreamDns({b"\3txt\7example\0": b"\xc0\x0c\0\x10\0\1\0\0\0\x3c\0\6\5hello"}) as upstream:
        world.upstream = [("127.0.0.1", 1), ("127.0.0.1", upstream.port)]
        code = """
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(9)
u.sendto(b"\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3txt\\7example\\0\\0\\x10\\0\\1", ("127.0.0.1", 53))
data = u.recv(512); print(data[:2], data[-5:])
"""
        assert lines(run(ground, world, code)) == ["b'\\x124' b'hello'"]


def test_ipv6_answers_are_left_out_where_the_host_reaches_none(
    ground: Ground, world: World
) -> None:
    world.has_ipv6 = False
    world.hosts = {"both.example": [PUBLIC_IPV6, PUBLIC]}
    code = "print(sorted({it[4][0] for it in socket.getaddrinfo('both.example', 80)}))"
    assert lines(run(ground, world, code)) == [f"['{PUBLIC}']"]


@pytest.mark.parametrize("tier", TIERS)
def test_allowlist_carries_clients_that_ignore_the_proxy(
    ground: Ground, world: World, tier: str
) -> None:
    world.hosts = {"good.example": [PUBLIC], "bad.example": [OTHER]}
    with http_server() as port:
        world.servers = {(PUBLIC, 80): port, (OTHER, 80): port}
        code = """
print(fetch("good.example"))
begun = time.monotonic()
print(attempt(lambda: fetch("bad.example")), attempt(lambda: fetch("203.0.113.6")))
print(time.monotonic() - begun < 4)
"""
        carried = run(
            ground, world, code, NetworkMode.ALLOWLIST, tier=tier, allow=("good.example",)
        )
    assert lines(carried) == ["good.example /", "gaierror ConnectionResetError", "True"]
    assert carried.denied == [("bad.example", "network.allow"), (f"{OTHER}:80", "network.allow")]
    assert world.looked_up == ["good.example", "good.example"][: len(world.looked_up)]


@pytest.mark.parametrize("tier", TIERS)
def test_published_port_leads_into_the_run(ground: Ground, world: World, tier: str) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    answers: list[bytes] = []

    def visit() -> None:
        deadline = time.monotonic() + 15
        while len(answers) < 40 and time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", port), 5) as visitor:
                    visitor.sendall(b"hello")
                    visitor.shutdown(socket.SHUT_WR)
                    if answer := visitor.recv(100):
                        answers.append(answer)
            except OSError:
                time.sleep(0.05)

    visiting = threading.Thread(target=visit)
    visiting.start()
    code = f"""
server = socket.create_server(("127.0.0.1", {port})); server.settimeout(10)
for _ in range(40):
    s, peer = server.accept()
    with s: s.sendall(s.recv(100).upper())
print(peer[0])
"""
    carried = run(ground, world, code, NetworkMode.OFF, tier=tier, publish=(port,))
    visiting.join()
    assert lines(carried) == ["127.0.0.1"]
    assert answers == [b"HELLO"] * 40  # more than the pool holds: its sockets are used again


@dataclass
class UpstreamDns:
    """A name server of the host's, on a loopback port, that knows a few questions by heart."""

    known: dict[bytes, bytes]
    port: int = 0
    asked: list[bytes] = field(default_factory=list)

    def __enter__(self) -> UpstreamDns:
        import socket

        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _serve(self) -> None:
        while True:
            try:
                data, peer = self.socket.recvfrom(4096)
            except OSError:
                return
            self.asked.append(data)
            record = self.known.get(data[12:-4], b"")
            header = data[:2] + b"\x81\x80\0\1" + bytes([0, 1 if record else 0]) + bytes(4)
            self.socket.sendto(header + data[12:] + record, peer)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("mode", [NetworkMode.OPEN, NetworkMode.ALLOWLIST])
def test_resolv_conf_names_the_runs_own_server(
    ground: Ground, world: World, tier: str, mode: NetworkMode
) -> None:
    carried = run(ground, world, "", mode, argv=["/bin/cat", "/etc/resolv.conf"], tier=tier)
    assert lines(carried)[0] == "nameserver 127.0.0.1"


def test_short_names_are_completed_as_on_the_host(ground: Ground, world: World) -> None:
    world.hosts = {"short.corp.example": [PUBLIC]}
    policy = ground.policy(NetworkMode.OPEN)
    completing = RESOLV_CONF + "search corp.example\n"
    rung = Namespaces(0, os.getuid(), os.getgid(), resolver=lambda: completing)
    code = "import socket; print(socket.getaddrinfo('short', 80)[0][4][0])"
    argv = (sys.executable, "-I", "-c", code)
    plan = rung.plan(
        Invocation(program=argv[0], argv=argv, environment={}, cwd=ground.workspace), policy
    )

    async def work(launcher: Launcher) -> Carried:
        return await run_carried(launcher, plan, policy, world)

    assert lines(with_launcher(work)) == [PUBLIC]  # type: ignore[arg-type]
