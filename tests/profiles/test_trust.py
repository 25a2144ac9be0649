"""Layers: who comes before whom, and that a project's file can only tighten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.errors import ProfileBroken, ProfileRelaxes, UnknownProfile
from sandboxd.model import NetworkMode
from sandboxd.policy import build_policy
from sandboxd.profiles import Profile, effective_profile, layers, load_profile


class World:
    """A system's, a user's and a project's folder."""

    def __init__(self, top: Path) -> None:
        self.system, self.user, self.project = top / "etc", top / "user/sandboxd", top / "project"
        for folder in (self.system, self.user / "profiles", self.project):
            folder.mkdir(parents=True)

    def write(self, where: Path, text: str, name: str = "config.yaml") -> str:
        file = where / (
            ".sandboxd.yaml" if where == self.project and name == "config.yaml" else name
        )
        file.write_text(text)
        return str(file)

    def load(self, name: str | None = None) -> Profile:
        return effective_profile(name, str(self.project))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path)
    monkeypatch.setattr(layers, "SYSTEM_FOLDER", str(made.system))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    return made


def test_nothing_at_all_means_the_default(world: World) -> None:
    assert world.load().write == load_profile("default").write
    assert world.load().name == "default"


def test_the_users_file_lies_over_the_systems_and_both_over_the_default(world: World) -> None:
    world.write(world.system, "limits: {wall_s: 5}\napproval: ask-all\nfiles: {deny: [/system]}\n")
    world.write(world.user, "approval: trust-sandbox\nfiles: {deny: [/user]}\n")
    found = world.load()
    assert (found.approval, found.limits.wall_s) == ("trust-sandbox", 5)
    assert found.deny[-2:] == ("/system", "/user")


def test_a_profile_that_is_named_lies_over_the_users_file(world: World) -> None:
    world.write(world.user, "approval: ask-all\nlimits: {cpu_s: 7}\n")
    found = world.load("agent")
    assert (found.approval, found.limits.cpu_s, found.name) == ("trust-sandbox", 7, "agent")


def test_extends_in_the_users_file_is_the_profile_when_none_is_named(world: World) -> None:
    world.write(world.user, "extends: offline\nlimits: {cpu_s: 7}\n")
    found = world.load()
    assert (found.network, found.limits.cpu_s, found.name) == (NetworkMode.OFF, 7, "offline")
    assert world.load("farm").network == load_profile("farm").network


def test_the_users_own_profiles_are_found_by_name(world: World) -> None:
    world.write(world.user / "profiles", "extends: default\napproval: ask-all\n", "mine.yaml")
    assert world.load("mine").approval == "ask-all"
    with pytest.raises(UnknownProfile, match="mime"):
        world.load("mime")


def test_a_changed_file_counts_at_the_next_look(world: World) -> None:
    assert world.load().approval == "standard"
    file = world.write(world.project, "approval: ask-all\n")
    assert world.load().approval == "ask-all"
    Path(file).unlink()
    assert world.load().approval == "standard"


def test_a_broken_file_is_refused_and_nothing_falls_back(world: World) -> None:
    for where in (world.system, world.user, world.project):
        file = world.write(where, "approval: sometimes\n")
        with pytest.raises(ProfileBroken, match=file):
            world.load()
        Path(file).unlink()


def test_a_project_tightens(world: World) -> None:
    world.write(
        world.project,
        "approval: ask-all\nnetwork: {mode: allowlist, allow: [example.com]}\nmin_tier: namespaces\n"
        'files: {write: ["${WORKSPACE}/build", "${TMP}"], deny: ["${WORKSPACE}/keys"]}\n'
        "limits: {wall_s: 60}\nunix_sockets: none\nenvironment: {scrub: [MINE]}\n",
    )
    found = world.load()
    assert (found.approval, found.min_tier, found.unix_sockets) == ("ask-all", "namespaces", "none")
    assert (found.network, found.egress.allow) == (NetworkMode.ALLOWLIST, ("example.com",))
    assert found.write == ("${WORKSPACE}/build", "${TMP}")
    assert found.deny[-1] == "${WORKSPACE}/keys"
    assert found.environment_scrub == (*load_profile("default").environment_scrub, "MINE")


RELAXING = {
    "the keys": ('files:\n  write: ["${HOME}/.ssh"]\n', 2, "${HOME}/.ssh"),
    "the home": ('files: {write: ["${HOME}"]}\n', 1, None),
    "a folder outside": ("files: {write: [/opt]}\n", 1, "write"),
    "a way up": ('files: {write: ["${WORKSPACE}/../other"]}\n', 1, "write"),
    "a secret": ('files:\n  reveal: ["${HOME}/.ssh"]\n', 2, "${HOME}/.ssh"),
    "no questions": ("approval: never\n", 1, "approval:"),
    "a profile that asks less": ("extends: farm\n", None, "approval:"),
    "a variable": ("environment: {set: {X: y}}\n", 1, None),
    "a token": ("environment: {pass: [GH_TOKEN]}\n", 1, "mode:"),
    "more tables": ("commands: [mine.yaml]\n", 1, "approval:"),
    "more to look at": ("files: {read_roots: [/]}\n", None, None),
    "a port": ("network: {publish: [80]}\n", 1, None),
}


