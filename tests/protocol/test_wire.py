"""The wire: every struct of the table survives a round trip, every broken line is named."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd import errors
from sandboxd.model import ApprovalReply, ExecRequest, Limits
from sandboxd.protocol import messages as m
from sandboxd.protocol import wire
from sandboxd.protocol.methods import METHODS, Direction

ids = st.one_of(st.integers(-(2**53), 2**53), st.text())
texts = st.text(max_size=40)
maybe_text = st.none() | texts
KINDS = sorted(
    {method.params for method in METHODS} | {method.result for method in METHODS if method.result},
    key=lambda kind: kind.__name__,
)


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Values of any struct of the protocol, made from its field types."""
    fields = {field.name: _values(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


def _values(kind: Any) -> st.SearchStrategy[Any]:
    info = msgspec.inspect.type_info(kind) if not isinstance(kind, msgspec.inspect.Type) else kind
    match info:
        case msgspec.inspect.StrType():
            return texts
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType():
            return st.integers(-(2**53), 2**53)
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.UnionType(types=types):
            return st.one_of([_values(one) for one in types])
        case msgspec.inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case msgspec.inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(_values(item), max_size=3).map(tuple)
        case msgspec.inspect.TupleType(item_types=items):
            return st.tuples(*(_values(item) for item in items))
        case msgspec.inspect.DictType(value_type=value):
            return st.dictionaries(texts, _values(value), max_size=3)
        case msgspec.inspect.StructType(cls=cls):
            return structs(cls)
        case msgspec.inspect.RawType():
            return st.dictionaries(texts, texts).map(msgspec.json.encode).map(msgspec.Raw)
    raise AssertionError(f"no values known for {info}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_struct_of_the_table_survives_the_wire(kind: type[msgspec.Struct]) -> None:
    @settings(max_examples=15, deadline=None)
    @given(structs(kind), ids)
    def round_trip(value: msgspec.Struct, number: int | str) -> None:
        line = wire.encode_response(number, value)
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        message = wire.decode(line)
        assert isinstance(message, wire.Response)
        assert message.id == number
        assert wire.decode_body(message.result, kind) == value

    round_trip()


@given(ids, st.sampled_from(METHODS), structs(ExecRequest))
@settings(max_examples=50, deadline=None)
def test_requests_and_notifications_keep_method_id_and_params(
    number: int | str, method: Any, params: ExecRequest
) -> None:
    request = wire.decode(wire.encode_request(number, method.name, params))
    assert isinstance(request, wire.Request)
    assert (request.id, request.method) == (number, method.name)
    assert wire.decode_body(request.params, ExecRequest) == params
    notification = wire.decode(wire.encode_notification(method.name, params))
    assert isinstance(notification, wire.Notification)
    assert wire.decode_body(notification.params, ExecRequest) == params


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_no_line_breaks_the_decoder(line: bytes) -> None:
    with contextlib.suppress(wire.WireError):  # and nothing else
        wire.decode(line)


BROKEN = [
    (b"", wire.PARSE_ERROR, None),
    (b"hello", wire.PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"status"', wire.PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', wire.PARSE_ERROR, None),
    (b"[]", wire.INVALID_REQUEST, None),
    (b"17", wire.INVALID_REQUEST, None),
    (b'{"id":7,"method":"status"}', wire.INVALID_REQUEST, 7),
    (b'{"jsonrpc":"1.0","id":"a","method":"status"}', wire.INVALID_REQUEST, "a"),
    (b'{"jsonrpc":"2.0","id":7,"method":5}', wire.INVALID_REQUEST, 7),
    (b'{"jsonrpc":"2.0","id":7,"method":"status","extra":1}', wire.INVALID_REQUEST, 7),
    (b'{"jsonrpc":"2.0","id":null,"method":"status"}', wire.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"status"}', wire.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"status"}', wire.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":7}', wire.INVALID_REQUEST, 7),
    (b'{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":""}}', -32600, 7),
    (b'{"jsonrpc":"2.0","id":7,"method":"status","params":[1]}', wire.INVALID_PARAMS, 7),
    (b'{"jsonrpc":"2.0","id":7,"method":"status","params":null}', wire.INVALID_PARAMS, 7),
]


@pytest.mark.parametrize(("line", "code", "number"), BROKEN)
def test_broken_lines_are_named_by_code_and_id(
    line: bytes, code: int, number: int | str | None
) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.decode(line)
    assert (caught.value.code, caught.value.request_id) == (code, number)


def test_deep_nesting_is_a_parse_error_and_no_crash() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"status","params":{"a":' + b"[" * 200_000
    with pytest.raises(wire.WireError) as caught:
        wire.decode(line)
    assert caught.value.code == wire.PARSE_ERROR


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ('{"timeout_s":"soon"}', "timeout_s"),
        ('{"argv":["ls",1]}', "argv"),
        ('{"aproove":"all"}', "aproove"),
        ('{"approve":"maybe"}', "approve"),
        ('{"env":{"A":1}}', "env"),
        ('{"limits":{"cpu_s":"x"}}', "limits.cpu_s"),
    ],
)
def test_wrong_parameters_are_named(params: str, parameter: str) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        wire.decode_body(msgspec.Raw(params.encode()), ExecRequest)
    assert caught.value.data == {"parameter": parameter}
    body = wire.error_body(caught.value)
    assert body.code == wire.INVALID_PARAMS
    assert parameter.split(".")[-1] in body.message


def refusal_classes(kind: type[errors.Refusal] = errors.Refusal) -> list[type[errors.Refusal]]:
    return [kind, *(found for child in kind.__subclasses__() for found in refusal_classes(child))]


@pytest.mark.parametrize("kind", refusal_classes(), ids=lambda kind: kind.__name__)
def test_every_refusal_is_raised_again_as_the_same_class(kind: type[errors.Refusal]) -> None:
    sent = kind("what", hint="how", path="/p", rule="r", evidence="kernel", data={"a": [1]})
    message = wire.decode(wire.encode_failure(3, sent))
    assert isinstance(message, wire.Failure)
    got = wire.error_from(message.error)
    assert type(got) is kind
    assert isinstance(got, errors.Refusal)
    assert got.to_wire() == sent.to_wire()


def test_a_fault_tells_its_sentence_and_nothing_of_its_cause() -> None:
    try:
        try:
            raise ValueError("secret detail")
        except ValueError as cause:
            raise errors.Fault("the log is broken") from cause
    except errors.Fault as fault:
        line = wire.encode_failure(1, fault)
    assert b"secret" not in line
    got = wire.error_from(wire.decode(line).error)
    assert isinstance(got, errors.Fault)
    assert str(got) == "the log is broken"


def test_an_unexpected_exception_leaves_no_internals_on_the_wire() -> None:
    line = wire.encode_failure(1, KeyError("/root/secret"))
    assert b"secret" not in line
    assert json.loads(line)["error"]["code"] == wire.FAULT


def test_overload_has_a_code_of_its_own() -> None:
    assert wire.error_body(errors.Overloaded("full", hint="wait")).code == wire.OVERLOADED


def test_what_is_not_utf8_is_replaced_and_still_sent() -> None:
    line = wire.encode_notification(
        "command.state", m.CommandState(run_id="\udc80x", state="running")
    )
    assert json.loads(line)["params"]["run_id"] == "?x"


def test_absent_parameters_are_not_sent() -> None:
    line = wire.encode_request(1, "initialize", m.Initialize(protocol_version=1))
    assert json.loads(line)["params"] == {"protocol_version": 1}


def test_limits_and_answers_are_strict() -> None:
    with pytest.raises(errors.InvalidRequest):
        wire.decode_body(msgspec.Raw(b'{"memory":1}'), Limits)
    with pytest.raises(errors.InvalidRequest):
        wire.decode_body(msgspec.Raw(b'{"answer":"yes"}'), ApprovalReply)


def test_every_row_has_params_that_refuse_unknown_names() -> None:
    for method in METHODS:
        if method.direction in (Direction.REQUEST, Direction.NOTICE):
            with pytest.raises(errors.InvalidRequest):
                wire.decode_body(msgspec.Raw(b'{"no_such_name":1}'), method.params)
