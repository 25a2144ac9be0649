"""What an upstream's Seatbelt profiles name and vendor/seatbelt does not, and the reverse.

usage: ci/vendor-drift PATH_OF_A_CHECKOUT

Reads every .sbpl and .sb file below the path. Exit 0: the same names; 1: a difference, printed;
2: nothing to compare with.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from sandboxd.confine.sbpl import OPERATIONS  # noqa: E402
from sandboxd.confine.seatbelt_rights import rights  # noqa: E402

KINDS = {
    "service": re.compile(r'\((?:global|local)-name(?:-prefix)?\s+"([^"]+)"'),
    "sysctl": re.compile(r'\(sysctl-name(?:-prefix)?\s+"([^"]+)"'),
}
RULE = re.compile(r"\((?:allow|deny)\s+((?:[a-z][a-z0-9*-]*\s*)+)")


def named_upstream(texts: Iterable[str]) -> dict[str, set[str]]:
    """Names by kind in profile texts, comments taken off."""
    found: dict[str, set[str]] = {"service": set(), "sysctl": set(), "operation": set()}
    for text in texts:
        plain = re.sub(r";[^\n]*", "", text)
        for kind, pattern in KINDS.items():
            found[kind].update(pattern.findall(plain))
        for operations in RULE.findall(plain):
            found["operation"].update(operations.split())
    found["operation"].discard("default")
    return found


def named_here() -> dict[str, set[str]]:
    """The same of ours."""
    every = [right for group in rights().values() for right in group]
    names = {name for right in every for name in right.names}
    return {
        "service": {name for name in names if name.startswith("com.apple.")},
        "sysctl": {name for name in names if not name.startswith("com.apple.")},
        "operation": {operation for right in every for operation in right.operations},
    }


def is_known(operation: str) -> bool:
    """Whether the evaluator and so the generator speak of it."""
    return any(one == operation or one.startswith(operation.rstrip("*")) for one in OPERATIONS)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    files = [
        file for ending in ("*.sbpl", "*.sb") for file in sorted(Path(arguments[0]).rglob(ending))
    ]
    if not files:
        print(f"{arguments[0]}: no .sbpl or .sb file below it", file=sys.stderr)
        return 2
    theirs = named_upstream(file.read_text(encoding="utf-8", errors="replace") for file in files)
    ours = named_here()
    differs = False
    for kind in ("service", "sysctl", "operation"):
        missing = sorted(theirs[kind] - ours[kind])
        if kind == "operation":
            missing = [name for name in missing if not is_known(name)]
        for name in missing:
            print(f"only upstream: {kind} {name}")
        for name in sorted(ours[kind] - theirs[kind]):
            print(f"only here: {kind} {name}")
        differs = differs or bool(missing or ours[kind] - theirs[kind])
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
