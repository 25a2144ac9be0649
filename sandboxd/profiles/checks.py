"""What the types cannot say of a profile: paths, variables, names. Each no names line and key."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from sandboxd.profiles.schema import Denied, ProfileFile, Redacted
from sandboxd.strict_yaml import Node

VARIABLES = ("WORKSPACE", "HOME", "TMP", "CACHE", "GIT_COMMON_DIR")
"""What `${NAME}` may name; `${env:NAME}` is a variable of the session's environment."""
UNSETTABLE = frozenset(
    [
        "PATH",
        "HOME",
        "PWD",
        "OLDPWD",
        "SHELL",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "TMP",
        "TEMP",
        "TMPPREFIX",
        "BASH_ENV",
        "ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "PS4",
        "PROMPT_COMMAND",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
    ]
)
"""A verdict rests on them, or sandboxd sets them itself: `set` may not name them."""
_VARIABLE = re.compile(r"\$\{([^}]*)\}|\$")
_ENVIRONMENT = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check(content: ProfileFile, node: Node) -> None:
    """Raises ProfileBroken for the first thing that is wrong."""
    files = node.mapping.get("files", node)
    named = content.files
    if named is not None:
        _check_paths(files, "write", named.write)
        _check_paths(files, "read_roots", named.read_roots)
        _check_paths(files, "reveal", named.reveal)
        _check_paths(files, "deny", [path_of(entry) for entry in named.deny or ()])
        _check_paths(files, "redact", [entry.path for entry in named.redact or ()])
        _check_names(files, named.protect)
    _check_environment(content, node)
    if content.extends is not None and not content.extends.strip():
        raise node.mapping["extends"].broken("expected the name of a profile, or a file")
    for item, path in _zipped(node, "commands", content.commands):
        if not path:
            raise item.broken("expected a file")


def path_of(entry: str | Denied | Redacted) -> str:
    """The path of an entry of `deny` or `redact`."""
    return entry if isinstance(entry, str) else entry.path


def _check_paths(files: Node, key: str, paths: Iterable[str] | None) -> None:
    for item, path in _zipped(files, key, paths):
        _check_variables(item, path)
        if "\0" in path:
            raise item.broken("a NUL in a path, expected a path")
        if not path.startswith(("/", "${")):
            raise item.broken(
                f"found {path[:40]!r}, expected a path from `/` or from a variable such as ${{HOME}}"
            )
        if os.path.normpath(path) == "/":
            raise item.broken("found the root of the file system, expected a folder beneath it")


def _check_variables(item: Node, text: str) -> None:
    for found in _VARIABLE.finditer(text):
        name = found[1]
        if name is None:
            raise item.broken("found a `$` alone, expected ${NAME}")
        if name not in VARIABLES and not _ENVIRONMENT.fullmatch(name):
            known = ", ".join(f"${{{each}}}" for each in VARIABLES)
            raise item.broken(f"there is no ${{{name}}}, expected one of {known}, ${{env:NAME}}")


def _check_names(files: Node, names: Iterable[str] | None) -> None:
    for item, name in _zipped(files, "protect", names):
        steps = name.split("/")
        if not name or name.startswith("/") or {"", ".", ".."} & set(steps) or "$" in name:
            raise item.broken(
                f"found {name[:40]!r}, expected a name in the workspace such as .git/hooks"
            )


def _check_environment(content: ProfileFile, node: Node) -> None:
    rules = content.environment
    if rules is None:
        return
    section = node.mapping["environment"]
    for key, patterns in (("pass", rules.pass_), ("scrub", rules.scrub)):
        for item, pattern in _zipped(section, key, patterns):
            if not pattern or "=" in pattern:
                raise item.broken(
                    f"found {pattern[:40]!r}, expected a variable's name or a pattern"
                )
    for name, text in (rules.set_ or {}).items():
        item = section.mapping["set"].mapping[name]
        if not _NAME.fullmatch(name):
            raise item.broken("expected the name of a variable (letters, digits, underscores)")
        if name.upper() in UNSETTABLE or name.startswith(("SANDBOXD_", "BASH_FUNC_")):
            raise item.broken(
                "this variable cannot be set here, expected another (--env sets it for one run)"
            )
        _check_variables(item, text)


def _zipped(parent: Node, key: str, values: Iterable[str] | None) -> Iterable[tuple[Node, str]]:
    """Each value with the node it stands at."""
    section = parent.mapping.get(key)
    if section is None or section.items is None or values is None:
        return []
    return [
        (item.mapping.get("path", item) if item.is_mapping else item, value)
        for item, value in zip(section.items, values, strict=True)
    ]
