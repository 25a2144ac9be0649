"""A project file can tighten, never relax: it lies where a run could once have written.

Each check compares a value of the project's with what the more trusted layers say. A no names both
files and lines. Pure: paths are compared as written, with the workspace filled in; where links lead
is `policy`'s to look at, within `Profile.bounds`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from sandboxd.errors import ProfileRelaxes
from sandboxd.model import TIER_NAMES, NetworkMode
from sandboxd.profiles.merged import GROWING_OPTIONS, Profile
from sandboxd.profiles.reading import Layer
from sandboxd.strict_yaml import Node

APPROVALS = ("never", "trust-sandbox", "standard", "ask-all")
"""From the loosest to the strictest."""
NETWORKS = (NetworkMode.HOST, NetworkMode.OPEN, NetworkMode.ALLOWLIST, NetworkMode.OFF)
SOCKETS = ("all", "workspace", "none")


class Loosened(Exception):
    """A value of the project's layer that relaxes: the node it stands at, and against what."""

    def __init__(self, node: Node, what: str, key: str) -> None:
        super().__init__(what)
        self.node = node
        self.what = what
        self.key = key
        """Whose origin is the other line."""


def check_tightens(trusted: Profile, layer: Layer, workspace: str) -> None:
    """Raises ProfileRelaxes for the first value that would relax what is trusted."""
    try:
        for check in CHECKS:
            check(trusted, layer)
        _check_write(trusted, layer, workspace)
    except Loosened as found:
        origin = trusted.origin(found.key)
        held = f"{origin.file}, line {origin.line}" if origin else "what holds without any file"
        where = f"{layer.path}, line {found.node.line}, key {found.node.key!r}"
        raise ProfileRelaxes(
            f"{where}: {found.what}, against {held}; a project file can only tighten.",
            hint="take that line out, or put the wish into a profile of your own and name it with --profile",
            path=layer.path,
            data={
                "file": layer.path,
                "line": found.node.line,
                "trusted_file": origin.file if origin else None,
                "trusted_line": origin.line if origin else None,
            },
        ) from None


def _at(layer: Layer, *keys: str) -> Node:
    node = layer.node
    for key in keys:
        node = node.mapping.get(key, node)
    return node


def _check_order(
    layer: Layer, keys: tuple[str, ...], order: tuple[str, ...], old: str | None, new: str | None
) -> None:
    """`order` goes from loose to strict; an old value of None is looser than all."""
    if new is None or old is None or order.index(new) >= order.index(old):
        return
    node = _at(layer, *keys)
    key = "network.mode" if node.key.startswith("network") else node.key
    raise Loosened(node, f"{new} would relax {old}", key)


def _check_approval(trusted: Profile, layer: Layer) -> None:
    _check_order(layer, ("approval",), APPROVALS, trusted.approval, layer.content.approval)
    order = tuple(reversed(TIER_NAMES))
    _check_order(layer, ("min_tier",), order, trusted.min_tier, layer.content.min_tier)
    sockets = layer.content.unix_sockets
    _check_order(layer, ("unix_sockets",), SOCKETS, trusted.unix_sockets, sockets)


def _check_network(trusted: Profile, layer: Layer) -> None:
    rules = layer.content.network_rules
    old = trusted.network
    _check_order(layer, ("network", "mode"), NETWORKS, old, rules.mode)
    if rules.fallback is not None:
        floor = trusted.network_fallback or old
        _check_order(layer, ("network", "fallback"), NETWORKS, floor, rules.fallback)
    if old is NetworkMode.HOST:
        return
    if rules.allow_private and not trusted.egress.allow_private:
        node = _at(layer, "network", "allow_private")
        raise Loosened(node, "private networks would be opened", "network.mode")
    for item, text in _items(layer, "network", "allow"):
        if text in trusted.egress.allow:
            continue
        if old is not NetworkMode.OPEN or _is_address(text):
            raise Loosened(item, f"{text} would be opened", _key(trusted, "network.allow", "mode"))


def _key(trusted: Profile, key: str, otherwise: str) -> str:
    return key if key in trusted.origins else f"network.{otherwise}"


def _is_address(text: str) -> bool:
    """Only an address names what lies in a private network; no domain ends in a label that begins
    with a digit."""
    if "/" in text or "[" in text or text.count(":") > 1:
        return True
    return text.partition(":")[0].rstrip(".").rpartition(".")[2][:1].isdigit()


