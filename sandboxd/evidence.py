"""Was it the sandbox? Turns words in a run's output into evidence, or leaves them a guess.

Any program can print "Permission denied". Where the output names a path beside such words, a probe of
our own tries that path twice: under the plan of the run, and without a sandbox as the same user. Only
when it is refused inside and not outside, the sandbox is what said no. The name still comes from the
command's own output, and whoever is asked about it is told so.

The probe opens regular files and folders only, creates nothing that has a name, and reads nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

import msgspec

from sandboxd.errors import Fault, Refusal
from sandboxd.model import Denial, LaunchPlan
from sandboxd.spawn.launcher import LaunchFailed

WORDS = ("Read-only file system", "Permission denied", "Operation not permitted")
MOST_PATHS = 4
LONGEST_PATH = 4096
LIMIT_S = 3.0

PROBE = """
import errno, os, stat, sys
NO = (errno.EACCES, errno.EPERM, errno.EROFS)
def refused(path, flags):
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o600))
    except OSError as error:
        return error.errno in NO
    return False
def look(path):
    if path.startswith(("/proc/", "/sys/", "/dev/")):
        return "??"
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        folder = os.path.dirname(path)
        if error.errno in NO or not os.path.isdir(folder):
            return "xx" if error.errno in NO else "??"
        return "?" + "-x"[refused(folder, os.O_WRONLY | os.O_TMPFILE)]
    if stat.S_ISDIR(mode):
        return "-x"[refused(path, os.O_RDONLY)] + "-x"[refused(path, os.O_WRONLY | os.O_TMPFILE)]
    if stat.S_ISREG(mode):
        return "-x"[refused(path, os.O_RDONLY)] + "-x"[refused(path, os.O_WRONLY)]
    return "??"
print(*map(look, sys.argv[1:]))
"""
"""For each path two letters, reading and writing: `x` refused, `-` not, `?` not tried."""

Run = Callable[[LaunchPlan], Awaitable[tuple[int, bytes]]]
Plan = Callable[[str, tuple[str, ...]], LaunchPlan]
"""A launch plan for a program and its arguments."""


def named_paths(text: str, cwd: str) -> list[str]:
    """Paths that stand in a line of the output beside words of refusal."""
    found: dict[str, None] = {}
    for line in text.split("\n"):
        if any(word in line for word in WORDS):
            for candidate in _candidates(line):
                path = os.path.normpath(os.path.join(cwd, os.path.expanduser(candidate)))
                if _is_path(candidate, path):
                    found[path] = None
    return list(found)[:MOST_PATHS]


def _candidates(line: str) -> list[str]:
    """Between quotes first, then between colons and blanks."""
    for quote in '\u2018\u2019\u201c\u201d`"':
        line = line.replace(quote, "'")
    quoted = line.split("'")[1::2]
    return [*quoted, *(piece.strip() for piece in line.split(": ")), *line.split()]


def _is_path(candidate: str, path: str) -> bool:
    if not candidate or "\0" in candidate or len(path) > LONGEST_PATH:
        return False
    return candidate.startswith("/") or os.path.lexists(path)


async def confirmed(
    denial: Denial, text: str, cwd: str, *, inside: Plan, outside: Plan, run: Run
) -> Denial:
    """The denial, as `policy` with its path where the probe has shown that the sandbox refused it."""
    paths = named_paths(text, cwd) if denial.path is None else [denial.path]
    if not paths:
        return denial
    try:
        async with asyncio.timeout(LIMIT_S):
            within = await _look(inside, run, paths)
            without = await _look(outside, run, paths)
    except (Refusal, Fault, LaunchFailed, TimeoutError):
        return denial
    for path, seen, real in zip(paths, within, without, strict=False):
        if any(a == "x" and b in "-?" and real != "??" for a, b in zip(seen, real, strict=False)):
            what = "reading" if seen.startswith("x") and not real.startswith("x") else "writing"
            return msgspec.structs.replace(
                denial,
                evidence="policy",
                rule=denial.rule if denial.evidence == "policy" else f"files.{what}",
                path=path,
                hint=denial.hint
                if denial.evidence == "policy"
                else f"{what} {path} is refused in this tier and not outside of it; the name is from the "
                "command's own output",
            )
    return denial


async def _look(plan: Plan, run: Run, paths: list[str]) -> list[str]:
    arguments = (sys.executable, "-I", "-S", "-c", PROBE, *paths)
    code, output = await run(plan(sys.executable, arguments))
    return output.decode("ascii", "replace").split() if code == 0 else []
