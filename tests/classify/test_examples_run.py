"""The read-only examples of the local text and file tools, run for real: nothing may change."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from sandboxd.classify.examples import examples_of
from sandboxd.model import CommandClass
from tests.classify.grading_support import TABLES

FAMILIES = ("text.yaml", "files.yaml")
FOLLOWS = ("tail -f",)


def runnable() -> Iterator[list[str]]:
    for piece in TABLES.own_slices():
        if os.path.basename(piece.file) not in FAMILIES:
            continue
        entry = TABLES.entry(piece.names[0])
        assert entry is not None
        for text, wanted in examples_of(entry):
            words = shlex.split(text)
            is_plain = "${" not in text and "|" not in words and not text.startswith(FOLLOWS)
            if wanted is CommandClass.READ_ONLY and is_plain and shutil.which(words[0]):
                yield words


def make_folder(folder: Path) -> None:
    for name in ("a", "b", "c", "f", "in", "g", "x.txt"):
        (folder / name).write_text("b a\n1 2\na/b\n")
    (folder / "src").mkdir()
    (folder / "src" / "x").write_text("x\n")
    subprocess.run(["tar", "cf", "a.tar", "a", "b"], cwd=folder, check=True)
    subprocess.run(["gzip", "-k", "f"], cwd=folder, check=True)


def picture(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            status = os.lstat(os.path.join(root, name))
            found[os.path.join(root, name)] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


def test_read_only_examples_leave_the_folder_as_it_was(tmp_path: Path) -> None:
    make_folder(tmp_path)
    before = picture(tmp_path)
    count = 0
    for words in runnable():
        subprocess.run(
            words,
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
        )
        count += 1
        assert picture(tmp_path) == before, words
    assert count >= 80
