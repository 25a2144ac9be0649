"""DNS messages: what is read, what is written, and that nothing hostile hangs or raises."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.egress import dns_messages as messages

ADDRESSES = [ipaddress.ip_address(f"203.0.113.{number}") for number in range(1, 60)]


def asked(name: str = "www.example.com", kind: int = messages.A) -> messages.Question:
    question = messages.parse_question(messages.query(7, name, kind))
    assert question is not None
    return question


def test_a_question_is_read_as_it_was_written() -> None:
    found = asked("WWW.Example.com", messages.AAAA)
    assert (found.number, found.name, found.kind) == (7, "www.example.com", messages.AAAA)


def test_an_answer_holds_the_addresses_of_its_kind_only() -> None:
    both = [*ADDRESSES[:2], ipaddress.ip_address("2001:db8::1")]
    reply = messages.answer(asked(), messages.NO_ERROR, both)
    assert messages.answered_addresses(reply) == ADDRESSES[:2]
    reply = messages.answer(asked(kind=messages.AAAA), messages.NO_ERROR, both)
    assert messages.answered_addresses(reply) == both[2:]


def test_an_answer_fits_a_datagram() -> None:
    reply = messages.answer(asked(), messages.NO_ERROR, ADDRESSES)
    assert len(reply) <= 512
    assert len(messages.answered_addresses(reply)) >= 20


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        messages.answer(asked(), 0),
        messages.query(1, "a.example", 1)[:-3],
        messages.HEADER.pack(1, 0, 2, 0, 0, 0) + b"\0\0\1\0\1",
        messages.HEADER.pack(1, 0x2800, 1, 0, 0, 0) + b"\0\0\1\0\1",
        messages.HEADER.pack(1, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1",
        messages.HEADER.pack(1, 0, 1, 0, 0, 0) + b"\x80abc\0\0\1\0\1",
    ],
    ids=["empty", "short", "an answer", "cut", "two", "update", "a loop", "odd label"],
)
def test_what_is_no_question_is_none(data: bytes) -> None:
    assert messages.parse_question(data) is None


@given(st.binary(max_size=600))
def test_any_bytes_are_read_without_harm(data: bytes) -> None:
    messages.parse_question(data)
    messages.answered_addresses(data)
    question = messages.parse_question(b"\0\1\1\0\0\1" + data[6:])
    if question is not None:
        assert messages.parse_question(messages.answer(question, 0)) is None
