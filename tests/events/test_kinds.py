"""The format of the log: kinds survive storing, and what is kept of a run is bounded."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.errors import CwdMissing, Fault
from sandboxd.events.kinds import (
    COMMAND_CHARACTERS,
    EXCERPT_BYTES,
    Event,
    EventsLost,
    Faulted,
    Finished,
    Launched,
    Refused,
    SegmentBegun,
    VerdictGiven,
    excerpt,
    kind_of,
)
from sandboxd.model import Attribution, Captured, LaunchPlan, Result
from tests.events.samples import DECISION, TIER, VERDICT, one_of_each


def test_every_kind_has_a_sample_and_comes_back_as_the_same_value() -> None:
    samples = [*one_of_each(), EventsLost(count=3, cause="disk full"), SegmentBegun(number=2)]
    assert {type(sample) for sample in samples} == set(get_args(Event))
    for sample in samples:
        assert msgspec.json.decode(msgspec.json.encode(sample), type=Event) == sample


def test_kinds_keep_their_names() -> None:
    assert sorted(kind_of(sample) for sample in one_of_each()) == sorted(
        [
            "session_opened",
            "verdict",
            "decision",
            "launch",
            "result",
            "egress_denied",
            "escalated",
            "approval_asked",
            "approval_answered",
            "files",
            "refusal",
            "fault",
            "abandoned",
            "grounds",
            "observation",
            "assessment",
        ]
    )


def test_result_keeps_sizes_and_only_the_end_of_the_output() -> None:
    text = "x" * 5000 + "the last words"
    result = Result(
        run_id="r1",
        exit_code=1,
        duration_s=0.5,
        cwd="/w",
        tier=TIER,
        verdict=VERDICT,
        decision=DECISION,
        stdout=Captured(text=text, total_bytes=90_000, total_lines=1),
        stderr=Captured(text="no", total_bytes=2, total_lines=1),
    )
    event = Finished.of("s1", result)
    assert event.stdout_bytes == 90_000
    assert event.stdout_end == text[-EXCERPT_BYTES:]
    assert event.stderr_end == "no"


def test_result_made_by_hand_is_cut_as_well() -> None:
    event = Finished(session_id="s", run_id="r", exit_code=0, duration_s=0.0, stdout_end="y" * 9999)
    assert len(event.stdout_end) == EXCERPT_BYTES


@given(st.text(max_size=1500))
def test_excerpt_is_the_end_of_the_text_and_never_too_long(text: str) -> None:
    kept = excerpt(text)
    assert len(kept.encode()) <= EXCERPT_BYTES
    assert text.endswith(kept)
    assert kept == text or len(kept.encode()) > EXCERPT_BYTES - 4


def test_overlong_command_loses_its_end_and_says_so() -> None:
    text = "rm " + "f " * COMMAND_CHARACTERS
    event = VerdictGiven.of("s", "r", command=text, cwd="/w", verdict=VERDICT)
    assert event.is_abridged
    assert event.command == text[:COMMAND_CHARACTERS]
    assert event.verdict.read_paths == ()


def test_launch_keeps_no_environment_and_no_arguments() -> None:
    plan = LaunchPlan(
        tier=TIER,
        argv=("ls", "hunter2"),
        program="/bin/ls",
        environment={"TOKEN": "hunter2"},
        cwd="/w",
        namespaces=("user", "mount"),
    )
    event = Launched.of("s", "r", plan)
    assert event.namespaces == ("user", "mount")
    assert b"hunter2" not in msgspec.json.encode(event)


def test_refusal_is_kept_without_the_output_it_carries() -> None:
    refusal = CwdMissing("/x is gone", hint="name another", path="/x", data={"stdout": "secret"})
    event = Refused.of("s", None, refusal)
    assert (event.code, event.origin, event.path) == ("CWD_MISSING", "client", "/x")
    assert b"secret" not in msgspec.json.encode(event)


def test_fault_keeps_the_kind_of_its_cause_only() -> None:
    with pytest.raises(Fault) as caught:
        raise Fault("the launcher is gone") from BrokenPipeError("pipe of token=abc")
    event = Faulted.of("s", "r", caught.value)
    assert event == Faulted(
        session_id="s",
        run_id="r",
        message="the launcher is gone",
        cause="BrokenPipeError",
        attribution=Attribution(primary="harness", origin="host", reason="fault"),
    )
