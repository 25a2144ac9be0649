"""Profiles: YAML a reviewer can read, merged along `extends` and through layers of trust.

The only reader of `profiles/` (command tables excepted) and of the user's profiles. Reading is
strict: no type is guessed, unknown and duplicate keys are refused with file, line and key.

    schema      what may stand in one file, as types
    reading     one file from its bytes to its struct; every error in one line
    checks      what the types cannot say: paths, variables, names
    merged      the merged profile with the origin of each value
    layers      which files, in which order
    tightening  what a project's file may not do
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandboxd.profiles.layers import (
    PROJECT_FILE,
    check_file,
    effective_profile,
    load_profile,
    names,
)
from sandboxd.profiles.merged import Origin, Profile
from sandboxd.profiles.schema import Redacted

__all__ = [
    "PROJECT_FILE",
    "Origin",
    "Profile",
    "Redacted",
    "check_file",
    "effective_profile",
    "fill_in",
    "load_profile",
    "names",
]

_VARIABLE = re.compile(r"\$\{([A-Za-z_:][A-Za-z0-9_:]*)\}")


def fill_in(text: str, variables: Mapping[str, str]) -> str | None:
    """`text` with `${NAME}` replaced; None when a variable is empty or unknown."""
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        found = variables.get(match[1], "")
        missing = missing or not found
        return found

    filled = _VARIABLE.sub(value, text)
    return None if missing else filled
