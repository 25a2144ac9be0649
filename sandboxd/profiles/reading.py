"""One profile file from its bytes to its struct, and every way that can go wrong, said in one line.

An error names file, line and key and what was expected there; the words for that come from the
types in `schema`, so that they cannot fall behind. Only plain files are read: a link in a workspace
could lead to a secret, whose text an error message would then show.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from sandboxd.errors import ProfileBroken
from sandboxd.profiles import checks
from sandboxd.profiles.schema import HostPattern, ProfileFile
from sandboxd.strict_yaml import Node, read_yaml

MAX_BYTES = 256 * 1024
HOST_WORDS = "a host, `*.domain`, an address or a range, with `:port` or without"

Stamp = tuple[int, int, int, int]
"""Device, inode, size and change time: another file, or another content, has another stamp."""


class Layer(Struct, frozen=True):
    """One file, read: its struct, and where each value stands."""

    path: str
    content: ProfileFile
    node: Node


def stamp_of(path: str) -> Stamp | None:
    """The stamp of a file as it is now; None when there is none."""
    try:
        found = os.stat(path, follow_symlinks=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


@lru_cache(64)
def read_layer(path: str, stamp: Stamp, follows_links: bool = True) -> Layer:
    """The file, which has this stamp. Raises ProfileBroken."""
    return parse(path, _text(path, follows_links))


def parse(path: str, text: str) -> Layer:
    """A profile's text; `path` is what errors name and what relative names are beside."""
    node = read_yaml(text, path)
    if not node.is_mapping:
        raise node.broken("expected keys such as `extends:` and `files:` here")
    try:
        content = msgspec.convert(_plain(node), ProfileFile, strict=False)
    except msgspec.ValidationError as error:
        raise _located(node, str(error)) from error
    checks.check(content, node)
    return Layer(path, content, node)


def _text(path: str, follows_links: bool) -> str:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follows_links else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise _unreadable(path, "not a file")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        is_link = not follows_links and os.path.islink(path)
        why = "it is a symbolic link" if is_link else error.strerror or str(error)
        raise _unreadable(path, why) from error
    if len(data) > MAX_BYTES:
        raise ProfileBroken(
            f"{path}, line 1: over {MAX_BYTES} bytes, expected a smaller file.",
            hint="split the profile with `extends`",
            path=path,
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ProfileBroken(
            f"{path}, line {line}: not UTF-8, expected text.", hint="save it as UTF-8", path=path
        ) from error


def _unreadable(path: str, why: str) -> ProfileBroken:
    return ProfileBroken(
        f"{path}, line 1: cannot be read: {why}.",
        hint="make it a plain file that you may read, or remove it",
        path=path,
    )


def _plain(node: Node) -> Any:
    if node.items is not None:
        return [_plain(item) for item in node.items]
    if node.text is not None:
        return node.text
    return {key: _plain(value) for key, value in node.mapping.items()}


# --------------------------------------------------------------------------- what was expected


def _located(node: Node, complaint: str) -> ProfileBroken:
    """msgspec's complaint (`.. - at `$.files.deny[0]``) with its line and what was expected."""
    _, _, where = complaint.partition(" - at `$")
    kind: Any = ProfileFile
    for step in re.findall(r"\.([A-Za-z_]+)|\[(\d+|\.\.\.)\]", where):
        node, kind = _step(node, kind, step[0], step[1])
    unknown = re.search(r"unknown field `([^`]*)`", complaint)
    if unknown and unknown[1] in node.mapping:
        known = sorted(_fields(kind))
        near = difflib.get_close_matches(unknown[1], known, 1)
        perhaps = f"perhaps `{near[0]}`; " if near else ""
        told = f"there is no such key, {perhaps}expected one of {', '.join(known)}"
        return node.mapping[unknown[1]].broken(told)
    missing = re.search(r"missing required field `([^`]*)`", complaint)
    if missing:
        return node.broken(f"expected the key `{missing[1]}` here too")
    found = f"{_shown(node)}, " if node.text is not None else ""
    return node.broken(f"{found}expected {_expected(kind)}")


def _shown(node: Node) -> str:
    text = node.text or ""
    return f"found {text[:40]!r}" if text else "found nothing"


def _step(node: Node, kind: Any, key: str, index: str) -> tuple[Node, Any]:
    if key:
        struct = next((option for option in _options(kind) if _is_struct(option)), None)
        inner = _fields(struct).get(key, Any) if struct is not None else Any
        return node.mapping.get(key, node), inner
    if index == "...":
        found = next(iter(node.mapping.values()), node)
        return found, str
    item = node.items[int(index)] if node.items is not None else node
    options = [option for option in _options(kind) if get_origin(option) is tuple]
    return item, get_args(options[0])[0] if options else Any


def _options(kind: Any) -> list[Any]:
    """The members of a union without None; annotated types as they are."""
    if kind is not HostPattern and get_origin(kind) in (Union, types.UnionType):
        return [option for option in get_args(kind) if option is not type(None)]
    return [kind]


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


@lru_cache(64)
def _fields(kind: Any) -> dict[str, Any]:
    """Name in the file -> type, of a struct."""
    struct = next((option for option in _options(kind) if _is_struct(option)), None)
    if struct is None:
        return {}
    hints = get_type_hints(struct, include_extras=True)
    pairs = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    return {name: hints[field] for name, field in pairs}


def _expected(kind: Any) -> str:
    return " or ".join(dict.fromkeys(_words(kind)))


def _words(kind: Any) -> Iterator[str]:
    for option in _options(kind):
        origin = get_origin(option)
        if option == HostPattern:
            yield HOST_WORDS
        elif origin is Literal:
            yield _one_of(get_args(option))
        elif origin is tuple:
            yield f"a list (of {_expected(get_args(option)[0])})"
        elif origin is dict:
            yield "a mapping of names to texts"
        elif hasattr(option, "__metadata__"):
            yield _number(get_args(option)[0], option.__metadata__[0])
        elif _is_struct(option):
            yield f"a mapping with keys such as {', '.join(list(_fields(option))[:4])}"
        elif isinstance(option, type) and hasattr(option, "__members__"):
            yield _one_of(tuple(option.__members__.values()))
        else:
            yield {str: "a text", bool: "true or false"}.get(option, "something else")


def _one_of(values: tuple[Any, ...]) -> str:
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"one of {', '.join(texts)}"


def _number(kind: type, meta: msgspec.Meta) -> str:
    what = "a whole number" if kind is int else "a number"
    if meta.ge is not None and meta.le is not None:
        return f"{what} from {meta.ge} to {meta.le}"
    return f"{what} above 0"
