"""A person before a terminal of the daemon's: keys in, bytes out, until it ends or they leave.

A module of its own beside `exchange`: here nothing is started and nothing ends with us. What is
typed is the person's own word, so it is not asked about; it is recorded line by line all the same.
"""

from __future__ import annotations

import binascii
import os
import select

from sandboxd.cli import stdio
from sandboxd.cli.exec import refused
from sandboxd.cli.interrupts import SIGCONT, SIGWINCH, Interrupts
from sandboxd.cli.jsonline import Link, field
from sandboxd.cli.relay import Relay
from sandboxd.cli.told import tell
from sandboxd.config import socket_path
from sandboxd.errors import DaemonUnreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd.cli.jsonline import Object

LEAVE = b"\x1d"
"""Ctrl-], as telnet has it."""
INITIALIZE, ATTACH, WRITE, TOLD = 1, 2, 3, 4
USAGE = 2


def attach_to(socket: str | None, opening: Object, terminal_id: str) -> int:
    """Returns 0 when it has ended or was left. Raises DaemonUnreachable."""
    kinds = stdio.guard()
    if kinds[0] != stdio.TERMINAL or kinds[1] != stdio.TERMINAL:
        tell("attach needs a terminal; use `sandboxd terminal read` and `write` here")
        return USAGE
    path = socket_path(socket)
    try:
        link = Link.connect(path)
    except OSError as error:
        raise DaemonUnreachable(
            f"no daemon answers on {path}: {error.strerror}",
            hint="start one with `sandboxd serve --detach`",
            path=path,
        ) from error
    try:
        return _Attached(link, Relay(kinds), terminal_id).run(opening)
    finally:
        link.close()


class _Attached:
    def __init__(self, link: Link, relay: Relay, terminal_id: str) -> None:
        self._link = link
        self._relay = relay
        self._id = terminal_id
        self._rest = b""
        """The beginning of a character whose end has not been read yet."""
        self._poller = select.poll()
        self._told = TOLD
        self._exit: int | None = None

    def run(self, opening: Object) -> int:
        with Interrupts((SIGWINCH, SIGCONT)) as interrupts:
            self._link.send(
                {"jsonrpc": "2.0", "id": INITIALIZE, "method": "initialize", "params": opening}
            )
            self._call(ATTACH, "terminal.attach")
            self._redraw()
            tell(f"attached to {self._id}; Ctrl-] leaves it running")
            self._relay.take()
            self._poller.register(self._link.fileno(), select.POLLIN)
            self._poller.register(interrupts.fileno(), select.POLLIN)
            self._poller.register(0, select.POLLIN)
            try:
                while self._exit is None:
                    self._wait(interrupts)
            finally:
                self._relay.give_back()
        return self._exit

    def _wait(self, interrupts: Interrupts) -> None:
        ready = [number for number, _ in self._poller.poll()]
        if interrupts.fileno() in ready:
            for number in interrupts.caught():
                self._caught(number)
        if self._link.fileno() in ready:
            messages = self._link.receive()
            for message in messages or ():
                self._take(message)
            if messages is None:
                self._leave("the server closed the connection")
        if 0 in ready and self._exit is None:
            self._pass_keys()

    def _caught(self, number: int) -> None:
        if number == SIGWINCH:
            self._resize(self._relay.size())
        elif number == SIGCONT:
            self._relay.take()
            self._redraw()
        else:
            self._leave("left; it goes on", 128 + number)

    def _take(self, message: Object) -> None:
        number = message.get("id")
        if message.get("method") == "terminal.output":
            encoded = field(message, "params").get("bytes_b64")
            self._relay.show(binascii.a2b_base64(str(encoded)))
        elif number == WRITE:
            self._poller.register(0, select.POLLIN)
        elif "error" in message and number in (INITIALIZE, ATTACH):
            self._relay.give_back()
            error = field(message, "error")
            refusal = field(error, "data") or {"message": error.get("message"), "hint": ""}
            self._exit = refused(refusal, is_json=False)
        elif number == ATTACH:
            self._leave("it has ended")

    def _pass_keys(self) -> None:
        try:
            data = os.read(0, 4096)
        except OSError:
            data = b""
        keys, left, _ = data.partition(LEAVE)
        keys, self._rest = _whole(self._rest + keys)
        if keys:
            self._poller.unregister(0)
            encoded = binascii.b2a_base64(keys, newline=False).decode("ascii")
            self._call(WRITE, "terminal.write", {"bytes_b64": encoded, "approve": "all"})
        if left or not data:
            self._leave("left; it goes on")

    def _leave(self, sentence: str, code: int = 0) -> None:
        self._relay.give_back()
        tell(sentence)
        self._exit = code

    def _redraw(self) -> None:
        """Another size for a moment: programs that fill the screen draw it again."""
        size = self._relay.size()
        rows = size["rows"]
        assert isinstance(rows, int)
        self._resize({**size, "rows": rows - 1 or 2})
        self._resize(size)

    def _resize(self, size: Object) -> None:
        self._told += 1
        self._call(self._told, "terminal.resize", size)

    def _call(self, number: int, method: str, params: Object | None = None) -> None:
        named: Object = {"terminal_id": self._id, **(params or {})}
        self._link.send({"jsonrpc": "2.0", "id": number, "method": method, "params": named})


def _whole(data: bytes) -> tuple[bytes, bytes]:
    """Whole UTF-8 characters, and the beginning of one at the end; what is none is left out."""
    for back in range(1, min(4, len(data) + 1)):
        if data[-back] >= 0xC2:
            needed = 2 if data[-back] < 0xE0 else 3 if data[-back] < 0xF0 else 4
            if needed > back:
                data, rest = data[:-back], data[-back:]
                return data.decode("utf-8", "ignore").encode(), rest
            break
    return data.decode("utf-8", "ignore").encode(), b""
