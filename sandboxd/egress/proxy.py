"""The run's proxy: HTTP, CONNECT and SOCKS5 on one port, told apart by the first byte.

For programs that know of a proxy, in `allowlist`. A refusal is said in the protocol's own words and
names host, rule and hint, in the reason phrase too, because many clients show nothing else. Heads are
bounded in size and time. One request a connection: what follows the first request belongs to the
same host, and the answer says `Connection: close`.
Sources: RFC 9110 and 9112, RFC 1928 (SOCKS 5).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from urllib.parse import urlsplit

from sandboxd.egress.door import Door
from sandboxd.egress.flows import Connections, reset
from sandboxd.model import Denial

HEAD_S = 30.0
MAX_HEAD = 64 * 1024
DRAIN_S = 1.0
DRAIN_BYTES = 1 << 20
SOCKS_VERSION = 5
SOCKS_CONNECT = 1
SOCKS_IPV4, SOCKS_NAME, SOCKS_IPV6 = 1, 3, 4
SOCKS_OK, SOCKS_NOT_ALLOWED, SOCKS_UNREACHABLE, SOCKS_NO_COMMAND, SOCKS_NO_KIND = 0, 2, 4, 7, 8
HOP_BY_HOP = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"te", b"host")
)
"""Not passed on; `Host` is written anew from the request's own target."""


class BadRequest(Exception):
    """What a client sent is not the protocol; `str` is safe to send back."""


class Proxy:
    """Serves the proxy port of one run."""

    def __init__(self, door: Door, connections: Connections) -> None:
        self.door = door
        self.connections = connections

    async def serve(self, near: socket.socket) -> None:
        """One connection of a client; closes it."""
        try:
            with contextlib.suppress(OSError, TimeoutError):
                stream = Stream(near)
                async with asyncio.timeout(HEAD_S):
                    first = await stream.peek()
                if first == SOCKS_VERSION:
                    await self._serve_socks(stream)
                elif first is not None:
                    await self._serve_http(stream)
        finally:
            near.close()

    async def _carry(self, stream: Stream, far: socket.socket, first: bytes) -> None:
        try:
            await self.connections.carry(stream.socket, far, first + stream.rest())
            far.close()
        except OSError:
            reset(stream.socket)
        finally:
            if far.fileno() >= 0:
                reset(far)

    # -- HTTP

    async def _serve_http(self, stream: Stream) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                request = parse_request(await stream.until(b"\r\n\r\n", MAX_HEAD))
        except BadRequest as error:
            await _say(stream, "400 Bad Request", str(error))
            return
        except TimeoutError:
            await _say(stream, "408 Request Timeout", "no whole request head came in time")
            return
        try:
            far = await self.door.open_host(request.host, request.port)
        except OSError as error:
            told = f"{request.host}:{request.port} cannot be reached: {error.strerror or error}"
            await _say(stream, "502 Bad Gateway", told)
            return
        if isinstance(far, Denial):
            told = f"{far.host} is refused by sandboxd ({far.rule}); {far.hint}"
            await _say(stream, f"403 {_phrase(told)}", told)
        elif request.is_tunnel:
            await asyncio.get_running_loop().sock_sendall(
                stream.socket, b"HTTP/1.1 200 Connection established\r\n\r\n"
            )
            await self._carry(stream, far, b"")
        else:
            await self._carry(stream, far, request.head)

    # -- SOCKS

    async def _serve_socks(self, stream: Stream) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(HEAD_S):
                greeting = await stream.exactly(2)
                methods = await stream.exactly(greeting[1])
                await loop.sock_sendall(stream.socket, b"\x05\x00" if 0 in methods else b"\x05\xff")
                if 0 not in methods:
                    return
                command, host, port = await _socks_request(stream)
        except BadRequest:
            await loop.sock_sendall(stream.socket, _socks_reply(SOCKS_NO_KIND))
            return
        if command != SOCKS_CONNECT:
            await loop.sock_sendall(stream.socket, _socks_reply(SOCKS_NO_COMMAND))
            return
        try:
            far = await self.door.open_host(host, port)
        except OSError:
            await loop.sock_sendall(stream.socket, _socks_reply(SOCKS_UNREACHABLE))
            return
        if isinstance(far, Denial):
            await loop.sock_sendall(stream.socket, _socks_reply(SOCKS_NOT_ALLOWED))
            return
        await loop.sock_sendall(stream.socket, _socks_reply(SOCKS_OK))
        await self._carry(stream, far, b"")


