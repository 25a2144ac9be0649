"""An outlet never blocks who feeds it, loses nothing, and says when its reader has gone."""

from __future__ import annotations

import os
import select
import time

from sandboxd.cli import outlet as outlet_module
from sandboxd.cli.outlet import Outlet


def notice(outlet: Outlet) -> None:
    ready, _, _ = select.select([outlet], [], [], 30)
    assert ready
    outlet.noticed()


def test_a_slow_reader_gets_everything_in_order() -> None:
    read, write = os.pipe()
    outlet = Outlet(write)
    pieces = [bytes([number % 256]) * 50_000 for number in range(100)]
    start = time.monotonic()
    for piece in pieces:
        outlet.put(piece)
    assert time.monotonic() - start < 5
    assert not outlet.is_dry
    wanted, got = b"".join(pieces), b""
    while len(got) < len(wanted):
        got += os.read(read, 65536)
    assert got == wanted
    while not outlet.is_dry:
        notice(outlet)
    assert outlet.error is None


def test_it_starts_again_after_it_has_run_dry() -> None:
    read, write = os.pipe()
    outlet = Outlet(write)
    for word in (b"one", b"two"):
        outlet.put(word)
        assert os.read(read, 10) == word
        while not outlet.is_dry:
            notice(outlet)


def test_a_reader_that_has_gone_is_noticed_and_the_rest_dropped() -> None:
    read, write = os.pipe()
    os.close(read)
    outlet = Outlet(write)
    outlet.put(b"x")
    notice(outlet)
    assert isinstance(outlet.error, BrokenPipeError)
    assert outlet.is_dry
    outlet.put(b"y" * outlet_module.FULL_BYTES)
    assert not outlet.is_full


def test_it_is_full_at_its_bound() -> None:
    read, write = os.pipe()
    outlet = Outlet(write)
    outlet.put(b"x" * 100_000)
    time.sleep(0.2)
    assert not outlet.is_full
    block = bytes(1024 * 1024)
    for _ in range(outlet_module.FULL_BYTES // len(block)):
        outlet.put(block)
    assert outlet.is_full
    os.close(read)
    notice(outlet)
