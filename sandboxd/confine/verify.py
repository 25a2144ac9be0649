"""Does a tier hold what it says? The table of profiles/probes.yaml, really tried inside it.

The table says what is expected by tier, network mode and uid; `system/attempts.py` is the code that
runs inside; `victims` is what it is aimed at. A surprise, in either direction, is a failure: what
should be stopped got through, or what should work does not. Judging is pure.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable
from functools import cache
from typing import Literal

import msgspec
from msgspec import Struct

from sandboxd.confine import victims as targets
from sandboxd.confine.tier import Mechanism, Runner, shows
from sandboxd.confine.victims import Victims
from sandboxd.data import data_folder
from sandboxd.errors import SandboxdError
from sandboxd.model import Invocation, LaunchPlan, NetworkMode, Policy
from sandboxd.policy import build_policy
from sandboxd.profiles import load_profile
from sandboxd.redaction.copies import Copies
from sandboxd.strict_yaml import Node, read_yaml
from sandboxd.system import attempts

LIMIT_S = 30.0
GONE_WITHIN_S = 2.0
"""How long after a run its last process may still be seen dying."""

Expectation = Literal["allowed", "denied", "residual", "skipped"]
Found = Literal["allowed", "denied", "skipped", "broken", "missing"]
Verdict = Literal["ok", "residual", "skipped", "surprise"]


class Probe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the table."""

    name: str
    says: str
    expect: dict[str, Expectation]
    when_apart: dict[str, Expectation] = {}
    """With a network that is not the host's own."""
    when_root: dict[str, Expectation] = {}
    when_said: dict[str, Expectation] = {}
    """By words that the tier says of itself here: a form of it that needs less of the host."""
    gap: str | None = None

    def expected(
        self, tier: str, network: NetworkMode, uid: int, said: Iterable[str] = ()
    ) -> Expectation:
        """Of the columns the most particular one that names the tier, or what it says of itself."""
        found = self.expect[tier]
        if network is not NetworkMode.HOST:
            found = self.when_apart.get(tier, found)
        if uid == 0:
            found = self.when_root.get(tier, found)
        told = [to for words, to in self.when_said.items() if any(words in text for text in said)]
        return told[0] if told else found


class Finding(Struct, frozen=True, kw_only=True):
    """Expected against found, and what to think of it."""

    name: str
    says: str
    expected: Expectation
    found: Found
    detail: str
    verdict: Verdict


class Report(Struct, frozen=True, kw_only=True):
    """One tier in one network mode."""

    tier: str
    network: NetworkMode
    uid: int
    seconds: float
    findings: tuple[Finding, ...]
    loose_ends: tuple[str, ...]
    """What only `--strict` counts: probes skipped, residuals that the tier's gaps do not name."""

    @property
    def surprises(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict == "surprise"]

    @property
    def residuals(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict == "residual"]


@cache
def table() -> tuple[Probe, ...]:
    """The rows of profiles/probes.yaml. Raises ProfileBroken."""
    path = data_folder("profiles") + "/probes.yaml"
    with open(path, encoding="utf-8") as file:
        rows = read_yaml(file.read(), path).entries()["probes"].items or ()
    return tuple(_probe(row) for row in rows)


def _probe(row: Node) -> Probe:
    plain: dict[str, object] = {}
    for key, value in row.entries().items():
        if value.text is not None:
            plain[key] = value.text
        else:
            plain[key] = {name: node.scalar() for name, node in value.entries().items()}
    try:
        return msgspec.convert(plain, Probe)
    except msgspec.ValidationError as error:
        raise row.broken(str(error)) from error


# --------------------------------------------------------------------------- judging


def judge(probe: Probe, expected: Expectation, answer: str | None) -> Finding:
    """What to think of an answer `allowed`, `denied: why`, `skipped: why` or `broken: why`."""
    word, _, detail = (answer or "missing: not reported").partition(": ")
    found: Found = msgspec.convert(word, Found)
    return Finding(
        name=probe.name,
        says=probe.says,
        expected=expected,
        found=found,
        detail=detail,
        verdict=_verdict(expected, found),
    )


def _verdict(expected: Expectation, found: Found) -> Verdict:
    if expected == "skipped" and found in ("broken", "missing"):
        return "ok"  # what it would try does not exist in this system
    if found == "skipped":
        return "ok" if expected == "skipped" else "skipped"
    if expected == "residual" and found in ("allowed", "denied"):
        return "residual" if found == "allowed" else "ok"
    return "ok" if expected == found else "surprise"


