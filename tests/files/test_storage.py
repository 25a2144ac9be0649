"""What a crash, a full disk, a read-only disk and other programs leave: the old file or the new one."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scopes import scope_of
from tools import Bench

from sandboxd.errors import AlreadyExists, Fault, FileBusy, Refusal, StaleVersion, for_model
from sandboxd.files import storage
from sandboxd.files.guard import locate
from sandboxd.files.locks import Locks
from sandboxd.system import beneath

KILLS = int(os.environ.get("SANDBOXD_TEST_KILLS", "20"))
"""200 is the long run."""
HERE = str(Path(__file__).parent)

WRITER = """
    import sys
    sys.path.insert(0, HERE)
    from pathlib import Path
    from tools import Bench
    bench = Bench(Path(sys.argv[1]))
    bench.read("f", again=True)
    print("ready", flush=True)
    n = 0
    while True:
        n += 1
        bench.write("f", f"{n % 10}" * 300_000)
"""


def python(code: str, *words: str, **more: object) -> subprocess.Popen[str]:
    text = textwrap.dedent(code).replace("HERE", repr(HERE))
    return subprocess.Popen([sys.executable, "-c", text, *words], text=True, **more)  # type: ignore[call-overload,no-any-return]


def test_a_writer_killed_at_any_moment_leaves_old_or_new_and_nothing_else(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("f", "0" * 300_000)
    for number in range(KILLS):
        writer = python(WRITER, str(tmp_path), stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        threading.Event().wait(0.003 * (number % 10) + 0.001 * (number % 7))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        text = bench.text("f")
        assert len(text) == 300_000
        assert len(set(text)) == 1
    bench.tools.locks.sweep()
    assert os.listdir(bench.work) == ["f"]
    bench.read("f", again=True)
    bench.write("f", "after")


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("f", "a")
    left = bench.work / ".0123456789abcdef.sandboxd~"
    left.write_text("half")
    (bench.work / "mine.txt").write_text("a person's")
    path = str(bench.work / "f")
    for noted in (str(left), str(bench.work / "mine.txt")):
        with bench.tools.locks.holding([path]) as held:
            held.note(path, noted)
            # The kernel lets go of a dead holder's lock; its note stays.
            lock = held._fds[next(iter(held._fds))]
            content = os.pread(lock, 4096, 0)
        shard = os.path.join(tmp_path, "locks", next(iter(held._fds)))
        Path(shard).write_bytes(content)
        assert bench.tools.locks.sweep() == 1
    assert sorted(os.listdir(bench.work)) == ["f", "mine.txt"]


# ------------------------------------------------------------------ disks

ON_A_DISK = """
    import os, sys
    sys.path.insert(0, HERE)
    from pathlib import Path
    from tools import Bench
    from sandboxd.errors import Fault, for_model
    base = Path(sys.argv[1])
    {set_up}
    bench = Bench(base)
    bench.read("f")
    {before}
    for name, act in (
        ("write", lambda: bench.write("f", "new" * 1_000_000)),
        ("edit", lambda: bench.edit("f", "old", "new" * 1_000_000)),
        ("create", lambda: bench.write("g", "new" * 1_000_000)),
    ):
        try:
            act()
            print(name, "was possible")
        except Fault as fault:
            print(name, for_model(fault).replace(chr(10), " | "))
    print(repr(bench.text("f")), sorted(os.listdir(bench.work)))
"""
PRIVATE = """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    def mount(*words):
        if libc.mount(*words) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    libc.unshare(0x00020000)
    mount(b"none", b"/", None, 16384 | (1 << 18), None)
    work = str(base / "work").encode()
"""


def on_a_disk(base: Path, set_up: str, before: str = "") -> list[str]:
    inner = textwrap.indent(textwrap.dedent(set_up), "    ")
    code = ON_A_DISK.replace("    {set_up}", inner).replace("{before}", before)
    done = python(code, str(base), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    return out.splitlines()


def open_up(path: Path) -> None:
    """Let another user walk to what pytest keeps to itself."""
    for folder in (path, *path.parents):
        if folder.stat().st_mode & 0o005 != 0o005 and folder.name.startswith(("work", "test_", "pytest-", "popen-")):  # fmt: skip
            os.chmod(folder, 0o755)


needs_root = pytest.mark.skipif(
    os.getuid() != 0 or sys.platform != "linux", reason="mounts a disk of its own"
)


@needs_root
def test_a_full_disk_leaves_the_old_file_and_is_a_fault_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    told = on_a_disk(
        tmp_path,
        PRIVATE
        + """
    mount(b"tmpfs", work, b"tmpfs", 0, b"size=512k")
    (base / "work/f").write_text("old")
    """,
    )
    for line in told[:3]:
        assert "No space left on device" in line, told
        assert "what was there before is untouched" in line
        assert "free some space" in line
    assert told[3] == "'old' ['f']"


@needs_root
def test_a_read_only_disk_is_a_fault_and_not_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    told = on_a_disk(
        tmp_path,
        PRIVATE
        + """
    mount(b"tmpfs", work, b"tmpfs", 0, None)
    (base / "work/f").write_text("old")
    mount(b"none", work, None, 32 | 1, None)
    """,
    )
    for line in told[:3]:
        assert "Read-only file system" in line, told
    assert told[3] == "'old' ['f']"


def test_a_size_limit_leaves_the_old_file(tmp_path: Path) -> None:
    """The same for those who may not mount: RLIMIT_FSIZE fails a write half way."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/f").write_text("old")
    told = on_a_disk(
        tmp_path,
        """
    import resource
    """,
        before="resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))",
    )
    for line in told[:3]:
        assert "File too large" in line, told
    assert told[3] == "'old' ['f']"


