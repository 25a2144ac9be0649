"""JSON-RPC 2.0, one object per line: bytes to typed messages and back, strictly.

A module of its own because both sides of every connection share it and it is the only place
where untyped JSON is touched. A line is at most `LINE_LIMIT` bytes. What is not exactly a
request, notification, result or error is a `WireError` with the JSON-RPC code, a sentence and,
when it could be read, the id it belongs to. Source: the JSON-RPC 2.0 specification; batches are
not part of this protocol.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from sandboxd.errors import Fault, InvalidRequest, Overloaded, Refusal, SandboxdError

LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of one line, its newline included."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
REFUSED = -32000
OVERLOADED = -32001
FAULT = -32002

RequestId = int | str
T = TypeVar("T")

NO_PARAMS = Raw(b"{}")


class WireError(Exception):
    """A line or a call that the protocol does not allow; becomes an error reply."""

    def __init__(self, code: int, message: str, *, request_id: RequestId | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id


class ErrorBody(Struct, omit_defaults=True):
    """The `error` member: `data` is the refusal."""

    code: int
    message: str
    data: dict[str, Any] | None = None


class Request(Struct, frozen=True):
    id: RequestId
    method: str
    params: Raw


class Notification(Struct, frozen=True):
    method: str
    params: Raw


class Response(Struct, frozen=True):
    id: RequestId
    result: Raw


class Failure(Struct, frozen=True):
    id: RequestId | None
    error: ErrorBody


Message = Request | Notification | Response | Failure


class _Envelope(Struct, forbid_unknown_fields=True):
    jsonrpc: Literal["2.0"]
    id: RequestId | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: ErrorBody | UnsetType = UNSET


class _Call(Struct):
    method: str
    params: Struct
    jsonrpc: str = "2.0"


class _NumberedCall(Struct):
    id: RequestId
    method: str
    params: Struct
    jsonrpc: str = "2.0"


class _Answer(Struct):
    id: RequestId
    result: Struct
    jsonrpc: str = "2.0"


class _MendedAnswer(Struct):
    id: RequestId
    result: dict[str, Any]
    jsonrpc: str = "2.0"


class _Failing(Struct):
    id: RequestId | None
    error: ErrorBody
    jsonrpc: str = "2.0"


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_encoder = msgspec.json.Encoder()


def decode(line: bytes) -> Message:
    """The message that one line holds; raises WireError for anything else."""
    try:
        envelope = _decode_envelope(line)
    except msgspec.ValidationError as error:
        raise WireError(
            INVALID_REQUEST, f"not a JSON-RPC 2.0 message: {error}", request_id=_id_of(line)
        ) from error
    except RecursionError as error:
        raise WireError(PARSE_ERROR, "the line is nested too deeply") from error
    except ValueError as error:
        raise WireError(PARSE_ERROR, f"the line is not JSON: {error}") from error
    return _sorted_out(envelope)


def _sorted_out(envelope: _Envelope) -> Message:
    number, method = envelope.id, envelope.method
    is_answer = envelope.result is not UNSET or envelope.error is not UNSET
    known = number if isinstance(number, int | str) else None
    if isinstance(method, str) and not is_answer:
        params = _object_or_nothing(envelope.params, known)
        if number is UNSET:
            return Notification(method, params)
        if known is not None:
            return Request(known, method, params)
        raise WireError(INVALID_REQUEST, "the id of a request must be a number or a string")
    if method is UNSET and envelope.params is UNSET:
        if (
            isinstance(envelope.error, ErrorBody)
            and envelope.result is UNSET
            and number is not UNSET
        ):
            return Failure(known, envelope.error)
        if isinstance(envelope.result, Raw) and envelope.error is UNSET and known is not None:
            return Response(known, envelope.result)
    raise WireError(
        INVALID_REQUEST,
        "not a JSON-RPC 2.0 message: it is neither a call (method) nor an answer (result or error)",
        request_id=known,
    )


def _object_or_nothing(params: Raw | UnsetType, number: RequestId | None) -> Raw:
    if isinstance(params, UnsetType):
        return NO_PARAMS
    if bytes(memoryview(params)[:1]) != b"{":
        raise WireError(INVALID_PARAMS, "params must be an object", request_id=number)
    return params


def _id_of(line: bytes) -> RequestId | None:
    """The id of a line that is JSON but no message, so that its sender can be told."""
    try:
        found = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return None
    number = found.get("id") if isinstance(found, dict) else None
    return number if isinstance(number, int | str) and not isinstance(number, bool) else None


def decode_body(raw: Raw, kind: type[T]) -> T:
    """Parameters or a result as its struct; raises InvalidRequest that names the parameter."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"wrong parameters: {_in_words(str(error))}",
            hint="see docs/protocol.md, or `sandboxd schema`",
            data={"parameter": _parameter_of(str(error))},
        ) from error