def judge_all(
    answers: dict[str, str],
    tier: str,
    network: NetworkMode,
    uid: int,
    said: tuple[str, ...] = (),
) -> tuple[Finding, ...]:
    """Every row judged, and every answer that no row expects counted as a surprise."""
    rows = table()
    found = [
        judge(row, row.expected(tier, network, uid, said), answers.get(row.name)) for row in rows
    ]
    unknown = answers.keys() - {row.name for row in rows}
    for name in sorted(unknown):
        row = Probe(name=name, says="is in no row of profiles/probes.yaml", expect={})
        finding = judge(row, "denied", answers[name])
        found.append(msgspec.structs.replace(finding, verdict="surprise"))
    return tuple(found)


def loose_ends(findings: Iterable[Finding], gaps: Iterable[str], is_kernel: bool) -> list[str]:
    """What a strict reader does not let pass."""
    rows = {row.name: row for row in table()}
    told = []
    for finding in findings:
        if finding.verdict == "skipped":
            told.append(f"{finding.name} was skipped: {finding.detail}")
        if finding.verdict == "residual" and is_kernel:
            words = rows[finding.name].gap
            if words is None or not any(words in gap for gap in gaps):
                told.append(f"{finding.name} is open and the tier's gaps do not say so")
    return told


# --------------------------------------------------------------------------- trying


async def verify(mechanism: Mechanism, network: NetworkMode, run: Runner) -> Report:
    """Try the whole table in one tier. Raises what `run` raises when it cannot be set up."""
    begun = time.monotonic()
    async with targets.make() as victims:
        plan = _plan(mechanism, network, victims)
        before = victims.view()
        answers = _answers(await asyncio.wait_for(run(plan), LIMIT_S), victims)
        await _all_gone(victims)
        answers |= _seen_from_outside(victims, before)
    said = (*plan.tier.enforces, *plan.tier.gaps)
    findings = judge_all(answers, mechanism.name, network, os.getuid(), said)
    return Report(
        tier=mechanism.name,
        network=network,
        uid=os.getuid(),
        seconds=round(time.monotonic() - begun, 2),
        findings=findings,
        loose_ends=tuple(loose_ends(findings, plan.tier.gaps, mechanism.is_kernel)),
    )


def _plan(mechanism: Mechanism, network: NetworkMode, victims: Victims) -> LaunchPlan:
    facts = {**victims.facts, "is_unconfined_root": not mechanism.is_kernel and os.getuid() == 0}
    with open(attempts.__file__, encoding="utf-8") as file:
        code = file.read()
    policy = policy_for(victims, network)
    policy = Copies().applied(policy, mechanism.name, shows(mechanism), victims.home)
    return mechanism.plan(
        Invocation(
            program=sys.executable,
            argv=(sys.executable, "-I", "-c", code, json.dumps(facts)),
            environment={
                "PATH": "/usr/bin:/bin",
                "HOME": victims.home,
                "TMPDIR": mechanism.temp_path(policy),
            },
            cwd=victims.workspace,
        ),
        policy,
    )


def policy_for(victims: Victims, network: NetworkMode) -> Policy:
    """The profile `default` for a home and a workspace of the verifier's own."""
    made = build_policy(
        load_profile("default"),
        workspace=victims.workspace,
        home=victims.home,
        private_tmp=victims.tmp,
        path=os.environ.get("PATH", ""),
        cwd=victims.workspace,
        hidden=[victims.daemon_folder],
    )
    return msgspec.structs.replace(made, network=network)


def _answers(ended: tuple[int, bytes], victims: Victims) -> dict[str, str]:
    """What the attempts printed. Raises SandboxdError when that is not what they print."""
    code, output = ended
    try:
        found = msgspec.json.decode(output, type=dict[str, str])
    except msgspec.DecodeError as error:
        said = output.decode(errors="replace")[-500:]
        raise SandboxdError(f"the probes ended with {code} and said: {said}") from error
    if victims.secret.encode() in output:
        raise SandboxdError("the planted secret is in the output of the probes")
    return found


async def _all_gone(victims: Victims) -> None:
    deadline = time.monotonic() + GONE_WITHIN_S
    while victims.survivors() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)


def _seen_from_outside(victims: Victims, before: dict[str, bytes]) -> dict[str, str]:
    """What the host shows afterwards; it overrules what was said inside."""
    attacks = {
        "outlive_run": bool(victims.survivors()),
        "victims_changed": victims.view() != before,
        "victim_ended": not victims.is_process_running(),
    }
    return {name: "allowed" if did else "denied: not so" for name, did in attacks.items()}