def test_a_folder_without_permission_is_a_fault(tmp_path: Path) -> None:
    """Root acts as the workspace's owner, so that the owner's permissions count."""
    owner = (65534, 65534) if os.getuid() == 0 else None
    bench = Bench(tmp_path, owner=owner)
    (bench.work / "closed").mkdir()
    (bench.work / "closed/f").write_text("secret")
    if owner:
        open_up(bench.work)
        os.chown(bench.work, *owner)
    os.chmod(bench.work / "closed", 0o700 if owner else 0o000)
    try:
        for act in (lambda: bench.read("closed/f"), lambda: bench.write("closed/f", "x")):
            with pytest.raises(Fault) as told:
                act()
            assert "Permission denied" in for_model(told.value)
            assert not isinstance(told.value, Refusal)
    finally:
        os.chmod(bench.work / "closed", 0o700)


@needs_root
def test_root_s_new_files_belong_to_the_workspace_s_owner(tmp_path: Path) -> None:
    ids = (65534, 65534)
    bench = Bench(tmp_path, owner=ids)
    os.chown(bench.work, *ids)
    open_up(bench.work)
    bench.write("a/b", "x")
    for name in ("a", "a/b"):
        found = os.stat(bench.work / name)
        assert (found.st_uid, found.st_gid) == ids
    assert beneath._call(beneath._SYS_SETFSUID, beneath._NOBODY_ELSE) == 0


# ------------------------------------------------------------------ other programs


def test_a_change_by_another_program_between_reading_and_replacing_is_not_lost(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.write("f", "ours\n")
    place = locate("f", bench.tools.scope, "write")
    content = storage.read_whole(place, bench.tools.scope)
    (bench.work / "other").write_text("theirs\n")
    os.rename(bench.work / "other", bench.work / "f")
    with (
        bench.tools.locks.holding([place.path]) as held,
        pytest.raises(StaleVersion, match="in this very moment"),
    ):
        storage.put(place, bench.tools.scope, b"new\n", content.found, held)
    assert bench.text("f") == "theirs\n"
    assert os.listdir(bench.work) == ["f"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs renameat2")
def test_even_after_the_last_look_it_is_swapped_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other program renames between our last look and our swap."""
    bench = Bench(tmp_path)
    bench.write("f", "ours\n")
    place = locate("f", bench.tools.scope, "write")
    content = storage.read_whole(place, bench.tools.scope)
    swap = beneath.exchange
    calls = []

    def late(folder: int, first: str, second: str) -> bool:
        if not calls:
            (bench.work / "other").write_text("theirs\n")
            os.rename(bench.work / "other", bench.work / "f")
        calls.append(second)
        return swap(folder, first, second)

    monkeypatch.setattr(beneath, "exchange", late)
    with bench.tools.locks.holding([place.path]) as held, pytest.raises(StaleVersion):
        storage.put(place, bench.tools.scope, b"new\n", content.found, held)
    assert (bench.text("f"), len(calls)) == ("theirs\n", 2)
    assert os.listdir(bench.work) == ["f"]


@pytest.mark.parametrize("missing", ["O_TMPFILE", "exchange", "openat2"])
def test_the_ways_of_other_systems_keep_the_same_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Without a Linux of today: a named temporary file, a plain rename, component by component."""
    if missing == "O_TMPFILE":
        monkeypatch.setattr(storage, "_TMPFILE", 0)
    elif missing == "exchange":
        monkeypatch.setattr(beneath, "exchange", lambda *words: False)
    else:
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    bench = Bench(tmp_path)
    bench.write("a/f", "1\n")
    bench.edit("a/f", "1", "2")
    bench.read("a/f")
    with pytest.raises(AlreadyExists):
        bench.edit("a/f", "", "3")
    assert bench.text("a/f") == "2\n"
    assert os.listdir(bench.work / "a") == ["f"]
    (bench.work / "link").symlink_to("/etc")
    with pytest.raises(Refusal):
        bench.write("link/x", "x")


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    scope = scope_of(tmp_path)
    place = locate("f", scope, "write")
    (bench.work / "f").write_text("theirs")
    with bench.tools.locks.holding([place.path]) as held, pytest.raises(AlreadyExists):
        storage.put(place, scope, b"ours", None, held)
    assert bench.text("f") == "theirs"


# ------------------------------------------------------------------ locks


def test_one_writer_at_a_time_across_processes(tmp_path: Path) -> None:
    code = """
        import sys
        sys.path.insert(0, HERE)
        from sandboxd.files.locks import Locks
        with Locks(sys.argv[1]).holding(["/w/f"]):
            print("held", flush=True)
            sys.stdin.read()
    """
    other = python(code, str(tmp_path / "locks"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdin is not None
    assert other.stdout.readline() == "held\n"
    mine = Locks(str(tmp_path / "locks"), wait_s=0.05)
    with pytest.raises(FileBusy) as told, mine.holding(["/w/f"]):
        raise AssertionError("held twice")
    assert told.value.retryable
    with mine.holding(["/w/g", "/w/h"]):
        pass
    other.kill()
    other.wait()
    other.stdout.close()
    other.stdin.close()
    with mine.holding(["/w/f", "/w/g", "/w/f"]):
        pass


def test_an_unknown_system_error_says_no_more_than_the_system_s_words(tmp_path: Path) -> None:
    from sandboxd.files.handles import refusal_of

    bench = Bench(tmp_path)
    place = locate("f", bench.tools.scope, "write")
    fault = refusal_of(OSError(errno.EIO, "Input/output error"), place)
    assert isinstance(fault, Fault)
    assert str(fault) == (
        "f could not be touched: Input/output error; what was there before is untouched"
    )
