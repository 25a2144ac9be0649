"""Mode `trust-sandbox`: a change passes unasked only where the sandbox holds all of it."""

from __future__ import annotations

import pytest

from sandboxd.decide.decision import decide
from sandboxd.model import Action, CommandClass, NetworkMode, Policy, Tier, Verdict

POLICY = Policy(
    profile="agent",
    workspace="/work",
    writable=("/work",),
    protected=("/work/.git/config", "/work/.vscode"),
    private_tmp="/private",
    network=NetworkMode.OPEN,
    approval="trust-sandbox",
)
TIER = Tier(name="namespaces", kernel=True, enforces=(), gaps=())


def action(*writes: str) -> Action:
    verdict = Verdict(class_=CommandClass.MUTATING, parsed=True, cacheable=True, write_paths=writes)
    decided = decide(verdict, POLICY, TIER, approve="none", approved=(), approved_hosts=())
    return decided.action


@pytest.mark.parametrize("path", ["/work/f", "/private/f", "/tmp/f", "/work/.git/HEAD"])
def test_a_write_that_the_sandbox_holds_is_not_asked_about(path: str) -> None:
    assert action(path) is Action.ALLOW


@pytest.mark.parametrize("path", ["/work/.git/config", "/work/.vscode/tasks.json"])
def test_a_write_to_what_runs_later_is_asked_about(path: str) -> None:
    """Allowed unasked it would fail: only an approval opens a protected name."""
    assert action("/work/f", path) is Action.ASK


def test_a_write_outside_is_asked_about() -> None:
    assert action("/etc/f") is Action.ASK
