"""Write, edit, copy, patch and undo: what each keeps, refuses and tells, on a real disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tools import Bench

from sandboxd.errors import (
    AlreadyExists,
    AmbiguousMatch,
    ChangeUnknown,
    InvalidArgument,
    InvalidRequest,
    NoMatch,
    NotFound,
    NotObserved,
    NotText,
    OutsideRoot,
    PatchMismatch,
    Refusal,
    SpecialFile,
    StaleVersion,
    TooLarge,
    for_model,
)
from sandboxd.files.changes import Done, Preview, Target, attempt
from sandboxd.files.matching import Edit
from sandboxd.files.operations import Copy, EditFile, Patch, TakeBack, Write


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def undo(bench: Bench, change_id: str | None = None, run_id: str | None = None) -> object:
    workspace = bench.tools.scope.workspace
    kept = bench.tools.undo.find(workspace, change_id=change_id, run_id=run_id)
    return bench.do(TakeBack(tuple(kept)))


# ------------------------------------------------------------------ the ledger


def test_what_was_not_read_is_neither_written_nor_edited(bench: Bench) -> None:
    (bench.work / "f").write_text("a\n")
    for operation in (Write("f", "b"), EditFile("f", (Edit("a", "b"),))):
        with pytest.raises(NotObserved, match="has not been read"):
            bench.do(operation)
    assert bench.text("f") == "a\n"


def test_external_change_is_refused_with_the_fresh_lines(bench: Bench) -> None:
    bench.write("f", "one\ntwo\n")
    (bench.work / "f").write_text("one\ntwo, by a person\n")
    with pytest.raises(StaleVersion) as told:
        bench.edit("f", "one", "1")
    assert told.value.data is not None
    assert "2\ttwo, by a person" in told.value.data["lines"]
    assert "two, by a person" in for_model(told.value)
    assert "try again" in for_model(told.value)
    bench.read("f")
    bench.edit("f", "one", "1")
    assert bench.text("f") == "1\ntwo, by a person\n"


def test_content_counts_and_not_the_time(bench: Bench) -> None:
    bench.write("f", "aaaa\n")
    os.utime(bench.work / "f", (1, 1))
    bench.edit("f", "aaaa", "bbbb")
    found = os.stat(bench.work / "f")
    (bench.work / "f").write_text("cccc\n")
    os.utime(bench.work / "f", ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises(StaleVersion):
        bench.edit("f", "cccc", "dddd")


def test_own_changes_chain_by_version(bench: Bench) -> None:
    bench.write("f", "a\n")
    first = bench.edit("f", "a", "b").plan.files[0].version
    bench.do(EditFile("f", (Edit("b", "c"),), expected_version=first))
    with pytest.raises(StaleVersion) as told:
        bench.do(EditFile("f", (Edit("c", "d"),), expected_version=first))
    assert told.value.data is not None
    assert told.value.data["expected_version"] == first


def test_a_deleted_file_stays_closed_until_it_exists_and_is_read_again(bench: Bench) -> None:
    bench.write("f", "a\n")
    (bench.work / "f").unlink()
    for operation in (Write("f", "b"), EditFile("f", (Edit("a", "b"),)), EditFile("f", (Edit("", "b"),))):  # fmt: skip
        with pytest.raises(StaleVersion, match="was deleted"):
            bench.do(operation)
    assert not (bench.work / "f").exists()
    (bench.work / "f").write_text("a\n")
    with pytest.raises(StaleVersion):
        bench.write("f", "b")
    bench.read("f")
    bench.write("f", "b")
    assert bench.text("f") == "b"


def test_two_processes_of_one_session_share_what_was_seen(bench: Bench) -> None:
    (bench.work / "f").write_text("a\n")
    other = Bench(bench.base)
    other.read("f")
    bench.edit("f", "a", "b")
    other.edit("f", "b", "c")
    assert bench.text("f") == "c\n"


# ------------------------------------------------------------------ write


def test_a_new_file_gets_its_folders_which_are_named(bench: Bench) -> None:
    done = bench.write("a/b/c.txt", "x")
    assert done.plan.shown_creates == ("a", "a/b")
    assert bench.text("a/b/c.txt") == "x"
    assert os.stat(bench.work / "a/b/c.txt").st_mode & 0o777 == 0o644


def test_mode_and_links_are_kept(bench: Bench) -> None:
    (bench.work / "real").write_text("#!\n")
    os.chmod(bench.work / "real", 0o750)
    (bench.work / "link").symlink_to("real")
    bench.read("link")
    bench.edit("link", "#!", "#!/bin/sh")
    assert (bench.work / "link").is_symlink()
    assert bench.text("real") == "#!/bin/sh\n"
    assert os.stat(bench.work / "real").st_mode & 0o777 == 0o750


def test_a_hard_link_keeps_the_old_content(bench: Bench) -> None:
    """The name is replaced, not what other names share."""
    (bench.work / "f").write_text("old\n")
    os.link(bench.work / "f", bench.base / "other")
    bench.read("f")
    bench.edit("f", "old", "new")
    assert (bench.base / "other").read_text() == "old\n"


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no extended attributes here")
def test_extended_attributes_are_kept(bench: Bench) -> None:
    (bench.work / "f").write_text("a\n")
    os.setxattr(bench.work / "f", "user.note", b"mine")
    bench.read("f")
    bench.edit("f", "a", "b")
    assert os.getxattr(bench.work / "f", "user.note") == b"mine"


def test_nothing_is_left_beside_the_file(bench: Bench) -> None:
    bench.write("f", "a")
    bench.edit("f", "a", "b")
    with pytest.raises(NoMatch):
        bench.edit("f", "zzzz", "b")
    assert os.listdir(bench.work) == ["f"]


def test_half_a_character_a_folder_and_too_much_are_refused(bench: Bench) -> None:
    (bench.work / "folder").mkdir()
    with pytest.raises(InvalidArgument, match="half a character"):
        bench.write("f", "\ud800")
    with pytest.raises(SpecialFile, match="folder"):
        bench.write("folder", "x")
    with pytest.raises(SpecialFile):
        bench.write(".", "x")
    with pytest.raises(NotFound):
        bench.write("folder/../f/x", "x") if bench.write("f", "x") else None
    os.truncate(bench.work / "f", 65 * 1024 * 1024)
    with pytest.raises(TooLarge):
        bench.write("f", "y")


def test_a_dry_run_touches_nothing_and_shows_the_difference(bench: Bench) -> None:
    bench.write("f", "a\nb\n")
    outcome = bench.do(EditFile("f", (Edit("b", "c"),)), is_dry_run=True)
    assert isinstance(outcome, Preview)
    assert outcome.plan.files[0].diff.hunks[0].lines == (" a", "-b", "+c")
    assert bench.text("f") == "a\nb\n"


def test_what_a_person_approved_is_what_is_done(bench: Bench) -> None:
    bench.write("f", "a\n")
    operation = EditFile("f", (Edit("a", "b"),))
    preview = attempt(bench.tools, operation, lambda target: False)
    assert isinstance(preview, Preview)
    bench.write("f", "a!\n")
    late = attempt(bench.tools, operation, lambda target: True, approved=preview.plan.digest)
    assert isinstance(late, StaleVersion)
    assert "while a person was asked" in late.message
    assert bench.text("f") == "a!\n"


# ------------------------------------------------------------------ edit


def test_several_edits_are_all_or_nothing_and_the_failing_one_is_named(bench: Bench) -> None:
    bench.write("f", "a\nb\nc\n")
    with pytest.raises(NoMatch, match=r"edit 2 of 3: .* none was made") as told:
        bench.do(EditFile("f", (Edit("a", "A"), Edit("x", "X"), Edit("c", "C"))))
    assert told.value.data is not None
    assert told.value.data["edit"] == 2
    assert bench.text("f") == "a\nb\nc\n"
    done = bench.do(EditFile("f", (Edit("a", "A"), Edit("A\nb", "A\nB"), Edit(" c ", "C"))[:2]))
    assert (bench.text("f"), done.plan.strategies) == ("A\nB\nc\n", ("exact", "exact"))


def test_bom_and_line_ends_are_kept(bench: Bench) -> None:
    (bench.work / "f").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    assert bench.read("f", is_numbered=False).text == "a\nb\n"
    bench.edit("f", "a\nb", "a\nB\nc")
    assert (bench.work / "f").read_bytes() == b"\xef\xbb\xbfa\r\nB\r\nc\r\n"


def test_empty_old_text_creates_once(bench: Bench) -> None:
    bench.edit("n/f", "", "x\n")
    assert bench.text("n/f") == "x\n"
    with pytest.raises(AlreadyExists):
        bench.edit("n/f", "", "y\n")
    with pytest.raises(InvalidRequest, match="cannot be one of several"):
        bench.do(EditFile("g", (Edit("", "x"), Edit("x", "y"))))
    with pytest.raises(NotFound):
        bench.edit("missing", "a", "b")


def test_ambiguity_is_refused_and_replace_all_replaces(bench: Bench) -> None:
    bench.write("f", "a a\n")
    with pytest.raises(AmbiguousMatch):
        bench.edit("f", "a", "b")
    bench.edit("f", "a", "b", replace_all=True)
    assert bench.text("f") == "b b\n"


def test_a_binary_file_is_not_edited(bench: Bench) -> None:
    (bench.work / "f").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(NotText, match="ELF"):
        bench.read("f")
    with pytest.raises(NotObserved):
        bench.edit("f", "E", "F")


# ------------------------------------------------------------------ copy


def test_copy_takes_bytes_and_mode_from_disk_without_a_reading(bench: Bench) -> None:
    (bench.work / "src").write_bytes(b"\0\xff\x80")
    os.chmod(bench.work / "src", 0o755)
    done = bench.do(Copy("src", "d/dst"))
    assert (bench.work / "d/dst").read_bytes() == b"\0\xff\x80"
    assert os.stat(bench.work / "d/dst").st_mode & 0o777 == 0o755
    assert done.plan.shown_creates == ("d",)


def test_copy_judges_both_ends_and_overwrites_only_on_purpose(bench: Bench) -> None:
    bench.write("a", "a")
    (bench.work / "b").write_text("b")
    (bench.base / "outside").write_text("x")
    for source, target in (("../outside", "c"), ("a", "../outside")):
        with pytest.raises(OutsideRoot):
            bench.do(Copy(source, target))
    with pytest.raises(AlreadyExists, match="exists"):
        bench.do(Copy("a", "b"))
    bench.do(Copy("a", "b", overwrite=True))
    assert bench.text("b") == "a"
    with pytest.raises(InvalidRequest, match="same file"):
        bench.do(Copy("a", "./a"))


# ------------------------------------------------------------------ patch

PATCH = """--- a/one
+++ b/one
@@ -1,2 +1,2 @@
 a
