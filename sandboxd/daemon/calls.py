"""One client as its handlers see it: something to notify and to ask.

A module of its own so that handlers know neither sockets nor asyncio transports, and tests can
hand in their own caller.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol, TypeVar

from msgspec import Struct

from sandboxd.protocol.wire import RequestId

T = TypeVar("T", bound=Struct)


@dataclass(frozen=True)
class Call:
    """One request that is being answered."""

    id: RequestId
    task: asyncio.Task[None]


class Caller(Protocol):
    """The client's end of a connection."""

    def has_room(self, *, is_raw: bool) -> bool:
        """Whether output may be queued, or must be counted as a gap."""

    def notify(self, method: str, params: Struct) -> None:
        """Queue a notification; never blocks."""

    async def ask(self, method: str, params: Struct, answer: type[T]) -> T:
        """Send a question and wait for its answer; dies with the calling task."""

    def cancel_call(self, number: RequestId) -> None:
        """Abandon a call that has nothing running: it answers with CANCELLED."""
