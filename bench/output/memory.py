"""Four gigabytes through a ring in one process, and how much that process grows.

    python -m bench.output.memory [--gigabytes 4]

Exit 1 when it grows by 16 MiB or more, or when a byte or a line is not accounted for.
"""

from __future__ import annotations

import argparse
import resource
import sys

from sandboxd.output.ring import Ring

GIGABYTE = 1 << 30
MEBIBYTE = 1 << 20
LIMIT_BYTES = 16 * MEBIBYTE
CHUNKS = (
    b"y\n" * 131072,
    b"a line of a build log that says what is compiled and where it goes\n" * 3900,
    b"\x1b[32mok\x1b[0m test_name_of_some_length\n" * 7000,
    b"x" * 262144,
)


def peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4)
    options = parser.parse_args()
    ring = Ring()
    for chunk in CHUNKS * 4:
        ring.feed(chunk)
    fed, lines = ring.total_bytes, ring.total_lines
    before = peak_bytes()
    while fed < options.gigabytes * GIGABYTE:
        for chunk in CHUNKS:
            ring.feed(chunk)
            fed += len(chunk)
            lines += chunk.count(b"\n")
    grown = peak_bytes() - before
    shown = ring.snapshot()
    is_exact = (shown.total_bytes, shown.total_lines) == (fed, lines)
    print(f"fed {fed} bytes, grew {grown / MEBIBYTE:.1f} MiB, counts exact: {is_exact}")
    return 0 if grown < LIMIT_BYTES and is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
