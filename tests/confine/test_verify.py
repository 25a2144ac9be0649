"""The probe table: complete, judged rightly, green on every tier, and red where a tier lies."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sandboxd.confine.tier import Mechanism
from sandboxd.confine.verify import Probe, Report, judge, judge_all, loose_ends, table, verify
from sandboxd.engine import Engine
from sandboxd.model import TIER_NAMES, Invocation, LaunchPlan, NetworkMode, Policy
from sandboxd.system.attempts import Attempts, every
from tests.confined import REQUIRED_TIERS, make_ground, mechanism, plan_for

ROOT = Path(__file__).resolve().parents[2]
FROM_OUTSIDE = {"victims_changed", "victim_ended"}
SECONDS_PER_TIER = 10


def verified(
    tested: Mechanism,
    network: NetworkMode = NetworkMode.HOST,
    first: LaunchPlan | None = None,
) -> Report:
    """The report on a tier; with `first`, in an init that was made ahead after that run."""

    async def main() -> Report:
        engine = await Engine.create(keeps_spare=first is not None)
        try:
            if first is not None:
                await engine.run_plan(first)
                await asyncio.sleep(0.1)
            return await verify(tested, network, engine.run_plan)
        finally:
            await engine.close()

    return asyncio.run(main())


# ------------------------------------------------------------------ the table


def test_every_row_is_tried_and_every_attempt_has_its_row() -> None:
    tried = {name for name, _ in every(Attempts({}))}
    assert {row.name for row in table()} == tried | FROM_OUTSIDE


@pytest.mark.parametrize("row", table(), ids=lambda row: row.name)
def test_a_row_says_what_it_does_and_what_each_tier_must_do(row: Probe) -> None:
    assert len(row.says.split()) >= 3
    assert set(row.expect) == {"seatbelt", "namespaces", "bubblewrap", "landlock", "containment"}
    assert {*row.when_apart, *row.when_root} <= set(TIER_NAMES)
    kernel = [row.expect[name] for name in ("seatbelt", "namespaces", "bubblewrap", "landlock")]
    assert (row.gap is not None) == ("residual" in kernel)


def test_what_a_stronger_tier_leaves_open_no_weaker_one_stops() -> None:
    for row in table():
        order = [row.expect[name] == "residual" for name in ("namespaces", "landlock")]
        assert order == sorted(order), row.name


# ------------------------------------------------------------------ judging

ROW = Probe(name="row", says="does a thing", expect={"landlock": "residual"}, gap="metadata")


@pytest.mark.parametrize(
    ("expected", "answer", "verdict"),
    [
        ("allowed", "allowed", "ok"),
        ("allowed", "denied: EPERM", "surprise"),
        ("denied", "denied: EPERM", "ok"),
        ("denied", "allowed", "surprise"),
        ("denied", "broken: AssertionError", "surprise"),
        ("denied", None, "surprise"),
        ("denied", "skipped: no such call", "skipped"),
        ("skipped", "skipped: would harm", "ok"),
        ("skipped", "allowed", "surprise"),
        ("residual", "allowed", "residual"),
        ("residual", "denied: EACCES", "ok"),
        ("residual", "broken: x", "surprise"),
    ],
)
def test_expected_against_found(expected: str, answer: str | None, verdict: str) -> None:
    assert judge(ROW, expected, answer).verdict == verdict  # type: ignore[arg-type]


def test_columns_for_network_and_root_go_before_the_tiers() -> None:
    row = Probe(
        name="row",
        says="does a thing",
        expect={"landlock": "residual", "containment": "residual"},
        when_apart={"landlock": "denied"},
        when_root={"containment": "skipped"},
    )
    found = [
        row.expected(tier, network, uid)
        for tier in ("landlock", "containment")
        for network in (NetworkMode.HOST, NetworkMode.OFF)
        for uid in (0, 1000)
    ]
    assert found[:4] == ["residual", "residual", "denied", "denied"]
    assert found[4:] == ["skipped", "residual", "skipped", "residual"]


def test_what_a_tier_says_of_itself_goes_before_every_column() -> None:
    row = Probe(
        name="row",
        says="does a thing",
        expect={"bubblewrap": "denied"},
        when_said={"/proc is the host's": "residual"},
    )
    for said, expected in (
        (("own processes",), "denied"),
        (("here /proc is the host's",), "residual"),
    ):
        assert row.expected("bubblewrap", NetworkMode.HOST, 0, said) == expected


def test_an_answer_that_no_row_expects_is_a_surprise() -> None:
    found = judge_all({"unheard_of": "denied: EPERM"}, "landlock", NetworkMode.HOST, 1000)
    assert found[-1].name == "unheard_of"
    assert {finding.verdict for finding in found} >= {"surprise"}


def test_strictly_a_skip_and_an_unsaid_residual_are_loose_ends() -> None:
    found = judge_all(
        {"chmod_outside": "allowed", "vsock": "skipped: none"}, "landlock", NetworkMode.HOST, 1000
    )
    assert loose_ends(found, ["metadata of any file"], True) == ["vsock was skipped: none"]
    assert loose_ends(found, [], True) == [
        "chmod_outside is open and the tier's gaps do not say so",
        "vsock was skipped: none",
    ]


# ------------------------------------------------------------------ really tried


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_a_tier_holds_what_the_table_says(tier: str) -> None:
    tested = mechanism(tier)
    reports = [verified(tested, network) for network in tested.networks]
    for report in reports:
        assert [finding for finding in report.findings if finding.verdict == "surprise"] == []
        assert report.loose_ends == ()
    assert sum(report.seconds for report in reports) < SECONDS_PER_TIER


@pytest.mark.parametrize("network", [NetworkMode.HOST, NetworkMode.OPEN])
def test_an_init_made_ahead_of_its_run_holds_the_same(network: NetworkMode) -> None:
    for ground in make_ground():
        first = plan_for("namespaces", ground, ["/bin/true"], ground.policy(network))
        report = verified(mechanism("namespaces"), network, first)
        assert [finding for finding in report.findings if finding.verdict == "surprise"] == []


class Liar:
    """A tier that says of itself what another says, and holds less."""

    is_kernel = True
    shows_copies = True
    remedy = ""
    networks = (NetworkMode.HOST,)

    def __init__(self, name: str, spoil: Callable[[LaunchPlan, Policy], LaunchPlan]) -> None:
        self.name = name
        self.real = mechanism(name)
        self.spoil = spoil

    def temp_path(self, policy: Policy) -> str:
        return self.real.temp_path(policy)

    def plan(
        self, invocation: Invocation, policy: Policy, why_not_stronger: tuple[str, ...] = ()
    ) -> LaunchPlan:
        return self.spoil(self.real.plan(invocation, policy, why_not_stronger), policy)


def without_filter(plan: LaunchPlan, policy: Policy) -> LaunchPlan:
    return msgspec.structs.replace(plan, seccomp=None, connect_roots=None)


def without_view(plan: LaunchPlan, policy: Policy) -> LaunchPlan:
    kept = [step for step in plan.mounts if step.kind in ("proc", "dev", "bind", "tmp", "visible")]
    return msgspec.structs.replace(plan, mounts=tuple(kept), landlock=None)


def without_workspace(plan: LaunchPlan, policy: Policy) -> LaunchPlan:
    assert plan.landlock is not None
    return msgspec.structs.replace(
        plan, landlock=msgspec.structs.replace(plan.landlock, write=(policy.private_tmp,))
    )


@pytest.mark.parametrize(
    ("tier", "spoil", "surprises"),
    [
        ("namespaces", without_filter, {"user_namespace", "io_uring", "keyctl", "host_socket"}),
        ("namespaces", without_view, {"read_secret", "list_secrets", "append_hook", "envrc"}),
        ("landlock", without_workspace, {"work_in_workspace", "socket_in_workspace"}),
    ],
)
def test_a_tier_that_holds_less_or_allows_less_is_found_out(
    tier: str, spoil: Callable[[LaunchPlan, Policy], LaunchPlan], surprises: set[str]
) -> None:
    found = {finding.name for finding in verified(Liar(tier, spoil)).surprises}
    assert found >= surprises


def test_the_victims_are_gone_afterwards_even_when_the_run_fails() -> None:
    async def failing(plan: LaunchPlan) -> tuple[int, bytes]:
        return 1, b"no"

    before = set(os.listdir("/var/tmp"))
    with pytest.raises(Exception, match="the probes ended with 1"):
        asyncio.run(verify(mechanism("containment"), NetworkMode.HOST, failing))
    left = {name for name in set(os.listdir("/var/tmp")) - before if "verify" in name}
    assert left == set()


@pytest.mark.parametrize(
    ("host", "tier"),
    [("masked_proc", "bubblewrap"), ("container", "landlock"), ("no_user_namespaces", "landlock")],
)
def test_the_tier_of_a_poorer_host_holds_what_it_says_too(host: str, tier: str) -> None:
    words = [sys.executable, "-m", "tests.confine.emulated", host, "--", "verify", "--strict"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith(f"{tier}, network ")


# ------------------------------------------------------------------ on the command line


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandboxd", "verify", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_json_holds_every_row_of_the_tier_asked_for() -> None:
    done = command("--tier", "containment", "--json")
    assert done.returncode == 0, done.stderr
    [report] = json.loads(done.stdout)["reports"]
    assert report["tier"] == "containment"
    assert {finding["name"] for finding in report["findings"]} == {row.name for row in table()}


def test_text_shows_expected_and_found_and_prints_what_is_open() -> None:
    done = command("--tier", "landlock")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert any("read_secret" in line and "expected denied" in line for line in lines)
    assert any(line.startswith("  open") and "chmod_outside" in line for line in lines)


def test_a_required_tier_that_is_missing_fails_strictly_only() -> None:
    required = {"SANDBOXD_TEST_TIERS": "containment,seatbelt"}
    assert command("--all", **required).returncode == 0
    strict = command("--all", "--strict", **required)
    assert strict.returncode == 1
    assert "seatbelt: MISSING" in strict.stdout


@pytest.mark.parametrize(("tier", "code"), [("strongest", 2), ("seatbelt", 125)])
def test_a_tier_that_is_not_to_be_had_is_refused(tier: str, code: int) -> None:
    done = command("--tier", tier)
    assert done.returncode == code
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr
