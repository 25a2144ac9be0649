"""What reads a terminal, beside a bare read loop of the same pty.

    python -m bench.output.pty [--megabytes 8] [--rounds 5]

A child writes prepared bytes to a pty; readers take turns and the best of the rounds counts. `exec` is
what a run on a pty goes through (the ring), `terminal` what a terminal that is kept goes through (live
rows, a backlog of lines that are rendered when read). Exit 1 when one reaches less than 0.7 of the bare loop.
"""

from __future__ import annotations

import argparse
import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.output.throughput import colour, log
from sandboxd.output.backlog import Backlog
from sandboxd.output.ring import Ring
from sandboxd.output.rows import LiveRows

READ_BYTES = 1 << 18
MEGABYTE = 1 << 20
BAR = 0.7
CASES = {"yes": b"y\n" * 500, "log": log(2000), "colour": colour()}


def chunks(master: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(master, READ_BYTES)
        except OSError:  # EIO: nobody holds the other side any more
            return
        if not chunk:
            return
        yield chunk


def bare(master: int) -> None:
    for _ in chunks(master):
        pass


def through_ring(master: int) -> None:
    ring = Ring()
    for chunk in chunks(master):
        ring.feed(chunk)
    ring.snapshot()


def through_terminal(master: int) -> None:
    live, backlog = LiveRows(), Backlog(1 << 20)
    for chunk in chunks(master):
        backlog.append(live.feed(chunk))


READERS: dict[str, Callable[[int], None]] = {
    "bare": bare,
    "exec": through_ring,
    "terminal": through_terminal,
}


def timed(reader: Callable[[int], None], source: Path) -> float:
    master, slave = pty.openpty()
    child = subprocess.Popen(["cat", str(source)], stdin=slave, stdout=slave)
    os.close(slave)
    begun = time.perf_counter()
    reader(master)
    seconds = time.perf_counter() - begun
    child.wait()
    os.close(master)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    size, reached = options.megabytes * MEGABYTE, True
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        for name, unit in CASES.items():
            source.write_bytes((unit * (size // len(unit) + 1))[:size])
            best = dict.fromkeys(READERS, float("inf"))
            for _ in range(options.rounds):
                for reader_name, reader in READERS.items():
                    best[reader_name] = min(best[reader_name], timed(reader, source))
            ratios = {who: best["bare"] / best[who] for who in ("exec", "terminal")}
            reached &= min(ratios.values()) >= BAR
            shown = " | ".join(f"{who} {ratio:.2f}" for who, ratio in ratios.items())
            print(f"{name:8} bare {size / best['bare'] / 1e6:6.1f} MB/s | {shown} (bar {BAR})")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