def _parameter_of(problem: str) -> str | None:
    """The name of the parameter that msgspec's message speaks of."""
    if "field `" in problem:
        return problem.split("field `", 1)[1].split("`", 1)[0]
    if "`$." in problem:
        return problem.split("`$.", 1)[1].split("`", 1)[0].split("[", 1)[0]
    return None


def _in_words(problem: str) -> str:
    """`Expected `int`, got `str` - at `$.timeout_s`` with the parameter's name first."""
    head, separator, tail = problem.partition(" - at `$")
    path = tail.rstrip("`").lstrip(".")
    return f"`{path}`: {head}" if separator and path else head


# --------------------------------------------------------------------------- encode


def encode_request(number: RequestId, method: str, params: Struct) -> bytes:
    return _line(_NumberedCall(number, method, params))


def encode_notification(method: str, params: Struct) -> bytes:
    return _line(_Call(method, params))


def encode_response(number: RequestId, result: Struct, coerced: tuple[str, ...] = ()) -> bytes:
    """The answer to a call; `coerced` says what of its parameters was mended."""
    if not coerced:
        return _line(_Answer(number, result))
    told = {**msgspec.to_builtins(result), "coerced": coerced}
    return _line(_MendedAnswer(number, told))


def encode_failure(number: RequestId | None, error: BaseException) -> bytes:
    """The error reply for whatever a handler raised; internals never leave the process."""
    return _line(_Failing(number, error_body(error)))


def encode_plain(value: Struct) -> bytes:
    """One struct as a JSON line (`classify --batch`, `exec --json`)."""
    return _line(value)


def _line(message: Struct) -> bytes:
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError:  # a path or an argument that is not UTF-8
        return _encoder.encode(_without_surrogates(msgspec.to_builtins(message))) + b"\n"


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value


# --------------------------------------------------------------------------- errors


def error_body(error: BaseException) -> ErrorBody:
    """The code, sentence and data by which `error` crosses the wire."""
    if isinstance(error, WireError):
        refusal = InvalidRequest(error.message, hint="see docs/protocol.md")
        return ErrorBody(error.code, error.message, refusal.to_wire())
    if isinstance(error, Refusal):
        return ErrorBody(_code_of(error), error.message, error.to_wire())
    told = str(error) if isinstance(error, Fault) else "something inside sandboxd failed"
    hint = error.hint if isinstance(error, Fault) else None
    return ErrorBody(FAULT, told, _fault_data(told, hint))


def _code_of(refusal: Refusal) -> int:
    if isinstance(refusal, Overloaded):
        return OVERLOADED
    return INVALID_PARAMS if isinstance(refusal, InvalidRequest) else REFUSED


def _fault_data(told: str, hint: str | None) -> dict[str, Any]:
    return {
        "code": Fault.code,
        "origin": "fault",
        "message": told,
        "hint": hint or "this is a bug in sandboxd; SANDBOXD_DEBUG=1 shows where",
        "retryable": False,
    }


def error_from(body: ErrorBody) -> SandboxdError:
    """The very error that the server raised, rebuilt from the wire."""
    data = body.data or {}
    if body.code == FAULT:
        hint = data.get("hint")
        return Fault(body.message, hint=hint if isinstance(hint, str) else None)
    if body.code in (REFUSED, OVERLOADED) or data.get("code"):
        return Refusal.from_wire(data)
    return InvalidRequest(body.message, hint="see docs/protocol.md")
