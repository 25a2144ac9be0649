"""Tier `seatbelt`: the sandbox of macOS, entered by `/usr/bin/sandbox-exec` with a generated profile.

The plan is pure: which profile, which parameters, which command. Nothing of it has been run on a Mac;
`sandboxd verify --tier seatbelt --strict` is how to find out. Facts it rests on: sandbox-exec(1) is
called by its absolute path and never searched for; the system strips DYLD_* from it, so that none of the
run's environment acts before the sandbox is entered; a process that is in a sandbox
already cannot enter another one (`sandbox_apply: Operation not permitted`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

from sandboxd.confine import seatbelt_profile, tier
from sandboxd.confine.seatbelt_profile import Generated
from sandboxd.errors import TierUnavailable
from sandboxd.model import Invocation, LaunchPlan, NetworkMode, Policy

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
NESTED = "sandbox_apply"
"""What sandbox-exec says when this process lives in a sandbox already."""


def new_tag() -> str:
    """A word that no other run's refusals carry."""
    return secrets.token_hex(8)


class Seatbelt:
    """See the module."""

    name = "seatbelt"
    is_kernel = True
    shows_copies = False
    networks = (NetworkMode.OFF, NetworkMode.HOST)
    remedy = (
        "run sandboxd outside any other sandbox (a sandboxed terminal or editor, another agent), on a "
        f"macOS that has {SANDBOX_EXEC}"
    )

    def __init__(
        self,
        uid: int,
        gid: int,
        *,
        real: Callable[[str], str] = os.path.realpath,
        tags: Callable[[], str] = new_tag,
    ) -> None:
        """`real` follows links; `tags` names each run in the system's log."""
        self.ids = (uid, gid)
        self.real = real
        self.tags = tags

    def temp_path(self, policy: Policy) -> str:
        return policy.private_tmp

    def generated(self, policy: Policy) -> Generated:
        """The profile of one run."""
        return seatbelt_profile.generate(policy, tag=self.tags(), real=self.real)

    def plan(
        self, invocation: Invocation, policy: Policy, why_not_stronger: tuple[str, ...] = ()
    ) -> LaunchPlan:
        """Raises TierUnavailable for a program that `sandbox-exec` would take for an option."""
        if not invocation.program.startswith("/"):
            raise TierUnavailable(
                f"{invocation.program} is no absolute path",
                hint="name the program by its full path",
            )
        command = (invocation.program, *invocation.argv[1:])
        foreign = policy.owner if policy.owner is not None and policy.owner != self.ids else None
        return LaunchPlan(
            tier=tier.describe(self, self._enforces(policy), self._gaps(policy), why_not_stronger),
            argv=("sandbox-exec", *seatbelt_profile.arguments(self.generated(policy), command)),
            program=SANDBOX_EXEC,
            environment=invocation.environment,
            cwd=invocation.cwd,
            umask=invocation.umask,
            rlimits=tier.rlimits(policy.limits),
            outside_ids=foreign,
            drop_privileges=False,
        )

    def _enforces(self, policy: Policy) -> tuple[str, ...]:
        held = [
            "writes only to " + ", ".join([*policy.writable, policy.private_tmp]),
            "denied files can be neither read nor seen",
            "protected names stay as they are, in any spelling of their letters, and the folders that lead to them stay in place",
            "no signals to processes outside the run, no services of the system but those it needs",
        ]
        if policy.unix_sockets == "workspace":
            held.append("Unix sockets only in the folders it may write")
        else:
            held.append("no Unix sockets except connected pairs")
        if policy.network is NetworkMode.OFF:
            held.append("network off: no internet sockets at all, not even loopback")
        return tuple(held)

    def _gaps(self, policy: Policy) -> tuple[str, ...]:
        gaps = [
            *tier.host_gaps(policy),
            "not verified on a Mac: run `sandboxd verify --tier seatbelt --strict` there",
            "processes of the host can be seen",
            "`.git/HEAD`, beside the protected names, can be moved away",
            "programs that ask the system for the user's temporary folder instead of TMPDIR cannot write there",
            "what leaves session and group may outlive the run",
            "terminals that are opened by name: only those that the run itself made",
            "a protected name of other characters than letters, digits, `.`, `_` and `-` is held in its own spelling only",
        ]
        return tuple(gaps)
