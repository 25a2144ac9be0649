"""Which files make up a run's profile, and in which order.

    flags > environment > project > user > system > the shipped `default`

From beneath: `default`; `/etc/sandboxd/config.yaml`; `$XDG_CONFIG_HOME/sandboxd/config.yaml`; the
profile that was named (`--profile`, else SANDBOXD_PROFILE, else `extends` of the user's or the
system's config.yaml), with what it extends; the workspace's `.sandboxd.yaml`, which can only tighten;
and what a request itself says (`--allow-host`, `--env`, ...), which other modules add. A file takes
part once. A missing file says nothing; a broken one is refused.

A profile is read again only when one of its files has changed: looking costs some microseconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from sandboxd import config
from sandboxd.data import data_folder
from sandboxd.errors import ProfileBroken, ProfileRelaxes, UnknownProfile
from sandboxd.profiles.merged import Profile, merge
from sandboxd.profiles.reading import Layer, Stamp, read_layer, stamp_of
from sandboxd.profiles.tightening import check_tightens

MAX_DEPTH = 8
NOT_PROFILES = frozenset({"probes", "rules", "seccomp", "tools"})
"""Other data that lies beside the shipped profiles."""
BASES = frozenset({"secrets"})
"""Profiles to be extended, of no use by themselves."""
PROJECT_FILE = ".sandboxd.yaml"
CONFIG_FILE = "config.yaml"
SYSTEM_FOLDER = "/etc/sandboxd"
DEFAULT = "default"
MAX_KNOWN = 64


class Known(Struct, frozen=True):
    """A merged profile and the stamps of all files that decided it, absent ones too."""

    profile: Profile
    stamps: tuple[tuple[str, Stamp | None], ...]


class Reader:
    """Reads files and remembers which it looked at."""

    def __init__(self) -> None:
        self.seen: dict[str, Stamp | None] = {}

    def look(self, path: str) -> Stamp | None:
        if path not in self.seen:
            self.seen[path] = stamp_of(path)
        return self.seen[path]

    def read(self, path: str, follows_links: bool = True) -> Layer | None:
        """The file; None when there is none. Raises ProfileBroken."""
        stamp = self.look(path)
        if stamp is None and not (not follows_links and os.path.islink(path)):
            return None
        return read_layer(path, stamp or (0, 0, 0, 0), follows_links)

    def find(self, name: str, beside: str | None = None) -> str | None:
        """The file of a profile; None when there is none of that name."""
        if "/" in name:
            path = os.path.normpath(
                os.path.join(os.path.dirname(beside or "") or os.getcwd(), name)
            )
            return path if self.look(path) is not None else None
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or name in NOT_PROFILES:
            return None
        places = [os.path.join(folder, f"{name}.yaml") for folder in folders()]
        return next((path for path in places if self.look(path) is not None), None)

    def chain(self, path: str) -> list[Layer]:
        """The file and what it extends, the nearest first."""
        found: list[Layer] = []
        while True:
            layer = self.read(path)
            if layer is None:
                raise _unknown(path)
            found.append(layer)
            beneath = self.extended(layer)
            if beneath is None:
                return found
            if any(beneath == each.path for each in found) or len(found) >= MAX_DEPTH:
                raise layer.node.mapping["extends"].broken(
                    f"goes in a circle or is deeper than {MAX_DEPTH}, expected a profile that "
                    "extends nothing at the end"
                )
            path = beneath

    def extended(self, layer: Layer) -> str | None:
        """The file that a layer extends. Raises ProfileBroken when there is none."""
        name = layer.content.extends
        if name is None:
            return None
        path = self.find(name, beside=layer.path)
        if path is None:
            raise layer.node.mapping["extends"].broken(
                f"there is no profile {name!r}, expected one of {', '.join(names())}, or a file"
            )
        return path


def load_profile(name: str) -> Profile:
    """The profile called `name` (or in the file `name`, when it has a slash) by itself: without the
    user's, the system's and a project's configuration. Raises UnknownProfile and ProfileBroken."""
    reader = Reader()
    return _merged(name, reversed(_named(reader, name)))


def check_file(path: str) -> Profile:
    """Read a profile file whether or not it is in use. Raises as `load_profile`."""
    layers = Reader().chain(path) if os.path.lexists(path) else None
    if layers is None:
        raise ProfileBroken(
            f"{path}, line 1: there is no such file.", hint="name a file", path=path
        )
    return _merged(path, reversed(layers))


