"""Whether the configuration around a folder makes a reading git run programs; git is never run.

A plain `git status` or `git log -p` runs clean filters, textconv and diff drivers, gpg and
helpers that the repository's own configuration names, and steps into submodules, whose own
configuration counts then. `core.fsmonitor`, `core.hooksPath`, `diff.external` and the pagers are
left out: a reading git is launched with them neutralised by its environment, which also reaches
the git that runs inside a submodule.

What cannot be read is taken for a definition. Answers are kept per file and its time stamps.
Sources: git-config(1), gitrepository-layout(5), gitformat-index(5); measured with git 2.39.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from functools import lru_cache

_HEADER = re.compile(
    r'\s*\[\s*(?P<section>[A-Za-z0-9.-]+)(?:\s+"(?P<name>(?:[^"\\]|\\.)*)")?\s*\](?P<rest>.*)\Z'
)
_KEY = re.compile(r"\s*(?P<key>[A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(?P<value>.*))?\Z")
_MAX_BYTES = 64 * 1024 * 1024
_MAX_DEPTH = 4
_GITLINK = b"\x00\x00\xe0\x00"
_TRUE = frozenset(("true", "yes", "on", "1", ""))

_PROGRAM_KEYS = frozenset(
    [
        "core.sshcommand",
        "core.gitproxy",
        "core.askpass",
        "core.alternaterefscommand",
        "core.virtualfilesystem",
        "filter.*.clean",
        "filter.*.smudge",
        "filter.*.process",
        "diff.*.command",
        "diff.*.textconv",
        "merge.*.driver",
        "gpg.program",
        "gpg.*.program",
        "gpg.ssh.defaultkeycommand",
        "log.showsignature",
        "credential.helper",
        "credential.*.helper",
        "url.*.insteadof",
        "url.*.pushinsteadof",
        "remote.*.uploadpack",
        "remote.*.receivepack",
        "remote.*.vcs",
        "protocol.allow",
        "protocol.*.allow",
        "http.savecookies",
        "http.*.savecookies",
        "include.path",
        "includeif.*.path",
    ]
)


def git_defines_programs(folder: str) -> bool:
    """Whether git, reading in `folder`, would run a program that the repository chose."""
    found = _repository(folder)
    if found is None:
        return False
    git_folder, worktree = found
    return _defines(git_folder, worktree, 0)


def git_folders(folder: str) -> tuple[str, str] | None:
    """The git folder of the repository around a folder, and the one that its worktrees share."""
    found = _repository(folder)
    if found is None:
        return None
    own = os.path.normpath(found[0])
    common = _common_folder(own)
    return own, own if common == own else os.path.realpath(common)


def _repository(folder: str) -> tuple[str, str] | None:
    """The git folder that git would find from here, and its working tree."""
    here = os.path.abspath(folder)
    while True:
        dot_git = f"{here}/.git"
        mode = _mode(dot_git)
        if stat.S_ISDIR(mode):
            return dot_git, here
        if stat.S_ISREG(mode):
            return _pointed_at(dot_git), here
        if _is_bare(here):
            return here, here
        parent = os.path.dirname(here)
        if parent == here:
            return None
        here = parent


def _mode(path: str) -> int:
    """The kind of file that a path leads to; 0 when it leads to none."""
    try:
        return os.stat(path).st_mode if os.access(path, os.F_OK) else 0
    except (OSError, ValueError):
        return 0


def _pointed_at(file: str) -> str:
    """The folder that a `.git` file names; the file itself when it cannot be read."""
    text = _read_text(file) or ""
    if not text.startswith("gitdir:"):
        return file
    return os.path.join(os.path.dirname(file), text.removeprefix("gitdir:").strip())


def _is_bare(folder: str) -> bool:
    return stat.S_ISREG(_mode(f"{folder}/HEAD")) and all(
        stat.S_ISDIR(_mode(f"{folder}/{name}")) for name in ("objects", "refs")
    )


def _defines(git_folder: str, worktree: str, depth: int) -> bool:
    if depth > _MAX_DEPTH or not os.path.isdir(git_folder):
        return True
    common = _common_folder(git_folder)
    files = (os.path.join(common, "config"), os.path.join(git_folder, "config.worktree"))
    if any(_file_defines(file) for file in files):
        return True
    for path in _submodule_paths(git_folder):
        if path is None:
            return True
        inside = os.path.join(worktree, path)
        dot_git = os.path.join(inside, ".git")
        if os.path.isfile(dot_git):
            dot_git = _pointed_at(dot_git)
        if os.path.lexists(dot_git) and _defines(dot_git, inside, depth + 1):
            return True
    return False


def _common_folder(git_folder: str) -> str:
    """A linked worktree keeps its configuration in the main repository."""
    text = _read_text(os.path.join(git_folder, "commondir"))
    return os.path.join(git_folder, text.strip()) if text else git_folder


# ------------------------------------------------------------------------------ configuration


def _file_defines(file: str) -> bool:
    stamp = _stamp(file)
    if stamp is None:
        return False
    return _holds_program(file, stamp)


@lru_cache(maxsize=256)
def _holds_program(file: str, stamp: tuple[int, ...]) -> bool:
    """Whether a key of the file names a program, or the file cannot be read as configuration."""
    text = _read_text(file)
    if text is None:
        return True
    return any(key is None or _is_program(key, value) for key, value in _settings(text))


def _is_program(key: str, value: str) -> bool:
    if key == "log.showsignature":
        return value.strip().lower() in _TRUE
    return key in _PROGRAM_KEYS or (key == "remote.*.url" and "::" in value)


def _settings(text: str) -> Iterator[tuple[str | None, str]]:
    """Every key as `section.key` or `section.*.key`, with its value; (None, "") for a puzzle."""
    prefix = ""
    for line in text.split("\n"):
        rest = line.rstrip("\r")
        if rest.endswith("\\"):
            yield None, ""  # the next line continues this one: what looks like a header may be none
            return
        header = _HEADER.match(rest)
        while header is not None:
            prefix = _prefix(header["section"].lower(), header["name"])
            rest = header["rest"]
            header = _HEADER.match(rest)
        stripped = rest.strip()
        if not stripped or stripped[0] in "#;":
            continue
        setting = _KEY.match(rest)
        if setting is None:
            yield None, ""
            return
        yield prefix + setting["key"].lower(), setting["value"] or ""


def _prefix(section: str, name: str | None) -> str:
    if name is not None:
        return f"{section}.*."
    head, dot, _ = section.partition(".")
    return f"{head}.*." if dot else f"{section}."


# ------------------------------------------------------------------------------ submodules


def _submodule_paths(git_folder: str) -> tuple[str | None, ...]:
    """The paths of the index that are submodules; None for one that cannot be told."""
    files = [os.path.join(git_folder, "index")]
    try:
        names = os.listdir(git_folder)
    except OSError:
        return (None,)
    files += [os.path.join(git_folder, name) for name in names if name.startswith("sharedindex.")]
    found: list[str | None] = []
    for file in files:
        stamp = _stamp(file)
        if stamp is not None:
            found.extend(_gitlinks(file, stamp))
    return tuple(found)


@lru_cache(maxsize=64)
def _gitlinks(file: str, stamp: tuple[int, ...]) -> tuple[str | None, ...]:
    try:
        with open(file, "rb") as stream:
            data = stream.read(_MAX_BYTES)
    except OSError:
        return (None,)
    if _GITLINK not in data:
        return ()
    return _parsed_gitlinks(data)


def _parsed_gitlinks(data: bytes) -> tuple[str | None, ...]:
    """The entries of an index of version 2 or 3 whose mode says gitlink."""
    if len(data) < 12 or data[:4] != b"DIRC":
        return (None,)
    version, count = struct.unpack(">II", data[4:12])
    if version not in (2, 3):
        return (None,)
    found: list[str | None] = []
    at = 12
    for _ in range(count):
        flags = int.from_bytes(data[at + 60 : at + 62], "big")
        start = at + (64 if flags & 0x4000 else 62)
        end = data.find(b"\0", start)
        if end < 0:
            return (None,)
        if data[at + 24 : at + 28] == _GITLINK:
            found.append(os.fsdecode(data[start:end]))
        at += (end - at + 8) // 8 * 8
    return tuple(found)


def _stamp(file: str) -> tuple[int, ...] | None:
    """What changes when the file does; None when there is no such file."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _read_text(file: str) -> str | None:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read(_MAX_BYTES)
    except OSError:
        return None
