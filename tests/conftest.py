"""What every test shares: a throw-away home, so that no test reads or writes the user's own.

It is set before anything is imported that might look at it, and inherited by every process
that a test starts. The folders are short because a socket's path has 107 bytes at most.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_PLACES = {
    "HOME": "home",
    "XDG_RUNTIME_DIR": "run",
    "XDG_STATE_HOME": "state",
    "XDG_CONFIG_HOME": "config",
    "XDG_CACHE_HOME": "cache",
}


def pytest_configure(config: pytest.Config) -> None:
    home = Path(tempfile.mkdtemp(prefix="sbx-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    for name, folder in _PLACES.items():
        (home / folder).mkdir(mode=0o700)
        os.environ[name] = str(home / folder)
    for name in [name for name in os.environ if name.startswith("SANDBOXD_")]:
        if not name.startswith("SANDBOXD_TEST_"):
            del os.environ[name]
    # Processes that a test starts elsewhere find this checkout, installed or not.
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{ROOT}:{path}" if path else str(ROOT)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The top of the checkout."""
    return ROOT