-b
+B
diff --git a/old b/new
rename from old
rename to new
--- a/old
+++ b/new
@@ -1 +1 @@
-o
+n
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-g
--- /dev/null
+++ b/deep/er/fresh
@@ -0,0 +1 @@
+f
"""


def files_of(bench: Bench) -> dict[str, str]:
    return {
        str(file.relative_to(bench.work)): file.read_text()
        for file in bench.work.rglob("*")
        if file.is_file()
    }


def test_a_patch_is_applied_to_all_its_files(bench: Bench) -> None:
    for name, text in (("one", "a\nb\n"), ("old", "o\n"), ("gone", "g\n")):
        (bench.work / name).write_text(text)
    before = files_of(bench)
    done = bench.do(Patch(PATCH))
    assert files_of(bench) == {"one": "a\nB\n", "new": "n\n", "deep/er/fresh": "f\n"}
    assert isinstance(done, Done)
    assert done.plan.target.deletes
    assert {(file.place.shown, file.action) for file in done.plan.files} == {
        ("one", "update"), ("old", "delete"), ("new", "add"), ("gone", "delete"), ("deep/er/fresh", "add"),
    }  # fmt: skip
    undo(bench)
    assert files_of(bench) == before


@pytest.mark.parametrize("spoiled", ["one", "old", "gone", "deep/er/fresh"])
def test_a_patch_that_fails_anywhere_changes_nothing(bench: Bench, spoiled: str) -> None:
    for name, text in (("one", "a\nb\n"), ("old", "o\n"), ("gone", "g\n")):
        (bench.work / name).write_text(text)
    (bench.work / spoiled).parent.mkdir(parents=True, exist_ok=True)
    (bench.work / spoiled).write_text("something else\n")
    before = files_of(bench)
    with pytest.raises((PatchMismatch, AlreadyExists)):
        bench.do(Patch(PATCH))
    assert files_of(bench) == before


def test_a_commit_that_fails_half_way_is_taken_back(bench: Bench) -> None:
    """The second file cannot be written: the first one is as it was."""
    (bench.work / "one").write_text("a\nb\n")
    (bench.work / "blocked").write_text("not a folder")
    text = PATCH.split("diff --git")[0] + "--- /dev/null\n+++ b/blocked/x\n@@ -0,0 +1 @@\n+f\n"
    before = files_of(bench)
    with pytest.raises(NotFound):
        bench.do(Patch(text))
    assert files_of(bench) == before
    assert bench.tools.undo.listing(bench.tools.scope.workspace) == []


def test_a_deletion_that_shows_no_content_needs_a_reading(bench: Bench) -> None:
    (bench.work / "f").write_text("x\n")
    patch = "*** Begin Patch\n*** Delete File: f\n*** End Patch\n"
    with pytest.raises(NotObserved):
        bench.do(Patch(patch))
    bench.read("f")
    bench.do(Patch(patch))
    assert files_of(bench) == {}
    bench.write("f", "again\n")


def test_one_file_twice_in_a_patch_is_patched_twice(bench: Bench) -> None:
    (bench.work / "f").write_text("a\nb\n")
    head = "--- a/f\n+++ b/f\n"
    bench.do(Patch(f"{head}@@ -1 +1 @@\n-a\n+A\n{head}@@ -1,2 +1,2 @@\n A\n-b\n+B\n"))
    assert bench.text("f") == "A\nB\n"


def test_a_mode_is_patched_alone(bench: Bench) -> None:
    (bench.work / "f").write_text("x\n")
    bench.do(Patch("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"))
    assert os.stat(bench.work / "f").st_mode & 0o777 == 0o755


# ------------------------------------------------------------------ undo


def test_undo_takes_back_the_last_change_then_the_one_before(bench: Bench) -> None:
    bench.write("f", "1")
    bench.edit("f", "1", "2")
    bench.edit("f", "2", "3")
    undo(bench)
    assert bench.text("f") == "2"
    undo(bench)
    assert bench.text("f") == "1"
    undo(bench)
    assert not (bench.work / "f").exists()


def test_undo_of_a_run_puts_everything_back_at_once(bench: Bench) -> None:
    bench.write("kept", "k")
    for n in range(3):
        bench.write(f"f{n}", "x", run_id="r-1")
    bench.do(EditFile("f0", (Edit("x", "y"),)), run_id="r-1")
    undo(bench, run_id="r-1")
    assert files_of(bench) == {"kept": "k"}


def test_undo_is_refused_when_the_file_has_changed_since(bench: Bench) -> None:
    done = bench.write("f", "1")
    assert isinstance(done, Done)
    (bench.work / "f").write_text("by a person")
    with pytest.raises(StaleVersion, match="since the change"):
        undo(bench, change_id=done.change_id)
    assert bench.text("f") == "by a person"
    with pytest.raises(ChangeUnknown):
        undo(bench, change_id="c-nothing")


def test_what_is_kept_stays_within_the_quota(bench: Bench) -> None:
    bench.tools.undo._quota = 100_000
    for n in range(30):
        bench.write("f", f"{n}" * 10_000)
    kept = list((bench.base / "undo").iterdir())
    assert sum(file.stat().st_size for file in kept) <= 100_000
    assert len(kept) >= 2
    undo(bench)
    assert bench.text("f") == "28" * 10_000


def test_refusals_before_a_change_are_values_and_touch_nothing(bench: Bench) -> None:
    outcome = attempt(bench.tools, Write("../x", "y"), lambda target: True)
    assert isinstance(outcome, Refusal)
    asked: list[Target] = []
    attempt(bench.tools, Write("new/f", "y"), lambda target: asked.append(target) is not None)
    assert [place.shown for place in asked[0].writes] == ["new/f"]
    assert os.listdir(bench.work) == []
