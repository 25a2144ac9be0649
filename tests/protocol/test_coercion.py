"""Parameters as models write them, over the whole table: mended and named, or refused; never dropped."""

from __future__ import annotations

import typing
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from msgspec import Raw, structs

from sandboxd.errors import InvalidRequest
from sandboxd.protocol.coercion import ALIASES, UNTOUCHED, _options, decode_params
from sandboxd.protocol.methods import BY_NAME, METHODS, Direction, Method

ASKED = [m for m in METHODS if m.direction in (Direction.REQUEST, Direction.NOTICE)]
EDIT = BY_NAME["fs.edit"]


def raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def hints(method: Method) -> dict[str, Any]:
    return typing.get_type_hints(method.params)


def sample(kind: Any) -> Any:
    """Some value of a type, as JSON."""
    option = next(one for one in _options(kind) if one is not type(None))
    origin = get_origin(option)
    if origin is Literal:
        return get_args(option)[0]
    if origin is tuple:
        return [sample(get_args(option)[0])]
    if origin is dict:
        return {"A": sample(get_args(option)[1])}
    if isinstance(option, type) and issubclass(option, msgspec.Struct):
        return {
            one.encode_name: sample(typing.get_type_hints(option)[one.name])
            for one in structs.fields(option)
            if one.required
        }
    return {int: 5, float: 2.5, bool: True, str: "text"}.get(option, "anything")


def whole(method: Method) -> dict[str, Any]:
    """Every parameter of a method with some value."""
    kinds = hints(method)
    return {one.encode_name: sample(kinds[one.name]) for one in structs.fields(method.params)}


@pytest.mark.parametrize("method", ASKED, ids=lambda method: method.name)
def test_what_is_right_is_taken_as_it_is(method: Method) -> None:
    params, told = decode_params(method, raw(whole(method)))
    assert told == ()
    assert msgspec.json.decode(msgspec.json.encode(params), type=method.params) == params


@pytest.mark.parametrize("method", ASKED, ids=lambda method: method.name)
def test_every_parameter_is_known_by_its_other_names_and_named_in_the_result(
    method: Method,
) -> None:
    given = whole(method)
    expected, _ = decode_params(method, raw(given))
    for name in given:
        others = [] if name in UNTOUCHED else list(ALIASES.get(name, ()))
        words = name.split("_")
        others += [words[0] + "".join(map(str.title, words[1:]))] if len(words) > 1 else []
        for other in others:
            earlier = [right for right in ALIASES if right in given and other in ALIASES[right]]
            if other in given or (earlier and earlier[0] != name):
                continue
            renamed = {(other if key == name else key): value for key, value in given.items()}
            params, told = decode_params(method, raw(renamed))
            assert params == expected
            assert f"{other}: taken as {name}" in told


@pytest.mark.parametrize("method", ASKED, ids=lambda method: method.name)
def test_every_number_and_switch_may_come_as_text(method: Method) -> None:
    given, kinds = whole(method), hints(method)
    expected, _ = decode_params(method, raw(given))
    for one in structs.fields(method.params):
        name = one.encode_name
        options = _options(kinds[one.name])
        if not {int, float, bool} & set(options) or str in options:
            continue
        text = str(given[name]).lower()
        params, told = decode_params(method, raw({**given, name: text}))
        assert params == expected, name
        assert any(line.startswith(f"{name}: ") for line in told)


@pytest.mark.parametrize("method", ASKED, ids=lambda method: method.name)
def test_null_stands_for_a_default(method: Method) -> None:
    given = whole(method)
    for one in structs.fields(method.params):
        name = one.encode_name
        if one.required:
            continue
        without = {key: value for key, value in given.items() if key != name}
        expected, _ = decode_params(method, raw(without))
        params, _ = decode_params(method, raw({**given, name: None}))
        if type(None) not in _options(hints(method)[one.name]):
            assert params == expected, name


