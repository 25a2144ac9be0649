"""Tier `containment`: no kernel boundary. Own session and process group, limits, a scrubbed
environment, and the honest word that nothing else holds."""

from __future__ import annotations

from sandboxd.confine import tier
from sandboxd.model import Invocation, LaunchPlan, NetworkMode, Policy


class Containment:
    """See the module."""

    name = "containment"
    is_kernel = False
    networks = (NetworkMode.HOST,)
    remedy = "none is needed: it works everywhere"

    def __init__(self, uid: int, gid: int) -> None:
        self.ids = (uid, gid)

    def temp_path(self, policy: Policy) -> str:
        return policy.private_tmp

    def plan(
        self, invocation: Invocation, policy: Policy, why_not_stronger: tuple[str, ...] = ()
    ) -> LaunchPlan:
        foreign = policy.owner if policy.owner is not None and policy.owner != self.ids else None
        return LaunchPlan(
            tier=tier.describe(
                self,
                (
                    "own session and process group, everything it started is ended with it",
                    "resource limits, a scrubbed environment, a private TMPDIR",
                ),
                (
                    "no kernel boundary: the run can do whatever this user can",
                    *tier.host_gaps(policy),
                ),
                why_not_stronger,
            ),
            argv=invocation.argv,
            program=invocation.program,
            environment=invocation.environment,
            cwd=invocation.cwd,
            umask=invocation.umask,
            rlimits=tier.rlimits(policy.limits),
            outside_ids=foreign,
            drop_privileges=False,
        )
