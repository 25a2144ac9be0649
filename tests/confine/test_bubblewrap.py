"""bwrap's whole argument list, where bwrap may come from, and what must not reach it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from sandboxd.confine import bubblewrap
from sandboxd.confine.bubblewrap import ARGS_FD, SECCOMP_FD, STATUS_FD, Bubblewrap
from sandboxd.errors import TierUnavailable
from sandboxd.model import (
    EgressRules,
    Invocation,
    LaunchPlan,
    NetworkMode,
    NetworkSetup,
    Policy,
)
from sandboxd.spawn.launcher import LaunchFailed
from tests.confined import (
    ATTEMPT,
    BENEATH,
    Ground,
    make_ground,
    plan_for,
    python_in,
    read,
    run_in,
    run_plan,
    with_launcher,
    write,
)

EXISTING = {
    "/home/me/.ssh": True,
    "/home/me/.netrc": False,
    "/home/me/work/.git": True,
    "/home/me/work/.git/hooks": True,
    "/home/me/work/.git/config": False,
    "/home/me/work/.env": False,
}
POLICY = Policy(
    profile="default",
    workspace="/home/me/work",
    writable=("/home/me/work", "/state/tmp", "/home/me/repo/.git"),
    denied=("/home/me/.ssh", "/home/me/.netrc", "/home/me/.aws", "/home/me/work/.env", "/tmp/.X"),
    protected=(
        "/home/me/work/.git/hooks",
        "/home/me/work/.git/config",
        "/home/me/work/.envrc",
        "/home/me/work/.link",
    ),
    pinned=("/home/me/work/.git", "/home/me/work/sub/.git"),
    private_tmp="/state/tmp",
    visible=("/tmp/venv", "/home/me/work"),
    network=NetworkMode.OFF,
)
INVOCATION = Invocation(
    program="/usr/bin/make",
    argv=("make", "-j2"),
    environment={"PATH": "/usr/bin", "LD_PRELOAD": "evil.so"},
    cwd="/home/me/work/sub",
)

OPTIONS = """
--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-net
--die-with-parent --as-pid-1 --cap-drop ALL --json-status-fd 5 --seccomp 4
--ro-bind / /
--proc /proc
--dev /dev --tmpfs /dev/shm --remount-ro /dev
--perms 0000 --tmpfs /home/me/.ssh --remount-ro /home/me/.ssh
--ro-bind /dev/null /home/me/.netrc
--ro-bind /dev/null /home/me/work/.env
--bind /state/tmp /tmp
--bind /home/me/repo/.git /home/me/repo/.git
--bind /home/me/work /home/me/work
--ro-bind-try /tmp/venv /tmp/venv
--bind /home/me/work/.git /home/me/work/.git
--ro-bind /home/me/work/.git/hooks /home/me/work/.git/hooks
--ro-bind /home/me/work/.git/config /home/me/work/.git/config
--ro-bind /dev/null /home/me/work/.env
"""
STARTED = """
--clearenv --setenv PATH /usr/bin --setenv LD_PRELOAD evil.so
--chdir /home/me/work/sub
"""


def looking(path: str) -> tuple[str, bool] | None:
    if path == "/home/me/work/.link":
        return "/etc/elsewhere", False
    return (path, EXISTING[path]) if path in EXISTING else None


def tier(**changes: Any) -> Bubblewrap:
    return Bubblewrap("/usr/bin/bwrap", 1000, 1000, looking=looking, **changes)


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


def test_the_whole_argument_list_in_its_order() -> None:
    assert tier().options(POLICY) == OPTIONS.split()


def test_beneath_bwrap_it_is_told_of_the_program_too() -> None:
    words = OPTIONS.replace("--as-pid-1", "--new-session").split()
    assert tier().options(POLICY, INVOCATION) == [*words, *STARTED.split()]
    on_pty = msgspec.structs.replace(INVOCATION, has_terminal=True)
    words.remove("--new-session")
    assert tier().options(POLICY, on_pty) == [*words, *STARTED.split()]


def test_what_only_uid_0_could_write_below_proc_is_read_only_for_uid_0() -> None:
    rooted = Bubblewrap("/usr/bin/bwrap", 0, 0, looking=looking).options(POLICY)
    added = [word for word in rooted if word.startswith("/proc/")]
    names = ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "mtrr", "scsi", "latency_stats"]
    assert added == [f"/proc/{name}" for name in names for _ in range(2)]
    owned = msgspec.structs.replace(POLICY, owner=(1000, 1000))
    root = Bubblewrap("/usr/bin/bwrap", 0, 0, looking=lambda path: None)
    assert not [word for word in root.options(owned) if word.startswith("/proc/")]


def test_joined_bwrap_starts_a_shell_that_waits_and_the_program_is_ours_to_start() -> None:
    plan = tier(landlock_abi=6).plan(INVOCATION, POLICY)
    assert (plan.program, plan.argv) == (INVOCATION.program, INVOCATION.argv)
    assert plan.environment == INVOCATION.environment
    assert (plan.passed, plan.status_fd, plan.namespaces) == ({}, None, ())
    maker = plan.maker
    assert maker is not None
    assert maker.program == "/usr/bin/bwrap"
    assert maker.argv[:4] == ("bwrap", "--args", "3", "--")
    assert maker.argv[4:] == bubblewrap.PID_1
    assert set(maker.passed) == {ARGS_FD, SECCOMP_FD, STATUS_FD}
    assert maker.passed[ARGS_FD].decode().split("\0") == [*tier().options(POLICY), ""]
    assert maker.roots == (
        ("/tmp", "/state/tmp"),
        ("/home/me/work", "/home/me/work"),
        ("/home/me/repo/.git", "/home/me/repo/.git"),
    )
    assert plan.landlock is not None
    assert {step.kind for step in plan.mounts} == {"pin", "readonly", "blank"}
    assert plan.connect_roots == ("/home/me/work", "/home/me/repo/.git", "/tmp")


def test_beneath_bwrap_gets_no_environment_and_its_options_by_descriptor() -> None:
    plan = tier(joins=False, landlock_abi=6).plan(INVOCATION, POLICY)
    assert (plan.program, plan.argv) == (
        "/usr/bin/bwrap",
        ("bwrap", "--args", "3", "--", "/usr/bin/make", "-j2"),
    )
    assert plan.environment == {}
    assert set(plan.passed) == {ARGS_FD, SECCOMP_FD, STATUS_FD}
    options = plan.passed[ARGS_FD].decode().split("\0")
    assert options == [*tier().options(POLICY, INVOCATION), ""]
    assert len(plan.passed[SECCOMP_FD]) % 8 == 0
    assert plan.status_fd == STATUS_FD
    assert (plan.namespaces, plan.mounts, plan.landlock, plan.seccomp) == ((), (), None, None)
    assert any("Ctrl-C" in gap for gap in plan.tier.gaps)
    assert not any("Ctrl-C" in gap for gap in tier().plan(INVOCATION, POLICY).tier.gaps)


def test_without_a_proc_of_its_own_only_that_is_left_out() -> None:
    fuller, lesser = (tier(has_own_proc=own).options(POLICY) for own in (True, False))
    begin, end = fuller.index("--proc"), fuller.index("--dev")
    assert lesser == fuller[:begin] + fuller[end:]


def test_with_the_hosts_network_none_is_unshared() -> None:
    policy = msgspec.structs.replace(POLICY, network=NetworkMode.HOST)
    assert "--unshare-net" not in tier().options(policy)


def with_resolver(path: str) -> tuple[str, bool] | None:
    return ("/run/stub", False) if path == "/etc/resolv.conf" else looking(path)


def relayed(joins: bool) -> tuple[list[str], LaunchPlan]:
    """What bwrap is told when the run's network is relayed, and the plan."""
    made = Bubblewrap(
        "/usr/bin/bwrap", 1000, 1000, joins=joins, has_ipv6=True, looking=with_resolver
    )
    policy = msgspec.structs.replace(POLICY, network=NetworkMode.OPEN)
    words = made.options(policy, None if joins else INVOCATION)
    place = words.index("--ro-bind-data")
    assert words[place - 2 : place + 3] == ["--perms", "0444", "--ro-bind-data", "6", "/run/stub"]
    plan = made.plan(INVOCATION, policy)
    assert any("network open, by the daemon's relay" in held for held in plan.tier.enforces)
    return words, plan