_known: dict[tuple[str | None, str | None, str], Known] = {}


def effective_profile(name: str | None, workspace: str | None) -> Profile:
    """What holds for a run: the named profile, or the configured one, among all layers.

    Raises UnknownProfile, ProfileBroken, and ProfileRelaxes when the project's file would relax.
    """
    key = (name, workspace, config.config_folder())
    known = _known.get(key)
    if known is not None and all(stamp_of(path) == stamp for path, stamp in known.stamps):
        return known.profile
    reader = Reader()
    profile = _layered(reader, name, workspace)
    if len(_known) >= MAX_KNOWN:
        _known.clear()
    _known[key] = Known(profile, tuple(reader.seen.items()))
    return profile


def _layered(reader: Reader, name: str | None, workspace: str | None) -> Profile:
    system = reader.read(os.path.join(SYSTEM_FOLDER, CONFIG_FILE))
    user = reader.read(os.path.join(config.config_folder(), CONFIG_FILE))
    stack = list(reversed(_named(reader, DEFAULT)))
    for layer in (system, user):
        if layer is None:
            continue
        chosen = name is None and layer.content.extends is not None
        beneath = reader.chain(layer.path)[1:] if chosen else []
        stack += [*reversed(beneath), layer]
    shown = name or next(
        (each.content.extends for each in (user, system) if each and each.content.extends), DEFAULT
    )
    if name is not None:
        stack += reversed(_named(reader, name))
    trusted = _merged(shown, _once(stack))
    if workspace is None:
        return trusted
    return _with_project(reader, trusted, workspace)


def _with_project(reader: Reader, trusted: Profile, workspace: str) -> Profile:
    own = reader.read(os.path.join(workspace, PROJECT_FILE), follows_links=False)
    if own is None:
        return trusted
    layers = [
        each for each in _project_chain(reader, own, workspace) if each.path not in trusted.layers
    ]
    profile = trusted
    for layer in reversed(layers):
        check_tightens(trusted, layer, workspace)
        profile = merge(profile, layer)
    if profile.write != trusted.write:
        profile = msgspec.structs.replace(profile, bounds=trusted.write)
    return profile


def _project_chain(reader: Reader, own: Layer, workspace: str) -> list[Layer]:
    """The project's file and what it extends. A file that it names must lie in the workspace, and
    no link may lead there."""
    found = [own]
    while (path := reader.extended(found[-1])) is not None:
        if any(path == each.path for each in found) or len(found) >= MAX_DEPTH:
            raise found[-1].node.mapping["extends"].broken("goes in a circle")
        is_named = "/" not in (found[-1].content.extends or "")
        if not is_named and not os.path.realpath(path).startswith(workspace + "/"):
            raise ProfileRelaxes(
                f"{found[-1].path}, line {found[-1].node.mapping['extends'].line}, key 'extends': "
                f"{path} lies outside the workspace.",
                hint="name a profile, or a file of the project",
                path=found[-1].path,
            )
        layer = reader.read(path, follows_links=is_named)
        assert layer is not None  # it was found a moment ago
        found.append(layer)
    return found


def _named(reader: Reader, name: str) -> list[Layer]:
    path = reader.find(name)
    if path is None:
        raise _unknown(name)
    return reader.chain(path)


def _unknown(name: str) -> UnknownProfile:
    return UnknownProfile(
        f"there is no profile {name!r}",
        hint=f"use one of {', '.join(names())}, or the path of a file (with a slash in it)",
    )


def _once(stack: Iterable[Layer]) -> list[Layer]:
    """Each file once, where it comes first: what is nearer lies over it anyway."""
    found: dict[str, Layer] = {}
    for layer in stack:
        found.setdefault(layer.path, layer)
    return list(found.values())


def _merged(name: str, layers: Iterable[Layer]) -> Profile:
    profile = Profile(name=name)
    for layer in layers:
        profile = merge(profile, layer)
    return profile


def names() -> list[str]:
    """The names of all profiles that can be named without a path."""
    found = set()
    for folder in folders():
        if os.path.isdir(folder):
            found |= {entry[:-5] for entry in os.listdir(folder) if entry.endswith(".yaml")}
    return sorted(found - NOT_PROFILES - BASES)


def folders() -> list[str]:
    """Where profiles are looked for, the user's first."""
    return [
        os.path.join(config.config_folder(), "profiles"),
        os.path.join(SYSTEM_FOLDER, "profiles"),
        data_folder("profiles"),
    ]
