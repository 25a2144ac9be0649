"""What a megabyte that is meant to be slow costs: in the ring, and with every line rendered.

    python -m bench.output.hostile [--megabytes 1]

Seconds of processor time for each case and way. Exit 1 when one takes 2 s or more for a megabyte.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable

from sandboxd.output.renderer import LineRenderer
from sandboxd.output.ring import Ring
from tests.output.hostile import hostile

MEGABYTE = 1 << 20
READ_BYTES = 1 << 16
BAR_S = 2.0


def in_ring(data: bytes) -> None:
    ring = Ring()
    for at in range(0, len(data), READ_BYTES):
        ring.feed(data[at : at + READ_BYTES])
    ring.snapshot()


def in_lines(data: bytes) -> None:
    renderer = LineRenderer()
    for at in range(0, len(data), READ_BYTES):
        renderer.feed(data[at : at + READ_BYTES])
    renderer.flush()


WAYS: dict[str, Callable[[bytes], None]] = {"ring": in_ring, "lines": in_lines}


def seconds(way: Callable[[bytes], None], data: bytes) -> float:
    """Of processor time for a megabyte, the better of two."""
    best = float("inf")
    for _ in range(2):
        begun = time.process_time()
        way(data)
        best = min(best, time.process_time() - begun)
    return best * MEGABYTE / len(data)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1)
    size = int(parser.parse_args().megabytes * MEGABYTE)
    cases = hostile(size) | {"random": random.Random(1).randbytes(size)}
    worst = 0.0
    for name, data in cases.items():
        found = {way: seconds(take, data) for way, take in WAYS.items()}
        worst = max(worst, *found.values())
        shown = "  ".join(f"{way} {took:6.3f} s/MB" for way, took in found.items())
        print(f"{name:26} {shown}", flush=True)
    print(f"worst {worst:.3f} s/MB (bar {BAR_S})")
    return 0 if worst < BAR_S else 1


if __name__ == "__main__":
    sys.exit(main())
