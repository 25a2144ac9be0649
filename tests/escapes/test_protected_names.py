"""Ways to leave something behind that runs later, outside: names that appear, names that the host
replaces while a run lives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from sandboxd.model import Result
from tests.confined import VIEWED, read, write
from tests.guarded import (
    TIERS,
    Channel,
    Gate,
    below,
    committed,
    git,
    hidden,
    make_gate,
    stored,
    until,
)


@pytest.fixture(params=TIERS)
def gate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A workspace that is a git checkout with one commit."""
    for made in make_gate(request.param, monkeypatch):
        committed(made.ground.workspace)
        yield made


@pytest.fixture(params=VIEWED)
def masked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """The same, in the tiers that cover protected names by mounts."""
    for made in make_gate(request.param, monkeypatch):
        committed(made.ground.workspace)
        yield made


@pytest.fixture
def open_tier(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """The same, in a tier that cannot protect names inside the workspace."""
    for made in make_gate("landlock", monkeypatch):
        committed(made.ground.workspace)
        yield made


@pytest.fixture(params=TIERS)
def plain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A workspace without any repository."""
    yield from make_gate(request.param, monkeypatch)


# ------------------------------------------------------------------ names that were absent


@pytest.mark.parametrize(
    "name", [".envrc", ".mcp.json", ".bashrc", ".gitmodules", ".git/commondir", ".git/gitdir"]
)
def test_an_absent_protected_file_is_set_aside_as_soon_as_it_appears(name: str, gate: Gate) -> None:
    place = below(gate, name)[0]

    async def watch(channel: Channel) -> None:
        assert await channel.line(0) == "ALLOWED"
        await until(lambda: not os.path.lexists(place), f"{name} is set aside while the run lives")

    code = f"say(attempt(lambda: put({name!r})))\nsys.stdin.read()"
    result = gate.talk(code, watch)
    assert result.set_aside == (place,)
    assert list(stored(gate).values()) == ["x"]
    assert [".set-aside" in name for name in os.listdir(gate.ground.workspace)].count(True) == 0


@pytest.mark.parametrize("name", [".vscode", ".claude", ".idea"])
def test_an_absent_protected_folder_is_set_aside_with_what_lies_in_it(
    name: str, gate: Gate
) -> None:
    code = f"os.mkdir('d'); put('d/tasks.json'); os.rename('d', {name!r})"
    result = gate.python(code)
    assert result.exit_code == 0
    assert result.set_aside == below(gate, name)
    assert not os.path.lexists(below(gate, name)[0])
    assert list(stored(gate).values()) == ["x"]


@pytest.mark.parametrize("tier", ["bubblewrap", "containment"])
def test_the_other_tiers_set_a_plant_aside_too(tier: str, open_tier: Gate) -> None:
    open_tier.tier = tier
    assert open_tier.python("put('.envrc')").set_aside == below(open_tier, ".envrc")
    assert not os.path.lexists(below(open_tier, ".envrc")[0])


def test_a_name_planted_again_and_again_is_set_aside_each_time(gate: Gate) -> None:
    code = "import time\nfor n in range(20):\n    put('.envrc'); time.sleep(0.005)"
    assert gate.python(code).set_aside == below(gate, ".envrc")
    assert not os.path.lexists(below(gate, ".envrc")[0])


def test_a_plant_in_a_folder_made_unwritable_is_set_aside_all_the_same(gate: Gate) -> None:
    code = "os.mkdir('.vscode'); os.chmod('.vscode', 0); put('.envrc'); os.chmod('.', 0o555)"
    gate.python(code)
    os.chmod(gate.ground.workspace, 0o755)
    assert [n for n in os.listdir(gate.ground.workspace) if n in (".vscode", ".envrc")] == []


def test_nothing_is_said_of_a_run_that_touched_no_protected_name(gate: Gate) -> None:
    write(gate.ground.workspace + "/.envrc", "kept\n")
    result = gate.sh("echo x > new && mkdir folder && git add new")
    assert (result.exit_code, result.set_aside, result.notices) == (0, (), ())


def test_a_link_in_the_way_is_not_followed_to_what_lies_outside(plain: Gate) -> None:
    """`.git -> ~/.ssh` must not make us move `~/.ssh/config`."""
    write(plain.ground.home + "/.ssh/config", "kept\n")
    result = plain.python(f"os.symlink({plain.ground.home + '/.ssh'!r}, '.git')")
    assert read(plain.ground.home + "/.ssh/config") == "kept\n"
    assert result.set_aside == below(plain, ".git")
    assert not os.path.lexists(below(plain, ".git")[0])


# ------------------------------------------------------------------ what the host does meanwhile


def save(path: str, text: str) -> None:
    """As an editor does: write beside, rename over."""
    write(path + "~new", text)
    os.rename(path + "~new", path)


def move_and_make_again(folder: str) -> None:
    os.rename(folder, folder + ".old")
    write(folder + "/tasks.json", "new\n")


HOST_ACTIONS: dict[str, tuple[str, Callable[[str], object]]] = {
    "git_config": (".git/config", lambda ws: git("-C", ws, "config", "user.name", "host")),
    "editor_save": (".envrc", lambda ws: save(ws + "/.envrc", "new\n")),
    "editor_backup": (
        ".envrc",
        lambda ws: (os.rename(ws + "/.envrc", ws + "/.envrc~"), write(ws + "/.envrc", "new\n")),
    ),
    "folder_moved": (".vscode/tasks.json", lambda ws: move_and_make_again(ws + "/.vscode")),
}


@pytest.mark.parametrize("action", HOST_ACTIONS)
def test_a_name_the_host_replaced_is_covered_again_while_the_run_lives(
    action: str, masked: Gate
) -> None:
    name, act = HOST_ACTIONS[action]
    workspace = masked.ground.workspace
    for existing in (".envrc", ".vscode/tasks.json"):
        write(f"{workspace}/{existing}", "old\n")
    answers: list[str] = []

    async def work(channel: Channel) -> None:
        answers.append(await channel.line(0))
        act(workspace)
        for number in range(1, 200):
            await channel.tell("again\n")
            answers.append(await channel.line(number))
            if answers[-1] == "EROFS":
                return

    code = f"say(attempt(lambda: open({name!r}, 'a')))\nfor _ in sys.stdin: say(attempt(lambda: open({name!r}, 'a')))"
    result = masked.talk(code, work)
    assert (answers[0], answers[-1]) == ("EROFS", "EROFS")
    assert len(answers) < 150
    assert result.set_aside == ()
    assert os.path.exists(f"{workspace}/{name}")
    if action != "folder_moved":
        assert any("was replaced on the host" in gap for gap in result.tier.gaps)


def test_a_login_the_host_renews_stays_shut_from_its_first_moment(masked: Gate) -> None:
    login = masked.ground.home + "/.netrc"
    answers: list[str] = []

    async def work(channel: Channel) -> None:
        await channel.line(0)
        save(login, "new-login\n")
        for number in range(1, 30):
            await channel.tell("again\n")
            answers.append(await channel.line(number))

    code = f"say('up')\nfor _ in sys.stdin: say(attempt(lambda: open({login!r}).read(1)))"
    masked.talk(code, work)
    assert set(answers) == {"EACCES"}


def test_a_key_made_on_the_host_during_the_run_cannot_be_read(masked: Gate) -> None:
    key = masked.ground.home + "/.aws/credentials"
    answers: list[str] = []

    async def work(channel: Channel) -> None:
        await channel.line(0)
        write(key, "new-key\n")
        await channel.tell("again\n")
        answers.append(await channel.line(1))

    masked.talk(f"say('up')\nfor _ in sys.stdin: say(attempt(lambda: open({key!r}).read()))", work)
    assert answers == ["EACCES"]


def test_the_root_and_the_home_can_be_listed(masked: Gate) -> None:
    result = masked.python(
        f"say(len(os.listdir('/')) > 5, os.listdir({masked.ground.home!r}) != [])"
    )
    assert result.stdout is not None
    assert result.stdout.text == "True True\n"


# ------------------------------------------------------------------ tiers that cannot protect


def test_a_changed_protected_file_is_put_back_and_the_change_is_set_aside(
    open_tier: Gate,
) -> None:
    workspace = open_tier.ground.workspace
    write(workspace + "/.envrc", "kept\n")
    write(workspace + "/.vscode/tasks.json", "kept\n")
    config = read(workspace + "/.git/config")
    result = open_tier.python(
        "put('.envrc'); os.unlink('.vscode/tasks.json'); put('.vscode/new.json');"
        "put('.git/hooks/post-checkout'); put('c'); os.rename('c', '.git/config')"
    )
    assert (read(workspace + "/.envrc"), read(workspace + "/.git/config")) == ("kept\n", config)
    assert read(workspace + "/.vscode/tasks.json") == "kept\n"
    assert os.listdir(workspace + "/.vscode") == ["tasks.json"]
    assert not os.path.lexists(workspace + "/.git/hooks/post-checkout")
    assert set(result.set_aside) == set(
        below(open_tier, ".envrc", ".vscode/new.json", ".git/hooks/post-checkout", ".git/config")
    )
    assert "kept\nx" in stored(open_tier).values()


def test_a_protected_folder_that_was_moved_away_is_put_back(open_tier: Gate) -> None:
    workspace = open_tier.ground.workspace
    write(workspace + "/.vscode/tasks.json", "kept\n")
    open_tier.python("os.rename('.vscode', 'gone'); os.mkdir('.vscode'); put('.vscode/tasks.json')")
    assert read(workspace + "/.vscode/tasks.json") == "kept\n"


def test_a_file_too_large_to_be_kept_is_reported(open_tier: Gate) -> None:
    write(open_tier.ground.workspace + "/.mcp.json", "x" * 100_000)
    result = open_tier.python("put('.mcp.json')")
    assert any("cannot be put back" in notice for notice in result.notices)


# ------------------------------------------------------------------ honest commands


def test_a_repository_that_the_run_makes_is_kept_without_what_runs_programs(plain: Gate) -> None:
    workspace = plain.ground.workspace
    result = plain.sh(
        "git init -q . && git config user.name me && git config core.fsmonitor 'touch x' && "
        "git config alias.st status && git config alias.evil '!touch x' && "
        "echo 'touch x' > hook && chmod +x hook && mv hook .git/hooks/post-checkout"
    )
    assert result.exit_code == 0, result.stderr
    config = read(workspace + "/.git/config")
    assert "fsmonitor" not in config
    assert "!touch" not in config
    assert "name = me" in config
    assert "st = status" in config
    assert os.listdir(workspace + "/.git/hooks") != []
    assert result.set_aside == below(plain, ".git/hooks/post-checkout")
    assert any("core.fsmonitor" in notice for notice in result.notices)
    assert git("-C", workspace, "config", "user.name") == "me\n"


def test_a_lock_left_behind_does_not_save_a_planted_key(plain: Gate) -> None:
    result = plain.sh(
        "git init -q . && git config core.fsmonitor 'touch x' && touch .git/config.lock"
    )
    assert "fsmonitor" not in read(plain.ground.workspace + "/.git/config")
    assert any("core.fsmonitor" in notice for notice in result.notices)


def test_settings_written_one_after_another_are_all_kept(plain: Gate) -> None:
    """The guardian edits the file while git does; neither loses what the other wrote."""
    each = (
        "for n in $(seq 25); do git config my.key$n $n && git config alias.a$n '!x' || exit 1; done"
    )
    result = plain.sh(f"git init -q . && {each}")
    listed = git("-C", plain.ground.workspace, "config", "--local", "--list")
    assert listed.count("my.key") == 25 or (result.stderr and "lock" in result.stderr.text)
    assert "alias" not in listed


def test_a_clone_into_the_workspace_keeps_the_files_it_tracks(plain: Gate) -> None:
    upstream = plain.ground.outside + "/upstream"
    committed(upstream)
    write(upstream + "/.vscode/tasks.json", "theirs\n")
    git("-C", upstream, "add", ".")
    git("-C", upstream, "commit", "-qm", "two")
    result = plain.sh(f"git clone -q {upstream} . && {hidden('.mcp.json')}")
    assert result.exit_code == 0, result.stderr
    assert read(plain.ground.workspace + "/.vscode/tasks.json") == "theirs\n"
    assert any(".vscode" in notice and "was kept" in notice for notice in result.notices)
    assert result.set_aside == below(plain, ".mcp.json")


def test_a_checkout_of_a_branch_that_tracks_a_protected_name_keeps_it(gate: Gate) -> None:
    workspace = gate.ground.workspace
    git("-C", workspace, "checkout", "-qb", "feature")
    write(workspace + "/.vscode/tasks.json", "feature\n")
    git("-C", workspace, "add", ".")
    git("-C", workspace, "commit", "-qm", "two")
    git("-C", workspace, "checkout", "-q", "main")
    result = gate.sh("git checkout -q feature")
    assert result.exit_code == 0, result.stderr
    assert read(workspace + "/.vscode/tasks.json") == "feature\n"
    assert result.set_aside == ()
    assert any("held the same content before" in notice for notice in result.notices)


def test_a_file_that_only_the_run_put_into_the_object_store_is_set_aside(gate: Gate) -> None:
    result = gate.sh("echo evil > f && git add f && git commit -qm evil && " + hidden(".envrc"))
    assert result.set_aside == below(gate, ".envrc")


def test_stale_files_of_a_checkout_are_the_sandboxs_doing(masked: Gate) -> None:
    workspace = masked.ground.workspace
    write(workspace + "/.vscode/settings.json", "main\n")
    git("-C", workspace, "add", ".")
    git("-C", workspace, "commit", "-qm", "two")
    git("-C", workspace, "checkout", "-qb", "feature")
    write(workspace + "/.vscode/settings.json", "feature\n")
    git("-C", workspace, "commit", "-qam", "three")
    git("-C", workspace, "checkout", "-q", "main")
    result = masked.sh("git checkout -q feature")
    assert result.exit_code == 0
    assert result.attribution is not None
    assert (result.attribution.primary, result.attribution.origin) == ("environment", "sandbox")
    assert result.denial is not None
    assert result.denial.path == below(masked, ".vscode/settings.json")[0]
    assert read(workspace + "/.vscode/settings.json") == "main\n"


# ------------------------------------------------------------------ the way through


def test_an_approved_command_that_names_a_protected_file_may_write_it(gate: Gate) -> None:
    workspace = gate.ground.workspace
    write(workspace + "/.envrc", "old\n")
    result = gate.sh("echo new > .envrc; echo x > .mcp.json")
    assert result.exit_code == 0
    assert (read(workspace + "/.envrc"), read(workspace + "/.mcp.json")) == ("new\n", "x\n")
    assert result.set_aside == ()
    assert any("approval" in notice for notice in result.notices)


def test_only_the_names_in_the_approved_command_are_opened(masked: Gate) -> None:
    workspace = masked.ground.workspace
    write(workspace + "/.mcp.json", "kept\n")
    result = masked.sh("echo new > .envrc; " + hidden(".mcp.json"))
    assert read(workspace + "/.mcp.json") == "kept\n"
    assert result.exit_code != 0


def test_keys_that_run_a_program_are_set_back_after_an_approved_write(gate: Gate) -> None:
    workspace = gate.ground.workspace
    git("-C", workspace, "config", "core.hooksPath", "/dev/null")
    command = (
        "printf '[remote \"o\"]\\n\\turl = u\\n[core]\\n\\tfsmonitor = touch x\\n\\thooksPath = evil\\n' "
        ">> .git/config; printf '[alias]\\n\\tx = !touch x\\n' >> .git/config"
    )
    result = gate.sh(command)
    assert result.exit_code == 0, result.stderr
    assert git("-C", workspace, "config", "remote.o.url") == "u\n"
    assert git("-C", workspace, "config", "--get-all", "core.hooksPath") == "/dev/null\n"
    config = read(workspace + "/.git/config")
    assert "fsmonitor" not in config
    assert "!touch" not in config
    (notice,) = [notice for notice in result.notices if "set back" in notice]
    assert "core.fsmonitor, core.hookspath, alias.x" in notice


def test_without_an_approval_nothing_is_opened(masked: Gate) -> None:
    """A profile that asks nobody opens nothing either."""
    write(masked.ground.workspace + "/.envrc", "kept\n")
    result = masked.sh("echo new > .envrc", approve="none", profile="farm")
    assert result.exit_code != 0
    assert read(masked.ground.workspace + "/.envrc") == "kept\n"


def test_git_commands_that_write_configuration_work_once_approved(gate: Gate) -> None:
    """The verdict names `.git/config`, so exactly this run may write it."""
    workspace = gate.ground.workspace
    result = gate.sh("git remote add o https://h/x && git config user.name somebody")
    assert result.exit_code == 0, result.stderr
    assert git("-C", workspace, "config", "remote.o.url") == "https://h/x\n"
    assert git("-C", workspace, "config", "user.name") == "somebody\n"
    assert result.set_aside == ()


def test_git_in_a_folder_below_writes_the_configuration_above(gate: Gate) -> None:
    os.mkdir(gate.ground.workspace + "/sub")
    result = gate.sh("cd sub && git branch -m main other && git config a.b c")
    assert result.exit_code == 0, result.stderr
    assert git("-C", gate.ground.workspace, "config", "a.b") == "c\n"
    assert git("-C", gate.ground.workspace, "branch", "--show-current") == "other\n"


def test_a_program_that_an_approved_git_config_names_is_set_back(gate: Gate) -> None:
    """What the approver saw was a setting; what runs a program later needs a person's own hand."""
    workspace = gate.ground.workspace
    result = gate.sh(
        "git remote add o u; git config core.hooksPath evil; git config alias.x '!touch y'"
    )
    assert result.exit_code == 0, result.stderr
    config = read(workspace + "/.git/config")
    assert "url = u" in config
    assert "evil" not in config
    assert "touch" not in config
    assert any("core.hookspath" in notice and "alias.x" in notice for notice in result.notices)


def test_git_commands_that_write_configuration_fail_in_other_runs(masked: Gate) -> None:
    before = read(masked.ground.workspace + "/.git/config")
    result = masked.sh(hidden_text("git remote add o u"))
    assert result.exit_code != 0
    assert read(masked.ground.workspace + "/.git/config") == before


def hidden_text(text: str) -> str:
    """The same by a name that the verdict cannot see."""
    return f"x=git; $x {text.removeprefix('git ')}"


# ------------------------------------------------------------------ links


def test_a_second_name_of_a_protected_or_written_file_is_named_in_the_gaps(gate: Gate) -> None:
    workspace = gate.ground.workspace
    write(workspace + "/.envrc", "kept\n")
    os.link(workspace + "/.envrc", workspace + "/other")
    os.link(workspace + "/file", workspace + "/second")
    result: Result = gate.sh("echo x >> file")
    gaps = [gap for gap in result.tier.gaps if "hard links" in gap]
    assert [gap.split()[0] for gap in gaps] == list(below(gate, ".envrc", "file"))
