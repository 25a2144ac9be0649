"""Other sandboxes for agents, where a folder holds what npm installed of them; see README.md."""

from __future__ import annotations

import os
from pathlib import Path

CODEX = "node_modules/@openai/codex*/vendor/*/bin/codex"
SRT = "node_modules/.bin/srt"


def words_in(folder: str) -> dict[str, list[str]]:
    """How each of them that is there runs /bin/true."""
    found = {}
    for path in sorted(Path(folder).glob(CODEX))[:1]:
        found["codex sandbox"] = [str(path), "sandbox", "--", "/bin/true"]
    if Path(folder, SRT).exists():
        found["srt"] = [str(Path(folder, SRT)), "/bin/true"]
    return found


def environment(home: str) -> dict[str, str]:
    """A home of their own outside /tmp, which codex refuses."""
    os.makedirs(home + "/.codex", exist_ok=True)
    return {"HOME": home, "CODEX_HOME": home + "/.codex", "PATH": os.environ["PATH"]}
