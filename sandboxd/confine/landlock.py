"""Tier `landlock`: Landlock and seccomp without namespaces, for containers that refuse those.

Landlock cannot subtract: a rule on `/` would grant the denied folders too. So the ruleset names
the siblings of everything denied instead of their parents; what lists the folders is handed in so
that the plan stays pure. What that leaves open is said in the gaps.
"""

from __future__ import annotations

import msgspec

from sandboxd.confine import seccomp, tier
from sandboxd.confine.siblings import Siblings
from sandboxd.errors import TierUnavailable
from sandboxd.model import Invocation, LandlockRules, LaunchPlan, NetworkMode, Policy

DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
)


class Landlock:
    """See the module."""

    name = "landlock"
    is_kernel = True
    shows_copies = False
    networks = (NetworkMode.OFF, NetworkMode.HOST)
    remedy = "use a kernel with Landlock (5.13 or newer) booted with `landlock` among its security modules"

    def __init__(
        self,
        abi: int,
        uid: int,
        gid: int,
        siblings: Siblings | None = None,
        *,
        can_supervise: bool = True,
    ) -> None:
        """`can_supervise` is false inside another run: a process has one seccomp listener at most."""
        self.abi = abi
        self.ids = (uid, gid)
        self.siblings = siblings or Siblings()
        self.can_supervise = can_supervise

    def temp_path(self, policy: Policy) -> str:
        return policy.private_tmp

    def plan(
        self, invocation: Invocation, policy: Policy, why_not_stronger: tuple[str, ...] = ()
    ) -> LaunchPlan:
        """Raises TierUnavailable when sandboxd itself lies in a writable root: it cannot be kept
        read-only there."""
        if policy.own:
            raise TierUnavailable(
                f"sandboxd itself lies in a folder the run may write ({policy.own[0]}), and the landlock tier cannot keep it read-only there",
                hint="install sandboxd outside the workspace, or choose another --workspace",
                path=policy.own[0],
            )
        if not self.can_supervise:
            policy = msgspec.structs.replace(policy, unix_sockets="none")
        foreign = policy.owner if policy.owner is not None and policy.owner != self.ids else None
        write = (*policy.writable, policy.private_tmp)
        cover = self.siblings.cover(tier.unreadable(policy))
        return LaunchPlan(
            tier=tier.describe(self, self._enforces(policy), self._gaps(policy), why_not_stronger),
            argv=invocation.argv,
            program=invocation.program,
            environment=invocation.environment,
            cwd=invocation.cwd,
            umask=invocation.umask,
            rlimits=tier.rlimits(policy.limits),
            outside_ids=foreign,
            landlock=LandlockRules(
                read=cover.granted,
                version=cover.version,
                write=tuple(dict.fromkeys([*write, "/dev/shm"])),
                devices=DEVICES,
                abi=self.abi,
            ),
            seccomp=tier.filter_program(
                False, policy.network is not NetworkMode.OFF, policy.unix_sockets == "workspace"
            ),
            connect_secret=seccomp.CONNECT_SECRET,
            connect_roots=write if policy.unix_sockets == "workspace" else None,
        )

    def _enforces(self, policy: Policy) -> tuple[str, ...]:
        held = [
            "content can be written only in " + ", ".join([*policy.writable, policy.private_tmp]),
            "denied files cannot be read",
            "no capabilities, no setuid, no namespaces, mounts, keyrings, io_uring or bpf",
            tier.socket_words(policy),
        ]
        if self.abi >= 6:
            held.append("no signal to a process outside the run, no abstract socket")
        if policy.network is NetworkMode.OFF:
            held.append("network off: no internet sockets at all, not even loopback")
        return tuple(held)

    def _gaps(self, policy: Policy) -> tuple[str, ...]:
        gaps = [
            *tier.host_gaps(policy),
            "metadata (mode, times, extended attributes) of any file of this user can be changed",
            "protected names inside the workspace (.git/hooks, .envrc, ...) can be written; small ones are put back when the run ends",
            tier.ABSENT_NAMES_GAP,
            "beside something denied, a folder of thousands of entries cannot be read at all",
            "names of files and processes of the host can be seen; folders above a denied one cannot be listed",
            "/dev/shm and the user's terminals' names are shared with the host",
        ]
        if self.abi < 6:
            gaps.append("processes of the same user can be signalled (needs Linux 6.12)")
        if self.abi < 3:
            gaps.append("files that cannot be written can still be truncated (needs Linux 6.2)")
        return tuple(gaps)
