"""Patches of both dialects: read whole, applied only where every line agrees, undone by their reverse."""

from __future__ import annotations

import difflib
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.classify.paths import patch_paths
from sandboxd.errors import PatchBroken, PatchMismatch
from sandboxd.files.patches import apply, parse

CODEX = """*** Begin Patch
*** Add File: a new.py
+print("x")
*** Update File: src/b.py
*** Move to: src/c.py
@@ def f():
-x
+y
*** Delete File: d.py
*** End Patch
"""
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
diff --git a/run b/run
new file mode 100755
--- /dev/null
+++ b/run
@@ -0,0 +1,2 @@
+x
+y
diff --git a/empty b/empty
new file mode 100644
diff --git "a/caf\\303\\251.txt" "b/caf\\303\\251.txt"
--- "a/caf\\303\\251.txt"
+++ "b/caf\\303\\251.txt"
@@ -1 +1 @@
-x
+y
"""


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_every_section_is_read_in_either_line_end(ending: str) -> None:
    files = parse(UNIFIED.replace("\n", ending))
    assert [(file.action, file.path, file.moved_to, file.mode) for file in files] == [
        ("update", "src/a.py", None, None),
        ("move", "old name.txt", "new name.txt", None),
        ("delete", "gone", None, None),
        ("add", "run", None, 0o755),
        ("add", "empty", None, 0o644),
        ("update", "café.txt", None, None),
    ]
    files = parse(CODEX.replace("\n", ending))
    assert [(file.action, file.path, file.moved_to) for file in files] == [
        ("add", "a new.py", None),
        ("move", "src/b.py", "src/c.py"),
        ("delete", "d.py", None),
    ]


@pytest.mark.parametrize("text", [UNIFIED, CODEX])
def test_what_is_judged_beforehand_is_what_is_applied(text: str) -> None:
    """The classifier names a patch's files from its own reading: they must be the same."""
    named = {path for file in parse(text) for path in (file.path, file.moved_to) if path}
    assert named == set(patch_paths(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no patch"),
        ("hello", "no patch"),
        ("@@ -1 +1 @@\n-a\n+b\n", "without a file"),
        ("--- a/x\n+++ b/x\n", "nothing is said"),
        ("--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n a\n", "cut short"),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1,1 @@\n-a\n+b\n+c\n+d\n", "other lines than its header"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n*a\n", "begins with none"),
        ("--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+a\n", "both names"),
        ("diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n", "no plain file"),
        ("diff --git a/p b/p\nGIT binary patch\nliteral 3\n", "binary"),
        ("*** Begin Patch\n*** Add File: a\n+x\n", "cut short"),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch\n", "begins with `+`"),
        ("*** Begin Patch\nnonsense\n*** End Patch\n", "no part"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch\n", "nothing is said"),
    ],
)  # fmt: skip
def test_what_is_no_patch_is_refused_and_says_why(text: str, why: str) -> None:
    with pytest.raises(PatchBroken, match=re.escape(why)):
        parse(text)


def one(text: str, patch: str) -> str:
    (file,) = parse(patch)
    return apply(text, file, "f")


HEAD = "--- a/f\n+++ b/f\n"


def test_a_hunk_goes_where_its_lines_stand_now() -> None:
    patch = HEAD + "@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n"
    assert one("a\nb\nc\nd\n", patch) == "a\nb\nC\nd\n"
    assert one("0\n1\n2\na\nb\nc\nd\n", patch) == "0\n1\n2\na\nb\nC\nd\n"


def test_a_hunk_that_fits_nowhere_or_twice_is_refused_with_lines() -> None:
    patch = HEAD + "@@ -9,2 +9,2 @@\n b\n-c\n+C\n"
    with pytest.raises(PatchMismatch, match="2 places") as told:
        one("b\nc\nx\nb\nc\n", patch)
    assert told.value.data == {"hunk": 1, "count": 2}
    with pytest.raises(PatchMismatch, match="hunk 1") as told:
        one("a\nb\nd\n", patch)
    assert "b" in str(told.value.data)


def test_crlf_files_keep_their_line_ends_under_a_patch_without_them() -> None:
    assert one("a\r\nb\r\n", HEAD + "@@ -1,2 +1,3 @@\n a\n-b\n+B\n+c\n") == "a\r\nB\r\nc\r\n"


def test_no_newline_at_the_end_is_part_of_the_content() -> None:
    add = HEAD + "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"
    assert one("a", add) == "a\n"
    drop = HEAD + "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n"
    assert one("a\n", drop) == "a"


def test_codex_hunks_are_found_below_their_anchors() -> None:
    text = "class A:\n    def f():\n        x\nclass B:\n    def f():\n        x\n"
    patch = "*** Begin Patch\n*** Update File: f\n@@ class B:\n@@     def f():\n-        x\n+        y\n*** End Patch\n"
    assert one(text, patch) == text[:-2] + "y\n"
    ambiguous = patch.replace("@@ class B:\n@@     def f():\n", "")
    with pytest.raises(PatchMismatch, match="2 places"):
        one(text, ambiguous)


_TEXT = st.lists(st.sampled_from(["a", "b", "c", "", "x y", "-- q", "++ r", "@@ s"]), max_size=14)


def reverse(patch: str) -> str:
    """What `diff -R` says."""
    swapped = []
    for line in patch.split("\n"):
        header = re.match(r"@@ -(\S+) \+(\S+) @@", line)
        if line.startswith(("--- a/", "+++ b/")):
            swapped.append(line)
        elif header:
            swapped.append(f"@@ -{header[2]} +{header[1]} @@")
        else:
            swapped.append({"-": "+", "+": "-"}.get(line[:1], line[:1]) + line[1:])
    return "\n".join(swapped)


@settings(max_examples=120, deadline=None)
@given(before=_TEXT, after=_TEXT, context=st.integers(0, 3))
def test_patch_then_reverse_is_identity(before: list[str], after: list[str], context: int) -> None:
    old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    lines = difflib.unified_diff(
        old.splitlines(True), new.splitlines(True), "a/f", "b/f", n=context
    )
    patch = "".join(lines)
    if not patch:
        return
    patch = patch.replace("--- a/f\n", "--- a/f\n", 1)
    assert one(old, patch) == new
    assert one(new, reverse(patch)) == old


def test_what_git_itself_writes_is_applied_as_git_does(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    texts = {
        "plain": ("a\nb\nc\n" * 9, "a\nB\nc\n" * 2 + "a\nb\nc\n" * 6),
        "with space": ("x", "x\n"),
        "tab\there": ("\n\n", "\n"),
        "ü": ("ä\n", "ö\n"),
        "crlf": ("a\r\nb\r\n", "a\r\nB\r\n"),
    }
    for name, (before, _) in texts.items():
        (tmp_path / name).write_bytes(before.encode())
    git("add", ".")
    git("commit", "-q", "-m", "x")
    for name, (_, after) in texts.items():
        (tmp_path / name).write_bytes(after.encode())
    diff = subprocess.run(
        ["git", "-C", str(tmp_path), "diff"], check=True, capture_output=True
    ).stdout.decode()
    files = {file.path: file for file in parse(diff)}
    assert set(files) == set(texts)
    for name, (before, after) in texts.items():
        assert apply(before, files[name], name) == after
