"""List, glob and grep: ignore rules, true totals, windows; ripgrep and our own program say the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import asyncio
import time

from tools import Bench

from sandboxd import filing
from sandboxd.errors import InvalidRequest, OutsideRoot, SpecialFile
from sandboxd.files import searching
from sandboxd.files.searching import Grepped, Job, Search
from sandboxd.files.walking import Glob, Rules, Walk

RIPGREP = shutil.which("rg")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def make(bench: Bench, **files: str) -> None:
    for name, text in files.items():
        path = bench.work / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# ------------------------------------------------------------------ list


def test_a_folder_is_listed_folders_first_and_links_are_not_followed(bench: Bench) -> None:
    make(bench, b="xx", sub__c="")
    (bench.work / "a").symlink_to("/etc")
    os.mkfifo(bench.work / "p")
    found = searching.list_folder(bench.tools, ".")
    assert [(one.name, one.kind, one.size, one.target) for one in found.entries] == [
        ("sub", "folder", None, None),
        ("a", "link", None, "/etc"),
        ("b", "file", 2, None),
        ("p", "other", None, None),
    ]
    with pytest.raises(OutsideRoot):
        searching.list_folder(bench.tools, "a")
    with pytest.raises(SpecialFile):
        searching.list_folder(bench.tools, "b")


def test_more_entries_than_are_listed_are_counted(bench: Bench) -> None:
    for n in range(1005):
        (bench.work / f"f{n:04}").touch()
    found = searching.list_folder(bench.tools, ".")
    assert (len(found.entries), found.total) == (1000, 1005)
    globbed = searching.glob(bench.tools, "f*", ".")
    assert (len(globbed.paths), globbed.total) == (1000, 1005)


# ------------------------------------------------------------------ glob


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("**/c.*", ["src/deep/c.py"]),
        ("*.{md,txt}", ["x.md", "y.txt"]),
        ("[ab].py", ["a.py", "src/b.py"]),
        ("./a.py", ["a.py"]),
        ("src", []),
        ("*.PY", []),
    ],
)
def test_patterns(bench: Bench, pattern: str, matching: list[str]) -> None:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "x.md", "y.txt", "build/z.py"):
        (bench.work / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.work / name).touch()
    (bench.work / ".gitignore").write_text("build/\n")
    (bench.work / "link.py").symlink_to("a.py")
    assert list(searching.glob(bench.tools, pattern, ".").paths) == matching


def test_a_folder_that_cannot_be_read_is_named_and_no_empty_success(bench: Bench) -> None:
    make(bench, open__a="", shut__b="")
    walk = Walk()
    os.chmod(bench.work / "shut", 0)
    try:
        top = os.open(bench.work, os.O_RDONLY)
        found = [path for path, _, _ in walk.files(top, "")]
        os.close(top)
    finally:
        os.chmod(bench.work / "shut", 0o755)
    if os.getuid() == 0:
        assert found == ["open/a", "shut/b"]
        return
    assert (found, walk.skipped) == (["open/a"], [("shut", "Permission denied")])


@pytest.mark.parametrize(
    "pattern", ["*" * 60 + "b", "a*" * 40 + "b", "**/" * 30 + "x", "{a,b}" * 20]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    begun = time.monotonic()
    glob = Glob(pattern)
    for path in ("a" * 200, "/".join("a" * 30), "a/" * 60 + "c"):
        glob.matches(path)
    assert time.monotonic() - begun < 5


_IGNORE = st.lists(
    st.sampled_from(
        ["*.o", "!keep.o", "build/", "/top", "a/b", "**/deep", "deep/**", "#x", "", "doc/*.txt", "!a", "*", "b", "*.t?", "[ab]", "a/**/c"]
    ),
    max_size=5,
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(lines=_IGNORE, inner=_IGNORE)
def test_what_git_ignores_is_ignored(lines: list[str], inner: list[str]) -> None:
    """git itself is the judge."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        subprocess.run(["git", "init", "-q", name], check=True)
        for file in ("x.o", "keep.o", "top", "a/b", "a/top", "a/b2/c", "a/c", "build/y", "deep/z", "a/deep/z", "doc/r.txt", "doc/s/t.txt", "b/q"):  # fmt: skip
            (work / file).parent.mkdir(parents=True, exist_ok=True)
            if not (work / file).is_dir():
                (work / file).touch()
        (work / ".gitignore").write_text("\n".join(lines) + "\n")
        (work / "a/.gitignore").write_text("\n".join(inner) + "\n")
        listed = subprocess.run(
            ["git", "-C", name, "ls-files", "-z", "--others", "--exclude-standard"],
            check=True,
            capture_output=True,
        ).stdout
        expected = sorted(path for path in listed.decode().split("\0") if path)
        top = os.open(name, os.O_RDONLY)
        found = sorted(path for path, _, _ in Walk().files(top, ""))
        os.close(top)
        assert found == expected, (lines, inner)


def test_rules_of_names_alone_are_matched_at_once() -> None:
    rules = Rules("*.o\nbuild/\n", "")
    assert rules.verdict("x/a.o", "a.o", False) is True
    assert rules.verdict("build", "build", True) is True
    assert rules.verdict("build", "build", False) is None


# ------------------------------------------------------------------ grep


async def plain(words: list[str], cwd: str) -> tuple[int, bytes, bytes]:
    """No sandbox: what is tested here is what the programs say."""
    done = await asyncio.to_thread(subprocess.run, words, cwd=cwd, capture_output=True)
    return done.returncode, done.stdout, done.stderr


