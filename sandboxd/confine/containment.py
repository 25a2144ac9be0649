"""Tier `containment`: no kernel boundary. Own session and process group, limits, a scrubbed
environment, and the honest word that nothing else holds."""

from __future__ import annotations

from sandboxd.confine import tier
from sandboxd.model import Invocation, LaunchPlan, NetworkMode, Policy, Tier

HELD = (
    "own session and process group, everything it started is ended with it",
    "resource limits, a scrubbed environment, a private TMPDIR",
)


class Containment:
    """See the module."""

    name = "containment"
    is_kernel = False
    shows_copies = False
    networks = (NetworkMode.HOST,)
    remedy = "none is needed: it works everywhere"

    def __init__(self, uid: int, gid: int) -> None:
        self.ids = (uid, gid)

    def temp_path(self, policy: Policy) -> str:
        return policy.private_tmp

    def plan(
        self, invocation: Invocation, policy: Policy, why_not_stronger: tuple[str, ...] = ()
    ) -> LaunchPlan:
        return self._plan(invocation, policy, self._tier(policy, why_not_stronger))

    def _tier(self, policy: Policy, why_not_stronger: tuple[str, ...]) -> Tier:
        return tier.describe(
            self,
            HELD,
            (
                "no kernel boundary: the run can do whatever this user can",
                *tier.host_gaps(policy),
            ),
            why_not_stronger,
        )

    def _plan(self, invocation: Invocation, policy: Policy, described: Tier) -> LaunchPlan:
        foreign = policy.owner if policy.owner is not None and policy.owner != self.ids else None
        return LaunchPlan(
            tier=described,
            argv=invocation.argv,
            program=invocation.program,
            environment=invocation.environment,
            cwd=invocation.cwd,
            umask=invocation.umask,
            rlimits=tier.rlimits(policy.limits),
            outside_ids=foreign,
            drop_privileges=False,
        )


class Inherited(Containment):
    """Tier `inherited`: this process lives in a sandbox already and the kernel lets it add none.

    What the outer one holds we did not set up and cannot vouch for, so it counts as no kernel
    boundary of ours; the name says that the run is not as free as in `containment`.
    """

    name = "inherited"
    remedy = "call sandboxd from outside the sandbox it runs in"

    def _tier(self, policy: Policy, why_not_stronger: tuple[str, ...]) -> Tier:
        return tier.describe(
            self,
            (
                "whatever the sandbox around sandboxd holds (no_new_privs and a filter are on)",
                *HELD,
            ),
            (
                "no boundary of its own: the run can do whatever sandboxd itself can in here",
                *tier.host_gaps(policy),
            ),
            why_not_stronger,
        )
