"""Random shell text around a marker program, and real bash as the judge of what ran.

Every string is built from a closed vocabulary of harmless tokens: no path but /dev/null, no
program but the marker PWN (which only touches a file), a bare PATH, `env -i`, an empty folder
of its own. Function definitions are left out (a random one can call itself without end).

As a script it runs as many strings as it is told:

    python tests/classify/shell_fuzz.py 100000 [seed]
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxd.classify.classifier import Classifier, Context
    from sandboxd.model import Verdict

BASH = "/bin/bash"
BATCH = 250
MAX_SECONDS = 0.05
DRIVERS = 2

_WORDS = ["echo", "cat", "ls", ":", "true", "PWN", "x", "a", "'", '"', "`", "$(", ")", "(", "${x:-", "${x#[", "${x/a/", "${!x", "${x[", "}", "{", "$((", "))", "((", "<(", ">(", "$x", "$1", "$@", "$*", "$#", "$?", "$'", '$"', "[[", "]]", "[", "]", "-v", "-n", "-eq", "==", "=~", "a[", "]=", "=", "x=", "y=a", "x=PWN", "x='$(PWN)'", "y='a[$(PWN)]'", "!", "time", "if", "then", "else", "fi", "esac", ";;", ";&", "for", "i", "in", "do", "done", "~", "~+", "*", "?", ",", "..", "{a,b}", "{PWN,x}", "{1..2}", "<<<", "2>&1", "&>/dev/null", ">/dev/null", "</dev/null", ">&2", "\\", "\\\\", "\\'", '\\"', "\\$", "\\`", "#", "coproc", "eval", "exec", "command", "builtin", "test", "export", "declare", "-i", "local", "unset", "let", "printf", "'%s'", "-x", "--", "1", "2", "+", "++", "@P", "@Q", ":", ":=", ":1", "%", "##", "//", "^", ",", ";", ";;", "&", "&&", "||", "|", "|&", "\r", "\t", "\x0b", "\xa0", "é", "$$", "$!", "$-", "${", "${#", "${x}", "${x@P}", "${x:1}", "${a[0]}", "${a[@]}", "a=(1", "2)", "$((x))", "$((1+1))", "$[1]", "'a", "b'", '"a', 'b"', '"$x"', "$'\\x41'", "source", ".", "type", "trap", "EXIT", "set", "--", "xargs", "env", "sh", "-c"]  # fmt: skip
_JOINTS = [
    " ", " ", " ", " ", " ", " ", "\n", "\n", "\\\n", "<<EOF\n", "<<'EOF'\n", "<<-EOF\n", "<<\\EOF\n", "\nEOF\n",
    "\nEOF\n", "\n\tEOF\n", "'EOF'", "case x in x) ", "case x in (x|y) ", "for i in ", "; do ", "; done", "if ", "; then ",
    "; fi", "{ ", "; }", "( ", " )", " && ", " || ", " | ", "; ", " & ", "# ", " #",
]  # fmt: skip

TOKENS = [*_WORDS, *_JOINTS]

HOSTS = (
    "echo @", "echo \"@\"", "echo '@'", "echo a@b", "echo \"a@b\"", "echo '\"'@'\"'", "cat <<EOF\n@\nEOF",
    "cat <<'EOF'\n@\nEOF", "cat <<-EOF\n\t@\n\tEOF", "cat <<< @", "cat <<< \"@\"", "x=@", "x=@ echo", "a=(@)", "a=([0]=@)",
    "a[@]=1", "[[ @ ]]", "[[ -n @ ]]", "[[ x == @ ]]", "[[ x =~ @ ]]", "[[ @ -eq 0 ]]", "[[ -v @ ]]", "(( @ ))", "echo $((@))",
    "for i in @; do :; done", "for ((i=@;i<1;i++)); do :; done", "for i in 1; do @; done", "case @ in x) ;; esac",
    "case x in @) ;; esac", "case x in x) @;; esac", "if @; then :; fi", "if true; then @; fi", "while @; do break; done",
    "{ @; }", "( @ )", "@ | cat", "echo | @", "true && @", "false || @", "! @", "time @", "echo > @", "echo 2> @", "echo ${x:-@}",
    "echo \"${x:-@}\"", "echo ${x:=@}", "echo ${x+@}", "echo ${y#@}", "echo ${y/a/@}", "echo ${y:@}", "echo ${a[@]}", "echo `@`",
    "echo $(@)", "echo \"$(@)\"", "echo <(@)", "cat <(@)", "echo > >(@)", "echo ~@", "echo {a,@}", "echo @ # @", "# @\n@", "@ &",
    "@\n@", "@;@", "echo \\\n@", "echo $'@'", "echo $\"@\"", "y=@; echo $((y))", "y=@; echo ${a[y]}", "y=@; echo ${y@P}",
    "y=@; $y", "y='@'; [[ y -eq 0 ]]", "echo $(cat <<E\n@\nE\n)", "cat <<E; echo @\n@\nE", "cat <<A <<B\n@\nA\n@\nB",
)  # fmt: skip
CORES = (
    "PWN", "$(PWN)", "`PWN`", "<(PWN)", "a[$(PWN)]", "'a[$(PWN)]'", "\\$(PWN)", "'$(PWN)'", "\"$(PWN)\"", "\"\"<(PWN)", "P\"W\"N",
    "P\\WN", "P\\\nWN", "$(echo PWN)", "x", "a b", "$((1+$(PWN)))", "${x:-$(PWN)}", "'", "\"", "\\", "\\\n", ")", "EOF\nPWN\n",
    "\nPWN\n", "# PWN", "#PWN", "x#PWN", "{PWN,x}", "~$(PWN)", "$'\\x50WN'", "\rPWN", "\tPWN", ";PWN", "&PWN", "|PWN", "|& PWN",
    "eval PWN", "exec PWN", "command PWN", "[[ -v a[\\$(PWN)] ]]", "\\`PWN\\`", "'\"'$(PWN)'\"'", "!PWN", "! PWN", "${y@P}",
)  # fmt: skip

_FUNCTION = re.compile(r"\((?:[ \t\r]|\\\n)*\)|function")


def strings(count: int, seed: int) -> Iterator[str]:
    """`count` strings, the same for the same seed."""
    rng = random.Random(seed)
    made = 0
    while made < count:
        text = _random_text(rng)
        if len(text) < 400 and not _FUNCTION.search(text) and "\0" not in text:
            made += 1
            yield text


def _random_text(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.25:
        return "".join(rng.choice(TOKENS) for _ in range(rng.randint(1, 14)))
    text = _composed(rng, rng.randint(1, 3))
    if kind < 0.6:
        return text
    for _ in range(rng.randint(1, 3)):
        place = rng.randint(0, len(text))
        if rng.random() < 0.3 and place < len(text):
            text = text[:place] + text[place + 1 :]
        else:
            text = text[:place] + rng.choice(TOKENS) + text[place:]
    return text


def _composed(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(CORES)
    host = rng.choice(HOSTS)
    return "".join(
        _composed(rng, depth - 1) if char == "@" and rng.random() < 0.9 else char for char in host
    )


@dataclass(frozen=True)
class Outcome:
    """What real bash did with one string."""

    text: str
    ran_marker: bool
    wrote: bool

    @property
    def acted(self) -> bool:
        return self.ran_marker or self.wrote


def run_in_bash(texts: Iterable[str]) -> list[Outcome]:
    """Run each text in its own empty folder; many in one driver process, two drivers at a time."""
    texts = list(texts)
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    with ThreadPoolExecutor(DRIVERS) as pool:
        return [outcome for batch in pool.map(_run_batch, batches) for outcome in batch]


_DRIVER = """
ulimit -t 2; ulimit -f 64
export PATH=$1/bin MARK
for name in "$1"/text/*; do
  MARK=$1/mark/${name##*/}
  cd "$1/run/${name##*/}" || exit 1
  ( echo "$BASHPID" >&9; exec 9>&-; set --; . "$name" ) </dev/null >/dev/null 2>&1