def _check_publish(trusted: Profile, layer: Layer) -> None:
    known = {str(port) for port in trusted.egress.publish}
    for item, text in _items(layer, "network", "publish"):
        if text not in known:
            key = _key(trusted, "network.publish", "mode")
            raise Loosened(item, f"port {text} would be published", key)


def _check_environment(trusted: Profile, layer: Layer) -> None:
    rules = layer.content.environment
    if rules is None:
        return
    order = ("scrub", "allowlist")
    _check_order(layer, ("environment", "mode"), order, trusted.environment_mode, rules.mode)
    for item, text in _items(layer, "environment", "pass"):
        if text not in trusted.environment_pass:
            raise Loosened(item, f"{text} would pass", "environment.mode")
    for name in rules.set_ or {}:
        if trusted.environment_set.get(name) != (rules.set_ or {})[name]:
            node = _at(layer, "environment", "set", name)
            raise Loosened(node, f"{name} would be set", f"environment.set:{name}")


def _check_limits(trusted: Profile, layer: Layer) -> None:
    named = layer.content.limits
    for field in named.__struct_fields__ if named is not None else ():
        new = getattr(named, field)
        old = trusted.cache_bytes if field == "cache_bytes" else getattr(trusted.limits, field)
        if new is not None and old is not None and new > old:
            node = _at(layer, "limits", field)
            raise Loosened(node, f"{new:g} would raise {old:g}", f"limits.{field}")


def _check_files(trusted: Profile, layer: Layer) -> None:
    for item, text in _items(layer, "files", "reveal"):
        raise Loosened(item, f"{text} would be shown", _hidden_by(trusted, text))
    for item, text in _items(layer, "files", "read_roots"):
        if text not in trusted.read_roots:
            raise Loosened(item, f"{text} would be opened to file operations", "files.read_roots")
    for item, text in _items(layer, "commands"):
        if text not in trusted.commands:
            raise Loosened(item, f"{text} would change how commands are judged", "approval")


def _check_rules(trusted: Profile, layer: Layer) -> None:
    """A project names more that is not to be, or a part of the workspace to stay in; nothing else."""
    for rule, options in (layer.content.rules or {}).items():
        for name, value in options.items():
            old = trusted.rules.get(rule, {}).get(name)
            is_narrower = name == "only" and old in (None, (), value)
            if name not in GROWING_OPTIONS and not is_narrower:
                node = _at(layer, "rules", rule, name)
                raise Loosened(node, f"{rule}.{name} would be set", f"rules.{rule}.{name}")


def _check_write(trusted: Profile, layer: Layer, workspace: str) -> None:
    roots = [_filled(text, workspace) for text in trusted.write]
    for item, text in _items(layer, "files", "write"):
        path = _filled(text, workspace)
        if not any(path == root or path.startswith(root + "/") for root in roots):
            raise Loosened(item, f"{text} would be granted", _hidden_by(trusted, text))


def _hidden_by(trusted: Profile, text: str) -> str:
    """The key of the line that denies a path or what lies above or below it; else that of `write`."""
    wanted = os.path.normpath(text)
    entries = [("deny", each) for each in trusted.deny]
    entries += [("redact", each.path) for each in trusted.redact]
    for inner, outer in ((True, False), (False, True)):
        for key, entry in entries:
            is_below = (wanted + "/").startswith(entry + "/")
            is_above = (entry + "/").startswith(wanted + "/")
            if (inner and is_below) or (outer and is_above):
                return f"files.{key}:{entry}"
    return "files.write"


def _filled(text: str, workspace: str) -> str:
    return os.path.normpath(text.replace("${WORKSPACE}", workspace))


def _items(layer: Layer, *keys: str) -> Iterator[tuple[Node, str]]:
    node: Node | None = layer.node
    for key in keys:
        node = node.mapping.get(key) if node is not None else None
    for item in (node.items or ()) if node is not None else ():
        yield item, item.text or ""


CHECKS: tuple[Callable[[Profile, Layer], None], ...] = (
    _check_files,
    _check_approval,
    _check_network,
    _check_publish,
    _check_environment,
    _check_limits,
    _check_rules,
)
