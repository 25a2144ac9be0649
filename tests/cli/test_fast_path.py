"""`exec` through a running daemon loads almost nothing, and ends without a traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

HEAVY = {
    "enum",
    "re",
    "typing",
    "asyncio",
    "bashlex",
    "click",
    "collections",
    "contextlib",
    "dataclasses",
    "json",
    "msgspec",
    "pathlib",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "tree_sitter",
    "yaml",
}
"""Modules that cost a millisecond and more, each."""

LOADED = """
import sys
before = set(sys.modules)
from sandboxd.cli import main
code = main(sys.argv[1:])
loaded = sorted(set(sys.modules) - before)
open(OUT, "w").write(chr(10).join(loaded))
sys.exit(code)
"""
ANSWERS = (
    b'{"jsonrpc":"2.0","id":1,"result":{}}\n',
    b'{"jsonrpc":"2.0","method":"command.state","params":{"run_id":"r","state":"running"}}\n',
    b'{"jsonrpc":"2.0","id":2,"result":{"exit_code":7,"stdout":{"text":"hi\\n"}}}\n',
)


class Answering:
    """A server that says the same to everybody, whatever they ask."""

    def __init__(self, path: str, answers: tuple[bytes, ...]) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen()
        self._answers = answers
        self.path = path
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connected, _ = self._listening.accept()
        with connected:
            connected.recv(65536)
            connected.sendall(b"".join(self._answers))

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(10)
        self._listening.close()


def run_main(
    socket_path: str, *words: str, out: Path | None = None
) -> subprocess.CompletedProcess[str]:
    find = "import sys; sys.path.insert(0, sys.argv.pop(1))"
    script = find + LOADED.replace("OUT", repr(str(out or os.devnull)))
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-I", "-c", script, root, "exec", "--socket", socket_path, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_fast_path_loads_nothing_heavy(tmp_path: Path) -> None:
    out = tmp_path / "loaded"
    with Answering(str(tmp_path / "s"), ANSWERS) as server:
        done = run_main(server.path, "--", "true", out=out)
    assert (done.returncode, done.stdout, done.stderr) == (7, "hi\n", "")
    loaded = out.read_text().split()
    assert "sandboxd.cli.exchange" in loaded
    # What is already there when a console script starts costs nothing more.
    started = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    heavy = HEAVY - set(started)
    assert heavy & {name.split(".")[0] for name in loaded} == set()


CONFINED = (
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m",'
    b'"data":{"code":"PEER_CONFINED","message":"you are confined","hint":"h"}}}\n'
)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ((), "closed the connection"),
        (ANSWERS[:2], "closed the connection"),
        ((b"nonsense\n",), "does not speak"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "does not speak"),
        ((CONFINED,), "you are confined"),
    ],
)
def test_a_server_that_breaks_off_is_125_and_a_sentence(
    tmp_path: Path, answers: tuple[bytes, ...], told: str
) -> None:
    with Answering(str(tmp_path / "s"), answers) as server:
        done = run_main(server.path, "--", "true")
    assert done.returncode == 125
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert all(line.startswith("sandboxd: ") for line in done.stderr.splitlines())
