"""A proposed call in the words of the rules: from a verdict, or from a tool's name and arguments.

Roles come from the caller, else from the table in profiles/rules.yaml, else from names and values: of a
tool that nobody declared, everything that looks like a path is one that it changes, and a tool of which
nothing is understood counts as changing something. Contents become digests here and go no further.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import cast, get_args

import msgspec

from sandboxd.classify.hosts import url_host
from sandboxd.classify.paths import patch_paths
from sandboxd.data import data_folder
from sandboxd.errors import InvalidRequest
from sandboxd.model import CommandClass, Reason, Verdict, worst
from sandboxd.proposals import Door, Parameter, Role, ToolCall
from sandboxd.strict_yaml import Node, read_yaml

MOST_PARAMETERS = 2000
"""Values of one call that are looked at; a call with more is refused as a request."""
MAX_DEPTH = 16

_NAMES: dict[Role, frozenset[str]] = {
    "source_path": frozenset({"source", "src", "source_path", "from", "input", "input_file"}),
    "path": frozenset(
        {"path", "paths", "file", "files", "file_path", "filepath", "filename", "target"}
        | {"target_file", "dest", "destination", "to", "output", "output_file", "out", "dir"}
        | {"directory", "folder", "cwd", "notebook_path", "absolute_path", "uri_path"}
    ),
    "command": frozenset({"command", "cmd", "script", "argv", "shell_command"}),
    "host": frozenset({"url", "urls", "uri", "host", "hostname", "endpoint", "address"}),
    "manifest": frozenset({"patch", "diff"}),
}
"""What a parameter of an undeclared tool is taken for by its name."""
_SNAKE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FILE_URL = re.compile(r"file://(?:localhost)?(?=/)", re.IGNORECASE)
_PATH_START = ("/", "~", "./", "../", ".\\", "..\\")
_NAME_WITH_ENDING = re.compile(r"[\w.@+-]{1,200}\.[A-Za-z0-9]{1,8}")
_ROLES: tuple[Role, ...] = get_args(Role)


class Tool(msgspec.Struct, frozen=True):
    """What the table says of one tool."""

    roles: dict[str, Role]
    copies: bool


def call_of_verdict(door: Door, tool: str, verdict: Verdict, key: str = "") -> ToolCall:
    """A command, by what its verdict names."""
    named = tuple(_of_verdict(verdict))
    return ToolCall(tool=tool, door=door, parameters=named, is_opaque=not verdict.parsed, key=key)


def with_command(call: ToolCall, verdict: Verdict) -> ToolCall:
    """The call with what the command in it names."""
    parameters = (*call.parameters, *_of_verdict(verdict))
    return msgspec.structs.replace(call, parameters=parameters, is_opaque=not verdict.parsed)


def worse_of(command: Verdict, call: ToolCall, cwd: str, home: str) -> Verdict:
    """The verdict of the command in a call, with what the call changes and reaches beside it."""
    if not call.with_role("path", "manifest", "host"):
        return command
    beside = verdict_of(call, cwd, home)
    return msgspec.structs.replace(
        command,
        class_=worst((command.class_, beside.class_)),
        cacheable=False,
        reasons=(*command.reasons, *beside.reasons),
        write_paths=(*command.write_paths, *beside.write_paths),
        hosts=(*command.hosts, *beside.hosts),
    )


def verdict_of(call: ToolCall, cwd: str, home: str) -> Verdict:
    """What a call without a command would do, in the words in which commands are judged. A tool of
    which nothing is understood counts as changing something. Paths are absolute, links not followed:
    what the rules judge is asked of the world."""
    writes = [_absolute(one.value, cwd, home) for one in call.with_role("path", "manifest")]
    reads = [_absolute(one.value, cwd, home) for one in call.with_role("source_path")]
    hosts = [one.value for one in call.with_role("host")]
    is_reader = not writes and bool(reads or hosts)
    told = f"changes {', '.join(writes[:5])}" if writes else "is a tool that nobody has declared"
    message = f"{call.tool} only reads" if is_reader else f"{call.tool} {told}"
    return Verdict(
        class_=CommandClass.READ_ONLY if is_reader else CommandClass.MUTATING,
        parsed=True,
        cacheable=False,
        reasons=(Reason("tool", message),),
        read_paths=tuple(reads),
        write_paths=tuple(writes),
        hosts=tuple(hosts),
    )


def _absolute(path: str, cwd: str, home: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return os.path.normpath(os.path.join(cwd, path))


def _of_verdict(verdict: Verdict) -> Iterator[Parameter]:
    lists: tuple[tuple[Role, tuple[str, ...]], ...] = (
        ("path", verdict.write_paths),
        ("source_path", verdict.read_paths),
        ("host", verdict.hosts),
        ("program", verdict.programs),
    )
    for role, values in lists:
        for value in values:
            yield Parameter(name="command", role=role, value=value, origin="command")


def call_of_tool(
    tool: str, parameters: Mapping[str, object], roles: Mapping[str, Role] | None, key: str
) -> tuple[ToolCall, str | None]:
    """The call, and the command text in it when it has one. Raises InvalidRequest."""
    declared = _table().get(tool)
    known = {**(declared.roles if declared else {}), **(roles or {})}
    found: list[Parameter] = []
    commands: list[str] = []
    for name, value in parameters.items():
        role = known.get(name)
        if role == "command" or (role is None and declared is None and _by_name(name) == "command"):
            commands.append(_command_text(name, value))
        elif role is not None:
            found += _declared(name, role, value)
        elif name not in known and (declared is None or _looks_risky(value)):
            found += _guessed(name, value)
        if len(found) > MOST_PARAMETERS:
            raise InvalidRequest(
                f"wrong parameters: over {MOST_PARAMETERS} values in one call",
                hint="split it into smaller calls",
                data={"parameter": "parameters"},
            )
    copies = declared.copies if declared else False
    call = ToolCall(tool=tool, door="assess", parameters=tuple(found), copies=copies, key=key)
    return call, "\n".join(commands) if commands else None


def _looks_risky(value: object) -> bool:
    """A parameter that the table does not name: a newer version of the tool may have it."""
    return any(_looks_like_path(text) or _URL.match(text) for _, text in _strings("", value))


def _declared(name: str, role: Role, value: object) -> Iterator[Parameter]:
    if value is None:
        return
    if role == "content":
        yield Parameter(name=name, role=role, value=_digest(value))
    elif role == "manifest":
        for index, path in enumerate(_manifest(name, value)):
            yield Parameter(name=f"{name}[{index}]", role=role, value=path)
    else:
        for where, text in _strings(name, value):
            yield Parameter(
                name=where, role=role, value=_host(text) if role == "host" else _path(text)
            )


def _manifest(name: str, value: object) -> Iterable[str]:
    """The paths of a patch, a list of paths or of objects with a path, a mapping path -> content."""
    if isinstance(value, str):
        found = patch_paths(value)
        if not found:
            raise InvalidRequest(
                f"wrong parameters: `{name}` is no patch that can be read",
                hint="send a unified diff, or name the files in a list",
                data={"parameter": name},
            )
        return found
    if isinstance(value, Mapping):
        return [_path(str(key)) for key in value]
    if not isinstance(value, list | tuple):
        return []
    return [_path(text) for item in value for text in _paths_of_item(item)]


def _paths_of_item(item: object) -> Iterator[str]:
    if isinstance(item, str):
        yield item
    elif isinstance(item, Mapping):
        for key, value in item.items():
            if isinstance(value, str) and _by_name(str(key)) in ("path", "source_path"):
                yield value


def _guessed(name: str, value: object) -> Iterator[Parameter]:
    """By the parameter's name, else by the look of each value in it."""
    for where, text in _strings(name, value):
        role = _by_name(where.rpartition(".")[2].partition("[")[0])
        if role == "manifest":
            for index, path in enumerate(patch_paths(text)):
                yield Parameter(
                    name=f"{where}[{index}]", role="manifest", value=path, origin="guessed"
                )
            continue
        if (_URL.match(text) and not _FILE_URL.match(text)) or (
            role == "host" and url_host(text) is not None
        ):
            yield Parameter(name=where, role="host", value=_host(text), origin="guessed")
        elif role in ("path", "source_path") and _may_be_path(text):
            yield Parameter(name=where, role=role, value=_path(text), origin="guessed")
        elif _looks_like_path(text):
            yield Parameter(name=where, role="path", value=_path(text), origin="guessed")


