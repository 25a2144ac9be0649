"""Escalation tokens: bound, single-use, short-lived."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxd.decide.escalation import LASTS_S, MAX_OFFERS, Escalations, binding
from sandboxd.errors import EscalationRefused
from sandboxd.model import Denial, ExecRequest

DENIAL = Denial(evidence="policy", rule="files.writing", path="/x")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def bound(**changed: Any) -> str:
    given: dict[str, Any] = {
        "session_id": "s",
        "cwd": "/w",
        "environment": {"A": "b"},
        "tier": "namespaces",
    }
    request = {"argv": ("touch", "/x"), "env": {"C": "d"}}
    for name, value in changed.items():
        (given if name in given else request)[name] = value
    session_id = given.pop("session_id")
    return binding(session_id, ExecRequest(**request), **given)


@pytest.mark.parametrize(
    "changed",
    [
        {"session_id": "t"},
        {"cwd": "/v"},
        {"environment": {"A": "c"}},
        {"environment": {}},
        {"tier": "landlock"},
        {"argv": ("touch", "/y")},
        {"argv": ("touch /x",)},
        {"argv": None, "command": "touch /x"},
        {"env": {"C": None}},
        {"env_pass": ("AWS_SECRET_ACCESS_KEY",)},
        {"stdin": "x"},
        {"stdin_open": True},
        {"profile": "agent"},
    ],
)
def test_a_token_is_good_for_the_very_same_command_only_and_is_spent_by_another(
    changed: dict[str, Any],
) -> None:
    tokens = Escalations()
    offered = tokens.offer(bound(), DENIAL, "it ran")
    with pytest.raises(EscalationRefused):
        tokens.redeem(offered.token, bound(**changed))
    with pytest.raises(EscalationRefused):
        tokens.redeem(offered.token, bound())


def test_a_token_is_used_once_and_knows_why_it_was_given() -> None:
    tokens = Escalations()
    offered = tokens.offer(bound(), DENIAL, "it ran")
    offer = tokens.redeem(offered.token, bound())
    assert (offer.denial, offer.ran, offered.expires_s) == (DENIAL, "it ran", LASTS_S)
    with pytest.raises(EscalationRefused):
        tokens.redeem(offered.token, bound())
    tokens.give_back(offered.token, offer)
    assert tokens.redeem(offered.token, bound()) is offer


def test_a_token_grows_old() -> None:
    clock = Clock()
    tokens = Escalations(clock)
    offered = tokens.offer(bound(), DENIAL, "")
    clock.now += LASTS_S
    with pytest.raises(EscalationRefused):
        tokens.redeem(offered.token, bound())


def test_tokens_are_bounded_and_the_oldest_goes_first() -> None:
    tokens = Escalations()
    first, second = tokens.offer(bound(), DENIAL, ""), tokens.offer(bound(), DENIAL, "")
    for _ in range(MAX_OFFERS - 1):
        tokens.offer(bound(), DENIAL, "")
    with pytest.raises(EscalationRefused):
        tokens.redeem(first.token, bound())
    tokens.redeem(second.token, bound())


def test_a_guessed_token_is_refused_like_a_used_one() -> None:
    with pytest.raises(EscalationRefused, match="not good for this command"):
        Escalations().redeem("forged", bound())
