"""DNS messages as far as a relay needs them: the question, an answer made of addresses, and the
addresses in somebody's answer. A pure module; what cannot be read is None. Source: RFC 1035.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

from sandboxd.egress.hosts import Address

A, AAAA, CLASS_IN = 1, 28, 1
NO_ERROR, FORMAT_ERROR, SERVER_FAILURE, NAME_ERROR, NOT_IMPLEMENTED = 0, 1, 2, 3, 4
RESPONSE, RECURSION_DESIRED, RECURSION_AVAILABLE, TRUNCATED, OPCODE = (
    0x8000,
    0x0100,
    0x0080,
    0x0200,
    0x7800,
)
HEADER = struct.Struct("!HHHHHH")
TTL_S = 60
MAX_UDP = 512
MAX_ANSWERS = 128
MAX_POINTERS = 32


@dataclass(frozen=True)
class Question:
    """One query with its single question."""

    number: int
    flags: int
    name: str
    """Lower case, without the trailing dot; bytes beyond ASCII are kept as Latin-1."""
    kind: int
    class_: int
    section: bytes
    """The question section as it was sent."""


def parse_question(data: bytes) -> Question | None:
    """The query in a message; None when it is none, or not exactly one."""
    if len(data) < HEADER.size:
        return None
    number, flags, questions, *_ = HEADER.unpack_from(data)
    if flags & (RESPONSE | OPCODE) or questions != 1:
        return None
    found = read_name(data, HEADER.size)
    if found is None or found[1] + 4 > len(data):
        return None
    name, end = found
    kind, class_ = struct.unpack_from("!HH", data, end)
    return Question(number, flags, name, kind, class_, data[HEADER.size : end + 4])


def read_name(data: bytes, place: int) -> tuple[str, int] | None:
    """The name at `place` and where what follows it begins."""
    labels: list[str] = []
    end = -1
    for _ in range(128 + MAX_POINTERS):
        if place >= len(data):
            return None
        length = data[place]
        if length >= 0xC0:
            if place + 1 >= len(data):
                return None
            end = place + 2 if end < 0 else end
            place = (length & 0x3F) << 8 | data[place + 1]
        elif length == 0:
            return ".".join(labels).lower(), place + 1 if end < 0 else end
        elif length < 64 and place + 1 + length <= len(data):
            labels.append(data[place + 1 : place + 1 + length].decode("latin-1"))
            place += 1 + length
        else:
            return None
    return None


def answer(question: Question, code: int, addresses: list[Address] | None = None) -> bytes:
    """The response to a question: its code, and the addresses of its kind."""
    kind, size = question.kind, {A: 4, AAAA: 16}.get(question.kind, 0)
    packed = [it.packed for it in addresses or () if len(it.packed) == size]
    room = (MAX_UDP - HEADER.size - len(question.section)) // (12 + size)
    packed = packed[:room]
    flags = RESPONSE | RECURSION_AVAILABLE | (question.flags & RECURSION_DESIRED) | code
    records = b"".join(
        struct.pack("!HHHIH", 0xC000 | HEADER.size, kind, CLASS_IN, TTL_S, size) + data
        for data in packed
    )
    header = HEADER.pack(question.number, flags, 1, len(packed), 0, 0)
    return header + question.section + records


def query(number: int, name: str, kind: int) -> bytes:
    """A question of our own."""
    labels = b"".join(bytes([len(part)]) + part for part in name.encode("ascii").split(b"."))
    section = labels + b"\0" + struct.pack("!HH", kind, CLASS_IN)
    return HEADER.pack(number, RECURSION_DESIRED, 1, 0, 0, 0) + section


def answered_addresses(data: bytes) -> list[Address]:
    """The A and AAAA records in the answer section; those before what cannot be read."""
    found: list[Address] = []
    if len(data) < HEADER.size:
        return found
    _, _, questions, answers, _, _ = HEADER.unpack_from(data)
    place = HEADER.size
    for turn in range(min(questions, 1) + min(answers, MAX_ANSWERS)):
        name = read_name(data, place)
        if name is None:
            break
        place = name[1]
        if turn < questions:
            place += 4
            continue
        if place + 10 > len(data):
            break
        kind, _, _, size = struct.unpack_from("!HHIH", data, place)
        record = data[place + 10 : place + 10 + size]
        place += 10 + size
        if (kind, len(record)) in ((A, 4), (AAAA, 16)):
            found.append(ipaddress.ip_address(record))
    return found