@pytest.mark.parametrize("case", RELAXING)
def test_a_project_cannot_relax(case: str, world: World) -> None:
    text, line, trusted = RELAXING[case]
    file = world.write(world.project, text)
    world.write(world.user, "network: open\n")
    with pytest.raises((ProfileRelaxes, ProfileBroken)) as caught:
        world.load()
    if line is not None:
        assert f"{file}, line {line}, key" in caught.value.message
    if trusted is not None:
        held = (caught.value.data or {})["trusted_file"]
        number = (caught.value.data or {})["trusted_line"]
        assert f"{held}, line {number}" in caught.value.message
        assert trusted in Path(held).read_text().splitlines()[number - 1]


@pytest.mark.parametrize(
    ("system", "project"),
    [
        ("network: off", "network: open"),
        ("network: off", "network: {mode: off, fallback: host}"),
        ("network: {mode: allowlist, allow: [a.example]}", "network: {allow: [b.example]}"),
        ("network: open", "network: {mode: allowlist, allow: [10.0.0.1]}"),
        ("network: open", "network: {mode: allowlist, allow: ['127.1:80']}"),
        ("network: open", "network: {allow_private: true}"),
        ("min_tier: namespaces", "min_tier: landlock"),
        ("unix_sockets: none", "unix_sockets: workspace"),
        ("environment: {mode: allowlist}", "environment: {mode: scrub}"),
        ("limits: {wall_s: 10}", "limits: {wall_s: 11}"),
        ("files: {write: ['${TMP}']}", "files: {write: ['${WORKSPACE}']}"),
    ],
)
def test_a_project_cannot_undo_what_the_system_says(
    system: str, project: str, world: World
) -> None:
    held = world.write(world.system, system + "\n")
    file = world.write(world.project, project + "\n")
    with pytest.raises(ProfileRelaxes) as caught:
        world.load()
    assert f"{file}, line 1" in caught.value.message
    assert f"{held}, line 1" in caught.value.message


def test_a_named_profile_stays_as_tight_as_it_is(world: World) -> None:
    world.write(world.project, "extends: default\nlimits: {wall_s: 5}\n")
    found = world.load("read-only")
    assert (found.write, found.limits.wall_s) == (load_profile("read-only").write, 5)


def test_a_projects_file_may_be_no_link_to_a_secret(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary-secret\n")
    (world.project / ".sandboxd.yaml").symlink_to(secret)
    with pytest.raises(ProfileBroken, match="symbolic link") as caught:
        world.load()
    assert "canary" not in caught.value.message
    (world.project / ".sandboxd.yaml").unlink()
    world.write(world.project, "extends: ./more.yaml\n")
    (world.project / "more.yaml").symlink_to(secret)
    with pytest.raises((ProfileBroken, ProfileRelaxes)) as second:
        world.load()
    assert "canary" not in second.value.message


def test_a_projects_folder_that_is_a_link_leads_nowhere(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (world.project / "build").mkdir()
    (world.project / "out").symlink_to(outside)
    world.write(
        world.project, 'files: {write: ["${WORKSPACE}/build", "${WORKSPACE}/out", "${TMP}"]}\n'
    )
    policy = build_policy(
        world.load(),
        workspace=str(world.project),
        home="/nonexistent",
        private_tmp=str(tmp_path),
        path="/usr/bin",
        cwd=str(world.project),
    )
    assert policy.writable == (str(world.project / "build"), str(tmp_path))
    assert f"{world.project}/out is a link and stays read-only" in policy.notes
    assert str(world.project / ".sandboxd.yaml") in policy.protected


def test_a_file_that_grants_what_was_denied_can_be_the_users_own(world: World) -> None:
    world.write(world.user, 'files: {reveal: ["${HOME}/.ssh"]}\n')
    assert "${HOME}/.ssh" not in world.load().deny
    assert "${HOME}/.gnupg" in world.load().deny


@pytest.mark.parametrize(
    ("value", "denied"),
    [("/else/hist", True), ("/dev/null", False), ("relative", False), ("/", False), ("/h", False)],
)
def test_a_variable_denies_the_place_that_it_names(
    value: str, denied: bool, tmp_path: Path
) -> None:
    policy = build_policy(
        load_profile("default"),
        workspace=str(tmp_path),
        home="/h",
        private_tmp=str(tmp_path),
        path="/usr/bin",
        cwd=str(tmp_path),
        environment={"HISTFILE": value},
    )
    assert (value in policy.denied) is denied


def test_moved_base_folders_are_denied_where_they_are(tmp_path: Path) -> None:
    policy = build_policy(
        load_profile("default"),
        workspace=str(tmp_path),
        home="/h",
        private_tmp=str(tmp_path),
        path="/usr/bin",
        cwd=str(tmp_path),
        environment={"XDG_CONFIG_HOME": "/moved"},
    )
    assert {"/h/.config/gcloud", "/moved/gcloud"} <= set(policy.denied)
