"""The path rule: what each spelling means, what is refused and as what, and that nothing gets out."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from scopes import scope_of

from sandboxd.errors import (
    DeniedPath,
    Fault,
    InvalidArgument,
    NotFound,
    OutsideRoot,
    Refusal,
    SpecialFile,
)
from sandboxd.files import handles
from sandboxd.files.guard import fold, locate
from sandboxd.system import beneath


@pytest.mark.parametrize(
    ("text", "leads_to"),
    [
        ("a.txt", "work/a.txt"),
        ("./sub//../a.txt", "work/a.txt"),
        ("sub/new/deep.txt", "work/sub/new/deep.txt"),
        ("link-in/b.txt", "work/sub/b.txt"),
        ("link-in/../a.txt", "work/a.txt"),
        ("sub/~/x", "work/sub/~/x"),
        ("~user", "work/~user"),
        ("/tmp/x/y", "tmp/x/y"),
        ("link-tmp", "tmp/x"),
        (" odd name ", "work/ odd name "),
        ("-rf", "work/-rf"),
        ("new\nline", "work/new\nline"),
        ("n" * 200, "work/" + "n" * 200),
    ],
)
def test_every_spelling_leads_to_one_path(tmp_path: Path, text: str, leads_to: str) -> None:
    scope = scope_of(tmp_path)
    work = tmp_path / "work"
    (work / "sub").mkdir()
    (work / "link-in").symlink_to("sub")
    (work / "link-tmp").symlink_to("/tmp/x")
    assert locate(text, scope, "write").path == str(tmp_path / leads_to)


def test_relative_paths_begin_at_the_working_directory_and_are_shown_from_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "work/sub").mkdir(parents=True)
    place = locate("f", scope_of(tmp_path, cwd="sub"), "read")
    assert (place.path, place.shown, place.below) == (
        str(tmp_path / "work/sub/f"),
        "f",
        "sub/f",
    )
    assert locate("../g", scope_of(tmp_path, cwd="sub"), "read").shown == "../g"


def test_home_is_expanded_only_at_the_beginning(tmp_path: Path) -> None:
    with pytest.raises(OutsideRoot) as told:
        locate("~/notes", scope_of(tmp_path), "read")
    assert str(tmp_path / "home/notes") in told.value.message
    assert "files.read_roots" in told.value.hint


def test_a_read_root_of_the_profile_may_be_read_and_not_written(tmp_path: Path) -> None:
    scope = scope_of(tmp_path, read_roots=(str(tmp_path / "home"),))
    (tmp_path / "home/notes").write_text("x")
    assert locate("~/notes", scope, "read").path == str(tmp_path / "home/notes")
    with pytest.raises(OutsideRoot, match="may be read and not written"):
        locate("~/notes", scope, "write")


@pytest.mark.parametrize("text", ["../outside", "/etc/passwd", "link-out", "link-out/x", "/", "~"])
@pytest.mark.parametrize("want", ["read", "write"])
def test_outside_is_refused_with_the_path_it_leads_to(tmp_path: Path, text: str, want: str) -> None:
    scope = scope_of(tmp_path)
    (tmp_path / "work/link-out").symlink_to(tmp_path / "outside")
    with pytest.raises(OutsideRoot) as told:
        locate(text, scope, want)  # type: ignore[arg-type]
    assert told.value.path is not None
    assert told.value.path in told.value.message


def test_links_in_a_circle_and_impossible_names_are_refused(tmp_path: Path) -> None:
    scope = scope_of(tmp_path)
    (tmp_path / "work/a").symlink_to("b")
    (tmp_path / "work/b").symlink_to("a")
    with pytest.raises(NotFound, match="links"):
        locate("a", scope, "read")
    for text in ("", "a\0b", "n" * 300):
        with pytest.raises(InvalidArgument):
            locate(text, scope, "read")


def test_fifo_socket_and_device_are_refused(tmp_path: Path) -> None:
    scope = scope_of(tmp_path)
    os.mkfifo(tmp_path / "work/fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        os.chdir(tmp_path)
        bound.bind("work/sock")
    for text in ("fifo", "sock", "/dev/null", "/proc/self/environ", "/sys/kernel"):
        with pytest.raises(SpecialFile):
            locate(text, scope, "read")


def test_proc_self_root_is_no_way_around(tmp_path: Path) -> None:
    scope = scope_of(tmp_path, read_roots=("/",))
    (tmp_path / "work/root").symlink_to("/proc/self/root")
    with pytest.raises(OutsideRoot, match="may be read and not written"):
        locate("/proc/self/root/etc/passwd", scope, "write")
    assert locate("/etc/passwd", scope, "read").path == "/etc/passwd"
    # Read as text the link says `/`: never the daemon's own root by way of the kernel's magic.
    with pytest.raises((SpecialFile, OutsideRoot)):
        locate("root/etc/passwd", scope, "write")


@pytest.mark.parametrize("name", ["secret", "SECRET/x", "secret/deep/er", "s\u200cecret", "ſecret"])
def test_denied_places_are_denied_under_every_spelling(tmp_path: Path, name: str) -> None:
    with pytest.raises(DeniedPath):
        locate(name, scope_of(tmp_path), "read")


@pytest.mark.parametrize(
    "name",
    [
        ".git/hooks/pre-commit",
        ".GIT/hooks/x",
        ".git",
        "sub/.git/config",
        ".g\u200cit/config",
        ".ｇit/config",
        "GIT~1/config",
        ".envrc",
        "deep/down/.Envrc",
        ".vscode/tasks.json",
        "bare/config",
        "bare/hooks/post-receive",
    ],
)
def test_protected_names_are_known_in_every_spelling_and_place(tmp_path: Path, name: str) -> None:
    scope = scope_of(tmp_path)
    for part in ("objects", "refs"):
        (tmp_path / "work/bare" / part).mkdir(parents=True)
    (tmp_path / "work/bare/HEAD").touch()
    assert locate(name, scope, "write").protected
    assert locate(name, scope, "read").protected is None


@pytest.mark.parametrize("name", [".gitignore", "git/config", "config", "hooks/x", ".envrc.md"])
def test_other_names_are_not_protected(tmp_path: Path, name: str) -> None:
    assert locate(name, scope_of(tmp_path), "write").protected is None


def test_a_vanished_root_is_a_fault_and_not_a_missing_file(tmp_path: Path) -> None:
    scope = scope_of(tmp_path)
    os.rmdir(tmp_path / "work")
    with pytest.raises(Fault, match="gone"):
        locate("a", scope, "read")


def test_case_is_folded_as_the_laxest_file_system_does() -> None:
    assert fold("Straße") == fold("STRASSE")
    assert fold("e\u0301") == fold("é")


# ------------------------------------------------------------------ handles


def ways() -> list[object]:
    return [beneath.walk_beneath, beneath._openat2] if beneath.has_openat2() else [beneath.walk_beneath]  # fmt: skip


@pytest.mark.parametrize("way", ways(), ids=lambda way: way.__name__)
def test_no_way_of_opening_follows_a_link_or_climbs(tmp_path: Path, way: object) -> None:
    assert callable(way)
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "in/sub/f").write_text("inside")
    (tmp_path / "out").write_text("outside")
    (tmp_path / "in/link").symlink_to("../out")
    (tmp_path / "in/folder").symlink_to("sub")
    root = beneath.open_root(str(tmp_path / "in"))
    try:
        fd = way(root, "sub/f", os.O_RDONLY, 0)
        assert os.read(fd, 9) == b"inside"
        os.close(fd)
        for text in ("link", "folder/f"):
            with pytest.raises(OSError):
                way(root, text, os.O_RDONLY, 0)
        for text in ("../out", "/etc/passwd", "sub/../../out"):
            with pytest.raises(OSError):
                beneath.open_beneath(root, text, os.O_RDONLY)
    finally:
        os.close(root)


def test_linux_kernels_of_today_resolve_in_one_call() -> None:
    if sys.platform == "linux":
        assert beneath.has_openat2()


def test_a_hard_link_to_something_denied_is_not_opened(tmp_path: Path) -> None:
    scope = scope_of(tmp_path)
    (tmp_path / "home/.ssh").mkdir()
    (tmp_path / "home/.ssh/id").write_text("key")
    os.link(tmp_path / "home/.ssh/id", tmp_path / "work/harmless")
    os.link(__file__, tmp_path / "work/other") if os.stat(__file__).st_dev == os.stat(
        tmp_path
    ).st_dev else (tmp_path / "work/other").touch()
    with (
        pytest.raises(DeniedPath, match="hard link"),
        handles.opened(locate("harmless", scope, "read"), scope),
    ):
        raise AssertionError("opened")
    with handles.opened(locate("other", scope, "read"), scope):
        pass


_NAMES = st.sampled_from(
    ["..", ".", "a", "b", "in", "out", "up", "abs", "self", "~", "tmp", "x", "loop", "proc", ""]
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(parts=st.lists(_NAMES, min_size=1, max_size=7), prefix=st.sampled_from(["", "/", "~/"]))
def test_guard_never_returns_a_handle_outside(
    tmp_path: Path, parts: list[str], prefix: str
) -> None:
    """Whatever is spelled over a forest of links: what is opened lies really inside, or a no."""
    scope = scope_of(tmp_path)
    work = tmp_path / "work"
    if not (work / "a").exists():
        (work / "a/b/x").mkdir(parents=True)
        (tmp_path / "x").write_text("outside")
        for folder in (work, work / "a", work / "a/b"):
            (folder / "f").write_text("inside")
            (folder / "in").symlink_to(work / "a")
            (folder / "out").symlink_to(tmp_path)
            (folder / "up").symlink_to("..")
            (folder / "abs").symlink_to("/")
            (folder / "self").symlink_to(".")
            (folder / "loop").symlink_to("loop")
            (folder / "proc").symlink_to("/proc/self/root")
    for name in ([*parts, "f"], parts):
        try:
            place = locate(prefix + "/".join(name), scope, "read")
            with handles.opened(place, scope) as fd:
                real = os.readlink(f"/proc/self/fd/{fd}")
        except (Refusal, Fault):
            continue
        assert real.startswith((f"{work}/", f"{tmp_path}/tmp/")), (name, real)
