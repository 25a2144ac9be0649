"""Where shell text ended up, so that a harness can keep its `cd` from call to call.

A module beside the pipeline because it needs both ends of a run. Only text that may change the
folder is followed; the rest costs nothing. Such a text gets a trap with which bash stops itself at its
end: init reads where it stands from /proc, which the run cannot forge, and lets it go on. Text that
sets an EXIT trap of its own, or ends in `exec`, is not followed: the result then says where it began.
"""

from __future__ import annotations

import os
import re

import msgspec

from sandboxd import programs
from sandboxd.model import ExecRequest, LaunchPlan, Policy, Verdict
from sandboxd.policy import is_inside

TRAP = "trap 'kill -STOP $$' EXIT; "
_MAY_CHANGE = re.compile(r"\b(?:cd|pushd|popd)\b")
_TEMPORARY = ("/tmp", "/var/tmp")
"""Folders of which a run may see its own."""


def followed(plan: LaunchPlan, request: ExecRequest, verdict: Verdict) -> LaunchPlan:
    """The plan with which the run's last folder becomes known, where it may change and can be told."""
    text = request.command
    if text is None or not verdict.parsed or not _MAY_CHANGE.search(text):
        return plan
    is_told = plan.pty is None and plan.status_fd is None and plan.argv[-1] == text
    if not is_told or programs.bash() is None:
        return plan
    return msgspec.structs.replace(plan, argv=(*plan.argv[:-1], TRAP + text), tells_cwd=True)


def reached(told: str | None, begun: str, policy: Policy) -> str:
    """The folder that the next command can begin in; `begun` where the one that was told is none:
    gone, unspeakable, or the run's own temporary folder, which has another name out here."""
    if told is None or not told.isprintable() or not os.path.isdir(told):
        return begun
    is_ours = is_inside(told, [policy.workspace, *policy.writable])
    return told if is_ours or not is_inside(told, _TEMPORARY) else begun
