"""JSON by the C modules is the same JSON, and lines come whole however they are cut."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.cli import jsonline

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(st.text(), values, max_size=5)


@given(objects)
def test_it_reads_what_json_writes_and_writes_what_json_reads(value: dict[str, Any]) -> None:
    assert jsonline.load(json.dumps(value)) == value
    assert jsonline.load(json.dumps(value, ensure_ascii=False)) == value
    written = jsonline.dump(value)
    assert written.isascii()
    assert "\n" not in written
    assert json.loads(written) == value


@given(objects)
def test_the_fallback_does_the_same(value: dict[str, Any]) -> None:
    load, dump = jsonline._by_json()
    assert load(dump(value)) == jsonline.load(jsonline.dump(value))


@pytest.mark.parametrize("text", ["", "{", '{"a":}', "[1]", "7", "nonsense"])
def test_what_is_no_object_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        jsonline.load(text)


def linked() -> tuple[jsonline.Link, socket.socket]:
    import _socket

    ours, theirs = socket.socketpair()
    return jsonline.Link(_socket.socket(fileno=ours.detach())), theirs


def test_lines_cut_anywhere_come_whole() -> None:
    link, theirs = linked()
    wanted = [{"n": number, "t": "é" * number} for number in range(40)]
    data = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in wanted).encode()

    def send() -> None:
        for start in range(0, len(data), 7):
            theirs.send(data[start : start + 7])
        theirs.close()

    sender = threading.Thread(target=send)
    sender.start()
    got: list[Any] = []
    while (messages := link.receive()) is not None:
        got += messages
    sender.join()
    assert got == wanted


def test_a_peer_that_hung_up_is_none_and_no_exception() -> None:
    link, theirs = linked()
    theirs.close()
    link.send({"a": 1})
    assert link.receive() is None


def test_what_the_peer_said_before_it_hung_up_is_still_read() -> None:
    link, theirs = linked()
    theirs.sendall(b'{"refused":true}\n')
    theirs.close()
    link.send({"a": 1})
    assert link.receive() == [{"refused": True}]


def test_nobody_at_the_path_is_an_os_error(tmp_path: Any) -> None:
    with pytest.raises(FileNotFoundError):
        jsonline.Link.connect(str(tmp_path / "none"))
