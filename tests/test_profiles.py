"""Profiles: every shipped one loads, and what is broken is named with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.errors import ProfileBroken, UnknownProfile
from sandboxd.profiles import fill_in, load_profile, names


@pytest.mark.parametrize("name", names())
def test_every_name_that_is_offered_loads(name: str) -> None:
    loaded = load_profile(name)
    assert loaded.name == name
    assert "${HOME}/.ssh" in loaded.deny


def test_a_nearer_layer_replaces_what_may_be_written_and_adds_to_what_is_denied(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text('extends: default\nfiles: {write: ["${TMP}"], deny: ["${HOME}/own"]}\n')
    base, mine = load_profile("default"), load_profile(str(file))
    assert mine.write == ("${TMP}",)
    assert mine.deny == (*base.deny, "${HOME}/own")


BROKEN = {
    "unknown key": ("approvals: standard\n", 1, "approvals"),
    "unknown key inside": ("files:\n  denied: [x]\n", 2, "files.denied"),
    "wrong choice": ("approval: sometimes\n", 1, "approval"),
    "no number": ("limits:\n  wall_s: soon\n", 2, "limits.wall_s"),
    "text for a list": ("files:\n  write: /\n", 2, "files.write"),
    "twice": ("approval: never\napproval: never\n", 2, "approval"),
    "unknown tier": ("min_tier: strong\n", 1, "min_tier"),
    "anchor": ("files: &x {}\n", 1, "x"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_with_line_and_key(case: str, tmp_path: Path) -> None:
    text, line, key = BROKEN[case]
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(ProfileBroken) as caught:
        load_profile(str(file))
    assert f"{file}, line {line}, key '{key}'" in caught.value.message


def test_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: ./b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: ./a.yaml\n")
    with pytest.raises(ProfileBroken, match="circle"):
        load_profile(str(tmp_path / "a.yaml"))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownProfile) as caught:
        load_profile("nope")
    assert "default" in caught.value.hint
    assert "seccomp" not in caught.value.hint


def test_a_path_whose_variable_is_empty_is_left_out() -> None:
    assert fill_in("${HOME}/x", {"HOME": "/h"}) == "/h/x"
    assert fill_in("${HOME}/x", {"HOME": ""}) is None
    assert fill_in("${OTHER}/x", {}) is None
