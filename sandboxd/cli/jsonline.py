"""JSON lines over a Unix socket with the interpreter's C modules alone.

A module of its own because of what it does not import: `json` and `socket` cost as much as the
rest of `sandboxd exec` together. `_json` and `_socket` are CPython's own accelerators; where
they are missing or differ, `json` takes over. Only what the fast path needs is here: the server
is the one who is strict.
"""

from __future__ import annotations

import _socket
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Value: TypeAlias = "dict[str, Value] | list[Value] | str | int | float | bool | None"
    Object: TypeAlias = dict[str, Value]

RECEIVE_BYTES = 262144


def _by_c_modules() -> tuple[Callable[[str], object], Callable[[object], str]]:
    import _json

    class Grammar:
        strict = True
        object_hook = None
        object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = float

    scan = _json.make_scanner(Grammar)  # type: ignore[arg-type]  # any object with these names
    chunks = _json.make_encoder(
        None,
        _refuse,
        _json.encode_basestring_ascii,
        None,
        ":",
        ",",
        False,
        False,
        False,
    )
    return (lambda text: scan(text, 0)[0]), (lambda value: "".join(chunks(value, 0)))


def _refuse(value: object) -> str:
    raise TypeError(f"{type(value).__name__} is not JSON")


def _by_json() -> tuple[Callable[[str], object], Callable[[object], str]]:
    import json

    return json.loads, json.dumps


def _codec() -> tuple[Callable[[str], object], Callable[[object], str]]:
    try:
        load, dump = _by_c_modules()
        if load(dump({"a": [1, None, "x"]})) == {"a": [1, None, "x"]}:
            return load, dump
    except (ImportError, AttributeError, TypeError):
        pass
    return _by_json()


_load, _dump = _codec()


def load(text: str) -> Object:
    """One JSON object."""
    try:
        value = _load(text)
    except StopIteration as error:  # how the C scanner says that nothing is there
        raise ValueError("not JSON") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def dump(value: Object) -> str:
    """JSON on one line, ASCII only."""
    return _dump(value)


def field(value: Value, name: str) -> Object:
    """The object in the field `name`, or an empty one."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


class Link:
    """One connection to a server, blocking, as decoded lines."""

    def __init__(self, connected: _socket.socket) -> None:
        self._socket = connected
        self._pending: list[bytes] = []

    @staticmethod
    def connect(path: str) -> Link:
        """Connect to the server at `path`; raises OSError when nobody answers."""
        connected = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            connected.connect(os.fsencode(path))
        except OSError:
            connected.close()
            raise
        return Link(connected)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, *messages: Object) -> None:
        """Send whole lines; a peer that has gone is noticed by `receive`."""
        data = "".join(dump(message) + "\n" for message in messages).encode("ascii")
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self) -> list[Object] | None:
        """Wait for bytes; the messages they complete, or None when the server hung up."""
        try:
            chunk = self._socket.recv(RECEIVE_BYTES)
        except ConnectionResetError:
            return None
        if not chunk:
            return None
        *complete, rest = chunk.split(b"\n")
        messages = []
        for piece in complete:
            self._pending.append(piece)
            messages.append(load(b"".join(self._pending).decode("utf-8")))
            self._pending.clear()
        if rest:
            self._pending.append(rest)
        return messages

    def close(self) -> None:
        self._socket.close()