def _strings(name: str, value: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every text in a value, with where it stands."""
    if isinstance(value, str):
        yield name, value
    elif depth >= MAX_DEPTH:
        raise InvalidRequest(
            f"wrong parameters: `{name}` is nested too deep",
            hint=f"values are read up to a depth of {MAX_DEPTH}",
            data={"parameter": name},
        )
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(f"{name}.{key}", item, depth + 1)
            if _looks_like_path(str(key)):
                yield f"{name}.key", str(key)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _strings(f"{name}[{index}]", item, depth + 1)


def _by_name(name: str) -> Role | None:
    plain = _SNAKE.sub("_", name).replace("-", "_").lower()
    return next((role for role, names in _NAMES.items() if plain in names), None)


def _may_be_path(text: str) -> bool:
    return bool(text) and "\n" not in text and len(text) <= 4096


def _looks_like_path(text: str) -> bool:
    if not _may_be_path(text):
        return False
    if text.startswith(_PATH_START) or _FILE_URL.match(text) or text in (".", ".."):
        return True
    if _URL.match(text) or " " in text:
        return False
    return "/" in text or _NAME_WITH_ENDING.fullmatch(text) is not None


def _path(text: str) -> str:
    return _FILE_URL.sub("", text)


def _host(text: str) -> str:
    """The host of an address (with its port when one is named), or the text as it is."""
    rest = _URL.sub("", text).rpartition("@")[2] if _URL.match(text) else text
    return (url_host(text) or url_host(rest) or rest.split("/")[0]).lower()


def _command_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        return shlex.join(cast("list[str]", value))
    raise InvalidRequest(
        f"wrong parameters: `{name}` is no command",
        hint="send shell text, or a list of words",
        data={"parameter": name},
    )


def _digest(value: object) -> str:
    data = (
        value.encode("utf-8", "surrogatepass")
        if isinstance(value, str)
        else msgspec.json.encode(value)
    )
    return f"sha256:{hashlib.sha256(data).hexdigest()[:16]} ({len(data)} bytes)"


def digest_of(*parts: object) -> str:
    """What makes two calls the same one."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:24]


# --------------------------------------------------------------------------- the table


@lru_cache(1)
def _table() -> dict[str, Tool]:
    """profiles/rules.yaml. Raises ProfileBroken naming file, line and key."""
    path = data_folder("profiles") + "/rules.yaml"
    with open(path, encoding="utf-8") as file:
        content = read_yaml(file.read(), path).entries()
    copies = content["copies"].strings()
    return {
        name: Tool({key: _role(value) for key, value in node.entries().items()}, name in copies)
        for name, node in content["tools"].entries().items()
    }


def _role(node: Node) -> Role:
    for role in _ROLES:
        if node.text == role and role != "program":
            return role
    raise node.broken(f"a role is one of {', '.join(_ROLES[:-1])}")
