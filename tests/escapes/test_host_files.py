"""Ways to change what runs later, outside: through the kernel's files, devices, git, links."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.confined import ATTEMPT, VIEWED, Ground, make_ground, python_in, read, run_in, write


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


@pytest.fixture
def checkout(ground: Ground) -> Ground:
    """The workspace as a git checkout with every kind of protected name present."""
    git("init", "-q", ground.workspace)
    for name in (
        ".envrc",
        ".gitmodules",
        ".mcp.json",
        ".vscode/tasks.json",
        ".claude/settings.json",
    ):
        write(os.path.join(ground.workspace, name), "kept\n")
    write(ground.workspace + "/.git/hooks/pre-commit", "#!/bin/sh\n")
    return ground


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


DEVICES_AND_KERNEL = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sysrq-trigger",
    "/dev/kmsg",
    "/dev/mem",
    "/dev/kvm",
    "/dev/fuse",
    "/dev/net/tun",
    "/dev/vda",
    "/dev/sda",
    "/sys/kernel/uevent_helper",
    "/sys/fs/cgroup/cgroup.procs",
]


@pytest.mark.parametrize("path", DEVICES_AND_KERNEL)
def test_the_kernels_own_files_and_devices_do_not_open(path: str, ground: Ground) -> None:
    code = ATTEMPT + f"print(attempt(lambda: os.open({path!r}, os.O_WRONLY)))"
    assert python_in("namespaces", ground, code) in ("EROFS", "EACCES", "ENOENT", "EPERM", "ENXIO")


@pytest.mark.parametrize("tier", VIEWED)
def test_the_terminals_of_the_host_are_not_there(tier: str, ground: Ground) -> None:
    master, slave = os.openpty()
    try:
        name = os.ttyname(slave)
        code = (
            ATTEMPT
            + f"print(attempt(lambda: os.open({name!r}, os.O_RDWR)), os.listdir('/dev/pts'))"
        )
        assert python_in(tier, ground, code) == "ENOENT ['ptmx']"
    finally:
        os.close(master)
        os.close(slave)


PROTECTED = {
    "append_hook": "put('.git/hooks/pre-commit')",
    "new_hook": "put('.git/hooks/post-checkout')",
    "git_config": "put('.git/config')",
    "replace_config": "(put('c'), os.rename('c', '.git/config'))",
    "unlink_config": "os.unlink('.git/config')",
    "move_hooks": "os.rename('.git/hooks', 'elsewhere')",
    "move_git": "os.rename('.git', 'elsewhere')",
    "envrc": "put('.envrc')",
    "replace_envrc": "(put('e'), os.rename('e', '.envrc'))",
    "gitmodules": "put('.gitmodules')",
    "editor_task": "put('.vscode/tasks.json')",
    "new_editor_file": "put('.vscode/new.json')",
    "agent_settings": "put('.claude/settings.json')",
    "mcp": "os.unlink('.mcp.json')",
}


@pytest.mark.parametrize("attack", PROTECTED)
def test_protected_names_of_the_workspace_stay_as_they_are(attack: str, checkout: Ground) -> None:
    before = subprocess.check_output(["find", checkout.workspace, "-type", "f", "-path", "*.*"])
    code = ATTEMPT + f"print(attempt(lambda: {PROTECTED[attack]}))"
    assert python_in("namespaces", checkout, code) in ("EROFS", "EBUSY", "EXDEV")
    for name in ("c", "e"):
        if os.path.exists(f"{checkout.workspace}/{name}"):
            os.unlink(f"{checkout.workspace}/{name}")
    assert (
        subprocess.check_output(["find", checkout.workspace, "-type", "f", "-path", "*.*"])
        == before
    )
    assert read(checkout.workspace + "/.envrc") == "kept\n"


def test_committing_works_beside_the_protected_names(checkout: Ground) -> None:
    script = (
        "git config user.name >/dev/null; echo x > f && git add f && "
        "git -c user.name=a -c user.email=a@b commit -qm x && git branch b && git stash list && git gc -q"
    )
    os.unlink(checkout.workspace + "/.git/hooks/pre-commit")
    ended, output = run_in("namespaces", checkout, ["/bin/sh", "-c", script])
    assert ended.code == 0, output
    assert git("-C", checkout.workspace, "log", "--format=%s") == "x\n"


def test_a_linked_worktree_commits_and_cannot_touch_the_common_configuration(
    ground: Ground,
) -> None:
    main = ground.outside + "/main"
    git("init", "-q", main)
    git(
        "-C",
        main,
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-qm",
        "0",
        "--allow-empty",
    )
    os.rmdir(ground.workspace)
    git("-C", main, "worktree", "add", "-q", ground.workspace)
    script = "git -c user.name=a -c user.email=a@b commit -qm x --allow-empty"
    ended, output = run_in("namespaces", ground, ["/bin/sh", "-c", script])
    assert ended.code == 0, output
    code = ATTEMPT + f"M = {main!r}\n"
    for path in ("M + '/.git/config'", "M + '/.git/hooks/post-commit'", "'.git'"):
        code += f"print(attempt(lambda: put({path})))\n"
    assert set(python_in("namespaces", ground, code).split()) == {"EROFS"}


def test_a_planted_git_file_does_not_make_another_folder_writable(ground: Ground) -> None:
    """A `.git` file that points outside counts only when the repository points back."""
    other = ground.outside + "/repository"
    git("init", "-q", other)
    os.makedirs(other + "/.git/worktrees/w")
    write(ground.workspace + "/.git", f"gitdir: {other}/.git/worktrees/w\n")
    assert ground.policy().writable == (ground.workspace, ground.tmp)


def test_a_workspace_swapped_for_a_link_after_planning_is_refused(ground: Ground) -> None:
    from sandboxd.spawn.launcher import LaunchFailed
    from tests.confined import plan_for, run_plan, with_launcher

    async def main(launcher: object) -> str:
        plan = plan_for("namespaces", ground, ["/bin/sh", "-c", "echo planted > hello"])
        os.rename(ground.workspace, ground.top + "/old")
        os.symlink(ground.outside, ground.workspace)
        with pytest.raises(LaunchFailed) as caught:
            await run_plan(launcher, plan)  # type: ignore[arg-type]
        return caught.value.stage

    assert with_launcher(main) == "workspace"  # type: ignore[arg-type]
    assert os.listdir(ground.outside) == ["file"]


@pytest.mark.parametrize("tier", VIEWED)
def test_the_view_cannot_be_remounted_or_uncovered(tier: str, ground: Ground) -> None:
    code = (
        ATTEMPT
        + f"""
print(attempt(lambda: syscall(165, 0, b'/', 0, 4096 | 32, 0)))
print(attempt(lambda: syscall(166, b'/tmp', 2)))
print(attempt(lambda: syscall(166, {ground.home + "/.ssh"!r}.encode(), 2)))
print(attempt(lambda: syscall(442, -100, b'/', 0, (ctypes.c_ulong * 4)(0, 1, 0, 0), 32)))
"""
    )
    assert set(python_in(tier, ground, code).split()) == {"EPERM"}


@pytest.mark.parametrize("tier", VIEWED)
def test_a_link_in_the_workspace_leads_nowhere(tier: str, ground: Ground) -> None:
    os.symlink("/etc/passwd", ground.workspace + "/passwd")
    os.symlink(ground.home + "/.ssh/id_rsa", ground.workspace + "/key")
    code = ATTEMPT + "print(attempt(lambda: put('passwd')), attempt(lambda: open('key').read()))"
    write_answer, read_answer = python_in(tier, ground, code).split()
    assert write_answer in ("EROFS", "EACCES")
    assert read_answer in ("ENOENT", "EACCES")
