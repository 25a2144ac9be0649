"""Events as the pipeline makes them, for the tests of this folder."""

from __future__ import annotations

from sandboxd.events.kinds import (
    Abandoned,
    ApprovalAnswered,
    ApprovalAsked,
    Assessed,
    DecisionMade,
    EgressDenied,
    Escalated,
    Event,
    Faulted,
    FilesTouched,
    Finished,
    GroundsLaid,
    Launched,
    Observed,
    Refused,
    SessionOpened,
    VerdictGiven,
)
from sandboxd.model import (
    Action,
    CommandClass,
    Decision,
    Denial,
    EgressRules,
    NetworkMode,
    Reason,
    Tier,
    Usage,
    Verdict,
)
from sandboxd.proposals import Grounds, Laid, Observation, PathFact, Violation

TIER = Tier(name="namespaces", kernel=True, enforces=("writes",), gaps=("network: host",))
VERDICT = Verdict(
    class_=CommandClass.READ_ONLY,
    parsed=True,
    cacheable=True,
    reasons=(Reason("ls", "lists files", (0, 5)),),
    read_paths=("/w",),
)
GROUNDS = Grounds(
    profile="default",
    approval="standard",
    workspace="/w",
    readable=("/w",),
    writable=("/w",),
    denied=("/h/.ssh",),
    private_tmp="/tmp/private",
    network=NetworkMode.OPEN,
    egress=EgressRules(),
)
DECISION = Decision(action=Action.ALLOW, mode="standard", reasons=("read_only",))


def opened(session_id: str) -> SessionOpened:
    return SessionOpened(session_id=session_id, workspace="/w", profile="default")


def refused(session_id: str, run_id: str) -> Refused:
    return Refused(
        session_id=session_id,
        run_id=run_id,
        code="CWD_MISSING",
        origin="client",
        message="/gone does not exist",
        hint="name a folder that exists",
    )


def one_run(session_id: str, run_id: str, command: str = "ls -l") -> list[Event]:
    """The four events of a run that goes well."""
    return [
        VerdictGiven(
            session_id=session_id, run_id=run_id, command=command, cwd="/w", verdict=VERDICT
        ),
        DecisionMade(session_id=session_id, run_id=run_id, decision=DECISION),
        Launched(session_id=session_id, run_id=run_id, tier=TIER, program="/bin/ls", cwd="/w"),
        Finished(
            session_id=session_id,
            run_id=run_id,
            exit_code=0,
            duration_s=0.004,
            stdout_bytes=5,
            stdout_end="a\nb\nc",
            usage=Usage(user_s=0.001),
        ),
    ]


def one_of_each() -> list[Event]:
    return [
        opened("s1"),
        *one_run("s1", "r1"),
        ApprovalAsked(session_id="s1", run_id="r1", reasons=("it changes",), tier="namespaces"),
        ApprovalAnswered(session_id="s1", run_id="r1", answer="deny", reason="not now"),
        Escalated(
            session_id="s1",
            run_id="r1",
            tier="namespaces",
            denial=Denial(evidence="policy", rule="files.writing", path="/x"),
        ),
        GroundsLaid(
            session_id="s1",
            grounds_id="g-1",
            laid=Laid(grounds=GROUNDS, asked_network=NetworkMode.OPEN, variables={"HOME": "/h"}),
        ),
        Observed(
            session_id="s1",
            run_id="r1",
            observation=Observation(about="x", fact=PathFact(canonical="/w/x", shown="x")),
        ),
        Assessed(
            session_id="s1",
            run_id="r1",
            assessment_id="j-1",
            grounds_id="g-1",
            door="command",
            tool="command.exec",
            violations=(Violation(rule="PathContainment", risk="medium", message="m", hint="h"),),
            decision=DECISION,
        ),
        EgressDenied(
            session_id="s1",
            run_id="r1",
            host="example.com:443",
            rule="network.allow",
            hint="name it with --allow-host example.com",
        ),
        FilesTouched(
            session_id="s1",
            run_id="f1",
            operation="fs.edit",
            paths=("/w/a",),
            versions=("0f",),
            change_id="c-1",
        ),
        refused("s1", "r2"),
        Faulted(session_id="s1", run_id="r3", message="the zygote died", cause="BrokenPipeError"),
        Abandoned(session_id="s1", run_id="r4"),
    ]
