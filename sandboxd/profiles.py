"""Profiles: YAML a reviewer can read, merged along `extends`, filled in for one session.

The only reader of `profiles/` (command tables excepted) and of the user's profiles. Reading is
strict: no type is guessed, unknown and duplicate keys are refused with file, line and key. A
missing name is UnknownProfile; a broken file is ProfileBroken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct

from sandboxd import config
from sandboxd.data import data_folder
from sandboxd.errors import ProfileBroken, UnknownProfile
from sandboxd.model import ApprovalMode, EgressRules, Limits, NetworkMode, UnixSockets
from sandboxd.strict_yaml import Node, read_yaml

MAX_BYTES = 256 * 1024
MAX_DEPTH = 8
NOT_PROFILES = frozenset({"probes", "rules", "seccomp", "tools"})
"""Other data that lies beside the shipped profiles."""


class Files(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`files`: absolute paths after variables are filled in; `protect` holds names in the workspace."""

    write: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    protect: tuple[str, ...] | None = None


class EnvironmentRules(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"pass_": "pass", "set_": "set"},
):
    """`environment`: names are shell patterns (fnmatch), compared without regard to case."""

    mode: Literal["scrub", "allowlist"] | None = None
    pass_: tuple[str, ...] | None = None
    scrub: tuple[str, ...] | None = None
    set_: dict[str, str] | None = None


HostPattern = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(\*|(\*\.)?[^\s:*/\[\]]+|[0-9.]+/[0-9]+|\[[0-9a-fA-F:.]+(/[0-9]+)?\]"
        r"|[0-9a-fA-F]*:[0-9a-fA-F:.]*(/[0-9]+)?)(:[0-9]{1,5})?$"
    ),
]
"""`host`, `*.domain`, `*`, an address or a range, each with `:port` or without."""
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class NetworkRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`network`; a bare word in the file stands for the mode."""

    mode: NetworkMode | None = None
    fallback: NetworkMode | None = None
    """For tiers and kernels that cannot enforce `mode`; it holds for the mode it is named with."""
    allow: tuple[HostPattern, ...] | None = None
    deny: tuple[HostPattern, ...] | None = None
    allow_private: bool | None = None
    publish: tuple[Port, ...] | None = None


class ProfileFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file as written. What is absent comes from the profile it extends."""

    extends: str | None = None
    approval: ApprovalMode | None = None
    min_tier: Literal["seatbelt", "namespaces", "bubblewrap", "landlock", "containment"] | None = (
        None
    )
    network: NetworkRules = NetworkRules()
    unix_sockets: UnixSockets | None = None
    files: Files = Files()
    environment: EnvironmentRules = EnvironmentRules()
    limits: Limits = Limits()
    commands: tuple[str, ...] | None = None


class Profile(Struct, frozen=True, kw_only=True):
    """The merged profile: every value decided, variables not yet filled in."""

    name: str
    approval: ApprovalMode = "standard"
    min_tier: str | None = None
    network: NetworkMode = NetworkMode.OPEN
    network_fallback: NetworkMode | None = None
    egress: EgressRules = EgressRules()
    unix_sockets: UnixSockets = "workspace"
    write: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    environment_mode: Literal["scrub", "allowlist"] = "scrub"
    environment_pass: tuple[str, ...] = ()
    environment_scrub: tuple[str, ...] = ()
    environment_set: dict[str, str] = {}
    limits: Limits = Limits()
    commands: tuple[str, ...] = ()


def load_profile(name: str) -> Profile:
    """The profile called `name` (or in the file `name`, when it has a slash), fully merged.

    Raises UnknownProfile, and ProfileBroken naming file, line and key.
    """
    merged = Profile(name=name)
    for layer in reversed(_chain(name)):
        merged = _merge(merged, layer)
    return merged


def names() -> list[str]:
    """The names of all profiles that can be loaded without a path."""
    found = set()
    for folder in _folders():
        if os.path.isdir(folder):
            found |= {entry[:-5] for entry in os.listdir(folder) if entry.endswith(".yaml")}
    return sorted(found - NOT_PROFILES)


def _folders() -> list[str]:
    return [
        os.path.join(config.config_folder(), "profiles"),
        "/etc/sandboxd/profiles",
        data_folder("profiles"),
    ]


def _chain(name: str) -> list[ProfileFile]:
    """The profile and what it extends, the nearest first."""
    chain: list[ProfileFile] = []
    path = _find(name)
    seen: list[str] = []
    while True:
        if path in seen or len(seen) >= MAX_DEPTH:
            raise ProfileBroken(
                f"{path}: `extends` goes in a circle or is deeper than {MAX_DEPTH}",
                hint="let `extends` end at a profile that extends nothing",
                path=path,
            )
        seen.append(path)
        layer = _read(path)
        chain.append(layer)
        if layer.extends is None:
            return chain
        path = _find(layer.extends, beside=path)


