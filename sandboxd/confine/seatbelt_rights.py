"""The rights of the platform, read from vendor/seatbelt/rights.yaml and written as profile rules.

Apart from the generator because this is data that a reviewer and a newer upstream change, and that
is the only text in a profile which is not built from parameters. Each word is checked: an unknown
key, operation or kind of filter is refused with file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from msgspec import Struct

from sandboxd.data import data_folder
from sandboxd.strict_yaml import Node, read_yaml

GROUPS = ("base", "reads", "network", "resolver")
_KEYS = frozenset(("what", "allow", "only", "needed_by", "from"))
ORIGINS = ("codex", "chromium", "both", "ours")


class Right(Struct, frozen=True):
    """One block of the profile."""

    what: str
    operations: tuple[str, ...]
    filters: tuple[str, ...]
    """As written in the profile language; any one suffices, none means always."""
    needed_by: str
    origin: str
    names: tuple[str, ...]
    """Services and sysctls that it names, for the comparison with an upstream."""


def text(value: str) -> str:
    """A string of the profile language."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(form: str) -> Callable[[str], str]:
    return lambda value: f"({form} {text(value)})"


_FILTERS: Mapping[str, Callable[[str], str]] = {
    "target": lambda value: f"(target {value})",
    "literal": _plain("literal"),
    "subpath": _plain("subpath"),
    "regex": lambda value: f'(regex #"{value}")',
    "device": lambda value: f"(vnode-type {value})",
    "extension": _plain("extension"),
    "service": _plain("global-name"),
    "sysctl": _plain("sysctl-name"),
    "sysctl_prefix": _plain("sysctl-name-prefix"),
    "shared_memory_regex": lambda value: f'(ipc-posix-name-regex #"{value}")',
    "shared_memory_prefix": _plain("ipc-posix-name-prefix"),
    "iokit_class": _plain("iokit-registry-entry-class"),
    "socket_domain": lambda value: f"(socket-domain {value})",
    "socket_protocol": lambda value: f"(socket-protocol {value})",
}
_NAMED = ("service", "sysctl", "sysctl_prefix")


@cache
def rights() -> Mapping[str, tuple[Right, ...]]:
    """Every right by group. Raises ProfileBroken when the file does not say what it should."""
    path = data_folder("vendor") + "/seatbelt/rights.yaml"
    with open(path, encoding="utf-8") as file:
        return read_rights(file.read(), path)


def read_rights(source: str, file: str) -> Mapping[str, tuple[Right, ...]]:
    """The rights that `source` spells."""
    root = read_yaml(source, file)
    found: dict[str, tuple[Right, ...]] = {}
    for name, node in root.entries().items():
        if name not in GROUPS:
            raise node.broken("this group is not known")
        found[name] = tuple(_right(item) for item in node.items or ())
    for name in GROUPS:
        if name not in found:
            raise root.broken(f"the group {name} is missing")
    return found


def _right(node: Node) -> Right:
    members = node.entries()
    for key, value in members.items():
        if key not in _KEYS:
            raise value.broken("this key is not known")
    for key in ("what", "allow", "needed_by", "from"):
        if key not in members:
            raise node.broken(f"the key {key!r} is missing")
    origin = members["from"].scalar()
    if origin not in ORIGINS:
        raise members["from"].broken(f"{origin!r} is none of {', '.join(ORIGINS)}")
    only = members.get("only")
    return Right(
        what=members["what"].scalar(),
        operations=members["allow"].strings(),
        filters=_filters(only) if only else (),
        needed_by=members["needed_by"].scalar(),
        origin=origin,
        names=_names(only) if only else (),
    )


def _filters(only: Node) -> tuple[str, ...]:
    found: list[str] = []
    for kind, node in only.entries().items():
        if kind == "all":
            found.append(f"(require-all {' '.join(_filters(node))})")
        elif kind in _FILTERS:
            found += [_FILTERS[kind](value) for value in node.strings()]
        else:
            raise node.broken(f"{kind!r} is no kind of filter")
    return tuple(found)


def _names(only: Node) -> tuple[str, ...]:
    members = only.entries()
    return tuple(name for kind in _NAMED if kind in members for name in members[kind].strings())
