"""How much a process grows, measured from outside its own heap."""

from __future__ import annotations

import subprocess
import sys
import textwrap

_MEASURE = """
import resource, sys
unit = 1 if sys.platform == "darwin" else 1024
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
before = peak()
{step}
print(peak() - before)
"""


def grown_bytes(prepare: str, step: str) -> int:
    """By how much the peak resident size of a new process grows while it does `step`."""
    program = prepare + textwrap.dedent(_MEASURE).format(step=step)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    return int(done.stdout)
