"""One table from reason to layer; what merely looks like a denial is none; history is inferred."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from sandboxd import errors
from sandboxd.errors import Refusal
from sandboxd.events.attribution import LAYERS, TABLE, attribute, lookup, reason_of_result
from sandboxd.events.kinds import Abandoned, DecisionMade, Finished, VerdictGiven, kind_of
from sandboxd.events.log import _encoded
from sandboxd.events.statistics import statistics
from sandboxd.events.tally import count_row, tally_of
from sandboxd.model import Denial, Layer, Verdict
from tests.events.samples import DECISION, VERDICT, one_run, refused

TEXT = Denial(evidence="text", rule="output-text")
KERNEL = Denial(evidence="kernel", rule="seccomp")
PROXY = Denial(evidence="proxy", rule="network.allow", host="x")


def reason(**facts: Any) -> str | None:
    plain: dict[str, Any] = {
        "exit_code": 1,
        "signal": None,
        "timed_out": False,
        "limit": None,
        "denial": None,
        "exit_meaning": {},
    }
    return reason_of_result(**{**plain, **facts})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"exit_code": 0}, None),
        ({"exit_code": 0, "denial": PROXY}, None),
        ({"exit_meaning": {"1": "no match"}}, None),
        ({"exit_meaning": {"1": "no match"}, "exit_code": 2}, "exit_status"),
        ({}, "exit_status"),
        ({"denial": TEXT}, "exit_status_text"),
        ({"denial": KERNEL}, "denial.kernel"),
        ({"denial": PROXY}, "denial.proxy"),
        ({"timed_out": True, "exit_code": 124, "denial": KERNEL}, "limit.wall"),
        ({"limit": "cpu", "exit_code": 152, "signal": "SIGXCPU"}, "limit.cpu"),
        ({"limit": "memory", "exit_code": 137, "signal": "SIGKILL"}, "limit.memory"),
        ({"exit_code": 139, "signal": "SIGSEGV"}, "crashed"),
        ({"exit_code": 137, "signal": "SIGKILL"}, "killed"),
        ({"exit_code": 159, "signal": "SIGSYS"}, "denial.kernel"),
        ({"exit_code": 129, "signal": "SIGHUP", "exit_meaning": {"129": "no"}}, "killed"),
        ({"exit_code": 127}, "program_missing"),
        ({"exit_code": 126}, "not_executable"),
        ({"exit_code": 6, "programs": ("/usr/bin/curl",)}, "network"),
        ({"exit_code": 6, "programs": ("make",)}, "exit_status"),
    ],
)
def test_reason_of_a_run(facts: dict[str, Any], expected: str | None) -> None:
    assert reason(**facts) == expected


@pytest.mark.parametrize(
    ("name", "layer", "origin"),
    [
        ("refusal.APPROVAL_REQUIRED", "agent", "gate"),
        ("refusal.RULE_VIOLATED", "agent", "rule"),
        ("fault", "harness", "host"),
        ("limit.wall", "workflow", "limit"),
        ("limit.memory", "workflow", "limit"),
        ("network", "environment", "host"),
        ("program_missing", "environment", "host"),
        ("refusal.TIER_UNAVAILABLE", "environment", "host"),
        ("denial.kernel", "environment", "sandbox"),
        ("refusal.CANCELLED", "operator", "client"),
        ("refusal.APPROVAL_DENIED", "operator", "gate"),
        ("client_vanished", "provider", "client"),
        ("exit_status_text", "unknown", "tool"),
        ("what nobody knows", "unknown", "tool"),
    ],
)
def test_layer_of_a_reason(name: str, layer: str, origin: str) -> None:
    assert lookup(name) == (layer, origin)


def test_every_layer_is_known_and_every_reason_names_one() -> None:
    assert set(LAYERS) == set(get_args(Layer))
    assert {layer for layer, _ in TABLE.values()} <= set(LAYERS)


def every(kind: type[Refusal]) -> list[type[Refusal]]:
    return [kind, *(found for child in kind.__subclasses__() for found in every(child))]


def test_every_refusal_belongs_to_somebody() -> None:
    """A new refusal falls back on its origin, and never on `unknown`."""
    for kind in every(errors.Refusal):
        assert attribute(f"refusal.{kind.code}", kind.origin).primary != "unknown", kind


def rows(*events: Any) -> list[tuple[int, str, str | None, str | None, str]]:
    return [(0, kind_of(e), e.session_id, e.run_id, _encoded(e)) for e in events]


def finished(run: str, **facts: Any) -> Finished:
    return Finished(session_id="s", run_id=run, duration_s=0.1, **facts)


def test_statistics_count_calls_layers_and_reasons() -> None:
    found = statistics(
        tally_of(
            rows(
                *one_run("s", "r1"),
                finished("r2", exit_code=1, outcome="answer"),
                finished("r3", exit_code=1, outcome="failed", attribution=attribute("killed")),
                refused("t", "r4"),
                Abandoned(session_id="t", run_id="r5"),
                DecisionMade(session_id="s", run_id="r2", decision=DECISION),
            )
        )
    )
    assert (found.calls, found.ok, found.answers, found.failed) == (5, 1, 1, 3)
    assert {layer.layer: layer.count for layer in found.layers} == {
        "unknown": 1,
        "agent": 1,
        "provider": 1,
    }
    assert found.unknown_share == pytest.approx(1 / 3, abs=1e-4)
    assert {row.reason for row in found.reasons} == {
        "killed",
        "refusal.CWD_MISSING",
        "client_vanished",
    }
    assert [(group.name, group.calls, group.failed) for group in found.sessions] == [
        ("s", 3, 1),
        ("t", 2, 2),
    ]
    assert [group.name for group in found.days] == ["1970-01-01"]
    assert found.decisions == {"allow": 2}


def test_statistics_of_nothing_are_zeros() -> None:
    found = statistics({})
    assert (found.calls, found.failed, found.unknown_share, found.layers) == (0, 0, 0.0, ())


def test_history_without_attribution_is_inferred_by_the_same_table() -> None:
    """Events of version 1: no outcome, no attribution, the meaning of an exit code in the verdict."""
    verdict = Verdict(
        class_=VERDICT.class_, parsed=True, cacheable=True, exit_meaning={"1": "no match"}
    )
    tally: dict[Any, int] = {}
    answers: dict[str, dict[str, str]] = {}
    events = (
        VerdictGiven(session_id="s", run_id="r1", command="grep", cwd="/w", verdict=verdict),
        finished("r1", exit_code=1),
        finished("r2", exit_code=1),
        finished("r3", exit_code=1, denial=TEXT),
        finished("r4", exit_code=124, timed_out=True),
        finished("r5", exit_code=0),
    )
    for row in rows(*events):
        count_row(tally, row, answers)
    found = statistics(tally)
    assert (found.calls, found.ok, found.answers, found.failed) == (5, 1, 1, 3)
    assert {(row.reason, row.layer, row.inferred) for row in found.reasons} == {
        ("exit_status", "agent", 1),
        ("exit_status_text", "unknown", 1),
        ("limit.wall", "workflow", 1),
    }
