"""What the relay and the proxy cost against a direct loopback connection; see README.md."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402  # the checkout is not installed

from sandboxd.confine.select import mechanisms  # noqa: E402
from sandboxd.egress.carrier import Carrier  # noqa: E402
from sandboxd.egress.hosts import Address  # noqa: E402
from sandboxd.egress.outside import Outside  # noqa: E402
from sandboxd.model import (  # noqa: E402
    PROXY_PORT,
    EgressRules,
    Invocation,
    NetworkMode,
    Policy,
)
from sandboxd.spawn.launcher import Launcher  # noqa: E402

HERE = Path(__file__).parent
FAR, FAR_PORT = "203.0.113.5", 9000
WAYS = {"direct": NetworkMode.HOST, "open": NetworkMode.OPEN, "proxy": NetworkMode.ALLOWLIST}
SRT_SETTINGS = {
    "network": {"allowedDomains": ["localhost"], "deniedDomains": []},
    "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
}
BARS = {"first byte us": 2.0, "round trip us": None, "GB/s": 0.1}
SET_UP_BAR_MS = 3.0


class Near(Outside):
    """An outside in which the far host is the server of this measurement."""

    def __init__(self, port: int) -> None:
        self.port = port

    def is_own(self, address: Address) -> bool:
        return False

    def begin(self, address: Address, port: int) -> socket.socket:
        return super().begin(ipaddress.ip_address("127.0.0.1"), self.port)


class Bench:
    def __init__(self, launcher: Launcher, folder: str, port: int) -> None:
        self.launcher = launcher
        self.folder = folder
        self.outside = Near(port)
        self.rung = next(rung for rung in mechanisms() if rung.name == "namespaces")

    def policy(self, mode: NetworkMode) -> Policy:
        work, tmp = os.path.join(self.folder, "work"), os.path.join(self.folder, "tmp")
        made = Policy(profile="bench", workspace=work, writable=(work,), private_tmp=tmp)
        owner = (os.getuid(), os.getgid())
        rules = EgressRules(allow=(FAR,) if mode is NetworkMode.ALLOWLIST else ())
        return msgspec.structs.replace(made, network=mode, egress=rules, owner=owner)

    async def run(self, mode: NetworkMode, argv: list[str]) -> tuple[float, bytes]:
        """Milliseconds from request to end, and the output."""
        policy = self.policy(mode)
        invocation = Invocation(
            program=argv[0],
            argv=tuple(argv),
            environment={"PATH": os.environ["PATH"]},
            cwd=policy.workspace,
        )
        plan = self.rung.plan(invocation, policy)
        read_end, write_end = os.pipe()
        begun = time.perf_counter()
        child = await self.launcher.launch(plan, (0, write_end, 2))
        os.close(write_end)
        carrier = Carrier(mode, policy.egress, self.outside, lambda denial: None)
        carrier.serve(child.take_network(), {})
        ended = await child.wait()
        await carrier.close()
        passed = (time.perf_counter() - begun) * 1000
        with os.fdopen(read_end, "rb") as file:
            output = file.read()
        if ended.code != 0:
            raise SystemExit(f"{argv} in network {mode.value} ended with {ended.code}")
        return passed, output

    async def measure(self, way: str) -> dict[str, float]:
        if way == "srt":
            return await asyncio.to_thread(self.measure_srt)
        target = ["127.0.0.1", str(self.outside.port)] if way == "direct" else [FAR, str(FAR_PORT)]
        proxy = f"http://127.0.0.1:{PROXY_PORT}" if way == "proxy" else "-"
        script = os.path.join(self.folder, "work", "client.py")
        words = [sys.executable, "-I", script, *target, proxy]
        _, output = await self.run(WAYS[way], words)
        found: dict[str, float] = json.loads(output)
        return found

    def measure_srt(self) -> dict[str, float]:
        """The same client through the proxy of `srt`, to the same server."""
        settings = os.path.join(self.folder, "srt.json")
        script = os.path.join(self.folder, "work", "client.py")
        with open(settings, "w", encoding="utf-8") as file:
            json.dump(SRT_SETTINGS, file)
        words = [sys.executable, "-I", script, "localhost", str(self.outside.port), "env"]
        done = subprocess.run(
            ["srt", "--settings", settings, "-c", " ".join(words)],
            cwd=os.path.join(self.folder, "work"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
        if done.returncode != 0:
            raise SystemExit(f"srt ended with {done.returncode}: {done.stderr.decode()}")
        found: dict[str, float] = json.loads(done.stdout)
        return found

    async def set_up(self, rounds: int) -> dict[str, list[float]]:
        modes = (NetworkMode.HOST, NetworkMode.OFF, NetworkMode.OPEN, NetworkMode.ALLOWLIST)
        times: dict[str, list[float]] = {mode.value: [] for mode in modes}
        for _ in range(rounds):
            for mode in modes:
                times[mode.value].append((await self.run(mode, ["/bin/true"]))[0])
        return times


async def bench(folder: str, rounds: int, port: int) -> int:
    launcher = Launcher()
    launcher.start()
    try:
        made = Bench(launcher, folder, port)
        ways = [*WAYS, *(["srt"] if shutil.which("srt") else [])]
        found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way in ways:
                found[way].append(await made.measure(way))
        return show(found) + show_set_up(await made.set_up(20 * rounds))
    finally:
        await launcher.close()


def show(found: dict[str, list[dict[str, float]]]) -> int:
    missed = 0
    print(f"{'':14}" + "".join(f"{way:>20}" for way in found) + "   ratios to direct")
    for name, bar in BARS.items():
        medians = {way: statistics.median(it[name] for it in found[way]) for way in found}
        ratios = {way: value / medians["direct"] for way, value in medians.items()}
        told = "".join(f"{medians[way]:>12.2f} ({ratios[way]:5.2f})" for way in found)
        print(f"{name:14}{told}   {'bar ' + str(bar) if bar else ''}")
        if bar is not None:
            missed += ratios["open"] < bar if name == "GB/s" else ratios["open"] > bar
    return missed


def show_set_up(times: dict[str, list[float]]) -> int:
    medians = {name: statistics.median(values) for name, values in times.items()}
    added = {name: value - medians["off"] for name, value in medians.items()}
    for name, value in medians.items():
        print(f"set-up {name:10} {value:7.2f} ms  {added[name]:+6.2f} over off")
    return int(added["open"] > SET_UP_BAR_MS)


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    server = subprocess.Popen(
        [sys.executable, "-I", str(HERE / "server.py")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with tempfile.TemporaryDirectory(prefix="sbx-", dir="/var/tmp") as folder:
            for name in ("work", "tmp"):
                os.mkdir(os.path.join(folder, name))
            shutil.copy(HERE / "client.py", os.path.join(folder, "work"))
            return 1 if asyncio.run(bench(folder, rounds, port)) else 0
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
