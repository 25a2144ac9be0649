"""Output at pipe speed: ring, spill and full rendering as ratios to a raw `os.read` loop.

    python -m bench.output.throughput [--megabytes 64] [--rounds 5] [--peers] [CASE ...]

Every case has one producer (a child that writes prepared bytes, or `yes | head -c`). All readers
take turns within a round and the best of the rounds counts, so that a noisy machine hits all of
them. Exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.output.peers import peers
from sandboxd.output.ring import Ring
from sandboxd.output.rows import LiveRows
from sandboxd.output.spill import Spill

READ_BYTES = 1 << 18
MEGABYTE = 1 << 20
Reader = Callable[[int], None]


def log(lines: int) -> bytes:
    step = "[{0:4}/2000] Building CXX object src/module_{1}/CMakeFiles/target.dir/file_{0}.cpp.o -O2 -Wall -Wextra -std=c++20 -fPIC\n"
    return "".join(step.format(n % 2000, n % 7) for n in range(lines)).encode()


def colour() -> bytes:
    """A recorded `ls --color`."""
    recording = Path(__file__).parent.parent.parent / "tests" / "captured" / "ls-colour.raw"
    return recording.read_bytes().replace(b"\r\n", b"\n")


def frames(count: int) -> bytes:
    return "".join(
        f"\r{n % 101:3}%|{'█' * (n % 101 // 4)}{' ' * (25 - n % 101 // 4)}| {n}/20000 [00:10<00:20, 990.12it/s]"
        for n in range(count)
    ).encode()


def moving(count: int) -> bytes:
    frame = "\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[Gfirst ━━━━ {0}%\nsecond \x1b[35m━━━\x1b[0m {0}%\nthird"
    return "".join(map(frame.format, range(count))).encode()


CASES: dict[str, tuple[bytes, dict[str, float]]] = {
    "yes": (b"", {"ring": 0.5, "ring+spill": 0.3, "full": 0.2}),
    "log": (log(4000), {"ring": 0.2, "ring+spill": 0.12, "full": 0.1}),
    "colour": (colour(), {"ring": 0.12, "ring+spill": 0.1, "full": 0.025}),
    "frames": (frames(8000), {"ring": 0.03, "ring+spill": 0.03, "full": 0.03}),
    "random": (
        random.Random(1).randbytes(MEGABYTE),
        {"ring": 0.025, "ring+spill": 0.025, "full": 0.001},
    ),
    "rows": (moving(4000), {}),
}
SLOW = {"random": 4, "rows": 4}
"""Megabytes where rendering everything is slow; the ratios do not depend on it."""


def read_raw(fd: int) -> None:
    while os.read(fd, READ_BYTES):
        pass


def read_ring(fd: int) -> None:
    ring = Ring()
    while chunk := os.read(fd, READ_BYTES):
        ring.feed(chunk)
    ring.snapshot()


def read_ring_and_spill(fd: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ring, spill = Ring(), Spill(folder, 1 << 40)
        while chunk := os.read(fd, READ_BYTES):
            n_lines = chunk.count(b"\n")
            ring.feed(chunk, n_lines)
            spill.write(chunk, n_lines)
        ring.snapshot()
        spill.remove()


def read_full(fd: int) -> None:
    rows = LiveRows(waits=True)
    while chunk := os.read(fd, READ_BYTES):
        for piece in rows.feed(chunk):
            piece.rendered()
    for piece in rows.live():
        piece.rendered()


READERS: dict[str, Reader] = {
    "raw": read_raw,
    "ring": read_ring,
    "ring+spill": read_ring_and_spill,
    "full": read_full,
}


def producer(name: str, source: Path, size: int) -> subprocess.Popen[bytes]:
    command = ["sh", "-c", f"yes | head -c {size}"] if name == "yes" else ["cat", str(source)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def timed(reader: Reader, name: str, source: Path, size: int) -> float:
    child = producer(name, source, size)
    assert child.stdout is not None
    start = time.perf_counter()
    reader(child.stdout.fileno())
    seconds = time.perf_counter() - start
    child.stdout.close()
    child.wait()
    return seconds


def measure(name: str, megabytes: int, rounds: int) -> dict[str, float]:
    """Best MB/s of each reader."""
    unit, _ = CASES[name]
    size = min(megabytes, SLOW.get(name, megabytes)) * MEGABYTE
    best = dict.fromkeys(READERS, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.write_bytes((unit * (size // max(len(unit), 1) + 1))[:size] if unit else b"")
        for _ in range(rounds):
            for reader_name, reader in READERS.items():
                best[reader_name] = min(best[reader_name], timed(reader, name, source, size))
    return {reader_name: size / seconds / 1e6 for reader_name, seconds in best.items()}


def report(name: str, speeds: dict[str, float]) -> bool:
    """Print one case; whether every bar is reached."""
    bars = CASES[name][1]
    reached = True
    print(f"{name:8} raw {speeds['raw']:7.0f} MB/s", end="")
    for reader_name in ("ring", "ring+spill", "full"):
        ratio = speeds[reader_name] / speeds["raw"]
        bar = bars.get(reader_name, 0.0)
        reached &= ratio >= bar
        mark = "" if ratio >= bar else " MISSED"
        print(
            f" | {reader_name} {speeds[reader_name]:7.1f} = {ratio:.4f} (bar {bar}){mark}", end=""
        )
    print(flush=True)
    return reached


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE")
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", action="store_true", help="pyte, ansi2txt and col -b beside it")
    options = parser.parse_args()
    reached = True
    for name in options.cases:
        reached &= report(name, measure(name, options.megabytes, options.rounds))
    if options.peers:
        for line in peers({name: CASES[name][0] or b"y\n" * 1000 for name in options.cases}):
            print(line, flush=True)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