done
:
"""
"""One forked shell for each text: `.` reads a text as `bash -c` does, without starting bash anew."""
TEXT_SECONDS = 1.0
SETTLE_SECONDS = 0.3
"""What runs in the background of the last text may still be at work."""


def _run_batch(texts: list[str]) -> list[Outcome]:
    with tempfile.TemporaryDirectory(prefix="shell-fuzz-") as folder:
        root = Path(folder)
        for name in ("bin", "text", "run", "mark"):
            (root / name).mkdir()
        marker = root / "bin" / "PWN"
        marker.write_text('#!/bin/sh\n: > "$MARK"\n')
        marker.chmod(0o755)
        for index, text in enumerate(texts):
            (root / "text" / f"{index:05}").write_bytes(text.encode())
            (root / "run" / f"{index:05}").mkdir()
        _drive(folder)
        return [
            Outcome(
                text,
                os.path.exists(f"{folder}/mark/{index:05}"),
                bool(os.listdir(f"{folder}/run/{index:05}")),
            )
            for index, text in enumerate(texts)
        ]


def _drive(folder: str) -> None:
    """Run the driver over all texts; a shell that takes longer than a text may is killed."""
    progress, told = os.pipe()
    process = subprocess.Popen(
        [BASH, "--noprofile", "--norc", "-c", f"exec 9>&{told}\n{_DRIVER}", "driver", folder],
        env={},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[told],
        start_new_session=True,
    )
    os.close(told)
    shells: list[int] = []
    while process.poll() is None:
        ready, _, _ = select.select([progress], [], [], TEXT_SECONDS)
        if ready:
            shells = [int(line) for line in os.read(progress, 65536).split()] or shells
            if not shells or process.poll() is not None:
                break
        elif shells:
            with contextlib.suppress(ProcessLookupError):
                os.kill(shells[-1], signal.SIGKILL)
    os.close(progress)
    time.sleep(SETTLE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.wait() != 0:
        raise RuntimeError("the driver of the texts did not come to its end")


HARMLESS = frozenset(("echo", "cat", "ls", ":", "true", "false", "break"))


def reads_as_harmless(text: str) -> bool:
    """Whether the structure reader alone, without tables, sees nothing but harmless names."""
    from sandboxd.classify.reading import Unread
    from sandboxd.classify.structure import StructureReader

    try:
        reading = StructureReader(text, "/home/user").read_units()
    except (Unread, RecursionError):
        return False
    for unit in reading.units:
        if unit.notices:
            return False
        for command in unit.commands:
            if any(
                r.operator not in ("<", "<<", "<<-", "<<<")
                and not _is_sink(r.target.text if r.target else "")
                for r in command.redirects
            ):
                return False
            if command.words and not (
                command.words[0].is_literal and command.words[0].text in HARMLESS
            ):
                return False
    return True


def _is_sink(target: str) -> bool:
    return target in ("/dev/null", "1", "2", "-")


def _timed(classifier: Classifier, text: str, context: Context) -> tuple[Verdict, float]:
    begun = time.perf_counter()
    verdict = classifier.classify_text(text, context)
    return verdict, time.perf_counter() - begun


def main() -> int:
    """Run strings from the command line; report what bash ran and we called read-only."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from sandboxd.classify.classifier import Classifier, Context
    from sandboxd.classify.tables import load_tables

    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    classifier = Classifier(load_tables())
    classifier.warm_up()
    context = Context(cwd="/nowhere", path="/usr/bin:/bin", home="/home/user")
    slow = 0
    wrong, acted, parsed, read_only, slowest = [], 0, 0, 0, (0.0, "")
    for start in range(0, count, 5000):
        texts = list(strings(min(5000, count - start), seed + start))
        for outcome in run_in_bash(texts):
            verdict, took = _timed(classifier, outcome.text, context)
            if took > MAX_SECONDS:  # once more, so that a busy machine is not taken for a slow text
                again = (dataclasses.replace(context, profile=str(n)) for n in range(4))
                took = min(_timed(classifier, outcome.text, other)[1] for other in again)
            slow += took > MAX_SECONDS
            slowest = max(slowest, (took, outcome.text))
            parsed += verdict.parsed
            acted += outcome.acted
            is_reader = verdict.class_.value == "read_only"
            read_only += is_reader
            if outcome.acted and is_reader:
                wrong.append(outcome.text)
                print(f"READ ONLY AND RUN: {outcome.text!r}", flush=True)
        print(
            f"{start + len(texts)} strings: {acted} acted, {parsed} parsed, {read_only} read_only, "
            f"{len(wrong)} wrong; {slow} over 50 ms; slowest {slowest[0] * 1000:.1f} ms {slowest[1]!r}",
            flush=True,
        )
    classifier.close()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
