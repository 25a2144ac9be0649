"""A profile's places with their variables filled in for one session; remembered, for every run asks.

Pure. A place whose variable is empty is left out. Source: XDG base directory specification.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from sandboxd.model import Redacted
from sandboxd.profiles import Profile, fill_in

CACHE = "cache"
"""The folder of `${CACHE}` in the session's temporary one."""
XDG_FOLDERS = (
    (".config", "XDG_CONFIG_HOME"),
    (".local/share", "XDG_DATA_HOME"),
    (".local/state", "XDG_STATE_HOME"),
)
HERE = "macos" if os.uname().sysname == "Darwin" else "linux"


class Filled(Struct, frozen=True):
    """Absolute paths; whether they exist nobody has looked."""

    write: tuple[str, ...]
    bounds: tuple[str, ...]
    deny: tuple[str, ...]
    redact: tuple[Redacted, ...]


class _Same:
    """A profile as the key of a cache: it holds dictionaries, so only the very same one is equal."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    def __hash__(self) -> int:
        return id(self.profile)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.profile is self.profile


def filled(
    profile: Profile,
    *,
    workspace: str,
    home: str,
    tmp: str,
    common: str | None,
    env: Mapping[str, str],
    system: str = HERE,
) -> Filled:
    """The places of a profile in one session, on one operating system."""
    same = _Same(profile)
    asked = tuple((name, env.get(name, "")) for name in _asked(same))
    return _filled(same, workspace, home, tmp, common or "", asked, system)


@lru_cache(64)
def _asked(same: _Same) -> tuple[str, ...]:
    """The variables of the environment that decide anything."""
    profile = same.profile
    texts = (*profile.write, *profile.deny, *(each.path for each in profile.redact))
    named = {name for text in texts for name in re.findall(r"\$\{env:(\w+)\}", text)}
    return (*sorted(named), *(name for _, name in XDG_FOLDERS))


@lru_cache(256)
def _filled(
    same: _Same,
    workspace: str,
    home: str,
    tmp: str,
    common: str,
    asked: tuple[tuple[str, str], ...],
    system: str,
) -> Filled:
    profile = same.profile
    values = _values(workspace, home, tmp, common, asked)
    moved = _moved(home, dict(asked))
    here = [path for path in profile.deny if profile.only.get(path, system) == system]
    return Filled(
        write=tuple(_fill(profile.write, values)),
        bounds=tuple(_fill(profile.bounds, values)),
        deny=tuple(place for path in here for place in _places(path, values, moved)),
        redact=tuple(
            Redacted(path=place, as_=entry.as_, otherwise=entry.otherwise)
            for entry in profile.redact
            if entry.only in (None, system)
            for place in _places(entry.path, values, moved)
        ),
    )


def _values(
    workspace: str, home: str, tmp: str, common: str, asked: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    values = {
        "WORKSPACE": workspace,
        "HOME": home if os.path.isabs(home) else "",
        "TMP": tmp,
        "CACHE": os.path.join(tmp, CACHE),
        "GIT_COMMON_DIR": common,
    }
    for name, value in asked:
        values[f"env:{name}"] = ":".join(_places_of(value, workspace, home))
    return values


def variables(
    profile: Profile,
    *,
    workspace: str,
    home: str,
    tmp: str,
    common: str | None,
    env: Mapping[str, str],
) -> dict[str, str]:
    """What the variables that a profile may name stand for in a session."""
    asked = tuple((name, env.get(name, "")) for name in _asked(_Same(profile)))
    return _values(workspace, home, tmp, common or "", asked)


def places(
    profile: Profile, text: str, *, workspace: str, home: str, tmp: str, env: Mapping[str, str]
) -> list[str]:
    """Where one entry of a profile lies in a session."""
    asked = tuple((name, env.get(name, "")) for name in _asked(_Same(profile)))
    values = _values(workspace, home, tmp, "", asked)
    return _places(text, values, _moved(home, dict(asked)))


def _fill(texts: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    found = (fill_in(text, values) for text in texts)
    return [os.path.normpath(path) for path in found if path is not None]


def _places(text: str, values: Mapping[str, str], moved: list[tuple[str, str]]) -> list[str]:
    """Where a denied or redacted entry lies: as written, and below a base folder that was moved; a
    variable that lists several places names each."""
    listed = re.fullmatch(r"\$\{(env:\w+)\}", text)
    paths = values[listed[1]].split(":") if listed else _fill((text,), values)
    paths = [path for path in paths if path]
    also = [new + path[len(old) :] for old, new in moved for path in paths if _is_below(path, old)]
    return [*paths, *also]


def _places_of(value: str, workspace: str, home: str) -> list[str]:
    return [os.path.normpath(path) for path in value.split(":") if _is_place(path, workspace, home)]


def _is_place(path: str, workspace: str, home: str) -> bool:
    """Whether a variable names a place of its own: no device (HISTFILE=/dev/null), nothing that holds
    the workspace, the home folder or the system."""
    path = os.path.normpath(path)
    if not os.path.isabs(path) or _is_below(path, "/dev") or _is_below(path, "/proc"):
        return False
    return not any(each == path or _is_below(each, path) for each in (workspace, home, "/usr"))


def _moved(home: str, env: Mapping[str, str]) -> list[tuple[str, str]]:
    """Base folders that the environment has moved: from, to."""
    moved = []
    for folder, name in XDG_FOLDERS:
        usual, value = os.path.join(home, folder), env.get(name, "")
        if os.path.isabs(value) and os.path.normpath(value) != usual:
            moved.append((usual, os.path.normpath(value)))
    return moved


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
