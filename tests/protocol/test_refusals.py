"""Every method says which refusals it may answer with, and each crosses the wire whole."""

from __future__ import annotations

import json

import pytest

from sandboxd.errors import Fault, FileRefusal, Refusal, for_model
from sandboxd.protocol import wire
from sandboxd.protocol.methods import METHODS, Direction, Method
from sandboxd.protocol.refusals import REFUSALS, refusals_of

ASKED = [m for m in METHODS if m.direction in (Direction.REQUEST, Direction.NOTICE)]


@pytest.mark.parametrize("method", ASKED, ids=lambda method: method.name)
def test_every_method_registers_its_refusals(method: Method) -> None:
    assert REFUSALS.get(method.name), f"{method.name}: add a row to protocol/refusals.py"


def test_nothing_is_registered_for_a_method_that_is_not_there() -> None:
    assert set(REFUSALS) == {method.name for method in ASKED}


@pytest.mark.parametrize("method", ASKED, ids=lambda method: method.name)
def test_the_serialized_envelope_of_every_refusal(method: Method) -> None:
    for kind in refusals_of(method.name):
        refusal = kind("x is so", hint="do y", path="src/x", rule="r", data={"lines": "1\tx"})
        envelope = json.loads(wire.encode_failure(7, refusal))
        error = envelope["error"]
        assert (envelope["jsonrpc"], envelope["id"]) == ("2.0", 7)
        assert error["message"] == error["data"]["message"] == "x is so"
        assert error["code"] in (wire.REFUSED, wire.OVERLOADED, wire.INVALID_PARAMS)
        assert error["data"] == {
            "code": kind.code,
            "origin": kind.origin,
            "message": "x is so",
            "hint": "do y",
            "retryable": kind.retryable,
            "path": "src/x",
            "rule": "r",
            "data": {"lines": "1\tx"},
        }
        again = wire.error_from(wire.ErrorBody(error["code"], error["message"], error["data"]))
        assert type(again) is kind
        assert for_model(again) == for_model(refusal)


def every_file_refusal() -> list[type[Refusal]]:
    return [kind for kind in FileRefusal.__subclasses__() if kind is not FileRefusal]


@pytest.mark.parametrize("kind", every_file_refusal(), ids=lambda kind: kind.code)
def test_every_file_refusal_is_some_method_s_and_tells_a_model_how_to_go_on(
    kind: type[Refusal],
) -> None:
    assert any(kind in refusals for refusals in REFUSALS.values())
    text = for_model(kind("src/x has changed", hint="read it again", data={"lines": "     1\tnow"}))
    assert text.startswith(f"src/x has changed ({kind.code})\nhint: read it again\n")
    assert "Nothing was changed" in text
    assert "try again" in text
    assert text.endswith("1\tnow")


def test_the_recovery_sentence_is_not_on_the_wire() -> None:
    wired = wire.encode_failure(1, every_file_refusal()[0]("m", hint="h")).decode()
    assert "Nothing was changed" not in wired


@pytest.mark.parametrize("cause", [RuntimeError("/secret/path"), OSError(5, "io"), KeyError("k")])
def test_an_unknown_cause_is_a_fault_that_leaks_nothing(cause: Exception) -> None:
    error = json.loads(wire.encode_failure(1, cause))["error"]
    assert (error["code"], error["data"]["code"]) == (wire.FAULT, "FAULT")
    assert "secret" not in json.dumps(error)
    assert "KeyError" not in json.dumps(error)


def test_a_fault_keeps_its_hint_over_the_wire() -> None:
    error = json.loads(wire.encode_failure(1, Fault("the disk is full", hint="free some")))["error"]
    assert (error["message"], error["data"]["hint"]) == ("the disk is full", "free some")
    again = wire.error_from(wire.ErrorBody(error["code"], error["message"], error["data"]))
    assert isinstance(again, Fault)
    assert for_model(again) == "failed: the disk is full (FAULT)\nhint: free some"