def _find(name: str, beside: str | None = None) -> str:
    if "/" in name:
        path = os.path.join(os.path.dirname(beside or os.path.join(os.getcwd(), "x")), name)
        if os.path.isfile(path):
            return path
    elif re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) and name in names():
        for folder in _folders():
            path = os.path.join(folder, name + ".yaml")
            if os.path.isfile(path):
                return path
    raise UnknownProfile(
        f"there is no profile {name!r}",
        hint=f"use one of {', '.join(names())}, or the path of a file (with a slash in it)",
    )


def _read(path: str) -> ProfileFile:
    """The file, read again only when it has changed."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise ProfileBroken(
            f"{path}: cannot be read: {error}", hint="check the file", path=path
        ) from error
    return _parse(path, (found.st_mtime_ns, found.st_size, found.st_ino))


@lru_cache(64)
def _parse(path: str, version: tuple[int, int, int]) -> ProfileFile:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileBroken(
            f"{path}: cannot be read: {error}", hint="check the file", path=path
        ) from error
    if len(text) > MAX_BYTES:
        raise ProfileBroken(f"{path}: over {MAX_BYTES} bytes", hint="split the profile", path=path)
    node = read_yaml(text, path)
    plain = _plain(node)
    if isinstance(plain, dict) and isinstance(plain.get("network"), str):
        plain["network"] = {"mode": plain["network"]}
    try:
        return msgspec.convert(plain, ProfileFile, strict=False)
    except msgspec.ValidationError as error:
        raise _located(node, str(error)) from error


def _plain(node: Node) -> Any:
    if node.items is not None:
        return [_plain(item) for item in node.items]
    if node.text is not None:
        return node.text
    return {key: _plain(value) for key, value in node.mapping.items()}


def _located(node: Node, complaint: str) -> ProfileBroken:
    """msgspec's complaint with the line it is about: it names a path such as `$.files.deny[0]`."""
    message, _, where = complaint.partition(" - at `$")
    for step in re.findall(r"\.([A-Za-z_]+)|\[(\d+)\]", where):
        if step[0] and step[0] in node.mapping:
            node = node.mapping[step[0]]
        elif step[1] and node.items is not None:
            node = node.items[int(step[1])]
    if "matching regex" in message:
        message = "an entry is a host, `*.domain`, an address or a range, with `:port` or without"
    unknown = re.search(r"unknown field `([^`]*)`", message)
    if unknown and unknown[1] in node.mapping:
        node = node.mapping[unknown[1]]
    return node.broken(message[:1].lower() + message[1:])


def _merge(base: Profile, layer: ProfileFile) -> Profile:
    """A nearer layer replaces scalars and lists it names; `deny` and `protect` only grow."""
    files, environment = layer.files, layer.environment
    changes: dict[str, Any] = {
        "approval": layer.approval,
        "min_tier": layer.min_tier,
        "network": layer.network.mode,
        "unix_sockets": layer.unix_sockets,
        "write": files.write,
        "environment_mode": environment.mode,
        "environment_pass": environment.pass_,
        "environment_scrub": environment.scrub,
        "commands": layer.commands,
    }
    kept = {key: value for key, value in changes.items() if value is not None}
    limits = {
        key: value
        for source in (base.limits, layer.limits)
        for key, value in msgspec.structs.asdict(source).items()
        if value is not None
    }
    return msgspec.structs.replace(
        base,
        **kept,
        network_fallback=_merge_fallback(base.network_fallback, layer.network),
        egress=_merge_egress(base.egress, layer.network),
        deny=_union(base.deny, files.deny),
        protect=_union(base.protect, files.protect),
        environment_set={**base.environment_set, **(environment.set_ or {})},
        limits=Limits(**limits),
    )


def _merge_fallback(base: NetworkMode | None, layer: NetworkRules) -> NetworkMode | None:
    """A layer that names a mode names its fallback with it, or has none."""
    return layer.fallback if layer.mode is not None or layer.fallback is not None else base


def _merge_egress(base: EgressRules, layer: NetworkRules) -> EgressRules:
    """As for files: what a layer names replaces, denied hosts only grow."""
    return EgressRules(
        allow=base.allow if layer.allow is None else layer.allow,
        deny=_union(base.deny, layer.deny),
        allow_private=base.allow_private if layer.allow_private is None else layer.allow_private,
        publish=base.publish if layer.publish is None else layer.publish,
    )


def _union(base: tuple[str, ...], more: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*base, *(more or ())]))


def fill_in(text: str, variables: Mapping[str, str]) -> str | None:
    """`text` with `${NAME}` replaced; None when a variable is empty or unknown."""
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        found = variables.get(match[1], "")
        missing = missing or not found
        return found

    filled = re.sub(r"\$\{([A-Z_]+)\}", value, text)
    return None if missing else filled