def grep(bench: Bench, engine: str, pattern: str, path: str = ".", **more: object) -> Grepped:
    search = Search(pattern, **more)  # type: ignore[arg-type]
    place = searching.locate(path, bench.tools.scope, "read")
    top, start = searching.top_and_start(place, bench.tools.scope)
    job = Job(search, top, start, os.path.isfile(place.path))
    where = os.path.dirname(RIPGREP or "") if engine == "ripgrep" else "/nowhere"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filing, "DEFAULT_PATH", where)
        found = asyncio.run(filing.grep(bench.tools, job, top, plain))
    assert found.engine == engine
    return found


ENGINES = ["python", *(["ripgrep"] if RIPGREP else [])]


@pytest.mark.parametrize("engine", ENGINES)
def test_files_come_densest_first_with_true_totals(bench: Bench, engine: str) -> None:
    make(bench, a="x\n", b="x\ny\nx\nx x\n", sub__c="x\nx\n", none="y\n")
    found = grep(bench, engine, "x")
    assert [(one.path, one.count) for one in found.files] == [("b", 3), ("sub/c", 2), ("a", 1)]
    assert (found.total_files, found.total_lines, found.windows) == (3, 6, ())


@pytest.mark.parametrize("engine", ENGINES)
def test_contexts_that_touch_are_one_window(bench: Bench, engine: str) -> None:
    make(bench, f="".join(f"{n}{' hit' if n in (3, 6, 12) else ''}\n" for n in range(1, 15)))
    found = grep(bench, engine, "hit", is_content=True, context=1)
    assert [(one.first_line, one.lines, one.matches) for one in found.windows] == [
        (2, ("2", "3 hit", "4", "5", "6 hit", "7"), (3, 6)),
        (11, ("11", "12 hit", "13"), (12,)),
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_ignored_hidden_or_binary(bench: Bench, engine: str) -> None:
    make(bench, _dot_gitignore="*.log\nbuild/\n", a_dot_log="x\n", build__b="x\n", _dot_hidden="x\n", _dot_git__c="x\n", d="x\r\n")  # fmt: skip
    (bench.work / "bin").write_bytes(b"\0x\n")
    (bench.work / "latin").write_bytes(b"\xe9 x\n")
    (bench.work / "link").symlink_to("d")
    (bench.work / "out").symlink_to("/etc")
    found = grep(bench, engine, "x$", is_content=True)
    assert sorted(one.path for one in found.files) == [".hidden", "d", "latin"]
    assert {one.path: one.lines for one in found.windows}["d"] == ("x",)
    every = grep(bench, engine, "x$", with_ignored=True)
    assert {"a.log", "build/b"} <= {one.path for one in every.files}


@pytest.mark.parametrize("engine", ENGINES)
def test_narrowed_by_name_case_and_place(bench: Bench, engine: str) -> None:
    make(bench, a_dot_py="Foo(1)\n", b_dot_txt="foo(1)\n", sub__c_dot_py="foo(1)\n")
    assert [f.path for f in grep(bench, engine, "foo", glob="*.py").files] == ["sub/c.py"]
    assert grep(bench, engine, "FOO", ignore_case=True).total_files == 3
    assert grep(bench, engine, "foo(1)", is_literal=True).total_files == 2
    assert [f.path for f in grep(bench, engine, "oo", "sub").files] == ["sub/c.py"]
    assert [f.path for f in grep(bench, engine, "oo", "a.py").files] == ["a.py"]
    assert grep(bench, engine, "nothing like it").total_files == 0


def test_a_broken_pattern_is_the_caller_s(bench: Bench) -> None:
    make(bench, a="x")
    job = Job(Search("("), str(bench.work), "", False)
    with pytest.raises(InvalidRequest, match="no regular expression"):
        asyncio.run(filing.grep(bench.tools, job, str(bench.work), plain))


def test_what_ripgrep_does_not_speak_is_searched_by_our_own_program(bench: Bench) -> None:
    make(bench, a="foobar\nfoo\n")
    job = Job(Search(r"foo(?=bar)", is_content=True), str(bench.work), "", False)
    found = asyncio.run(filing.grep(bench.tools, job, str(bench.work), plain))
    assert (found.engine, found.total_lines) == ("python", 1)


def test_more_than_fits_is_counted(bench: Bench) -> None:
    for n in range(205):
        (bench.work / f"f{n:03}").write_text("x\n" * 10)
    for engine in ENGINES:
        found = grep(bench, engine, "x", is_content=True)
        assert (len(found.files), found.total_files, found.total_lines) == (200, 205, 2050)
        assert sum(len(one.matches) for one in found.windows) == 1000


@pytest.mark.skipif(RIPGREP is None, reason="the two are compared where ripgrep is")
def test_both_engines_say_the_same_of_this_project(repository: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(
        repository / "sandboxd", work / "sandboxd", ignore=shutil.ignore_patterns("__pycache__")
    )
    bench = Bench(tmp_path)
    for pattern in ("def ", r"^class \w+", "import|from", r"\bself\.\w+\(", "[“”’]", r"}$"):
        one, other = (
            grep(bench, engine, pattern, is_content=True, context=2) for engine in ENGINES
        )
        assert one.files == other.files, pattern
        assert one.windows == other.windows, pattern
        assert (one.total_files, one.total_lines) == (other.total_files, other.total_lines)