@pytest.mark.parametrize("method", ASKED, ids=lambda method: method.name)
def test_an_unknown_name_is_refused_with_the_nearest_right_one(method: Method) -> None:
    given = whole(method)
    with pytest.raises(InvalidRequest) as told:
        decode_params(method, raw({**given, "zqxjkvbw": 1}))
    assert "`zqxjkvbw`" in told.value.message
    assert told.value.data == {"parameter": "zqxjkvbw"}
    for name in given:
        wrong = name[:1] + name[2:] if len(name) > 3 else name
        if wrong == name or wrong in given or any(wrong in names for names in ALIASES.values()):
            continue
        with pytest.raises(InvalidRequest) as told:
            decode_params(method, raw({**given, wrong: given[name]}))
        assert told.value.data is not None
        assert told.value.data["nearest"] in given


@pytest.mark.parametrize("name", sorted(UNTOUCHED))
@pytest.mark.parametrize("method", ASKED, ids=lambda method: method.name)
def test_what_will_run_is_never_touched(method: Method, name: str) -> None:
    """Neither another name nor another type: it is judged as it was written."""
    given = whole(method)
    if name not in given:
        return
    others = {"command": "cmd", "argv": "args", "env": "environ"}
    with pytest.raises(InvalidRequest):
        decode_params(method, raw({others[name]: given[name], **{k: v for k, v in given.items() if k != name}}))  # fmt: skip
    for wrong in ({"command": ["ls"], "argv": "ls", "env": "A=b"}[name], 5):
        with pytest.raises(InvalidRequest):
            decode_params(method, raw({**given, name: wrong, "timeout": 5} if "timeout_s" in given else {**given, name: wrong}))  # fmt: skip
    text = {
        "command": " cat  “x” ",
        "argv": ["ls", "5", "true"],
        "env": {"filePath": "5", "N": None},
    }
    if method.name in ("initialize",):
        text["env"] = {"filePath": "5"}
    # Something else is mended in the same call: what will run is the same to the letter.
    switch = next((key for key, kind in hints(method).items() if kind is bool), None)
    mended = {**given, name: text[name], **({switch: "true"} if switch else {})}
    params, _ = decode_params(method, raw(mended))
    value = getattr(params, name)
    assert (list(value) if name == "argv" else value) == text[name]


def test_content_given_as_lines_is_a_text() -> None:
    method = BY_NAME["fs.write"]
    params, told = decode_params(method, raw({"file_path": "a", "content": ["x", "", "y"]}))
    assert (params.path, params.content) == ("a", "x\n\ny\n")
    assert told == ("file_path: taken as path", 'content: ["x","","y"] taken as "x\\n\\ny\\n"')
    params, _ = decode_params(method, raw({"path": "a", "content": ["x\n", "y"]}))
    assert params.content == "x\ny"


def test_edits_are_mended_inside() -> None:
    given = {
        "filePath": "a",
        "edits": [{"old_string": "x", "newText": ["y", "z"], "replaceAll": "true"}],
    }
    params, told = decode_params(EDIT, raw(given))
    (edit,) = params.edits
    assert (params.path, edit.old_text, edit.new_text, edit.replace_all) == ("a", "x", "y\nz", True)
    assert "edits[0].old_string: taken as old_text" in told
    as_text = {
        "path": "a",
        "edits": msgspec.json.encode([{"old_text": "x", "new_text": "y"}]).decode(),
    }
    params, _ = decode_params(EDIT, raw(as_text))
    assert params.edits[0].new_text == "y"
    params, _ = decode_params(EDIT, raw({"path": "a", "edits": {"old_text": "x", "new_text": "y"}}))
    assert len(params.edits) == 1


def test_the_same_thing_said_twice_is_taken_once_and_two_things_are_refused() -> None:
    same = {"path": "a", "file_path": "a", "old_text": "x", "new_text": "y"}
    params, told = decode_params(EDIT, raw(same))
    assert (params.path, told) == ("a", ("file_path: the same as path",))
    with pytest.raises(InvalidRequest, match="differs"):
        decode_params(EDIT, raw({**same, "file_path": "b"}))


@pytest.mark.parametrize("wrong", [5, "five", "5.5", [1], {"a": 1}, True])
def test_what_has_no_one_meaning_is_refused(wrong: object) -> None:
    method = BY_NAME["fs.read"]
    if wrong == 5 and wrong is not True:
        return
    with pytest.raises(InvalidRequest) as told:
        decode_params(method, raw({"path": "a", "limit": wrong}))
    assert told.value.data == {"parameter": "limit"}
