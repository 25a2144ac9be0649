"""Hosts that this machine is not, each made of the kernel's own means, and the ladder tried there.

Run as `python -m tests.confine.emulated HOST [KEY=VALUE..]` in a process of its own, because most
of what it does to itself cannot be undone. Prints one JSON object: what each tier's probe said,
which tier was chosen and why not a stronger one, and the refusal for every tier that is missing.
`python -m tests.confine.emulated HOST -- WORDS..` is `sandboxd WORDS..` there.

    plain               as it is
    container           a seccomp filter that denies namespaces and mounts, as Docker's does
    no_user_namespaces  user.max_user_namespaces is 0, in a user namespace of its own
    masked_proc         something is mounted over a part of /proc, as container engines do
    no_capabilities     root that has given every capability away
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import sys
import time
from collections.abc import Callable

from sandboxd.cli import main as command_line
from sandboxd.confine import seccomp
from sandboxd.confine.select import Ladder, mechanisms
from sandboxd.engine import Engine
from sandboxd.errors import TierUnavailable
from sandboxd.model import TIER_NAMES, Invocation, NetworkMode, Policy
from sandboxd.system import linux

NOTHING = Invocation(program="/bin/true", argv=("true",), environment={}, cwd="/")
NOWHERE = Policy(profile="probe", workspace="/srv", writable=(), private_tmp="/tmp")

DOCKER_DENIES = ("unshare", "mount", "umount2", "setns", "pivot_root", "fsopen", "move_mount")
NEW_NAMESPACES = 0x7E020000
"""The flags of clone(2) that Docker's default profile looks for."""


def container() -> None:
    made = seccomp.Filter(linux.MACHINE)
    for name in DOCKER_DENIES:
        made.deny(name, errno.EPERM)
    made.deny_bits("clone", 0, NEW_NAMESPACES, errno.EPERM)
    made.deny("clone3", errno.ENOSYS)
    if os.getuid() != 0:
        linux.no_new_privs()
    linux.install_filter(made.assemble())


def own_user_namespace(more: int = 0) -> None:
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(linux.CLONE_NEWUSER | more) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def no_user_namespaces() -> None:
    own_user_namespace()
    with open("/proc/sys/user/max_user_namespaces", "w", encoding="ascii") as file:
        file.write("0")


def masked_proc() -> None:
    own_user_namespace(linux.CLONE_NEWNS)
    linux.mount(None, b"/", None, linux.MS_REC | linux.MS_SLAVE)
    linux.mount(b"/dev/null", b"/proc/timer_list", None, linux.MS_BIND)


def no_capabilities() -> None:
    linux.drop_capabilities()


HOSTS: dict[str, Callable[[], None]] = {
    "plain": lambda: None,
    "container": container,
    "no_user_namespaces": no_user_namespaces,
    "masked_proc": masked_proc,
    "no_capabilities": no_capabilities,
}


async def report(landlock_abi: int | None, bwrap: str | None) -> dict[str, object]:
    engine = await Engine.create()
    try:
        rungs = mechanisms(landlock_abi=landlock_abi, bwrap=bwrap)
        ladder = Ladder(rungs, engine.run_plan)
        begun = time.monotonic()
        mechanism, why = await ladder.choose(NetworkMode.HOST)
        seconds = time.monotonic() - begun
        refused = {}
        for name in TIER_NAMES:
            try:
                await ladder.choose(NetworkMode.HOST, tier=name)
            except TierUnavailable as error:
                refused[name] = [error.code, str(error), error.hint]
        survey = await ladder.survey(NetworkMode.HOST)
        return {
            "chosen": mechanism.name,
            "gaps": mechanism.plan(NOTHING, NOWHERE).tier.gaps,
            "why": why,
            "seconds": seconds,
            "refused": refused,
            "probes": {found.tier: found.cause for _, found in survey},
            "remedies": {found.tier: found.remedy for _, found in survey if found.remedy},
        }
    finally:
        await engine.close()


def main(words: list[str]) -> int:
    host, *settings = words
    HOSTS[host]()
    if settings[:1] == ["--"]:
        return command_line(settings[1:])
    values = dict(setting.split("=", 1) for setting in settings)
    abi = int(values["landlock_abi"]) if "landlock_abi" in values else None
    print(json.dumps(asyncio.run(report(abi, values.get("bwrap")))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
