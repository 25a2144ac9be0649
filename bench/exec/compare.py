"""Ratios of one command's cost against bare bwrap, interleaved in one run; see README.md."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from sandboxd.client import Client  # noqa: E402  # the checkout is not installed

BARS = {"command.exec": 1.3, "sandboxd exec": 8.0}
CONSOLE_SCRIPT = "import sys; from sandboxd.cli import main; sys.exit(main())"


def timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def run(words: list[str]) -> None:
    child = os.posix_spawn(words[0], words, os.environ)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise SystemExit(f"{words[0]} failed with {status}")


def bwrap_words(workspace: str) -> list[str]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SystemExit("bwrap is the yardstick; install the package bubblewrap")
    return [
        bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
        "--bind", workspace, workspace, "--unshare-all", "--die-with-parent", "/bin/true",
    ]  # fmt: skip


def contestants(client: Client, workspace: str, socket: str) -> dict[str, Callable[[], None]]:
    bwrap = bwrap_words(workspace)
    whole = [sys.executable, "-c", CONSOLE_SCRIPT, "exec", "--socket", socket]
    whole += ["--workspace", workspace, "--approve", "all", "--tier", "namespaces"]
    whole += ["--", "/bin/true"]

    def by_connection() -> None:
        result = client.exec(["/bin/true"], approve="all", tier="namespaces")
        assert result.exit_code == 0

    return {
        "bwrap": lambda: run(bwrap),
        "posix_spawn": lambda: run(["/bin/true"]),
        "command.exec": by_connection,
        "sandboxd exec": lambda: run(whole),
        "python -c pass": lambda: run([sys.executable, "-c", "pass"]),
    }


def measure(rounds: int, folder: str) -> dict[str, list[float]]:
    workspace = os.path.join(folder, "work")
    os.mkdir(workspace)
    socket = os.path.join(folder, "s")
    daemon = subprocess.Popen(
        [sys.executable, "-m", "sandboxd", "serve", "--socket", socket],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "XDG_STATE_HOME": folder},
    )
    try:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        with Client.connect(socket, workspace=workspace) as client:
            return interleaved(contestants(client, workspace, socket), rounds)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()


def interleaved(works: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(timed(work))
    return times


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory(prefix="sbx-", dir=os.path.expanduser("~")) as folder:
        # Byte code as an installation has it, without writing into the checkout.
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "cache")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        times = measure(rounds, folder)
    yardstick = statistics.median(times["bwrap"])
    missed = 0
    print(f"{'':16} {'median ms':>10} {'ratio':>7} {'bar':>6}   ({rounds} rounds)")
    for name, found in times.items():
        median = statistics.median(found)
        ratio = median / yardstick
        bar = BARS.get(name)
        missed += bar is not None and ratio > bar
        print(f"{name:16} {median:10.2f} {ratio:7.2f} {bar if bar else '':>6}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
