"""Ways out of the workspace through the file tools, one test for each attack."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "files"))

from tools import Bench

from sandboxd.errors import (
    DeniedPath,
    Fault,
    OutsideRoot,
    ProtectedPath,
    Refusal,
    SpecialFile,
)
from sandboxd.files.guard import locate
from sandboxd.files.operations import Copy, Edit, EditFile, Patch, Write
from sandboxd.files.searching import glob, list_folder
from sandboxd.files.walking import Walk
from sandboxd.system import beneath

ROUNDS = int(os.environ.get("SANDBOXD_TEST_SWAPS", "400"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A workspace beside a folder that must not be reached."""
    bench = Bench(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f").write_text("secret\n")
    return bench


def untouched(bench: Bench) -> bool:
    names = sorted(os.listdir(bench.base / "outside"))
    return names == ["f"] and (bench.base / "outside/f").read_text() == "secret\n"


class Swapping(threading.Thread):
    """Turns `work/d` from a folder into a link to the outside and back, as fast as it can."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(daemon=True)
        self.work = bench.work
        self.is_over = False
        (self.work / "d").mkdir()
        (self.work / "d/f").write_text("inside\n")
        (self.work / "link").symlink_to(bench.base / "outside")

    def run(self) -> None:
        top = os.open(self.work, os.O_RDONLY)
        while not self.is_over:
            if not beneath.exchange(top, "d", "link"):  # no swap in one step on this system
                os.rename(self.work / "d", self.work / "x")
                os.rename(self.work / "link", self.work / "d")
                os.rename(self.work / "x", self.work / "link")
        os.close(top)


@pytest.mark.parametrize("way", ["openat2", "walk"])
def test_symlink_swap_during_open(bench: Bench, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "walk":
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    swapping = Swapping(bench)
    swapping.start()
    outcomes: dict[str, int] = {}
    try:
        for _ in range(ROUNDS):
            for act in (
                lambda: bench.read("d/f", again=True).text,
                lambda: str(bench.write("d/f", "inside\n")),
                lambda: str(bench.write("d/new/x", "inside\n")),
                lambda: str(glob(bench.tools, "*", ".").paths),
            ):
                try:
                    told = act()
                    assert "secret" not in told
                except (Refusal, Fault) as no:
                    told = type(no).__name__
                outcomes[told[:20]] = outcomes.get(told[:20], 0) + 1
    finally:
        swapping.is_over = True
        swapping.join()
    assert untouched(bench)
    assert len(outcomes) > 1, "nothing was ever swapped in time"


def test_dots_after_a_link(bench: Bench) -> None:
    """The kernel would take `link/..` for the parent of where the link leads."""
    (bench.work / "link").symlink_to(bench.base / "outside")
    (bench.work / "f").write_text("inside\n")
    assert bench.read("link/../f", is_numbered=False).text == "inside\n"
    with pytest.raises(OutsideRoot):
        bench.read("link/f")


def test_tilde_in_the_middle(bench: Bench) -> None:
    (bench.base / "home/f").write_text("secret\n")
    bench.write("a/~/f", "inside\n")
    assert (bench.work / "a/~/f").read_text() == "inside\n"
    for path in ("~/f", "~/../outside/f", "a/../~/../../home/f"):
        with pytest.raises((OutsideRoot, Refusal)):
            bench.write(path, "x")
    assert (bench.base / "home/f").read_text() == "secret\n"


def test_hard_link_to_a_denied_file(bench: Bench) -> None:
    (bench.base / "home/.ssh").mkdir()
    (bench.base / "home/.ssh/id").write_text("key\n")
    os.link(bench.base / "home/.ssh/id", bench.work / "harmless.txt")
    with pytest.raises(DeniedPath):
        bench.read("harmless.txt")
    with pytest.raises(DeniedPath):
        bench.do(Copy("harmless.txt", "copy"))


def test_hard_link_is_never_written_through(bench: Bench) -> None:
    os.link(bench.base / "outside/f", bench.work / "f")
    bench.read("f")
    bench.write("f", "inside\n")
    assert untouched(bench)


@pytest.mark.parametrize("act", ["read", "write", "edit", "copy"])
def test_fifo_socket_and_device_neither_hang_nor_are_opened(bench: Bench, act: str) -> None:
    os.mkfifo(bench.work / "fifo")
    (bench.work / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as bound:
        os.chdir(bench.work)
        bound.bind("sock")
    acts: dict[str, Callable[[str], object]] = {
        "read": bench.read,
        "write": lambda path: bench.write(path, "x"),
        "edit": lambda path: bench.do(EditFile(path, (Edit("a", "b"),))),
        "copy": lambda path: bench.do(Copy(path, "new")),
    }
    for path in ("fifo", "sock", "zero", "/dev/zero", "/dev/tty"):
        with pytest.raises(SpecialFile):
            acts[act](path)


def test_proc_self_root(bench: Bench) -> None:
    (bench.work / "root").symlink_to("/proc/self/root")
    (bench.work / "cwd").symlink_to("/proc/self/cwd")
    for path in ("/proc/self/root/etc/passwd", "root/etc/passwd", "cwd/x", "/proc/self/environ"):
        with pytest.raises((OutsideRoot, SpecialFile)):
            bench.read(path)
        with pytest.raises((OutsideRoot, SpecialFile)):
            bench.write(path, "x")


@pytest.mark.parametrize(
    "name", ["SECRET/x", "sEcReT/x", "secret\u200b/x", "\uff53ecret/x", "ſecret/x"]
)
def test_case_and_unicode_variants_of_a_denied_name(bench: Bench, name: str) -> None:
    with pytest.raises(DeniedPath):
        bench.write(name, "x")


@pytest.mark.parametrize(
    "name", [".GIT/hooks/post-checkout", ".g\u200cit/config", ".Git/Config", "GIT~1/config"]
)
def test_case_and_unicode_variants_of_a_protected_name(bench: Bench, name: str) -> None:
    assert locate(name, bench.tools.scope, "write").protected


def test_sandboxd_s_own_code(bench: Bench) -> None:
    import dataclasses

    own = dataclasses.replace(bench.tools.scope, own=(str(bench.work / "venv"),))
    with pytest.raises(ProtectedPath):
        locate("VENV/lib/sandboxd/guard.py", own, "write")


HUNK = "@@ -1 +1 @@\n-secret\n+x\n"
NEW = "@@ -0,0 +1 @@\n+x\n"
PATCHES = {
    "absolute": "--- {outside}/f\n+++ {outside}/f\n" + HUNK,
    "absolute-new": "--- /dev/null\n+++ {outside}/new\n" + NEW,
    "dots": "--- a/../outside/f\n+++ b/../outside/f\n" + HUNK,
    "quoted": '--- "a/../outside/f"\n+++ "b/../out\\163ide/f"\n' + HUNK,
    "crlf": "--- a/../outside/f\r\n+++ b/../outside/f\r\n" + HUNK.replace("\n", "\r\n"),
    "timestamp": "--- a/../outside/f\t2020-01-01\n+++ b/../outside/f\t2020-01-01\n" + HUNK,
    "rename-to": "diff --git a/f b/x\nrename from f\nrename to ../outside/moved\n",
    "rename-from": "diff --git a/f b/x\nrename from ../outside/f\nrename to stolen\n",
    "copy-from": "diff --git a/f b/x\ncopy from ../outside/f\ncopy to stolen\n",
    "delete": "--- a/../outside/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-secret\n",
    "through-a-link": "--- a/link/f\n+++ b/link/f\n" + HUNK,
    "link-as-content": "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n",
    "dev-null": "--- /dev/null\n+++ b//dev/null\n" + NEW,
    "tilde": "--- /dev/null\n+++ ~/new\n" + NEW,
    "codex-absolute": "*** Begin Patch\n*** Add File: {outside}/new\n+x\n*** End Patch\n",
    "codex-dots": "*** Begin Patch\n*** Update File: ../outside/f\n@@\n-secret\n+x\n*** End Patch\n",
    "codex-crlf": "*** Begin Patch\r\n*** Delete File: ../outside/f\r\n*** End Patch\r\n",
    "codex-move": "*** Begin Patch\n*** Update File: f\n*** Move to: ../outside/moved\n@@\n-a\n+b\n*** End Patch\n",
    "codex-link": "*** Begin Patch\n*** Add File: link/new\n+x\n*** End Patch\n",
    "second-of-two": "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n--- a/../outside/f\n+++ b/../outside/f\n" + HUNK,
}  # fmt: skip


@pytest.mark.parametrize("name", PATCHES)
def test_patch_headers(bench: Bench, name: str) -> None:
    (bench.work / "f").write_text("a\n")
    (bench.work / "link").symlink_to(bench.base / "outside")
    with pytest.raises(Refusal):
        bench.do(Patch(PATCHES[name].format(outside=bench.base / "outside")))
    assert untouched(bench)
    assert sorted(os.listdir(bench.work)) == ["f", "link"]
    assert bench.text("f") == "a\n"
    assert os.listdir(bench.base / "home") == []


def test_walks_follow_no_link_out(bench: Bench) -> None:
    (bench.work / "link").symlink_to(bench.base / "outside")
    (bench.work / "deep").mkdir()
    (bench.work / "deep/up").symlink_to("../..")
    assert glob(bench.tools, "**", ".").paths == ()
    with pytest.raises(OutsideRoot):
        list_folder(bench.tools, "link")
    top = os.open(bench.work, os.O_RDONLY)
    assert list(Walk(with_ignored=True).files(top, "")) == []
    os.close(top)


def test_an_ignore_file_that_is_a_fifo_or_a_link_does_not_hang(bench: Bench) -> None:
    os.mkfifo(bench.work / ".gitignore")
    (bench.work / ".ignore").symlink_to("/dev/zero")
    (bench.work / "f").touch()
    assert glob(bench.tools, "f", ".").paths == ("f",)


def test_the_host_s_tmp_is_not_the_session_s(bench: Bench) -> None:
    """A name in the host's /tmp neither reads nor quietly makes a file."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        secret = Path(folder, "f")
        secret.write_text("secret\n")
        (bench.work / "link").symlink_to(secret)
        for path in (str(secret), "link"):
            with pytest.raises(OutsideRoot):
                bench.read(path)
            with pytest.raises(OutsideRoot):
                bench.do(Write(path, "x"))
        with pytest.raises(OutsideRoot):
            bench.write(f"{folder}/new", "x")
        assert os.listdir(folder) == ["f"]
