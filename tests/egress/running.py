"""Running Python inside a tier with a way out into a world of the test's."""

from __future__ import annotations

import sys

import msgspec

from sandboxd.model import EgressRules, NetworkMode
from tests.confined import Ground, plan_for, with_launcher
from tests.egress.world import Carried, World, run_carried

PRELUDE = """
import socket, sys, time
def fetch(host, port=80, path="/"):
    with socket.create_connection((host, port), 5) as s:
        s.sendall(f"GET {path} HTTP/1.0\\r\\nHost: {host}\\r\\n\\r\\n".encode())
        return b"".join(iter(lambda: s.recv(65536), b"")).split(b"\\r\\n\\r\\n", 1)[1].decode().strip()
def attempt(action):
    try:
        return action()
    except OSError as error:
        return type(error).__name__
"""


def run(
    ground: Ground,
    world: World,
    code: str,
    mode: NetworkMode = NetworkMode.OPEN,
    argv: list[str] | None = None,
    tier: str = "namespaces",
    **rules: object,
) -> Carried:
    policy = msgspec.structs.replace(
        ground.policy(mode),
        egress=EgressRules(**rules),  # type: ignore[arg-type]  # a table's values
    )
    plan = plan_for(tier, ground, argv or [sys.executable, "-I", "-c", PRELUDE + code], policy)
    return with_launcher(lambda launcher: run_carried(launcher, plan, policy, world))  # type: ignore[arg-type, return-value]


def lines(carried: Carried) -> list[str]:
    assert carried.exit.code == 0, carried.output
    return carried.output.split("\n")[:-1]
