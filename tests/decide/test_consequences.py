"""What a person is told beyond the verdict."""

from __future__ import annotations

from pathlib import Path

from sandboxd.decide.consequences import creates, deciding, loses
from sandboxd.model import CommandClass, Part, Reason, Verdict


def verdict(*parts: tuple[int, int, CommandClass], paths: tuple[str, ...] = ()) -> Verdict:
    found = tuple(Part((start, end), "x", kind, "r", "deletes files") for start, end, kind in parts)
    worst = max((part.class_ for part in found), key=lambda kind: kind.severity)
    return Verdict(class_=worst, parsed=True, cacheable=False, parts=found, write_paths=paths)


def test_only_the_worst_parts_decide() -> None:
    both = verdict((0, 5, CommandClass.MUTATING), (8, 12, CommandClass.DESTRUCTIVE))
    assert deciding(both) == ((8, 12),)
    unread = Verdict(
        class_=CommandClass.DESTRUCTIVE,
        parsed=False,
        cacheable=False,
        reasons=(Reason("unparsed", "cannot be read", (3, 9)),),
    )
    assert deciding(unread) == ((3, 9),)


def test_the_outermost_missing_folder_is_named_once(tmp_path: Path) -> None:
    paths = [f"{tmp_path}/a/b/one", f"{tmp_path}/a/two", f"{tmp_path}/here"]
    assert creates(paths) == (f"{tmp_path}/a",)


def test_what_would_be_lost_is_weighed(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    for name in "abc":
        (tmp_path / "build" / name).write_bytes(b"x" * 1024)
    (tmp_path / "one").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "build")
    paths = tuple(str(tmp_path / name) for name in ("build", "one", "link", "none"))
    told = loses(verdict((0, 2, CommandClass.DESTRUCTIVE), paths=paths))
    assert told == (
        f"{tmp_path}/build (3 files, 3.0 KiB), {tmp_path}/one (5 bytes), {tmp_path}/link (a link)"
    )
    gone = loses(verdict((0, 2, CommandClass.DESTRUCTIVE), paths=paths[3:]))
    assert gone == f"nothing that is there now: {tmp_path}/none"


def test_without_paths_the_reason_says_what_is_lost() -> None:
    assert loses(verdict((0, 2, CommandClass.DESTRUCTIVE))) == "deletes files"
    assert loses(verdict((0, 2, CommandClass.MUTATING))) is None
