"""What a person is told: one line each, nothing from outside reaches the terminal as control."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxd import errors, network
from sandboxd.cli.told import tell, tell_about, tell_refusal, visible, visible_lines
from sandboxd.model import NetworkMode, Policy

TIER = {"name": "namespaces", "kernel": True, "why_not_stronger": []}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 text", "plain é 漢 text"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[2J\x07\x00", "\\x1b[2J\\x07\\x00"),
        ("\x9b2J", "\\x9b2J"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_bidirectional_and_broken_characters_are_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_of_a_command_stay_lines() -> None:
    assert visible_lines("a\n\x1bb") == "a\n\\x1bb"


def test_a_sentence_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    tell("one\ntwo")
    assert capfd.readouterr().err == "sandboxd: one\\ntwo\n"


@pytest.mark.parametrize("kind", sorted(errors._BY_CODE.values(), key=lambda kind: kind.__name__))
def test_every_refusal_has_message_hint_and_its_exit_code(
    kind: type[errors.Refusal], capfd: pytest.CaptureFixture[str]
) -> None:
    assert tell_refusal(kind("what", hint="how").to_wire()) == kind.exit_code
    told = capfd.readouterr().err.splitlines()
    assert told[:2] == [f"sandboxd: what ({kind.code})", "sandboxd: hint: how"]
    assert told[2:] == ([f"sandboxd: {kind.recovery}"] if kind.recovery else [])


def told_about(result: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> list[str]:
    tell_about({"tier": TIER, **result}, 2)
    return capfd.readouterr().err.splitlines()


def test_an_ordinary_run_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    nothing = {"survivors": 0, "set_aside": [], "limit": None, "denial": None, "timed_out": False}
    assert told_about(nothing, capfd) == []


def test_a_network_that_fell_back_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    policy = Policy(
        profile="default",
        workspace="/w",
        writable=(),
        private_tmp="/t",
        network=NetworkMode.OPEN,
    )
    (gap,) = network.in_mode(policy, NetworkMode.HOST, "landlock").notes
    assert told_about({"tier": {**TIER, "gaps": ["another", gap]}}, capfd) == [f"sandboxd: {gap}"]


def test_a_weaker_tier_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    tier = {"name": "containment", "kernel": False, "why_not_stronger": ["no namespaces", "old"]}
    assert told_about({"tier": tier}, capfd) == [
        "sandboxd: ran in the tier containment (no kernel boundary): no namespaces; old"
    ]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"timed_out": True, "limit": "wall"}, ["sandboxd: stopped after 2 s"]),
        ({"limit": "cpu"}, ["sandboxd: limit reached: cpu"]),
        ({"refreshed": ["a.py"]}, ["sandboxd: changed files that were read before: a.py"]),
        ({"survivors": 1}, ["sandboxd: 1 process outlived the command and was killed"]),
        ({"survivors": 3}, ["sandboxd: 3 processes outlived the command and were killed"]),
        (
            {"denial": {"evidence": "text", "rule": "r", "path": "/x", "hint": "h"}},
            ["sandboxd: perhaps the sandbox refused /x", "sandboxd: hint: h"],
        ),
        (
            {"denial": {"evidence": "kernel", "rule": "connect", "hint": None}},
            ["sandboxd: the sandbox refused connect"],
        ),
    ],
)
def test_what_happened_is_said_once(
    result: dict[str, Any], told: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert told_about(result, capfd) == told
