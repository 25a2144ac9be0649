"""A short soak: what bench/soak does for two minutes with a thousand connections, at a size for CI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_many_clients_some_of_them_killed_leave_nothing(repository: Path) -> None:
    words = ["--seconds", "8", "--connections", "150", "--runs", "20", "--victims", "1"]
    done = subprocess.run(
        [sys.executable, str(repository / "bench/soak/soak.py"), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr[-3000:])
    told = json.loads(done.stdout)
    assert (told["wrong"], told["processes_left_after_stop"]) == (0, 0)
    assert told["clients_killed"] >= 1
