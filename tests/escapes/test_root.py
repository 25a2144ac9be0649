"""As root: a run is worth no more than the owner of its workspace.

These facts exist only for a root daemon; run as another user the same promises are kept by the
kernel, and the tests say so by checking that user instead.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator

import pytest

from tests.confined import ATTEMPT, REQUIRED_TIERS, Ground, make_ground, run_in, write

KERNEL = [name for name in REQUIRED_TIERS if name != "containment"]
STRANGER = 65534 if os.getuid() == 0 else os.getuid()


@pytest.fixture
def ground() -> Iterator[Ground]:
    """The workspace and the run's folder belong to another user when we are root."""
    for made in make_ground():
        os.chmod(made.top, 0o755)
        if os.getuid() == 0:
            write(made.outside + "/roots", "root's own\n")
            os.chmod(made.outside + "/roots", 0o600)
            for folder in (made.workspace, made.tmp):
                os.chown(folder, STRANGER, STRANGER)
        yield made


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_what_a_run_makes_belongs_to_the_owner_of_the_workspace(tier: str, ground: Ground) -> None:
    ended, output = run_in(
        tier, ground, ["/bin/sh", "-c", "echo x > made && mkdir folder && cat made"]
    )
    assert (ended.code, output) == (0, "x\n")
    assert os.stat(ground.workspace + "/made").st_uid == STRANGER
    assert os.stat(ground.workspace + "/folder").st_uid == STRANGER


@pytest.mark.parametrize("tier", KERNEL)
def test_what_only_root_may_read_stays_shut(tier: str, ground: Ground) -> None:
    code = (
        ATTEMPT
        + f"print(attempt(lambda: open('/etc/shadow')), attempt(lambda: open({ground.outside + '/roots'!r})))"
    )
    # The interpreter of the tests may lie in root's own home, which is shut as well.
    ended, output = run_in(tier, ground, ["/usr/bin/python3", "-I", "-c", code])
    assert ended.code == 0, output
    assert set(output.split()) <= {"EACCES", "EPERM", "ENOENT"}


@pytest.mark.parametrize("tier", KERNEL)
def test_git_finds_its_own_repository(tier: str, ground: Ground) -> None:
    script = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git status --short"
    ended, output = run_in(tier, ground, ["/bin/sh", "-c", script])
    assert (ended.code, output) == (0, ""), output


@pytest.mark.parametrize("tier", KERNEL)
def test_no_setuid_file_is_left_for_later(tier: str, ground: Ground) -> None:
    script = "cp /bin/true t; chmod u+s t; chmod 4755 t; install -m 4755 /bin/true i; cp -p /usr/bin/passwd p; true"
    run_in(tier, ground, ["/bin/sh", "-c", script])
    for name in os.listdir(ground.workspace):
        mode = os.stat(f"{ground.workspace}/{name}").st_mode
        assert not mode & (stat.S_ISUID | stat.S_ISGID), (name, oct(mode))


@pytest.mark.parametrize("tier", KERNEL)
def test_no_extra_groups_come_along(tier: str, ground: Ground) -> None:
    if os.getuid() != 0:
        groups = subprocess.check_output(["id", "-G"], text=True)
        assert run_in(tier, ground, ["/usr/bin/id", "-G"])[1] == groups
        return
    before = os.getgroups()
    os.setgroups([0, 4, 6, 27])
    try:
        _, output = run_in(tier, ground, ["/bin/sh", "-c", "grep Groups /proc/self/status"])
    finally:
        os.setgroups(before)
    assert output.split(":")[1].split() in ([], ["65534"], ["0"])