class Stream:
    """Reading from a client what a protocol's head needs, and no more than its bounds."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._held = bytearray()

    async def peek(self) -> int | None:
        """The first byte, which stays unread; None at the end of the stream."""
        return self._held[0] if self._held or await self._more() else None

    async def exactly(self, size: int) -> bytes:
        while len(self._held) < size:
            if not await self._more():
                raise BadRequest("the connection ended early")
        data = bytes(self._held[:size])
        del self._held[:size]
        return data

    async def until(self, mark: bytes, limit: int) -> bytes:
        """Everything up to `mark`, with it; raises BadRequest past `limit`."""
        searched = 0
        while (place := self._held.find(mark, searched)) < 0:
            searched = max(0, len(self._held) - len(mark))
            if len(self._held) > limit:
                raise BadRequest(f"the request's head is over {limit} bytes")
            if not await self._more():
                raise BadRequest("the connection ended before the request did")
        return await self.exactly(place + len(mark))

    def rest(self) -> bytes:
        """What was read and not used."""
        data = bytes(self._held)
        self._held.clear()
        return data

    async def _more(self) -> bool:
        chunk = await asyncio.get_running_loop().sock_recv(self.socket, 16384)
        self._held += chunk
        return bool(chunk)


class Request:
    """The head of one request: where it goes, and what is sent there."""

    def __init__(self, host: str, port: int, *, is_tunnel: bool, head: bytes = b"") -> None:
        self.host = host
        self.port = port
        self.is_tunnel = is_tunnel
        self.head = head


def parse_request(head: bytes) -> Request:
    """A CONNECT, or a request with an absolute http target made one for the server itself."""
    line, *fields = head[:-4].split(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise BadRequest("this is no HTTP/1 request to a proxy")
    method, target = words[0], words[1].decode("latin-1")
    if method == b"CONNECT":
        host, port = _authority(target, None)
        return Request(host, port, is_tunnel=True)
    if not target.lower().startswith("http://"):
        raise BadRequest("a proxy takes absolute http:// targets and CONNECT")
    try:
        parts = urlsplit(target)
    except ValueError:
        raise BadRequest("the target is no URL") from None
    place = parts.netloc.rpartition("@")[2]
    host, port = _authority(place, 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [field for field in fields if field.split(b":")[0].strip().lower() not in HOP_BY_HOP]
    whole = [
        b" ".join((method, path.encode("latin-1"), b"HTTP/1.1")),
        b"Host: " + place.encode("latin-1"),
        *kept,
        b"Connection: close",
    ]
    return Request(host, port, is_tunnel=False, head=b"\r\n".join(whole) + b"\r\n\r\n")


def _authority(text: str, default: int | None) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default or "")
    if not host or not (port.isascii() and port.isdigit()) or len(port) > 5:
        raise BadRequest("the target has no host and port")
    return host, int(port)


async def _socks_request(stream: Stream) -> tuple[int, str, int]:
    version, command, _, kind = await stream.exactly(4)
    if version != SOCKS_VERSION:
        raise BadRequest("not SOCKS 5")
    if kind == SOCKS_NAME:
        size = (await stream.exactly(1))[0]
        host = (await stream.exactly(size)).decode("utf-8", "replace")
    elif kind == SOCKS_IPV4:
        host = socket.inet_ntop(socket.AF_INET, await stream.exactly(4))
    elif kind == SOCKS_IPV6:
        host = socket.inet_ntop(socket.AF_INET6, await stream.exactly(16))
    else:
        raise BadRequest("an address of no known kind")
    return command, host, int.from_bytes(await stream.exactly(2), "big")


def _socks_reply(code: int) -> bytes:
    return bytes([SOCKS_VERSION, code, 0, SOCKS_IPV4]) + bytes(6)


def _phrase(text: str) -> str:
    """A reason phrase: one line of visible ASCII."""
    return "".join(it if " " <= it <= "~" else "?" for it in text)[:500]


async def _say(stream: Stream, status: str, told: str) -> None:
    """Answer with a text and close in order: unread input would turn the answer into a reset."""
    loop = asyncio.get_running_loop()
    body = (told + "\n").encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    await loop.sock_sendall(stream.socket, head.encode("ascii", "replace") + body)
    stream.socket.shutdown(socket.SHUT_WR)
    left = DRAIN_BYTES
    async with asyncio.timeout(DRAIN_S):
        while left > 0 and (chunk := await loop.sock_recv(stream.socket, 65536)):
            left -= len(chunk)
