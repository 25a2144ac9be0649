"""Which protected names an approval lets one run write, and what the guardian is told of a run."""

from __future__ import annotations

import msgspec

from sandboxd.confine.guardian.journal import Watched
from sandboxd.model import CommandClass, Decision, LaunchPlan, Policy, Verdict

PATH_RULES = ("bubblewrap", "seatbelt")
"""Tiers without mount steps of ours that cover protected names all the same."""


def opened_by(verdict: Verdict, decision: Decision, policy: Policy) -> tuple[str, ...]:
    """Protected names that the approved verdict names as write targets, or holds one below.

    Somebody must have approved: a mode that asks nobody opens nothing. What is sandboxd's own is
    never opened.
    """
    if decision.approved_by is None:
        return ()
    own = set(policy.own)
    return tuple(
        name
        for name in policy.protected
        if name not in own
        and any(path == name or path.startswith(name + "/") for path in verdict.write_paths)
    )


def without(policy: Policy, opened: tuple[str, ...]) -> Policy:
    """The policy of exactly that run."""
    left = tuple(name for name in policy.protected if name not in opened)
    return msgspec.structs.replace(policy, protected=left)


def watched(
    run_id: str,
    session_folder: str,
    policy: Policy,
    plan: LaunchPlan,
    verdict: Verdict,
    opened: tuple[str, ...],
) -> Watched:
    """What the guardian needs to know of a run; `policy` still protects what was opened."""
    return Watched(
        run_id=run_id,
        policy=policy,
        is_masked=bool(plan.mounts) or plan.tier.name in PATH_RULES,
        is_reader=verdict.parsed and verdict.class_ is CommandClass.READ_ONLY,
        session_folder=session_folder,
        opened=opened,
        written=verdict.write_paths,
    )
