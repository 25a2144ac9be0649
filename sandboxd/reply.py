"""Making the reply: the result object, and what a failed launch means to the caller."""

from __future__ import annotations

import errno
import os
import signal

import msgspec

from sandboxd import network
from sandboxd.confine.guardian.failures import stale_files
from sandboxd.confine.guardian.findings import Findings
from sandboxd.errors import (
    ArgumentsTooLong,
    CwdMissing,
    Fault,
    NotExecutable,
    ProgramMissing,
    Refusal,
    TierUnavailable,
)
from sandboxd.events.attribution import attribute, reason_of_result
from sandboxd.evidence import WORDS
from sandboxd.model import Attribution, Decision, Denial, LaunchPlan, Policy, Result, Verdict
from sandboxd.spawn.launcher import LaunchFailed
from sandboxd.supervise import Outcome


def launch_refusal(failure: LaunchFailed, plan: LaunchPlan) -> Refusal | Fault:
    """What a failed step between clone and exec means to the caller."""
    if failure.stage == "cwd":
        return CwdMissing(
            f"the working directory {plan.cwd} cannot be entered inside the sandbox",
            hint="work in the workspace; other folders below /tmp are hidden from the run",
            path=plan.cwd,
        )
    if failure.stage == "exec":
        return _exec_refusal(failure, plan)
    if failure.stage.startswith(
        (
            "clone",
            "limit",
            "uid_map",
            "join",
            "mount",
            "network",
            "proc",
            "landlock",
            "seccomp",
            "workspace",
        )
    ):
        return TierUnavailable(
            f"tier {plan.tier.name} could not be set up for this run: {failure}",
            hint="run `sandboxd doctor`, or ask for another tier with --tier",
            path=failure.path if failure.path.startswith("/") else None,
        )
    return Fault(f"starting the run failed at step {failure.stage}: {failure}")


def _exec_refusal(failure: LaunchFailed, plan: LaunchPlan) -> Refusal:
    if failure.errno == errno.E2BIG:
        return ArgumentsTooLong(
            "the arguments and environment are too long for this system (one argument over 128 KiB, or all over about 2 MiB)",
            hint="write the data to a file or pass it on standard input",
        )
    if failure.errno in (errno.ENOENT, errno.ENOTDIR):
        return ProgramMissing(
            f"{plan.program} cannot be found inside the sandbox, or its interpreter is missing",
            hint="programs below /tmp are visible only when they lie on PATH; check the first line of a script",
            path=plan.program,
        )
    return NotExecutable(
        f"{plan.program} cannot be executed: {os.strerror(failure.errno)}",
        hint="check its mode, its format and that the sandbox may read it",
        path=plan.program,
    )


def result_of(
    run_id: str,
    cwd: str,
    plan: LaunchPlan,
    verdict: Verdict,
    decision: Decision,
    scrubbed: tuple[str, ...],
    outcome: Outcome,
    refused_host: Denial | None = None,
) -> Result:
    """The result object. A host that the relay refused is a fact and goes before guesses."""
    ended = outcome.exit
    denial = refused_host or _by_kernel(outcome) or _denial(plan, verdict, outcome)
    name = signal.Signals(ended.signal).name if ended.signal is not None else None
    return Result(
        run_id=run_id,
        exit_code=124 if outcome.timed_out else ended.code,
        signal=name,
        timed_out=outcome.timed_out,
        duration_s=outcome.duration_s,
        cwd=cwd,
        tier=plan.tier,
        verdict=verdict,
        decision=decision,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        output=outcome.output,
        denial=denial,
        limit=_limit(plan, outcome),
        survivors=ended.survivors,
        scrubbed_env=scrubbed,
        usage=ended.usage,
        exit_meaning=verdict.exit_meaning.get(str(ended.code)) if name is None else None,
        attribution=_attribution(plan, verdict, outcome, name, denial),
    )


def _attribution(
    plan: LaunchPlan,
    verdict: Verdict,
    outcome: Outcome,
    signal_name: str | None,
    denial: Denial | None,
) -> Attribution | None:
    if outcome.cancelled:
        return attribute("refusal.CANCELLED")
    reason = reason_of_result(
        exit_code=outcome.exit.code,
        signal=signal_name,
        timed_out=outcome.timed_out,
        limit=_limit(plan, outcome),
        denial=denial,
        exit_meaning=verdict.exit_meaning,
        programs=verdict.programs,
    )
    return attribute(reason) if reason is not None else None


def with_denial(result: Result, denial: Denial) -> Result:
    """The result of a failed run with better evidence: the failure is the sandbox's then."""
    found = attribute(f"denial.{denial.evidence}") if denial.evidence != "text" else None
    attribution = found or result.attribution
    return msgspec.structs.replace(result, denial=denial, attribution=attribution)


