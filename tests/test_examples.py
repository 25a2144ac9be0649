"""The examples of docs/ do what they say, each in a workspace and with a server of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAID = {
    "agent_loop": """user: How long is the README?
assistant: ls
tool: README.md

[exit code 0]
assistant: rm -rf /tmp/nothing
tool: this needs a person's word and nobody can be asked: the command deletes or loses something for good""",
    "approval_callback": """? mkdir -p build && touch build/old
  because of: mkdir -p build
  because of: touch build/old
? rm -r build
  because of: rm -r build
  would lose: build (1 file, 0 bytes)
the model reads: a person said no: keep the old build, make a new folder
""",
    "streaming_build": """stdout: compiling part 1
stdout: compiling part 2
stdout: compiling part 3
stderr: error: no part 4
ended: the command was cancelled; its processes are dead
""",
    "repl_terminal": "the answer is 42\n>>>\nthe REPL",
}


@pytest.mark.parametrize("name", sorted(SAID))
def test_example_runs(name: str, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("one\ntwo\n")
    done = subprocess.run(
        [sys.executable, str(repository / f"docs/examples/{name}.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert SAID[name] in done.stdout
