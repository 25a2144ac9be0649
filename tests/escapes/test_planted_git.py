"""Ways to make a person's plain `git status`, outside, run code that a run has planted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.confined import read
from tests.guarded import HOST_GIT, TIERS, Channel, Gate, below, committed, git, make_gate, until


@pytest.fixture(params=TIERS)
def gate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A workspace that is a git checkout with one commit."""
    for made in make_gate(request.param, monkeypatch):
        committed(made.ground.workspace)
        yield made


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """The same, in the tier that covers protected names by mounts."""
    for made in make_gate("namespaces", monkeypatch):
        committed(made.ground.workspace)
        yield made


EVIL = "[core]\n\trepositoryformatversion = 0\n\tbare = {bare}\n\tfsmonitor = \"touch '{mark}'; false\"\n"
MAKE_EVIL = """
import subprocess
def evil(folder, bare=False, more=''):
    for name in ('objects', 'refs'):
        os.makedirs(folder + '/' + name, exist_ok=True)
    with open(folder + '/HEAD', 'w') as file:
        file.write('ref: refs/heads/main' + chr(10))
    with open(folder + '/config', 'w') as file:
        file.write(CONFIG.replace('BARE', 'true' if bare else 'false') + more)
"""


def evil_code(gate: Gate) -> str:
    config = EVIL.format(bare="BARE", mark=mark(gate))
    tree = f"\tworktree = {gate.ground.workspace}\n"
    return f"CONFIG, TREE = {config!r}, {tree!r}\n{MAKE_EVIL}"


def mark(gate: Gate) -> str:
    """A file that exists once planted code has run on the host."""
    return gate.ground.top + "/planted-code-ran"


def status(folder: str) -> None:
    """A person's plain `git status`, whatever it says."""
    subprocess.run(["git", "-C", folder, "status"], env=HOST_GIT, capture_output=True, check=False)


COMMONDIR = "evil('evil'); put_text('.git/commondir', '../evil' + chr(10))"
DRESSED = "evil('.', more=TREE); os.rename('.git/HEAD', '.git/no') if os.path.exists('.git/HEAD') else None"
UNREADABLE = "evil('.', more=TREE); os.chmod('.git/objects', 0)"
PUT_TEXT = """
def put_text(path, text):
    with open(path, 'w') as file:
        file.write(text)
"""
PLANTS = {"commondir": COMMONDIR, "head_moved_away": DRESSED, "objects_made_unusable": UNREADABLE}


@pytest.mark.parametrize("plant", ["commondir", "head_moved_away"])
def test_the_plants_below_really_run_code_where_nothing_guards(plant: str, gate: Gate) -> None:
    """What the next test forbids is possible; else that test would show nothing."""
    code = "import os\n" + evil_code(gate) + PUT_TEXT + PLANTS[plant]
    subprocess.run(["python3", "-c", code], cwd=gate.ground.workspace, check=True)
    status(gate.ground.workspace)
    assert os.path.exists(mark(gate))


@pytest.mark.parametrize("plant", PLANTS)
def test_plain_git_status_outside_runs_nothing_planted(plant: str, gate: Gate) -> None:
    workspace = gate.ground.workspace

    async def work(channel: Channel) -> None:
        assert await channel.line(0) == "planted"
        names = (workspace + "/.git/commondir", workspace + "/HEAD")
        await until(lambda: not any(map(os.path.lexists, names)), "the plant is set aside")
        status(workspace)
        assert not os.path.exists(mark(gate))

    code = evil_code(gate) + PUT_TEXT + PLANTS[plant] + "\nsay('planted')\nsys.stdin.read()"
    result = gate.talk(code, work)
    status(workspace)
    assert not os.path.exists(mark(gate))
    assert result.set_aside != ()
    if plant == "head_moved_away":
        assert git("-C", workspace, "log", "--format=%s") == "one\n"


