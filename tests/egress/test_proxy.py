"""The run's proxy: HTTP, CONNECT and SOCKS5 on one port, in the protocols' own words."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from sandboxd.egress.denials import Denials
from sandboxd.egress.door import Door
from sandboxd.egress.flows import Connections
from sandboxd.egress.hosts import HostRules
from sandboxd.egress.proxy import MAX_HEAD, BadRequest, Proxy, parse_request
from sandboxd.egress.variables import proxy_variables
from sandboxd.model import EgressRules, NetworkMode
from tests.egress.world import PUBLIC, World, echo, http_server, tcp_server

Talk = Callable[[int], Awaitable[bytes]]


def through_proxy(
    world: World, *sent: bytes, allow: tuple[str, ...] = ("good.example",)
) -> tuple[bytes, list[str | None]]:
    """What a client gets back that sends these, one after each answer; and the hosts denied."""
    denied: list[str | None] = []

    async def main() -> bytes:
        rules = HostRules(NetworkMode.ALLOWLIST, EgressRules(allow=allow), is_own=world.is_own)
        connections = Connections()
        denials = Denials(lambda denial: denied.append(denial.host))
        proxy = Proxy(Door(rules, world, denials), connections)
        listener = socket.create_server(("127.0.0.1", 0))
        place = listener.getsockname()
        connections.accept_from(listener, proxy.serve)
        try:
            return await asyncio.wait_for(asyncio.to_thread(_client, place, sent), 20)
        finally:
            await connections.close()

    return asyncio.run(main()), denied


def _client(place: tuple[str, int], sent: tuple[bytes, ...]) -> bytes:
    got = b""
    with socket.create_connection(place, 10) as client:
        for number, data in enumerate(sent):
            client.sendall(data)
            if number + 1 < len(sent):
                got += client.recv(65536)
        client.shutdown(socket.SHUT_WR)
        while chunk := client.recv(65536):
            got += chunk
    return got


@pytest.fixture
def good(world: World) -> World:
    world.hosts = {
        "good.example": [PUBLIC],
        "inside.example": ["10.0.0.5"],
        "mixed.example": ["10.0.0.5", PUBLIC],
    }
    return world


def test_get_with_an_absolute_target_reaches_the_server(good: World) -> None:
    with http_server() as port:
        good.servers = {(PUBLIC, 80): port}
        answer, denied = through_proxy(
            good, b"GET http://Good.Example/a?b=c HTTP/1.1\r\nHost: elsewhere\r\nX: y\r\n\r\n"
        )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"Good.Example /a?b=c\n")
    assert denied == []


def test_body_of_a_post_is_passed_on(good: World) -> None:
    with http_server() as port:
        good.servers = {(PUBLIC, 8080): port}
        head = (
            b"POST http://good.example:8080/ HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n"
        )
        answer, _ = through_proxy(good, head + b"z" * 70000)
    assert answer.endswith(b"70000 bytes\n")


def test_connect_makes_a_tunnel(good: World) -> None:
    with tcp_server(echo) as port:
        good.servers = {(PUBLIC, 443): port}
        answer, _ = through_proxy(
            good, b"CONNECT good.example:443 HTTP/1.1\r\nHost: good.example:443\r\n\r\n", b"hello"
        )
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\nhello"


@pytest.mark.parametrize(
    "request_line", [b"CONNECT bad.example:443 HTTP/1.1", b"GET http://bad.example:443/ HTTP/1.1"]
)
def test_denied_host_is_named_with_rule_and_hint_in_reason_and_body(
    good: World, request_line: bytes
) -> None:
    answer, denied = through_proxy(good, request_line + b"\r\n\r\n")
    head, body = answer.split(b"\r\n\r\n", 1)
    for part in (head.split(b"\r\n")[0], body):
        for word in (b"bad.example:443", b"network.allow", b"--allow-host bad.example"):
            assert word in part
    assert head.startswith(b"HTTP/1.1 403 ")
    assert denied == ["bad.example:443"]
    assert good.looked_up == []


@pytest.mark.parametrize("name", ["inside.example", "10.0.0.5", "localhost", "[::1]", "127.1"])
def test_named_host_that_leads_inside_is_refused(good: World, name: str) -> None:
    good.hosts["localhost"] = ["127.0.0.1"]
    answer, denied = through_proxy(
        good, b"CONNECT " + name.encode() + b":80 HTTP/1.1\r\n\r\n", allow=("*", "inside.example")
    )
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert good.dialled == []
    assert len(denied) == 1


def test_of_several_addresses_only_an_allowed_one_is_dialled(good: World) -> None:
    with tcp_server(echo) as port:
        good.servers = {(PUBLIC, 443): port}
        answer, denied = through_proxy(
            good, b"CONNECT mixed.example:443 HTTP/1.1\r\n\r\n", b"x", allow=("mixed.example",)
        )
    assert answer.endswith(b"x")
    assert good.dialled == [(PUBLIC, 443)]
    assert denied == []


def test_a_second_request_on_the_connection_goes_to_the_first_ones_host(good: World) -> None:
    """Whatever it names: the bytes go where the first request was allowed to go."""
    with http_server() as port:
        good.servers = {(PUBLIC, 80): port}
        one = b"GET http://good.example/1 HTTP/1.1\r\nHost: good.example\r\n\r\n"
        two = b"GET http://bad.example/2 HTTP/1.1\r\nHost: bad.example\r\n\r\n"
        answer, _ = through_proxy(good, one + two)
    assert answer.endswith(b"good.example /1\n")
    assert set(good.dialled) == {(PUBLIC, 80)}


def test_unreachable_host_is_bad_gateway_and_no_denial(good: World) -> None:
    answer, denied = through_proxy(good, b"CONNECT good.example:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert denied == []


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET https://good.example/ HTTP/1.1\r\n\r\n",
        b"CONNECT good.example HTTP/1.1\r\n\r\n",
        b"CONNECT :443 HTTP/1.1\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET http://good.example:123456/ HTTP/1.1\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\n\r\n",
        b"GET http://good.example/ HTTP/2\r\n\r\n",
        b"CONNECT good.example:443 HTTP/1.1\r\n",
        b"GET http://good.example/ HTTP/1.1\r\nA: " + b"x" * (MAX_HEAD + 20000),
    ],
)
def test_malformed_request_is_answered_and_goes_nowhere(good: World, data: bytes) -> None:
    answer, _ = through_proxy(good, data)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert good.dialled == []


def socks(host: bytes, port: int, command: int = 1) -> bytes:
    return (
        b"\x05" + bytes([command]) + b"\0\3" + bytes([len(host)]) + host + port.to_bytes(2, "big")
    )


def test_socks_carries_to_a_named_host(good: World) -> None:
    with tcp_server(echo) as port:
        good.servers = {(PUBLIC, 22): port}
        answer, _ = through_proxy(good, b"\5\1\0", socks(b"good.example", 22), b"ssh")
    assert answer == b"\5\0" + b"\5\0\0\1" + bytes(6) + b"ssh"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (socks(b"bad.example", 22), 2),
        (b"\5\1\0\1" + bytes([10, 0, 0, 1]) + b"\0\x50", 2),
        (b"\5\1\0\4" + bytes(15) + b"\1\0\x50", 2),
        (socks(b"good.example", 22), 4),
        (socks(b"good.example", 22, command=2), 7),
        (socks(b"good.example", 22, command=3), 7),
        (b"\5\1\0\7", 8),
    ],
    ids=["denied", "private", "loopback", "unreachable", "bind", "udp", "kind"],
)
def test_socks_says_why_not(good: World, sent: bytes, code: int) -> None:
    answer, _ = through_proxy(good, b"\5\1\0", sent)
    assert answer[:4] == bytes([5, 0, 5, code])


def test_socks_without_a_method_of_ours_is_ended(good: World) -> None:
    assert through_proxy(good, b"\5\1\2")[0] == b"\5\xff"


def test_credentials_in_the_target_are_not_the_host(good: World) -> None:
    found = parse_request(b"GET http://good.example@bad.example/ HTTP/1.1\r\n\r\n")
    assert (found.host, found.port) == ("bad.example", 80)
    with pytest.raises(BadRequest):
        parse_request(b"CONNECT good.example:443@bad.example HTTP/1.1\r\n\r\n")


def test_more_connections_than_the_limit_wait_their_turn(world: World) -> None:
    async def main() -> tuple[int, int]:
        connections = Connections(maximum=4)
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        place = listener.getsockname()
        most = 0

        async def serve(near: socket.socket) -> None:
            nonlocal most
            most = max(most, connections.count)
            await asyncio.sleep(0.01)
            await connections.loop.sock_sendall(near, b"x")
            near.close()

        connections.accept_from(listener, serve)

        async def visit() -> bytes:
            return await asyncio.to_thread(_client, place, ())

        answers = await asyncio.gather(*[visit() for _ in range(30)])
        await connections.close()
        return most, answers.count(b"x")

    assert asyncio.run(main()) == (4, 30)


def test_idle_connection_is_ended(world: World) -> None:
    async def main() -> str:
        connections = Connections(idle_s=0.2)
        near, client = socket.socketpair()
        far, server = socket.socketpair()
        for each in (near, far):
            each.setblocking(False)
        ended: list[str] = []

        async def carry() -> None:
            try:
                await connections.carry(near, far)
            except OSError as error:
                ended.append(error.strerror)

        connections.spawn(carry())
        async with asyncio.timeout(10):
            while not ended:
                await asyncio.sleep(0.02)
        await connections.close()
        for each in (near, far, client, server):
            each.close()
        return ended[0]

    assert asyncio.run(main()) == "idle"


def test_every_usual_name_leads_to_the_proxy() -> None:
    made = proxy_variables(3128, {"JAVA_TOOL_OPTIONS": "-Xmx1g", "PIP_RETRIES": "9"})
    for name in ("http_proxy", "HTTPS_PROXY", "all_proxy", "npm_config_proxy", "PIP_PROXY"):
        assert made[name] == "http://127.0.0.1:3128"
    assert made["NODE_USE_ENV_PROXY"] == "1"
    assert made["JAVA_TOOL_OPTIONS"].startswith("-Xmx1g -Dhttp.proxyHost=127.0.0.1 ")
    assert "localhost" in made["no_proxy"]
    assert "PIP_RETRIES" not in made
