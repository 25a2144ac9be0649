"""Time per command: our classifier beside bashlex alone, safecmd and nah, in one run.

    python bench/classifier/compare.py --peers PYTHON_WITH_THE_PEERS [--scripts 2000]

Each reader runs in a process of its own, on the same lines, after one warm-up pass; a line's
time is the best of nine, our cache missed each time. The lines are commands.txt (what coding
agents write) and, with --scripts, single lines of this machine's shell scripts that
`bash -n` accepts. Prints median, p99 and the ratios to ours.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 9

_TIMER = """
import json, sys, time
lines = json.load(sys.stdin)
best, answers = [float("inf")] * len(lines), [None] * len(lines)
for round in range({rounds} + 1):
    for index, line in enumerate(lines):
        begun = time.perf_counter()
        answers[index] = judge(line, round)
        if round:
            best[index] = min(best[index], time.perf_counter() - begun)
json.dump([best, answers], sys.stdout)
"""
_READERS = {
    "sandboxd": """
from sandboxd.classify.classifier import Classifier, Context
from sandboxd.classify.tables import load_tables
classifier = Classifier(load_tables())
contexts = [Context(cwd="/nowhere", path="/usr/bin:/bin", home="/root", profile=str(n)) for n in range(99)]
def judge(line, round):
    verdict = classifier.classify_text(line, contexts[round])
    return verdict.class_.value if verdict.parsed else "unread"
""",
    "bashlex": """
import bashlex
def judge(line, round):
    try:
        bashlex.parse(line)
        return "parsed"
    except Exception:
        return "error"
""",
    "safecmd": """
from safecmd.core import validate
def judge(line, round):
    try:
        validate(line)
        return "read_only"
    except FileNotFoundError:
        raise
    except BaseException:
        return "asked"
""",
    "nah": """
from nah.bash import classify_command
def judge(line, round):
    return "read_only" if classify_command(line).final_decision == "allow" else "asked"
""",
}


def agent_lines() -> list[str]:
    """The commands of commands.txt; a line of `%` separates them."""
    text = (Path(__file__).parent / "commands.txt").read_text()
    return [block.strip("\n") for block in text.split("\n%\n") if block.strip()]


def script_lines(count: int) -> list[str]:
    """Lines of this machine's shell scripts that bash accepts by themselves."""
    found: dict[str, None] = {}
    for folder in ("/usr/bin", "/usr/sbin", "/var/lib/dpkg/info", "/etc/init.d"):
        for path in sorted(Path(folder).glob("*")):
            if path.is_file() and path.stat().st_size < 200_000:
                found.update(dict.fromkeys(_shell_lines(path)))
    lines = list(found)
    random.Random(1).shuffle(lines)
    return [line for line in lines[: count * 2] if _is_accepted(line)][:count]


def _shell_lines(path: Path) -> list[str]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return []
    first = text.split("\n", 1)[0]
    if not (first.startswith("#!") and first.rstrip().endswith(("sh", "sh -e", "sh -eu"))):
        return []
    return [
        line.strip()
        for line in text.split("\n")
        if len(line.strip()) > 3 and line.strip()[0] != "#"
    ]


def _is_accepted(line: str) -> bool:
    return subprocess.run(["bash", "-nc", line], capture_output=True).returncode == 0


def timed(python: str, reader: str, lines: list[str]) -> tuple[list[float], list[str]]:
    code = _READERS[reader] + _TIMER.format(rounds=ROUNDS)
    done = subprocess.run(
        [python, "-c", code],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PATH": f"{Path(python).parent}:{os.environ['PATH']}"},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{reader}: {done.stderr.strip().splitlines()[-1]}")
    times, answers = json.loads(done.stdout[done.stdout.index("[[") :])
    return times, answers


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--peers", default=sys.executable, help="python with safecmd, nah, bashlex"
    )
    arguments.add_argument("--scripts", type=int, default=0, help="lines of local shell scripts")
    options = arguments.parse_args()
    for title, lines in (
        ("agent commands", agent_lines()),
        ("script lines", script_lines(options.scripts)),
    ):
        if not lines:
            continue
        print(f"{title}: {len(lines)} lines")
        ours = 0.0
        for reader in _READERS:
            python = sys.executable if reader in ("sandboxd", "bashlex") else options.peers
            times, answers = timed(python, reader, lines)
            median, p99 = statistics.median(times), sorted(times)[int(len(times) * 0.99)]
            ours = ours or median
            counts = {answer: answers.count(answer) for answer in sorted(set(answers))}
            print(
                f"  {reader:9} median {median * 1e6:8.1f} us ({median / ours:6.1f} x)   p99 {p99 * 1e6:9.1f} us   {counts}"
            )


if __name__ == "__main__":
    main()
