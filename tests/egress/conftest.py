"""A ground, a launcher's worth of helpers and a world for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.confined import Ground, make_ground
from tests.egress.world import World


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


@pytest.fixture
def world() -> World:
    return World()