def test_a_whole_repository_exchanged_for_another_runs_nothing(gate: Gate) -> None:
    """Possible only where no mount holds `.git` in place."""
    code = (
        evil_code(gate)
        + "evil('other')\nsay(attempt(lambda: (os.rename('.git', 'old'), os.rename('other', '.git'))))"
    )
    result = gate.python(code)
    status(gate.ground.workspace)
    assert not os.path.exists(mark(gate))
    if gate.tier == "landlock":
        assert any("another repository" in notice for notice in result.notices)


def linked_worktree(gate: Gate) -> str:
    """The workspace becomes a linked worktree of a repository outside; that repository."""
    main = gate.ground.outside + "/main"
    committed(main)
    subprocess.run(["rm", "-rf", gate.ground.workspace], check=True)
    git("-C", main, "worktree", "add", "-q", gate.ground.workspace)
    return main


def test_the_git_file_of_a_worktree_cannot_be_pointed_elsewhere(gate: Gate) -> None:
    linked_worktree(gate)
    before = read(gate.ground.workspace + "/.git")
    code = evil_code(gate) + PUT_TEXT + "evil('evil')\n"
    code += "say(attempt(lambda: put_text('.git', 'gitdir: evil' + chr(10))))"
    gate.python(code)
    assert read(gate.ground.workspace + "/.git") == before
    status(gate.ground.workspace)
    assert not os.path.exists(mark(gate))


@pytest.mark.parametrize("how", ["rewrite", "replace_the_entry"])
def test_the_commondir_of_a_worktree_entry_cannot_be_pointed_elsewhere(
    how: str, gate: Gate
) -> None:
    main = linked_worktree(gate)
    entry = main + "/.git/worktrees/workspace"
    before = read(entry + "/commondir")
    evil = gate.ground.workspace + "/evil"
    rewrite = f"put_text({entry + '/commondir'!r}, {evil!r})"
    replace = f"(os.rename({entry!r}, {entry + '-old'!r}), shutil.copytree({entry + '-old'!r}, {entry!r}), {rewrite})"
    code = "import shutil\n" + evil_code(gate) + PUT_TEXT + "evil('evil')\n"
    code += f"say(attempt(lambda: {rewrite if how == 'rewrite' else replace}))"
    gate.python(code)
    status(gate.ground.workspace)
    assert not os.path.exists(mark(gate))
    assert read(entry + "/commondir") == before


def test_a_worktree_still_commits(gate: Gate) -> None:
    linked_worktree(gate)
    result = gate.sh("echo x > new && git add new && git commit -qm two && git branch b")
    assert (result.exit_code, result.set_aside) == (0, ())


def test_a_repository_without_working_tree_in_a_subfolder_is_reported(gate: Gate) -> None:
    os.mkdir(gate.ground.workspace + "/docs")
    result = gate.python(evil_code(gate) + "evil('docs', bare=True)")
    (notice,) = result.notices
    assert notice.startswith(below(gate, "docs")[0])
    assert "safe.bareRepository" in notice


def test_the_git_folders_of_a_submodule_are_protected_too(masked: Gate) -> None:
    workspace, library = masked.ground.workspace, masked.ground.outside + "/library"
    committed(library)
    git(
        "-C",
        workspace,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        library,
        "lib",
    )
    code = "\n".join(
        f"say(attempt(lambda: {attack}))"
        for attack in (
            "put('lib/.git')",
            "os.rename('lib', 'elsewhere')",
            "put('.git/modules/lib/config')",
            "put('.git/modules/lib/hooks/post-checkout')",
            "os.rename('.git/modules/lib', 'elsewhere')",
            "os.rename('.git/modules', 'elsewhere')",
        )
    )
    result = masked.python(code)
    assert result.stdout is not None
    assert set(result.stdout.text.split()) <= {"EROFS", "EBUSY", "EXDEV"}
    done = masked.sh(
        "cd lib && echo x > new && git add new && git commit -qm two && git submodule status"
    )
    assert (done.exit_code, done.set_aside) == (0, ())
