"""Running things inside a tier, for tests: a ground outside /tmp with a workspace and a home.

The ground lies below /var/tmp: what lies below /tmp is hidden by the run's private /tmp anyway,
and a test that only sees that would show nothing about the tier.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from sandboxd.confine.bubblewrap import Bubblewrap
from sandboxd.confine.select import mechanisms
from sandboxd.confine.tier import Mechanism
from sandboxd.model import Exit, Invocation, LaunchPlan, Limits, NetworkMode, Policy
from sandboxd.policy import build_policy
from sandboxd.profiles import load_profile
from sandboxd.spawn.launcher import Launcher

T = TypeVar("T")

REQUIRED_TIERS = os.environ.get(
    "SANDBOXD_TEST_TIERS", "namespaces,bubblewrap,landlock,containment"
).split(",")
"""A tier named here and missing on this machine makes tests fail, never skip."""


VIEWED = [tier for tier in REQUIRED_TIERS if tier in ("namespaces", "bubblewrap")]
"""The tiers that give a run a view of its own: what holds by mounts and pids is tried in each."""


@dataclass
class Ground:
    """Folders of one test, all on one file system outside /tmp."""

    top: str

    @property
    def workspace(self) -> str:
        return os.path.join(self.top, "workspace")

    @property
    def home(self) -> str:
        return os.path.join(self.top, "home")

    @property
    def outside(self) -> str:
        return os.path.join(self.top, "outside")

    @property
    def tmp(self) -> str:
        return os.path.join(self.top, "tmp")

    def policy(
        self,
        network: NetworkMode = NetworkMode.HOST,
        profile: str = "default",
        limits: Limits | None = None,
    ) -> Policy:
        made = build_policy(
            load_profile(profile),
            workspace=self.workspace,
            home=self.home,
            private_tmp=self.tmp,
            path=os.environ["PATH"],
            cwd=self.workspace,
            limits=limits,
        )
        return msgspec.structs.replace(made, network=network, redacted=())


def make_ground() -> Iterator[Ground]:
    """A ground with a canary key in the home and a file outside; removed afterwards."""
    top = os.path.realpath(tempfile.mkdtemp(prefix="sbx-", dir="/var/tmp"))
    ground = Ground(top)
    for folder in (
        ground.workspace,
        ground.home,
        ground.outside,
        ground.tmp,
        ground.home + "/.ssh",
    ):
        os.mkdir(folder)
    write(ground.home + "/.ssh/id_rsa", "canary-key\n")
    write(ground.home + "/.netrc", "canary-login\n")
    write(ground.outside + "/file", "outside\n")
    yield ground
    shutil.rmtree(top, ignore_errors=True)


def write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


BENEATH = "bubblewrap beneath"
"""The lesser form of that tier, for a bwrap whose namespaces cannot be entered."""


def mechanism(name: str) -> Mechanism:
    """The rung of this name; an AssertionError when this machine has none."""
    found = [
        rung
        for rung in mechanisms()
        if rung.name == name
        or (name == BENEATH and isinstance(rung, Bubblewrap) and not rung.joins)
    ]
    assert found, f"tier {name} is required here (SANDBOXD_TEST_TIERS) and missing"
    return found[0]


def plan_for(
    tier: str, ground: Ground, argv: list[str], policy: Policy | None = None, **environment: str
) -> LaunchPlan:
    rung = mechanism(tier)
    policy = policy or ground.policy()
    invocation = Invocation(
        program=argv[0],
        argv=tuple(argv),
        environment={
            "PATH": os.environ["PATH"],
            "HOME": ground.home,
            "TMPDIR": rung.temp_path(policy),
            **environment,
        },
        cwd=ground.workspace,
    )
    return rung.plan(invocation, policy)


async def run_plan(launcher: Launcher, plan: LaunchPlan, timeout_s: float = 20) -> tuple[Exit, str]:
    """Run a plan to its end; its output with stderr mixed in."""
    read_end, write_end = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        child = await launcher.launch(plan, (null, write_end, write_end))
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(null)
        os.close(write_end)
    reading = asyncio.ensure_future(asyncio.to_thread(_read_all, read_end))
    try:
        ended = await asyncio.wait_for(child.wait(), timeout_s)
    except TimeoutError:
        child.kill()
        await child.wait()
        raise
    return ended, (await reading).decode(errors="replace")


def _read_all(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        return file.read()


def with_launcher(work: Callable[[Launcher], asyncio.Future[T]], *, keeps_spare: bool = False) -> T:
    """Run an async function with a launcher of its own."""

    async def main() -> T:
        launcher = Launcher(keeps_spare=keeps_spare)
        launcher.start()
        try:
            return await work(launcher)
        finally:
            await launcher.close()

    return asyncio.run(main())


def run_in(
    tier: str, ground: Ground, argv: list[str], policy: Policy | None = None, **environment: str
) -> tuple[Exit, str]:
    """Run one command in a tier and give back its end and its output."""
    return with_launcher(
        lambda launcher: run_plan(launcher, plan_for(tier, ground, argv, policy, **environment))
    )


def python_in(
    tier: str, ground: Ground, code: str, policy: Policy | None = None, **environment: str
) -> str:
    """Run Python code in a tier; what it printed. The code must end well."""
    ended, output = run_in(tier, ground, [sys.executable, "-I", "-c", code], policy, **environment)
    assert ended.code == 0, output
    return output.strip()


ATTEMPT = '''
import errno, os, socket, ctypes
def attempt(action):
    """ALLOWED, or the name of the error that stopped it."""
    try:
        result = action()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "ALLOWED"
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
def put(path, mode="a"):
    with open(path, mode) as file:
        file.write("x")
'''
"""Put before the code of an attack; `print(attempt(lambda: ...))` says what happened."""
