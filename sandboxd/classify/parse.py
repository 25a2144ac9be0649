"""bashlex, kept where it can be stopped: in a worker process with bounded time and memory.

This is the only module that imports bashlex, and only when it runs as the worker's main
program. Measured on bashlex 0.18: it never returns on an unclosed `${` in single quotes, hides
commands in `'"'$(cmd)'"'`, `~$(cmd)` and every `${x:-$(cmd)}`, and raises its own and builtin
errors alike. So it is one of two independent readers, asked only where tree-sitter cannot read;
it gets text whose quoted spans are replaced by letters, and whatever it does not answer in time
counts as "cannot read". It is started when first needed and never in the common case.

Protocol on the worker's pipes: four bytes of length (big endian), then UTF-8. The request is
shell text; the reply is JSON: a list of commands, each the list of its words' [start, end], or
null when bashlex refused.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import BinaryIO

MAX_SECONDS = 0.05
START_SECONDS = 5.0
MAX_MEMORY_BYTES = 512 * 1024 * 1024
MAX_CPU_SECONDS = 60
_MISLEADING = re.compile(r"\$\{|`|~\$|\"[<>]\(|(?<!<)<<(?!<)|\$\"|\$'")
MAX_REPLY_BYTES = 8 * 1024 * 1024


class BashlexWorker:
    """A reader that runs bashlex elsewhere. Thread-safe; `close` ends the process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_answering = False
        self._is_closed = False

    def is_ready(self) -> bool:
        """Whether `commands` would answer without waiting for the worker to start."""
        return self._is_answering

    def start(self) -> None:
        """Start the worker without waiting for it."""
        threading.Thread(target=self.commands, args=("true",), daemon=True).start()

    def commands(self, text: str) -> list[list[tuple[int, int]]] | None:
        """The words' places of every command bashlex sees; None when it cannot say in time."""
        with self._lock:
            try:
                process = self._started()
                reply = _exchange(process, text.encode())
            except (OSError, ValueError, EOFError):
                reply = None
            if reply is None:
                self._stop()
                return None
        found = json.loads(reply)
        if found is None:
            return None
        return [[(start, end) for start, end in words] for words in found]

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._stop()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        if self._is_closed:
            raise OSError("the bashlex worker is closed")
        spec = importlib.util.find_spec("bashlex")
        if spec is None or spec.origin is None:
            raise OSError("bashlex is not installed")
        folder = os.path.dirname(os.path.dirname(spec.origin))
        self._process = subprocess.Popen(
            [sys.executable, "-I", os.path.abspath(__file__), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
        )
        if _exchange(self._process, b"true", START_SECONDS) is None:
            raise OSError("the bashlex worker does not answer")
        self._is_answering = True
        return self._process

    def _stop(self) -> None:
        process, self._process, self._is_answering = self._process, None, False
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass


def is_misleading(text: str) -> bool:
    """Forms that bashlex is known to spin on or to misread; it is not asked about them."""
    return _MISLEADING.search(text) is not None


def neutralised(text: str, inert: Iterable[tuple[int, int]]) -> str:
    """The text with inert spans (quotes, comments) replaced by letters of the same length."""
    chars = list(text)
    for start, end in inert:
        blank = " " if text.startswith("#", start) else "x"
        chars[start:end] = blank * (end - start)
    return "".join(chars)


def _exchange(
    process: subprocess.Popen[bytes], request: bytes, limit_s: float = MAX_SECONDS
) -> bytes | None:
    """Send one request and wait for its reply; None when the time is up or the worker died."""
    if process.stdin is None or process.stdout is None:
        raise OSError("the worker has no pipes")
    process.stdin.write(struct.pack(">I", len(request)) + request)
    process.stdin.flush()
    deadline = time.monotonic() + limit_s
    descriptor = process.stdout.fileno()
    header = _receive(descriptor, 4, deadline)
    if header is None:
        return None
    (length,) = struct.unpack(">I", header)
    return _receive(descriptor, length, deadline) if length <= MAX_REPLY_BYTES else None


def _receive(descriptor: int, length: int, deadline: float) -> bytes | None:
    received = b""
    while len(received) < length:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([descriptor], [], [], remaining)[0]:
            return None
        chunk = os.read(descriptor, length - len(received))
        if not chunk:
            return None
        received += chunk
    return received


# --------------------------------------------------------------------------- worker side


def _serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until the pipe closes."""
    while True:
        header = requests.read(4)
        if len(header) < 4:
            return
        text = requests.read(struct.unpack(">I", header)[0]).decode()
        reply = json.dumps(_read(text)).encode()
        replies.write(struct.pack(">I", len(reply)) + reply)
        replies.flush()


def _read(text: str) -> list[list[list[int]]] | None:
    import bashlex

    try:
        trees = bashlex.parse(text)
        return [words for tree in trees for words in _words(tree)]
    except Exception:  # bashlex raises its own errors and builtin ones; all mean "cannot read"
        return None


def _words(tree: object) -> Iterator[list[list[int]]]:
    """The places of the words of every command node, nested ones included."""
    stack = [tree]
    while stack:
        node = stack.pop()
        parts = list(getattr(node, "parts", ()))
        if getattr(node, "kind", "") == "command":
            places = [list(part.pos) for part in parts if part.kind == "word"]
            if places:
                yield places
        for name in ("list", "command", "output"):
            child = getattr(node, name, None)
            if isinstance(child, list):
                parts.extend(child)
            elif hasattr(child, "kind"):
                parts.append(child)
        stack.extend(parts)


def _main() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
    sys.path.append(sys.argv[1])
    _serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    _main()