def test_joined_the_network_that_bwrap_makes_is_relayed() -> None:
    words, plan = relayed(joins=True)
    assert "--unshare-net" in words
    assert plan.maker is not None
    assert plan.maker.passed[6].startswith(b"nameserver 127.0.0.1\n")
    assert plan.namespaces == ()
    assert plan.network is not None
    assert (plan.network.carries, bool(plan.network.unreachable)) == ("everything", True)


def test_beneath_bwrap_the_relayed_network_is_made_above_it() -> None:
    words, plan = relayed(joins=False)
    assert "--unshare-net" not in words
    assert plan.passed[6].startswith(b"nameserver 127.0.0.1\n")
    assert plan.namespaces == ("user", "net")
    assert (plan.inside_ids, plan.outside_ids) == ((1000, 1000), (1000, 1000))
    assert plan.network == NetworkSetup(carries="everything", has_ipv6_source=True)


def test_beneath_publishing_without_a_network_makes_a_loopback_above_bwrap() -> None:
    policy = msgspec.structs.replace(POLICY, egress=EgressRules(publish=(3000,)))
    plan = tier(joins=False).plan(INVOCATION, policy)
    assert plan.network == NetworkSetup(carries="nothing", publish_pool=32)
    assert "--unshare-net" not in tier().options(policy, INVOCATION)