def may_be_escalated(result: Result, policy: Policy) -> bool:
    """Whether to look for evidence, and to offer a run without the sandbox where there is some: the
    sandbox stopped something, and the command has failed by itself."""
    is_answer = str(result.exit_code) in result.verdict.exit_meaning
    has_failed = result.exit_code != 0 and not is_answer and not result.timed_out
    return (
        result.denial is not None
        and has_failed
        and result.tier.kernel
        and policy.approval != "never"
    )


def excerpt(result: Result) -> str:
    """The part of the output in which a program says why it failed."""
    captured = result.stderr or result.output
    return captured.text[-4096:] if captured is not None else ""


def how_far(result: Result) -> str:
    """What a run did before it ended, in words for whoever is asked to let it start again."""
    streams = (result.stdout, result.stderr, result.output)
    printed = sum(captured.total_bytes for captured in streams if captured is not None)
    return f"it ran {result.duration_s:.1f} s, printed {printed} bytes and ended with exit code {result.exit_code}"


def with_findings(result: Result, policy: Policy, findings: Findings) -> Result:
    """The result with what became of protected names; a failure that they explain is the
    sandbox's, even when the tool called it success."""
    tier = msgspec.structs.replace(result.tier, gaps=(*result.tier.gaps, *findings.gaps))
    result = msgspec.structs.replace(
        result,
        tier=tier,
        set_aside=tuple(findings.set_aside),
        notices=tuple(findings.notices),
    )
    captured = result.stderr or result.output
    stale = stale_files(captured.text if captured else "", result.cwd, policy.protected)
    if not stale or not tier.kernel:
        return result
    names = ", ".join(stale)
    return msgspec.structs.replace(
        result,
        denial=Denial(
            evidence="policy",
            rule="protected-name",
            path=stale[0],
            hint=f"{names}: protected, because it runs later outside; it is as it was before. "
            "A command that names it as its target, approved by a person, may write it",
        ),
        attribution=attribute(
            "protected_name", detail=f"the command could not write protected files: {names}"
        ),
    )


LIMIT_SIGNALS = {signal.SIGXCPU: ("cpu", "CPU"), signal.SIGXFSZ: ("file_size", "FSIZE")}


LIMIT_WORDS = {
    "AS": ("memory", ("MemoryError", "Cannot allocate memory", "out of memory", "bad_alloc")),
    "NPROC": ("processes", ("Resource temporarily unavailable", "annot fork", "BlockingIOError")),
}
"""What programs say where setrlimit(2) bounds the thing and the kernel keeps no count of refusals."""


def _limit(plan: LaunchPlan, outcome: Outcome) -> str | None:
    """Which limit was reached: as told by the clock, a control group or a signal (also when a shell
    passes it on); last, by the words of a failed program under such a limit."""
    if outcome.timed_out:
        return "wall"
    if outcome.hit is not None:
        return outcome.hit
    code = outcome.exit.code
    for number, (name, kind) in LIMIT_SIGNALS.items():
        if outcome.exit.signal == number or (code == 128 + number and kind in plan.rlimits):
            return name
    captured = outcome.stderr or outcome.output
    text = captured.text[-4096:] if captured is not None and code != 0 else ""
    for kind, (name, words) in LIMIT_WORDS.items():
        if kind in plan.rlimits and any(word in text for word in words):
            return name
    return None


def _by_kernel(outcome: Outcome) -> Denial | None:
    """What was really refused at a system call, whatever the program said about it."""
    if outcome.refused:
        return Denial(
            evidence="kernel",
            rule="unix_sockets",
            path=outcome.refused[0],
            hint="only Unix sockets in the workspace and the run's own /tmp may be connected to",
        )
    if outcome.exit.signal == signal.SIGSYS:
        return Denial(
            evidence="kernel",
            rule="seccomp",
            hint="the process was killed for a system call of another architecture (a process can also "
            "send this signal to itself)",
        )
    return None


def _denial(plan: LaunchPlan, verdict: Verdict, outcome: Outcome) -> Denial | None:
    """A guess from words, said to be one: any program can print them."""
    ended = outcome.exit.code
    if (
        ended == 0
        or outcome.timed_out
        or not plan.tier.kernel
        or str(ended) in verdict.exit_meaning
    ):
        return None
    captured = outcome.stderr or outcome.output
    text = captured.text[-4096:] if captured is not None else ""
    found = next((word for word in WORDS if word in text), None)
    if found is None:
        return network.own_loopback(plan, text)
    return Denial(
        evidence="text",
        rule="output-text",
        hint=f"the output says {found!r}; tier {plan.tier.name} writes only in the workspace and its own /tmp",
    )
