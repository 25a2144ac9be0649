"""Tier `namespaces`: user, mount, pid, ipc and uts namespaces set up directly, then Landlock and
seccomp, with an init as pid 1. No helper program, nothing on PATH, works unprivileged.

The order of the mount steps is safety: /dev first (it holds the blanks that cover denied
paths), the private /tmp before roots that lie below it, roots before what is taken out of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from sandboxd.confine import own_network, seccomp, tier
from sandboxd.confine.siblings import Siblings
from sandboxd.model import (
    Invocation,
    LandlockRules,
    LaunchPlan,
    MountStep,
    NetworkMode,
    Policy,
)

TMP = "/tmp"
NETWORKS = tuple(NetworkMode)
REPLACED_GAP = "a protected file that the host replaces during a run can be written for the moment until it is covered again"


class Namespaces:
    """See the module."""

    name = "namespaces"
    is_kernel = True
    shows_copies = True
    remedy = (
        "allow unprivileged user namespaces: Linux 5.12 or newer, user.max_user_namespaces above 0, on "
        "Ubuntu 24.04 kernel.apparmor_restrict_unprivileged_userns=0, in a container a seccomp "
        "profile that permits unshare, clone and mount and an unmasked /proc"
    )

    def __init__(
        self,
        landlock_abi: int,
        uid: int,
        gid: int,
        siblings: Siblings | None = None,
        *,
        has_ipv6: bool = False,
        has_nftables: bool = True,
        resolver: Callable[[], str] = own_network.plain_resolver,
    ) -> None:
        """`has_ipv6`: the host reaches IPv6 addresses. Without `has_nftables` it is the form for
        kernels that lack it: `allowlist` for programs that use the proxy, and no `open`. `resolver`
        says what a run's resolv.conf holds."""
        self.resolver = resolver
        self.landlock_abi = landlock_abi
        self.ids = (uid, gid)
        self.siblings = siblings or Siblings()
        self.has_ipv6 = has_ipv6
        self.has_nftables = has_nftables
        self.networks = NETWORKS if has_nftables else (NetworkMode.ALLOWLIST,)

    def temp_path(self, policy: Policy) -> str:
        return TMP

    def plan(
        self, invocation: Invocation, policy: Policy, why_not_stronger: tuple[str, ...] = ()
    ) -> LaunchPlan:
        outside = policy.owner or self.ids
        is_foreign = outside != self.ids
        network = own_network.network_setup(
            policy, has_ipv6=self.has_ipv6, has_nftables=self.has_nftables
        )
        net = ("net",) if network is not None else ()
        return LaunchPlan(
            tier=tier.describe(self, self._enforces(policy), self._gaps(policy), why_not_stronger),
            argv=invocation.argv,
            program=invocation.program,
            environment=invocation.environment,
            cwd=invocation.cwd,
            umask=invocation.umask,
            rlimits=tier.rlimits(policy.limits),
            namespaces=("user", "mount", "pid", "ipc", "uts", *net),
            network=network,
            inside_ids=(0, 0) if is_foreign else self.ids,
            outside_ids=outside,
            mounts=mount_steps(policy, self.resolver()),
            landlock=landlock_rules(policy, self.siblings) if self.landlock_abi else None,
            seccomp=tier.filter_program(True, True, policy.unix_sockets == "workspace"),
            connect_secret=seccomp.CONNECT_SECRET,
            connect_roots=(*_writable_inside(policy), TMP)
            if policy.unix_sockets == "workspace"
            else None,
        )

    def _enforces(self, policy: Policy) -> tuple[str, ...]:
        held = [
            "writes only to " + ", ".join([*_writable_inside(policy), TMP + " (private)"]),
            "denied files look empty; protected names in the workspace are read-only",
            "own process ids, /dev, /dev/shm, ipc; no process of the host can be seen or signalled",
            "no capabilities, no setuid, no nested namespaces, mounts, keyrings, io_uring or bpf",
            tier.socket_words(policy),
        ]
        held += tier.network_words(policy)
        if self.landlock_abi:
            held.append(f"Landlock (ABI {self.landlock_abi}) beneath the mounts")
        return tuple(held)

    def _gaps(self, policy: Policy) -> tuple[str, ...]:
        gaps = [
            *tier.host_gaps(policy),
            tier.ABSENT_NAMES_GAP,
            REPLACED_GAP,
            "nested repositories other than submodules and linked worktrees are not covered",
        ]
        if not self.has_nftables:
            gaps.append(
                "no nf_tables in this kernel: programs that do not use the proxy reach nothing, named hosts neither"
            )
        if not self.landlock_abi:
            gaps.append("no Landlock in this kernel: the mount view stands alone")
        return tuple(gaps)


def landlock_rules(policy: Policy, siblings: Siblings) -> LandlockRules:
    """Content beside what is denied, names everywhere: those of denied folders are hidden by
    mounts, and `ls /` and `ls ~` work."""
    cover = siblings.cover(_outside_tmp(tier.unreadable(policy)))
    return LandlockRules(
        read=cover.granted,
        version=cover.version,
        shown=tuple(copy.path for copy in policy.shown),
        list=("/",),
        write=(*_writable_inside(policy), TMP, "/dev/shm", "/proc"),
        devices=("/dev",),
    )


@lru_cache(64)
def mount_steps(
    policy: Policy, resolv_conf: str = own_network.RESOLV_CONF
) -> tuple[MountStep, ...]:
    """The view of the file system, step by step."""
    roots = _writable_inside(policy)
    shown = [path for path in policy.visible if path not in roots]
    placed_in = [*roots, *shown]
    steps = [
        MountStep("proc", "/proc"),
        MountStep("dev", "/dev"),
        *(
            [MountStep("text", own_network.RESOLV_CONF_PATH, resolv_conf)]
            if policy.network in tier.RELAYED
            else []
        ),
        *(MountStep("blank", path) for path in policy.denied if not _below_tmp(path)),
        *(MountStep("blank", each.path) for each in policy.redacted if not _below_tmp(each.path)),
        *_copies(policy, lambda path: not _below_tmp(path) and not _is_below_any(path, placed_in)),
        MountStep("tmp", TMP, policy.private_tmp),
    ]
    # Outer folders first: a later mount on a parent would hide an earlier one on its child.
    placed = [MountStep("bind", path) for path in roots]
    placed += [MountStep("visible", path) for path in shown if not _is_below_any(path, roots)]
    steps += sorted(placed, key=lambda step: step.path)
    steps += [MountStep("pin", path) for path in policy.pinned]
    steps += [MountStep("readonly", path) for path in policy.protected]
    inside = [path for path in policy.denied if path in roots or _is_below_any(path, placed_in)]
    steps += [MountStep("blank", path) for path in inside]
    steps += _copies(policy, lambda path: _is_below_any(path, placed_in))
    return tuple(steps)


def _copies(policy: Policy, is_wanted: Callable[[str], bool]) -> list[MountStep]:
    return [
        MountStep("copy", each.path, each.text) for each in policy.shown if is_wanted(each.path)
    ]


def _writable_inside(policy: Policy) -> tuple[str, ...]:
    return tuple(path for path in policy.writable if path != policy.private_tmp)


@lru_cache(64)
def _outside_tmp(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if not _below_tmp(path))


def _below_tmp(path: str) -> bool:
    return path == TMP or path.startswith(TMP + "/")


def _is_below_any(path: str, roots: Sequence[str]) -> bool:
    return any(path.startswith(root.rstrip("/") + "/") for root in roots)
