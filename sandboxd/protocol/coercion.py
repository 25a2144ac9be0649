"""Parameters as models write them, read by the schema of the method; the one place that is lenient.

What is right as it stands is decoded at once and never comes here. What is not is mended where only
one meaning is possible: another usual name of a parameter (`file_path`, `filePath`), `"5"` for 5,
lines for a text, a null for what has a default. What was mended is named in the result; nothing is
dropped, nothing is guessed: an unknown name is refused with the nearest right one. `command`, `argv`
and `env` are never touched, because they are judged as they will run. All of it happens before rules
and roles see the call.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, structs

from sandboxd.errors import InvalidRequest
from sandboxd.protocol.methods import Method
from sandboxd.protocol.wire import decode_body

UNTOUCHED = frozenset({"command", "argv", "env"})
"""Judged as they will run: no other name, no other type."""
ALIASES: dict[str, tuple[str, ...]] = {
    "path": ("file_path", "filename", "file_name", "file", "filepath", "target_file", "absolute_path", "dir_path", "directory", "folder"),
    "source_path": ("source", "src", "from", "from_path", "source_file"),
    "content": ("contents", "file_text", "text", "data", "new_content"),
    "old_text": ("old_string", "old_str", "old", "search"),
    "new_text": ("new_string", "new_str", "new", "replace", "replacement"),
    "replace_all": ("all", "global", "all_occurrences"),
    "edits": ("changes", "replacements"),
    "patch": ("diff", "patch_text", "input"),
    "pattern": ("query", "regex", "glob_pattern", "search_pattern"),
    "offset": ("start_line", "from_line", "line"),
    "limit": ("num_lines", "line_count", "max_lines", "count"),
    "output_mode": ("mode",),
    "context": ("context_lines",),
    "ignore_case": ("case_insensitive",),
    "glob": ("include",),
    "cwd": ("workdir", "working_directory", "directory"),
    "timeout_s": ("timeout", "timeout_seconds"),
    "dry_run": ("preview",),
    "expected_version": ("version",),
    "change_id": ("id",),
}  # fmt: skip
LINES_OF = ("content", "old_text", "new_text", "patch", "stdin")
"""Texts that models give as a list of lines."""


@dataclass
class _Mending:
    """What was mended, in words."""

    told: list[str] = field(default_factory=list)

    def tell(self, where: str, what: str) -> None:
        self.told.append(f"{where}: {what}")


def decode_params(method: Method, raw: Raw) -> tuple[Struct, tuple[str, ...]]:
    """The parameters, and what had to be mended. Raises InvalidRequest that names the parameter."""
    try:
        return msgspec.json.decode(raw, type=method.params), ()
    except (ValueError, RecursionError):
        pass
    try:
        given = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return decode_body(raw, method.params), ()  # raises in the usual words
    mending = _Mending()
    mended = _object(given, method.params, "", mending)
    params = decode_body(Raw(msgspec.json.encode(mended)), method.params)
    return params, tuple(mending.told)


def _object(given: dict[str, Any], kind: type[Struct], where: str, mending: _Mending) -> Any:
    """The members by their right names, each of its right type."""
    fields = {one.encode_name: one for one in structs.fields(kind)}
    types_of = _types_of(kind)
    mended: dict[str, Any] = {}
    for name, value in given.items():
        right = _right_name(name, fields, given, kind)
        if right in mended:
            if mended[right] == value:
                mending.tell(where + name, f"the same as {right}")
                continue
            raise _twice(where + right, where + name)
        if right != name:
            mending.tell(where + name, f"taken as {right}")
        if value is None and _may_be_left_out(fields[right], types_of[right]):
            mending.tell(where + right, "null taken as its default")
            continue
        if right in UNTOUCHED:
            mended[right] = value
        else:
            mended[right] = _value(value, types_of[right], where + right, mending)
    return mended


@cache
def _types_of(kind: type[Struct]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {one.encode_name: hints[one.name] for one in structs.fields(kind)}


def _right_name(
    name: str, fields: dict[str, structs.FieldInfo], given: dict[str, Any], kind: type[Struct]
) -> str:
    """The parameter that a name stands for. Raises InvalidRequest for a name that none is near."""
    if name in fields:
        return name
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).replace("-", "_").lower()
    if snake in fields and snake not in UNTOUCHED:
        return snake
    for right, others in ALIASES.items():
        if right in fields and right not in UNTOUCHED and snake in others:
            return right
    raise _unknown(name, snake, list(fields))


def _unknown(name: str, snake: str, known: list[str]) -> InvalidRequest:
    near = difflib.get_close_matches(snake, known, 1, 0.5)
    hint = f"did you mean `{near[0]}`? " if near else ""
    names = ", ".join(f"`{one}`" for one in known) or "none"
    return InvalidRequest(
        f"wrong parameters: there is no `{name}`",
        hint=f"{hint}the parameters are {names}",
        data={"parameter": name, **({"nearest": near[0]} if near else {})},
    )


def _twice(right: str, other: str) -> InvalidRequest:
    return InvalidRequest(
        f"wrong parameters: `{other}` means `{right}`, which is given too and differs",
        hint=f"send `{right}` alone",
        data={"parameter": other},
    )


def _may_be_left_out(one: structs.FieldInfo, kind: Any) -> bool:
    is_required = one.required
    return not is_required and not _allows_none(kind)


def _allows_none(kind: Any) -> bool:
    return type(None) in _options(kind)


def _options(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the type alone; annotations taken off."""
    origin = get_origin(kind)
    if origin is typing.Annotated:
        return _options(get_args(kind)[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(option for one in get_args(kind) for option in _options(one))
    return (kind,)


def _value(value: Any, kind: Any, where: str, mending: _Mending) -> Any:
    """The value as one of the types that it may have; unchanged where there is no one meaning."""
    options = [option for option in _options(kind) if option is not type(None)]
    if value is None or any(_is(value, option) for option in options):
        return _inner(value, options, where, mending)
    for option in options:
        mended = _as(value, option, where.rpartition(".")[2])
        if mended is not value:
            mending.tell(where, f"{_shown(value)} taken as {_shown(mended)}")
            return _inner(mended, options, where, mending)
    return value


def _inner(value: Any, options: list[Any], where: str, mending: _Mending) -> Any:
    """What is inside of a list or an object."""
    for option in options:
        if isinstance(value, dict) and isinstance(option, type) and issubclass(option, Struct):
            return _object(value, option, where + ".", mending)
        if isinstance(value, list) and get_origin(option) is tuple:
            item = get_args(option)[0]
            return [_value(one, item, f"{where}[{n}]", mending) for n, one in enumerate(value)]
    return value


def _is(value: Any, kind: Any) -> bool:
    """Whether JSON of this value is of this type as it stands."""
    origin = get_origin(kind)
    if origin is Literal:
        return value in get_args(kind)
    if origin is tuple:
        return isinstance(value, list)
    if origin is dict:
        return isinstance(value, dict)
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return isinstance(value, dict)
    return isinstance(kind, type) and isinstance(value, kind)


def _as(value: Any, kind: Any, name: str) -> Any:
    """The value as the type, when there is one way; the very value when there is none."""
    if kind is bool:
        return {"true": True, "false": False}.get(str(value).lower(), value)
    if kind is int or kind is float:
        return _number(value, kind)
    if get_origin(kind) is Literal and isinstance(value, str):
        lower = value.strip().lower()
        return lower if lower in get_args(kind) else value
    if kind is str:
        return _text(value, name)
    if get_origin(kind) is tuple or (isinstance(kind, type) and issubclass(kind, Struct)):
        return _list_or_object(value, kind)
    return value


def _number(value: Any, kind: type) -> Any:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,15}(\.\d{1,9})?", value.strip()):
        number = float(value)
        if kind is float:
            return number
        return int(number) if number.is_integer() else value
    return int(value) if kind is int and isinstance(value, float) and value.is_integer() else value


def _text(value: Any, name: str) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return str(value)
    is_lines = isinstance(value, list) and all(isinstance(line, str) for line in value)
    if not is_lines or name.split("[")[0] not in LINES_OF:
        return value
    if any(line.endswith("\n") for line in value):
        return "".join(value)
    text = "\n".join(value)
    return text + "\n" if text and name in ("content", "patch", "stdin") else text


def _list_or_object(value: Any, kind: Any) -> Any:
    """JSON that was written as text; one thing where a list of them is expected."""
    if isinstance(value, str):
        try:
            parsed = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            parsed = value
        if isinstance(parsed, list | dict):
            value = parsed
    if get_origin(kind) is not tuple or isinstance(value, list):
        return value
    item = get_args(kind)[0]
    return [value] if any(_is(value, option) for option in _options(item)) else value


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
