"""What git would make of a folder, read without git: git is the judge."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sandboxd.confine.guardian import repository
from tests.confined import write
from tests.guarded import git


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    top = os.path.realpath(tmp_path) + "/checkout"
    git("init", "-q", "-b", "main", top)
    for name in ("a", ".vscode/tasks.json", "long/" + "x" * 60):
        write(f"{top}/{name}", f"content of {name}\n")
    git("-C", top, "add", ".")
    git("-C", top, "commit", "-qm", "one")
    return top


def test_the_index_is_read_as_git_reads_it(checkout: str) -> None:
    listed = git("-C", checkout, "ls-files", "-s").splitlines()
    expected = {line.split("\t")[1]: line.split()[1] for line in listed}
    assert repository.tracked(checkout + "/.git") == expected
    assert len(expected) == 3


@pytest.mark.parametrize("damage", [b"", b"DIRC", b"DIRC\0\0\0\x02\0\0\0\x09" + b"\0" * 80])
def test_a_damaged_index_holds_nothing(damage: bytes, checkout: str) -> None:
    Path(checkout + "/.git/index").write_bytes(damage)
    assert repository.tracked(checkout + "/.git") == {}


def test_an_index_with_compressed_paths_holds_nothing(checkout: str) -> None:
    git("-C", checkout, "update-index", "--index-version", "4")
    assert repository.tracked(checkout + "/.git") == {}


@pytest.mark.parametrize("is_packed", [False, True])
def test_content_that_was_stored_before_is_known_and_no_other(
    is_packed: bool, checkout: str
) -> None:
    if is_packed:
        git("-C", checkout, "gc", "-q")
    time.sleep(0.02)
    now = time.time_ns()
    known = [checkout + "/a", checkout + "/.vscode/tasks.json"]
    assert repository.holds_since_before(checkout + "/.git", known, now)
    write(checkout + "/new", "new\n")
    git("-C", checkout, "hash-object", "-w", "new")
    assert not repository.holds_since_before(checkout + "/.git", [checkout + "/new"], now)
    assert not repository.holds_since_before(checkout + "/.git", [*known, checkout + "/x"], now)


def test_a_set_back_time_stamp_does_not_make_an_object_older(checkout: str) -> None:
    now = time.time_ns()
    time.sleep(0.02)
    write(checkout + "/new", "new\n")
    name = git("-C", checkout, "hash-object", "-w", "new").strip()
    os.utime(f"{checkout}/.git/objects/{name[:2]}/{name[2:]}", (1, 1))
    assert not repository.holds_since_before(checkout + "/.git", [checkout + "/new"], now)


def test_links_and_devices_are_no_plain_files(checkout: str) -> None:
    os.symlink("/etc/passwd", checkout + "/.vscode/link")
    assert repository.files_of(checkout + "/.vscode") is None
    assert repository.files_of(checkout + "/.vscode/link") is None
    assert repository.files_of(checkout + "/a") == [checkout + "/a"]


def test_a_bare_repository_is_what_git_takes_for_one(tmp_path: Path) -> None:
    folder = str(tmp_path) + "/bare"
    git("init", "-q", "--bare", folder)
    assert repository.is_bare(folder)
    os.rename(folder + "/refs", folder + "/no")
    assert not repository.is_bare(folder)
