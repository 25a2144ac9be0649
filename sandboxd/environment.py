"""The environment of a run: the caller's, never the daemon's, minus what looks like a secret.

A pure module of its own: `(base, overlay, profile) -> (environment, names taken out)`.
"""

from __future__ import annotations

import fnmatch
import os
import pwd
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

from sandboxd.filling import CACHE
from sandboxd.profiles import Profile, fill_in

NEVER = (
    "BASH_ENV",
    "ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "BASH_FUNC_*",
    "SANDBOXD_*",
)
"""These would run code in the shell that reads the command (an exported function shadows `ls`),
or steer a sandboxd inside the run. They never pass, whatever the profile says."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

GIT_READER = {
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.hooksPath",
    "GIT_CONFIG_VALUE_1": "/dev/null",
    "GIT_CONFIG_KEY_2": "diff.external",
    "GIT_CONFIG_VALUE_2": "",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
}
"""What keeps a read-only git from running programs named in a repository's configuration."""


def default_base() -> dict[str, str]:
    """The base when a caller gave none: a fixed small environment of this user."""
    try:
        entry = pwd.getpwuid(os.getuid())
        home, user = entry.pw_dir, entry.pw_name
    except KeyError:
        home, user = "/", str(os.getuid())
    return {"HOME": home, "USER": user, "LOGNAME": user, "LANG": "C.UTF-8", "PATH": DEFAULT_PATH}


def build(
    base: Mapping[str, str],
    overlay: Mapping[str, str | None],
    profile: Profile,
    *,
    tmp: str,
    cwd: str,
    extra_pass: Iterable[str] = (),
    git_reader: bool = False,
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The run's environment and the names that were taken out of it, sorted.

    `base` is the session's, `overlay` the request's (None unsets; a name set here on purpose is
    not scrubbed), `tmp` the temporary folder as the run sees it. Patterns are fnmatch, without
    regard to case.
    """
    passed = {*extra_pass, *overlay}
    rules = (profile.environment_mode, profile.environment_pass, profile.environment_scrub)
    kept: dict[str, str] = {}
    taken: list[str] = []
    for name, value in base.items():
        if _verdict(name, *rules) == "pass" or (name in passed and not _matches(name, NEVER)):
            kept[name] = value
        else:
            taken.append(name)
    for name, given in overlay.items():
        if given is None or _matches(name, NEVER):
            kept.pop(name, None)
            taken += [name] if given is not None else []
        else:
            kept[name] = given
    variables = {"TMP": tmp, "CACHE": f"{tmp}/{CACHE}", "HOME": kept.get("HOME", "")}
    for name, text in profile.environment_set.items():
        filled = fill_in(text, variables)
        if filled is not None and name not in overlay:
            kept[name] = filled
    for name in ("TMPDIR", "TMP", "TEMP", "TMPPREFIX"):
        kept.pop(name, None)
    kept.pop("OLDPWD", None)
    kept.update(TMPDIR=tmp, TMPPREFIX=f"{tmp}/zsh", PWD=cwd)
    kept.setdefault("PATH", DEFAULT_PATH)
    kept.setdefault("TERM", "dumb")
    if git_reader:
        kept.update(GIT_READER)
    return kept, tuple(
        sorted(set(taken) - {name for name in taken if name.startswith("SANDBOXD_")})
    )


def secret_values(base: Mapping[str, str], profile: Profile) -> list[str]:
    """What the base environment holds under names that the profile scrubs as secrets."""
    patterns = profile.environment_scrub
    return [value for name, value in base.items() if value and _matches(name, patterns)]


@lru_cache(4096)
def _verdict(
    name: str, mode: str, passing: tuple[str, ...], scrubbing: tuple[str, ...]
) -> Literal["pass", "take"]:
    """What the profile says of a name that nobody asked for."""
    if _matches(name, NEVER):
        return "take"
    if _matches(name, passing):
        return "pass"
    return "take" if mode != "scrub" or _matches(name, scrubbing) else "pass"


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return _compiled(patterns).match(name) is not None


@lru_cache(64)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression for all patterns; one that never matches when there are none."""
    return re.compile("|".join(map(fnmatch.translate, patterns)) or r"(?!)", re.IGNORECASE)
