"""Covers are left out for what is absent, and come back the moment that it is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sandboxd.confine.guardian.present import Trimmed
from sandboxd.model import MountStep

LATER_NS = 10**9


def left(trimmed: Trimmed) -> list[str]:
    return [step.path for step in trimmed.now(time.time_ns() + LATER_NS)]


def test_what_comes_and_goes_is_noticed_at_any_depth(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a", "b/c", "d/e/f")]
    trimmed = Trimmed(tuple(MountStep("blank", name) for name in names))
    assert left(trimmed) == []
    (tmp_path / "d/e").mkdir(parents=True)
    assert left(trimmed) == []
    (tmp_path / "d/e/f").write_text("")
    assert left(trimmed) == [names[2]]
    (tmp_path / "b").mkdir()
    (tmp_path / "b/c").mkdir()
    (tmp_path / "a").write_text("")
    assert left(trimmed) == names
    os.unlink(names[0])
    assert left(trimmed) == names[1:]


def test_a_folder_that_is_a_link_is_never_relied_on(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    name = str(tmp_path / "link/secret")
    trimmed = Trimmed((MountStep("blank", name),))
    assert left(trimmed) == []
    (tmp_path / "real/secret").write_text("")
    assert left(trimmed) == [name]


def test_a_folder_that_has_just_changed_is_not_relied_on(tmp_path: Path) -> None:
    name = str(tmp_path / "a")
    trimmed = Trimmed((MountStep("blank", name),))
    assert trimmed.now(time.time_ns()) == ()
    assert trimmed.parts == {}


def test_steps_that_cover_nothing_stay(tmp_path: Path) -> None:
    steps = (MountStep("bind", str(tmp_path / "nope")), MountStep("tmp", "/tmp", "/x"))
    assert left(Trimmed((*steps, MountStep("blank", str(tmp_path / "x"))))) == [
        str(tmp_path / "nope"),
        "/tmp",
    ]
