"""The contract every confinement mechanism keeps, and what they share.

A mechanism is a small class in a file named after it. `plan` is pure: policy and invocation in,
exactly what will be set up out; it can be tested on every operating system. Whether a host can
do it is decided by `probe` running a real plan, never by asking for versions.
"""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable
from functools import cache, lru_cache
from typing import Protocol

import msgspec

from sandboxd.confine import seccomp, syscalls
from sandboxd.data import data_folder
from sandboxd.model import (
    Invocation,
    LaunchPlan,
    Limits,
    NetworkMode,
    Policy,
    Redacted,
    ShownCopy,
    Tier,
)
from sandboxd.redaction.copies import Shows
from sandboxd.strict_yaml import Node, read_yaml

Runner = Callable[[LaunchPlan], Awaitable[tuple[int, bytes]]]
"""Runs a plan and gives back exit code and output; raises when it cannot be set up."""


class Mechanism(Protocol):
    """One rung of the ladder."""

    name: str
    is_kernel: bool
    shows_copies: bool
    """Whether it can show a copy in a file's place (`Policy.shown`)."""
    remedy: str
    """What to do on a host where it is missing, in one sentence."""

    def plan(
        self, invocation: Invocation, policy: Policy, why_not_stronger: tuple[str, ...] = ()
    ) -> LaunchPlan:
        """What will be set up for this run. Pure."""

    @property
    def networks(self) -> tuple[NetworkMode, ...]:
        """Which network modes it can really enforce."""

    def temp_path(self, policy: Policy) -> str:
        """The private temporary folder as the run sees it."""


ABSENT_NAMES_GAP = (
    "a protected name that does not exist yet (.envrc, .vscode, ...) can be created in the workspace "
    "for the moment until it is noticed and set aside; in deeper folders it is not noticed"
)


def shows(mechanism: Mechanism) -> Shows:
    """What it can do about a file that is to be shown without its secrets."""
    if mechanism.shows_copies:
        return "copies"
    return "nothing" if mechanism.is_kernel else "all"


def unreadable(policy: Policy) -> tuple[str, ...]:
    """What Landlock must not grant: what is denied, the files whose copies are shown, and those that
    would be redacted if they were there. Below /etc and /usr, where only root writes, a mount
    alone covers them: each of their hundreds of names would need a rule of its own."""
    return _unreadable(policy.denied, policy.shown, policy.redacted)


@lru_cache(64)
def _unreadable(
    denied: tuple[str, ...], shown: tuple[ShownCopy, ...], redacted: tuple[Redacted, ...]
) -> tuple[str, ...]:
    own = [copy.path for copy in shown] + [each.path for each in redacted]
    own = [path for path in own if not path.startswith(("/etc/", "/usr/"))]
    return tuple(dict.fromkeys((*denied, *own)))


RLIMITS = {
    "cpu_s": "CPU",
    "memory_bytes": "AS",
    "processes": "NPROC",
    "open_files": "NOFILE",
    "file_bytes": "FSIZE",
}


def rlimits(limits: Limits) -> dict[str, int]:
    """setrlimit(2) names and values; core dumps are off so that none lands in the workspace."""
    named = {kind: getattr(limits, field) for field, kind in RLIMITS.items()}
    return {"CORE": 0, **{kind: value for kind, value in named.items() if value is not None}}


def host_gaps(policy: Policy) -> tuple[str, ...]:
    """What stays open in every tier for this policy."""
    gaps = list(policy.notes)
    if policy.network is NetworkMode.HOST:
        gaps.append(
            "network: the host's own, with its loopback services, private networks and cloud metadata"
        )
    if policy.network in RELAYED:
        gaps.append("network: UDP other than DNS (QUIC, NTP) and ICMP (ping) are not carried")
    if policy.network is NetworkMode.ALLOWLIST:
        gaps.append(
            "network: a named host is held by name and address; others at the same address can be asked for through it"
        )
    free = [words for words, value in _unlimited(policy.limits) if value is None]
    if free:
        gaps.append(f"{' and '.join(free)}: not limited")
    gaps.append("a hard link made beforehand in a writable folder can be written through")
    return tuple(gaps)


def _unlimited(limits: Limits) -> tuple[tuple[str, int | None], ...]:
    return ("memory", limits.memory_bytes), ("number of processes", limits.processes)


RELAYED = (NetworkMode.ALLOWLIST, NetworkMode.OPEN)
"""The modes in which the daemon carries the run's connections."""


def network_words(policy: Policy) -> tuple[str, ...]:
    """What a tier with a network namespace of the run's own holds about the network."""
    if policy.network is NetworkMode.HOST:
        return ()
    if policy.network is NetworkMode.OFF:
        return ("network off: a loopback of its own and nothing else",)
    private = "loopback, link-local and metadata addresses of the host"
    if not policy.egress.allow_private:
        private += ", private networks"
    if policy.network is NetworkMode.ALLOWLIST:
        named = ", ".join(policy.egress.allow) or "none"
        return (f"network allowlist, by the daemon's relay: only {named}; never {private}",)
    return (f"network open, by the daemon's relay: all but {private}, unless named",)


def socket_words(policy: Policy) -> str:
    """What a kernel tier holds about Unix sockets."""
    if policy.unix_sockets == "none":
        return "no Unix sockets except connected pairs"
    return (
        "Unix stream sockets only in the folders it may write; no datagram ones (logger, sd_notify)"
    )


@cache
def filter_groups() -> tuple[seccomp.Group, ...]:
    """The groups of profiles/seccomp.yaml."""
    path = data_folder("profiles") + "/seccomp.yaml"
    with open(path, encoding="utf-8") as file:
        root = read_yaml(file.read(), path)
    return tuple(
        msgspec.convert(_plain_group(item), seccomp.Group)
        for item in root.entries()["groups"].items or ()
    )


def _plain_group(node: Node) -> dict[str, object]:
    return {
        key: value.text if value.text is not None else value.strings()
        for key, value in node.entries().items()
    }


@cache
def filter_program(has_pid_namespace: bool, internet: bool, unix: bool) -> bytes | None:
    """The filter for this machine; None on an architecture whose numbers we do not know."""
    machine = platform.machine()
    if machine not in syscalls.ARCHITECTURES:
        return None
    return seccomp.assemble(
        filter_groups(),
        machine,
        has_pid_namespace=has_pid_namespace,
        sockets=seccomp.Sockets(internet=internet, unix=unix),
    )


def describe(
    mechanism: Mechanism, enforces: tuple[str, ...], gaps: tuple[str, ...], why: tuple[str, ...]
) -> Tier:
    return Tier(
        name=mechanism.name,
        kernel=mechanism.is_kernel,
        enforces=enforces,
        gaps=gaps,
        why_not_stronger=why,
    )
