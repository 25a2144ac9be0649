"""One implementation for both clients: a coroutine that never waits is driven to its end at once.

Every method that both clients have is written once, as a coroutine over `call`. In the asynchronous
client `call` waits; in the blocking one it has its answer when it returns, so that nothing in between
ever suspends and no event loop is needed. `blocking(method)` is the method for the blocking client.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Concatenate, Generic, ParamSpec, TypeVar

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class Blocking(Generic[A_co]):
    """Whatever has an asynchronous self of which it makes blocking methods."""

    _calls: A_co


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[object, None, R]],
) -> Callable[Concatenate[Blocking[A], P], R]:
    """The same method, which returns when it is done."""

    @functools.wraps(method)
    def wrapper(self: Blocking[A], /, *words: P.args, **named: P.kwargs) -> R:
        return driven(method(self._calls, *words, **named))

    return wrapper


def driven(work: Coroutine[object, None, R]) -> R:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        result: R = done.value
        return result
    work.close()
    raise RuntimeError("a blocking client's call waited for an event loop")
