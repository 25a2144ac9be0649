"""grep inside a sandbox, where ripgrep is not there or does not speak the pattern.

Run as a program of its own (`python -I -S searcher.py REQUEST`): a regular expression that takes for
ever must be possible to kill and must not hold the daemon's interpreter; and what may be read is what
a run may read, held by the kernel. Prints one JSON object. Only the standard library.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from sandboxd.files.walking import Glob, Walk

MAX_FILE = 64 * 1024 * 1024
MAX_COLUMNS = 2000


def search(request: dict[str, object]) -> dict[str, object]:
    """The counts of every matching file, and windows of the densest."""
    try:
        pattern = _compiled(request)
    except (re.error, OverflowError) as error:
        return {"error": str(error)}
    walk = Walk(with_ignored=bool(request["with_ignored"]))
    glob = Glob(str(request["glob"])) if request["glob"] else None
    counts: list[tuple[str, int]] = []
    top = os.open(str(request["top"]), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    begin = str(request["start"])
    for path, name, fd in _candidates(walk, top, begin, bool(request["is_file"])):
        if glob is not None and not glob.matches(path[len(begin) :].lstrip("/") or name):
            continue
        text = _read(walk, fd, name, path)
        if text is not None and (count := _count(pattern, text)):
            counts.append((path, count))
    counts.sort(key=lambda entry: (-entry[1], entry[0]))
    windows = []
    if request["is_content"]:
        windows = _windows(walk, top, pattern, counts, request)
    files = int(str(request["max_files"]))
    return {
        "counts": counts[:files],
        "total_files": len(counts),
        "total_lines": sum(count for _, count in counts),
        "windows": windows,
        "skipped": walk.skipped,
    }


def _candidates(walk: Walk, top: int, start: str, is_file: bool) -> Iterator[tuple[str, str, int]]:
    if not is_file:
        yield from walk.files(top, start)
        return
    yield start, start, top


def _compiled(request: dict[str, object]) -> re.Pattern[str]:
    text = str(request["pattern"])
    flags = re.MULTILINE | (re.IGNORECASE if request["ignore_case"] else 0)
    return re.compile(re.escape(text) if request["is_literal"] else text, flags)


def _read(walk: Walk, fd: int, name: str, path: str) -> str | None:
    """The text of a file; None for what is none."""
    try:
        file_fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
        try:
            size = os.fstat(file_fd).st_size
            if size > MAX_FILE:
                walk.skipped.append((path, f"over {MAX_FILE} bytes"))
                return None
            data = os.read(file_fd, size + 1)
            while len(data) < size and (more := os.read(file_fd, size - len(data))):
                data += more
        finally:
            os.close(file_fd)
    except OSError as error:
        walk._skip(path, error)
        return None
    if b"\0" in data[:8192]:
        return None
    text = data.decode("utf-8", "replace")
    return text.replace("\r\n", "\n") if "\r" in text else text


def _count(pattern: re.Pattern[str], text: str) -> int:
    """How many lines match; most files have none, which one pass over the whole shows."""
    if pattern.search(text) is None:
        return 0
    return sum(1 for line in _lines(text) if pattern.search(line))


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return lines


def _windows(
    walk: Walk,
    top: int,
    pattern: re.Pattern[str],
    counts: list[tuple[str, int]],
    request: dict[str, object],
) -> list[dict[str, object]]:
    context, most = int(str(request["context"])), int(str(request["max_lines"]))
    room = most
    found: list[dict[str, object]] = []
    for path, _ in counts[: int(str(request["max_files"]))]:
        if room <= 0:
            break
        folder, _, name = path.rpartition("/")
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY, dir_fd=top) if folder else os.dup(top)
        text = _read(walk, fd, name, path) or ""
        os.close(fd)
        lines = _lines(text)
        hits = [n for n, line in enumerate(lines, 1) if pattern.search(line)][:most]
        room -= len(hits)
        found += [_window(path, lines, group, context) for group in _groups(hits, context)]
    return found


def _groups(hits: list[int], context: int) -> list[list[int]]:
    """Matching lines whose contexts touch."""
    groups: list[list[int]] = []
    for hit in hits:
        if groups and hit - groups[-1][-1] <= 2 * context + 1:
            groups[-1].append(hit)
        else:
            groups.append([hit])
    return groups


def _window(path: str, lines: list[str], hits: list[int], context: int) -> dict[str, object]:
    first = max(1, hits[0] - context)
    shown = lines[first - 1 : hits[-1] + context]
    return {
        "path": path,
        "first_line": first,
        "lines": [line[:MAX_COLUMNS] for line in shown],
        "matches": hits,
    }


if __name__ == "__main__":
    print(json.dumps(search(json.loads(sys.argv[1]))))
