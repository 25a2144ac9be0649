"""What others take for the same bytes: pyte, ansi2txt and `col -b`, where they are installed."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator

from sandboxd.output.renderer import render

_PYTE_BYTES = 1 << 18
_BYTES = 4 << 20


def peers(cases: dict[str, bytes]) -> Iterator[str]:
    """One line for each case: MB/s of everyone, in process for Python."""
    for name, unit in cases.items():
        found = {"ours": _in_process(lambda data: len(render(data)), unit, _BYTES)}
        if pyte := _pyte():
            found["pyte"] = _in_process(pyte, unit, _PYTE_BYTES)
        for command in (["ansi2txt"], ["col", "-b"]):
            if shutil.which(command[0]):
                found[command[0]] = _filter(command, unit)
        speeds = "  ".join(f"{who} {speed:.2f}" for who, speed in found.items())
        ratio = f"  ours/pyte {found['ours'] / found['pyte']:.0f}" if "pyte" in found else ""
        yield f"{name:8} MB/s: {speeds}{ratio}"


def _repeated(unit: bytes, size: int) -> bytes:
    return (unit * (size // len(unit) + 1))[:size]


def _best(action: Callable[[], object], size: int) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return size / best / 1e6


def _in_process(take: Callable[[bytes], object], unit: bytes, size: int) -> float:
    data = _repeated(unit, size)
    return _best(lambda: take(data), size)


def _filter(command: list[str], unit: bytes) -> float:
    data = _repeated(unit, _BYTES)
    return _best(lambda: subprocess.run(command, input=data, capture_output=True), _BYTES)


def _pyte() -> Callable[[bytes], object] | None:
    try:
        module = importlib.import_module("pyte")
    except ImportError:
        return None

    def take(data: bytes) -> object:
        screen = module.HistoryScreen(300, 50, history=1000)
        try:
            module.ByteStream(screen).feed(data)
        except Exception:  # it fails on some random bytes; the time until then counts
            return None
        return screen.display

    return take
