"""The merged profile: every value decided, variables not yet filled in, origins kept.

A pure module. A nearer layer replaces scalars and lists that it names; what is denied, redacted,
protected or scrubbed only grows, and only `reveal` (for the environment `pass`) takes an entry back. Origins are keyed by the dotted name in
the file; entries of lists and mappings have one each (`files.deny:${HOME}/.ssh`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from sandboxd.model import ApprovalMode, EgressRules, Limits, NetworkMode, UnixSockets
from sandboxd.profiles.checks import path_of
from sandboxd.profiles.reading import Layer
from sandboxd.profiles.schema import Denied, Files, NetworkRules, Redacted
from sandboxd.strict_yaml import Node

GROWING = ("files.deny:", "files.redact:", "files.protect:", "network.deny:", "environment.scrub:")
"""Lists of which the first layer that names an entry stays its origin."""


GROWING_OPTIONS = ("deny", "never")
"""Options of rules that only grow."""


class Origin(Struct, frozen=True):
    """Where a value stands."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Profile(Struct, frozen=True, kw_only=True):
    """The merged profile."""

    name: str
    approval: ApprovalMode = "standard"
    min_tier: str | None = None
    network: NetworkMode = NetworkMode.OPEN
    network_fallback: NetworkMode | None = None
    egress: EgressRules = EgressRules()
    unix_sockets: UnixSockets = "workspace"
    write: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    """When a project file narrowed `write`: the folders it must stay in, links resolved."""
    deny: tuple[str, ...] = ()
    redact: tuple[Redacted, ...] = ()
    protect: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ("${WORKSPACE}",)
    reasons: dict[str, str] = {}
    """Entry of `deny` -> why."""
    only: dict[str, str] = {}
    """Entry of `deny` -> the one operating system that has it."""
    environment_mode: Literal["scrub", "allowlist"] = "scrub"
    environment_pass: tuple[str, ...] = ()
    environment_scrub: tuple[str, ...] = ()
    environment_set: dict[str, str] = {}
    limits: Limits = Limits()
    cache_bytes: int | None = None
    commands: tuple[str, ...] = ()
    rules: dict[str, dict[str, str | tuple[str, ...]]] = {}
    """Options of rules, by rule and option."""
    origins: dict[str, Origin] = {}
    layers: tuple[str, ...] = ()
    """The files it was merged from, nearest last."""

    def origin(self, key: str) -> Origin | None:
        return self.origins.get(key)


def merge(base: Profile, layer: Layer) -> Profile:
    """The profile with a nearer layer over it."""
    content = layer.content
    files = content.files or Files()
    changes: dict[str, Any] = {
        "approval": content.approval,
        "min_tier": content.min_tier,
        "network": content.network_rules.mode,
        "unix_sockets": content.unix_sockets,
        "write": files.write,
        "read_roots": files.read_roots,
        "commands": content.commands,
        **_environment(base, layer),
        **_limits(base, layer),
        **_hidden(base, files),
    }
    kept = {key: value for key, value in changes.items() if value is not None}
    return msgspec.structs.replace(
        base,
        **kept,
        network_fallback=_fallback(base.network_fallback, content.network_rules),
        egress=_egress(base.egress, content.network_rules),
        protect=_union(base.protect, files.protect),
        rules=_rules(base.rules, content.rules or {}),
        origins=_with_origins(base.origins, layer),
        layers=(*base.layers, layer.path),
    )


def _environment(base: Profile, layer: Layer) -> dict[str, Any]:
    rules = layer.content.environment
    if rules is None:
        return {}
    return {
        "environment_mode": rules.mode,
        "environment_pass": rules.pass_,
        "environment_scrub": _union(base.environment_scrub, rules.scrub),
        "environment_set": {**base.environment_set, **(rules.set_ or {})},
    }


def _limits(base: Profile, layer: Layer) -> dict[str, Any]:
    named = layer.content.limits
    if named is None:
        return {}
    given = {k: v for k, v in msgspec.structs.asdict(named).items() if v is not None}
    cache = given.pop("cache_bytes", None)
    return {"limits": msgspec.structs.replace(base.limits, **given), "cache_bytes": cache}


def _hidden(base: Profile, files: Files) -> dict[str, Any]:
    """`deny` and `redact` with what the layer adds and reveals."""
    revealed = set(files.reveal or ())
    entries = [entry for entry in files.deny or () if isinstance(entry, Denied)]
    deny = _union(base.deny, [path_of(entry) for entry in files.deny or ()])
    redact = {entry.path: entry for entry in base.redact}
    for entry in files.redact or ():
        redact.setdefault(entry.path, entry)
    return {
        "deny": tuple(path for path in deny if path not in revealed),
        "redact": tuple(entry for path, entry in redact.items() if path not in revealed),
        "reasons": {**{each.path: each.why for each in entries if each.why}, **base.reasons},
        "only": {**{each.path: each.only for each in entries if each.only}, **base.only},
    }


def _rules(
    base: dict[str, dict[str, str | tuple[str, ...]]],
    layer: dict[str, dict[str, str | tuple[str, ...]]],
) -> dict[str, dict[str, str | tuple[str, ...]]]:
    """A nearer layer replaces options; what `deny` and `never` name only grows."""
    merged = dict(base)
    for rule, options in layer.items():
        old = merged.get(rule, {})
        grown = {
            name: _union(_listed(old.get(name)), _listed(value))
            for name, value in options.items()
            if name in GROWING_OPTIONS
        }
        merged[rule] = {**old, **options, **grown}
    return merged


def _listed(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value or ()


def _fallback(base: NetworkMode | None, rules: NetworkRules) -> NetworkMode | None:
    """A layer that names a mode names its fallback with it, or has none."""
    return rules.fallback if rules.mode is not None or rules.fallback is not None else base


def _egress(base: EgressRules, rules: NetworkRules) -> EgressRules:
    """As for files: what a layer names replaces, denied hosts only grow."""
    return EgressRules(
        allow=base.allow if rules.allow is None else rules.allow,
        deny=_union(base.deny, rules.deny),
        allow_private=base.allow_private if rules.allow_private is None else rules.allow_private,
        publish=base.publish if rules.publish is None else rules.publish,
    )


def _union(base: tuple[str, ...], more: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*base, *(more or ())]))


# --------------------------------------------------------------------------- origins


def _with_origins(base: dict[str, Origin], layer: Layer) -> dict[str, Origin]:
    found = dict(base)
    for key, line in leaves(layer.node):
        if not (key.startswith(GROWING) and key in found):
            found[key] = Origin(layer.path, line)
    return found


def leaves(node: Node, key: str = "") -> Iterator[tuple[str, int]]:
    """(key, line) of every value; entries of lists by their text or their path."""
    for name, value in node.mapping.items():
        inner = f"{key}.{name}" if key else name
        if inner in ("network", "unix_sockets") and value.text is not None:
            inner += ".mode" if inner == "network" else ""
        if inner == "environment.set":
            yield from ((f"{inner}:{each}", at.line) for each, at in value.mapping.items())
        elif value.items is not None:
            yield inner, value.line
            for item in value.items:
                text = item.mapping["path"].text if item.is_mapping else item.text
                yield f"{inner}:{text}", item.line
        elif value.is_mapping:
            yield from leaves(value, inner)
        else:
            yield inner, value.line
