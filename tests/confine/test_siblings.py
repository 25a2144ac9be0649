"""The list of what may be read: complete, without what is denied, and never out of date."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.confine import siblings
from sandboxd.confine.siblings import Siblings, readable
from sandboxd.errors import TierUnavailable

TREE = {
    "/": ["bin", "dev", "home", "usr"],
    "/home": ["me", "you"],
    "/home/me": [".config", ".ssh", "work"],
    "/home/me/.config": ["gh", "git"],
}


def test_siblings_of_what_is_denied_are_granted_and_nothing_above_it() -> None:
    granted, listed = readable("/", ["/home/me/.ssh", "/home/me/.config/gh"], TREE.__getitem__)
    assert granted == ["/bin", "/home/me/.config/git", "/home/me/work", "/home/you", "/usr"]
    assert listed == ["/", "/home", "/home/me", "/home/me/.config"]


def test_what_does_not_exist_yet_has_no_rule_when_it_comes_to_be(tmp_path: Path) -> None:
    home = os.path.realpath(tmp_path)
    os.mkdir(f"{home}/.config")
    os.mkdir(f"{home}/.config/git")
    granted, _ = readable(home, [f"{home}/.config/gh", f"{home}/.netrc"])
    assert granted == [f"{home}/.config/git"]


def test_a_link_that_leads_to_a_denied_folder_is_granted_nothing(tmp_path: Path) -> None:
    home = os.path.realpath(tmp_path)
    os.mkdir(f"{home}/.ssh")
    os.mkdir(f"{home}/work")
    os.symlink(f"{home}/.ssh", f"{home}/keys")
    assert readable(home, [f"{home}/.ssh"])[0] == [f"{home}/work"]


def test_a_folder_with_too_many_siblings_is_refused_by_name() -> None:
    many = {"/": [str(number) for number in range(siblings.MAX_RULES + 2)]}
    with pytest.raises(TierUnavailable):
        readable("/", ["/1"], many.__getitem__)


def test_a_crowded_folder_below_the_top_is_granted_nothing_of() -> None:
    """A /tmp with thousands of entries must not cost the tier, nor open what is denied in it."""
    tree = {
        "/": ["tmp", "usr"],
        "/tmp": [str(number) for number in range(siblings.MAX_RULES + 2)],
    }
    granted, listed = readable("/", ["/tmp/1"], tree.__getitem__)
    assert (granted, listed) == (["/usr"], ["/", "/tmp"])


class Counting:
    """Lists real folders and counts how often it is asked for those below `top`."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.count = 0

    def __call__(self, folder: str) -> list[str]:
        if folder == self.top:
            self.count += 1
        return siblings.plain_names(folder)


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A folder whose last change is long enough ago to be trusted."""
    made = os.path.realpath(tmp_path) + "/home"
    os.makedirs(made + "/.ssh")
    os.mkdir(made + "/work")
    return made


def test_folders_are_listed_again_only_when_one_of_them_changed(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(siblings, "SETTLED_NS", -(10**18))
    counting = Counting(home)
    kept = Siblings(counting)
    denied = (home + "/.ssh", home + "/.config/gh")
    assert f"{home}/work" in kept.cover(denied).granted
    assert f"{home}/work" in kept.cover(denied).granted
    assert counting.count == 1
    os.mkdir(home + "/.config")
    os.mkdir(home + "/.config/gh")
    assert not any(path.startswith(home + "/.config") for path in kept.cover(denied).granted)
    assert counting.count == 2


def test_a_folder_that_changed_a_moment_ago_is_not_remembered(home: str) -> None:
    counting = Counting(home)
    kept = Siblings(counting)
    os.mkdir(home + "/new")
    kept.cover((home + "/.ssh",))
    kept.cover((home + "/.ssh",))
    assert counting.count == 2