def test_a_bwrap_that_a_run_could_replace_is_refused() -> None:
    mine = Bubblewrap("/home/me/work/bin/bwrap", 1000, 1000, looking=looking)
    with pytest.raises(TierUnavailable) as caught:
        mine.plan(INVOCATION, POLICY)
    assert caught.value.path == "/home/me/work/bin/bwrap"


def test_only_a_program_that_root_alone_can_write_is_found(ground: Ground) -> None:
    planted, system = ground.top + "/bwrap", "/usr/bin/env"
    write(planted, "#!/bin/sh\n")
    os.chmod(planted, 0o777)
    assert bubblewrap.find((ground.top + "/none", planted)) is None
    assert bubblewrap.find((planted, system)) == os.path.realpath(system)


def test_path_is_not_asked(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    write(ground.top + "/bin/bwrap", "#!/bin/sh\n")
    os.chmod(ground.top + "/bin/bwrap", 0o755)
    monkeypatch.setenv("PATH", ground.top + "/bin")
    assert bubblewrap.find() in (None, *map(os.path.realpath, bubblewrap.PLACES))


# ------------------------------------------------------------------ really run


def test_a_library_named_in_the_runs_environment_is_not_loaded_outside(ground: Ground) -> None:
    """LD_PRELOAD in bwrap itself would run the run's code before anything holds."""
    source, library = ground.workspace + "/evil.c", ground.workspace + "/evil.so"
    write(
        source,
        "#include <fcntl.h>\n__attribute__((constructor)) static void f(void)"
        f'{{ open("{ground.outside}/planted", O_CREAT | O_WRONLY, 0644); }}\n',
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    ended, output = run_in("bubblewrap", ground, ["/bin/true"], LD_PRELOAD=library)
    assert (ended.code, output) == (0, "")
    assert os.listdir(ground.outside) == ["file"]


def test_the_runs_environment_is_not_in_any_command_line(ground: Ground) -> None:
    code = "print(open('/proc/1/cmdline').read())"
    assert "hush" not in python_in("bubblewrap", ground, code, KEY="hush")


def test_options_that_the_command_brings_are_not_bwraps(ground: Ground) -> None:
    ended, output = run_in("bubblewrap", ground, ["/bin/echo", "--bind", "/", "/"])
    assert (ended.code, output) == (0, "--bind / /\n")


@pytest.mark.parametrize(
    ("form", "stage"), [("bubblewrap", "workspace"), (BENEATH, "mount.helper")]
)
def test_a_set_up_that_cannot_be_made_is_no_exit_code_of_the_program(
    form: str, stage: str, ground: Ground
) -> None:
    policy = msgspec.structs.replace(ground.policy(), private_tmp=ground.top + "/gone")
    with pytest.raises(LaunchFailed) as caught:
        run_in(form, ground, ["/bin/true"], policy)
    assert caught.value.stage == stage


def test_the_words_of_bwrap_are_the_cause_of_a_failed_launch(ground: Ground) -> None:
    policy = msgspec.structs.replace(ground.policy(), visible=("/tmp/x\ny",))
    plan = plan_for("bubblewrap", ground, ["/bin/true"], policy)
    assert plan.maker is not None
    passed = {**plan.maker.passed, ARGS_FD: b"--no-such-option\0"}
    broken = msgspec.structs.replace(plan, maker=msgspec.structs.replace(plan.maker, passed=passed))
    with pytest.raises(LaunchFailed, match="Unknown option --no-such-option"):
        with_launcher(lambda launcher: run_plan(launcher, broken))


def test_a_workspace_swapped_for_a_link_at_launch_ends_the_launch(ground: Ground) -> None:
    """bwrap binds by name: what lies in the view is compared with what was opened before."""
    plan = plan_for("bubblewrap", ground, ["/bin/sh", "-c", "echo x > planted"])
    assert plan.maker is not None
    options = plan.maker.passed[ARGS_FD].split(b"\0")
    for at, word in enumerate(options):
        if word == b"--bind" and options[at + 1] == ground.workspace.encode():
            options[at + 1] = ground.outside.encode()  # what a swap in between comes to
    maker = msgspec.structs.replace(
        plan.maker, passed={**plan.maker.passed, ARGS_FD: b"\0".join(options)}
    )
    with pytest.raises(LaunchFailed) as caught:
        with_launcher(
            lambda launcher: run_plan(launcher, msgspec.structs.replace(plan, maker=maker))
        )
    assert caught.value.stage == "workspace"
    assert os.listdir(ground.outside) == ["file"]


def test_what_a_run_does_to_pid_1_does_not_end_it_and_orphans_are_reaped(ground: Ground) -> None:
    script = (
        "for n in HUP INT QUIT TERM CHLD STOP KILL; do kill -$n 1; done 2>/dev/null;"
        "for n in 1 2 3; do (sh -c 'sleep 0.01 & exit' &); done; sleep 0.3;"
        "ps -A -o stat,comm | grep -c '^Z'; echo still here"
    )
    ended, output = run_in("bubblewrap", ground, ["/bin/bash", "-c", script])
    assert (ended.code, output) == (0, "0\nstill here\n")


def test_pid_1_gives_a_run_nothing(ground: Ground) -> None:
    """It holds no secret, no capability, and the filter is on it too."""
    code = ATTEMPT + (
        "status = open('/proc/1/status').read()\n"
        "print('Seccomp:\\t2' in status, 'CapEff:\\t0000000000000000' in status)\n"
        "print(attempt(lambda: open('/proc/1/environ').read() and None))\n"
        "print(attempt(lambda: open('/proc/1/mem', 'r+b')))"
    )
    filtered, environment, memory = python_in("bubblewrap", ground, code).split("\n")
    assert filtered == "True True"
    assert environment in ("ALLOWED", "EACCES")
    assert memory == "EACCES"


def test_root_runs_as_the_owner_of_the_workspace_whatever_its_own_home_hides(
    ground: Ground,
) -> None:
    """A denied name below a home that the owner cannot enter: bwrap could not cover it either."""
    os.chmod(ground.home, 0o700)
    if os.getuid() == 0:
        os.chmod(ground.top, 0o755)
        for folder in (ground.workspace, ground.tmp):
            os.chown(folder, 65534, 65534)
    script = (
        'id -u; echo x > mine && echo wrote; cat "$0/.ssh/id_rsa" || cat "$0/.netrc" || echo kept'
    )
    _, output = run_in("bubblewrap", ground, ["/bin/sh", "-c", script, ground.home])
    owner = 65534 if os.getuid() == 0 else os.getuid()
    said = [line for line in output.splitlines() if "cat:" not in line]
    assert said == [str(owner), "wrote", "kept"]
    assert os.stat(ground.workspace + "/mine").st_uid == owner


@pytest.mark.parametrize(
    ("mode", "ids", "reaches"),
    [
        (0o700, (1, 1), False),
        (0o710, (1, 1), True),  # perhaps by its group or an access list: bwrap will see
        (0o711, (1, 1), True),
        (0o077, None, False),
        (0o100, None, True),
    ],
)
def test_who_surely_cannot_reach_a_folder(
    mode: int, ids: tuple[int, int] | None, reaches: bool, ground: Ground
) -> None:
    os.chmod(ground.top, 0o755)
    os.chmod(ground.home, mode)
    own = (os.getuid(), os.getgid())
    try:
        assert bubblewrap.may_reach(ground.home + "/.ssh", ids or own) == reaches
    finally:
        os.chmod(ground.home, 0o700)


PROTECTED = {
    "append_hook": "put('.git/hooks/pre-commit')",
    "new_hook": "put('.git/hooks/post-checkout')",
    "git_config": "put('.git/config')",
    "replace_config": "(put('c'), os.rename('c', '.git/config'))",
    "move_hooks": "os.rename('.git/hooks', 'elsewhere')",
    "move_git": "os.rename('.git', 'elsewhere')",
    "envrc": "put('.envrc')",
}


@pytest.mark.parametrize("attack", PROTECTED)
def test_protected_names_stay_as_they_are(attack: str, ground: Ground) -> None:
    subprocess.run(["git", "init", "-q", ground.workspace], check=True)
    write(ground.workspace + "/.envrc", "kept\n")
    write(ground.workspace + "/.git/hooks/pre-commit", "#!/bin/sh\n")
    config = read(ground.workspace + "/.git/config")
    code = ATTEMPT + f"print(attempt(lambda: {PROTECTED[attack]}))"
    assert python_in("bubblewrap", ground, code) in ("EROFS", "EBUSY", "EXDEV")
    assert read(ground.workspace + "/.git/config") == config
    assert read(ground.workspace + "/.envrc") == "kept\n"
    assert read(ground.workspace + "/.git/hooks/pre-commit") == "#!/bin/sh\n"


KERNELS_OWN = ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/dev/kmsg", "/dev/vda")


@pytest.mark.parametrize("path", KERNELS_OWN)
def test_the_kernels_own_files_do_not_open_for_writing(path: str, ground: Ground) -> None:
    code = ATTEMPT + f"print(attempt(lambda: os.open({path!r}, os.O_WRONLY)))"
    assert python_in("bubblewrap", ground, code) in ("EROFS", "EACCES", "ENOENT", "EPERM")


def test_nothing_can_be_added_to_dev_and_shm_is_the_runs_own(ground: Ground) -> None:
    code = ATTEMPT + "print(attempt(lambda: put('/dev/new')), attempt(lambda: put('/dev/shm/new')))"
    assert python_in("bubblewrap", ground, code) == "EROFS ALLOWED"
    assert not os.path.exists("/dev/shm/new")
