"""Which files a patch touches, in both dialects."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from sandboxd.classify.paths import PatchFile, patch_files, patch_paths

UNIFIED = """diff --git a/src/a.py b/src/a.py
index 1..2 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,3 @@
 x
--- not a header
+++ nor this
 y
diff --git a/old name.txt b/new name.txt
similarity index 100%
rename from old name.txt
rename to new name.txt
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
\\ No newline at end of file
diff --git a/fresh b/fresh
new file mode 100644
--- /dev/null
+++ b/fresh
@@ -0,0 +1,2 @@
+x
+y
diff --git a/empty b/empty
new file mode 100644
diff --git a/pic.png b/pic.png
Binary files a/pic.png and b/pic.png differ
diff --git "a/caf\\303\\251.txt" "b/caf\\303\\251.txt"
--- "a/caf\\303\\251.txt"
+++ "b/caf\\303\\251.txt"
@@ -1 +1 @@
-x
+y
"""
EXPECTED = (
    PatchFile("update", "src/a.py"),
    PatchFile("move", "old name.txt", "new name.txt"),
    PatchFile("delete", "gone"),
    PatchFile("add", "fresh"),
    PatchFile("add", "empty"),
    PatchFile("update", "pic.png"),
    PatchFile("update", "café.txt"),
)
CODEX = """*** Begin Patch
*** Add File: a new.py
+print("x")
+*** Delete File: not this
*** Update File: src/b.py
*** Move to: src/c.py
@@ def f():
-x
+y
*** Delete File: d.py
*** End Patch
"""


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_git_diff_names_every_file_once_with_its_action(ending: str) -> None:
    assert patch_files(UNIFIED.replace("\n", ending)) == EXPECTED


def test_paths_hold_both_names_of_a_move() -> None:
    assert patch_paths(UNIFIED) == (
        "src/a.py",
        "old name.txt",
        "new name.txt",
        "gone",
        "fresh",
        "empty",
        "pic.png",
        "café.txt",
    )


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_codex_dialect(ending: str) -> None:
    assert patch_files(CODEX.replace("\n", ending)) == (
        PatchFile("add", "a new.py"),
        PatchFile("move", "src/b.py", "src/c.py"),
        PatchFile("delete", "d.py"),
    )


def test_plain_diff_with_timestamps_and_without_prefixes() -> None:
    text = "--- x.orig\t2024-01-01 00:00:00\n+++ x\t2024-01-02\n@@ -1 +1 @@\n-a\n+b\n"
    assert patch_paths(text) == ("x.orig", "x")


@pytest.mark.parametrize("text", ["", "hello", "--- a\n", "@@ -1 +1 @@\n", "--- a\ntext\n+++ b\n"])
def test_no_patch_no_paths(text: str) -> None:
    assert patch_paths(text) == ()


def test_a_hunk_that_is_cut_short_does_not_hang_or_invent_files() -> None:
    assert patch_paths("--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n a\n") == ("x",)


@pytest.mark.parametrize(
    "text",
    ["\n" * 200_000, " " * 200_000, "diff --git " + "a " * 100_000, "--- a\n+++ b\n" * 20_000],
    ids=["newlines", "blanks", "header", "sections"],
)
def test_hostile_text_takes_no_longer_than_its_length(text: str) -> None:
    begun = time.monotonic()
    patch_paths(text)
    assert time.monotonic() - begun < 10


def test_what_git_itself_writes_is_read(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    for name in ("plain", "with space", "tab\there", "ü", "moved", "gone"):
        (tmp_path / name).write_text(f"{name}\n-- sql comment\n" * 5)
    git("add", ".")
    git("commit", "-q", "-m", "x")
    for name in ("plain", "with space", "tab\there", "ü"):
        (tmp_path / name).write_text("++ other\n")
    (tmp_path / "moved").rename(tmp_path / "moved to")
    (tmp_path / "gone").unlink()
    git("add", ".")
    files = patch_files(git("diff", "--cached", "-M"))
    assert sorted(files, key=lambda file: file.path) == [
        PatchFile("delete", "gone"),
        PatchFile("move", "moved", "moved to"),
        PatchFile("update", "plain"),
        PatchFile("update", "tab\there"),
        PatchFile("update", "with space"),
        PatchFile("update", "ü"),
    ]
