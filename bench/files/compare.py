"""Ratios of guarded file operations against the bare system calls, interleaved; see README.md."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/files")]

from sandboxd.client import Client  # noqa: E402  # the checkout is not installed
from sandboxd.protocol.file_messages import FsGrep  # noqa: E402

LINES = 2000


def timed(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def bare_read(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        file.read()


class BareEditor:
    """Read, replace, write beside, rename: what an editor without a gate does."""

    def __init__(self, path: str, *, syncs: bool) -> None:
        self.path, self.syncs, self.number = path, syncs, 0

    def __call__(self) -> None:
        self.number += 1
        with open(self.path, "rb", buffering=0) as file:
            data = file.read()
        data = data.replace(b"value_7 = %d\n" % (self.number - 1), b"value_7 = %d\n" % self.number)
        fd = os.open(self.path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(fd, data)
        if self.syncs:
            os.fsync(fd)
        os.close(fd)
        os.rename(self.path + ".new", self.path)


class GuardedEditor:
    def __init__(self, client: Client, path: str) -> None:
        self.client, self.path, self.number = client, path, 0

    def __call__(self) -> None:
        self.number += 1
        edit = (f"value_7 = {self.number - 1}\n", f"value_7 = {self.number}\n")
        self.client.files.edit(self.path, edit, approve="mutating")


def make(folder: str, name: str) -> str:
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write("".join(f"value_{n} = 0\n" for n in range(LINES)))
    return path


def operations(client: Client, folder: str, rounds: int) -> None:
    paths = {name: make(folder, name) for name in ("read", "sync", "plain", "guarded")}
    for name in ("read", "guarded"):
        client.files.read(name)
    contestants: dict[str, Callable[[], object]] = {
        "bare read": lambda: bare_read(paths["read"]),
        "fs.read": lambda: client.files.read("read", offset=500, limit=50, again=True),
        "bare edit with fsync": BareEditor(paths["sync"], syncs=True),
        "bare edit": BareEditor(paths["plain"], syncs=False),
        "fs.edit": GuardedEditor(client, "guarded"),
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, work in contestants.items():
            times[name].append(timed(work))  # type: ignore[arg-type]
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:22} {median:8.3f} ms  {1000 / median:8.0f} a second")
    print(f"fs.read / bare read             {medians['fs.read'] / medians['bare read']:8.2f}")
    print(
        f"fs.edit / bare edit with fsync  {medians['fs.edit'] / medians['bare edit with fsync']:8.2f}"
    )
    print(f"fs.edit / bare edit             {medians['fs.edit'] / medians['bare edit']:8.2f}")


def searching(client: Client, folder: str, files: int) -> None:
    rg = shutil.which("rg")
    for number in range(files):
        inner = os.path.join(folder, "many", f"{number // 500:03}")
        os.makedirs(inner, exist_ok=True)
        with open(os.path.join(inner, f"f{number:05}.py"), "w") as file:
            file.write(f"import os\n\ndef f{number}():\n    return {number}\n" * 5)
    wanted = r"def f\d*77\("
    guarded = FsGrep(pattern=wanted, path="many", output_mode="content")
    ours = FsGrep(pattern=wanted + "(?=)", path="many", output_mode="content")
    contestants: dict[str, Callable[[], object]] = {
        "fs.grep": lambda: client.files.grep(guarded),
        "fs.grep without ripgrep": lambda: client.files.grep(ours),
    }
    if rg is not None:
        contestants["bare rg"] = lambda: subprocess.run(
            [rg, "-n", wanted, "many"], cwd=folder, stdout=subprocess.DEVNULL, check=True
        )
    for work in contestants.values():
        work()  # every file is in memory from here on
    times = {name: [timed(work) for _ in range(3)] for name, work in contestants.items()}  # type: ignore[arg-type]
    for name, values in times.items():
        ratio = f"  {min(values) / min(times['bare rg']):6.2f}" if rg else ""
        print(f"{name:24} {min(values):8.0f} ms{ratio}")
    found = client.files.grep(guarded)
    print(f"{found.engine}: {found.total_lines} lines in {found.total_files} of {files} files")


def sparse() -> None:
    from tools import Bench

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        bench = Bench(Path(folder))
        with open(bench.work / "f", "w") as file:
            file.write("".join(f"line {n}\n" for n in range(20)))
        os.truncate(bench.work / "f", 4 * 1024**3)
        tracemalloc.start()
        took = timed(lambda: bench.read("f", limit=10))  # type: ignore[arg-type,return-value]
        peak = tracemalloc.get_traced_memory()[1]
        print(f"ten lines of 4 GB: {took:.2f} ms, {peak / 1e6:.2f} MB allocated at most")


def main(rounds: int, files: int) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        work = os.path.join(folder, "work")
        os.mkdir(work)
        socket = os.path.join(folder, "s")
        os.environ["XDG_STATE_HOME"] = os.path.join(folder, "state")
        daemon = subprocess.Popen(
            [sys.executable, "-m", "sandboxd", "serve", "--socket", socket],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert daemon.stdout is not None
        daemon.stdout.readline()
        try:
            with Client.connect(socket, workspace=work) as client:
                operations(client, work, rounds)
                searching(client, work, files)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()
    sparse()


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    main(*[*words, *(300, 50_000)[len(words) :]])
