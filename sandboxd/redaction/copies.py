"""The copies of one run's configuration files, remembered while the files stay the same.

A run pays one stat(2) for each file that a profile names, and one look at a link where there is one.
A copy belongs to the file that a name leads to, links followed: that is the file which is covered, so
it is covered under all its names. A git configuration that includes another brings it along.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Literal

import msgspec
from msgspec import Struct

from sandboxd.model import Policy, Redacted, ShownCopy
from sandboxd.redaction.formats import git_entries, is_clean, redact

MAX_BYTES = 128 * 1024
MAX_COPIES = 32
MAX_CHANGES = 64
SETTLED_NS = 50_000_000
"""A file that changed this recently may change again within the same tick of its time stamps."""

Stamp = tuple[int, int, int, int, int]
Shows = Literal["copies", "nothing", "all"]
"""What a tier can do: show a copy in a file's place; only hide a file; not even that."""


class Copy(Struct, frozen=True):
    """What became of one file."""

    stamp: Stamp
    real: str
    text: str | None
    """None: it could not be read in its format."""
    is_clean: bool = False
    """Whether there is nothing to be taken out."""
    includes: tuple[str, ...] = ()


class Change(Struct, frozen=True):
    """What becomes of a policy."""

    left: tuple[Redacted, ...]
    shown: tuple[ShownCopy, ...]
    hidden: tuple[str, ...]
    notes: tuple[str, ...]


class Copies:
    """One for each engine."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Copy] = {}
        self._changes: dict[object, Change] = {}

    def applied(self, policy: Policy, tier: str, shows: Shows, home: str) -> Policy:
        """The policy with every redacted file that exists shown as a copy or hidden; `redacted` keeps
        those that do not exist. `home` is where `~` in an include leads."""
        copies = self._found(policy.redacted, home)
        if not copies:
            return policy
        key = (policy.redacted, tuple(copy.stamp for _, copy in copies), tier, shows)
        change = self._changes.get(key)
        if change is None:
            if len(self._changes) >= MAX_CHANGES:
                self._changes.clear()
            change = self._changes[key] = _change(policy.redacted, copies, tier, shows)
        return msgspec.structs.replace(
            policy,
            redacted=change.left,
            shown=change.shown,
            denied=(*policy.denied, *change.hidden),
            notes=(*policy.notes, *change.notes),
        )

    def text_of(self, policy: Policy, path: str) -> str | None:
        """What a run sees in place of the file at this real path; None when it sees the file itself."""
        return next((copy.text for copy in policy.shown if copy.path == path), None)

    def _found(self, entries: tuple[Redacted, ...], home: str) -> list[tuple[Redacted, Copy]]:
        """Every entry whose file exists, includes behind their includer."""
        found: list[tuple[Redacted, Copy]] = []
        queue = list(entries)
        while queue and len(found) < 2 * MAX_COPIES:
            entry = queue.pop(0)
            copy = self._copy(entry.path, entry.as_, home)
            if copy is None:
                continue
            if copy.real in [each.real for _, each in found] and entry not in entries:
                continue
            found.append((entry, copy))
            queue += [
                Redacted(path=path, as_=entry.as_, otherwise=entry.otherwise)
                for path in copy.includes
            ]
        return found

    def _copy(self, path: str, form: str, home: str) -> Copy | None:
        if not os.access(path, os.F_OK):  # an exception costs more than the look itself
            return None
        try:
            found = os.stat(path)
        except OSError:
            return None
        stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = self._known.get((path, home))
        if known is not None and known.stamp == stamp and _is_there(known):
            return known
        copy = _read(path, form, stamp, home) if stat.S_ISREG(found.st_mode) else None
        copy = copy or Copy(stamp, os.path.realpath(path), None)
        if time.time_ns() - found.st_ctime_ns > SETTLED_NS:
            self._known[path, home] = copy
        return copy


def _read(path: str, form: str, stamp: Stamp, home: str) -> Copy:
    real = os.path.realpath(path)
    text = None
    if stamp[2] <= MAX_BYTES:
        try:
            with open(real, encoding="utf-8") as file:
                text = file.read(MAX_BYTES + 1)
        except (OSError, UnicodeDecodeError):
            text = None
    if text is None or len(text) > MAX_BYTES:
        return Copy(stamp, real, None)
    shown = redact(text, form)
    is_git = form == "gitconfig" and shown is not None
    includes = _includes(text, real, home) if is_git else ()
    return Copy(stamp, real, shown, is_clean(text, form), includes)


def _includes(text: str, real: str, home: str) -> tuple[str, ...]:
    """The files that a git configuration includes, on whatever condition."""
    found = []
    for section, _, key, value in git_entries(text):
        if section.lower() in ("include", "includeif") and key and key.lower() == "path" and value:
            path = home + value[1:] if value.startswith("~/") else value
            found.append(os.path.normpath(os.path.join(os.path.dirname(real), path)))
    return tuple(dict.fromkeys(found))


def _change(
    entries: tuple[Redacted, ...], copies: list[tuple[Redacted, Copy]], tier: str, shows: Shows
) -> Change:
    shown: dict[str, ShownCopy] = {}
    hidden: dict[str, None] = {}
    notes: dict[str, None] = {}
    if shows == "all":
        names = ", ".join(dict.fromkeys(copy.real for _, copy in copies))
        notes[f"configuration is shown with the secrets in it: {names}"] = None
    for entry, copy in copies if shows != "all" else ():
        if shows == "copies" and copy.text is not None and len(shown) < MAX_COPIES:
            shown[copy.real] = ShownCopy(path=copy.real, text=copy.text)
        elif shows == "nothing" and (copy.is_clean or entry.otherwise == "show"):
            told = "no secret stands in it now" if copy.is_clean else "with the secrets in it"
            notes[f"{copy.real} is shown as it is in tier {tier}: {told}"] = None
        else:
            hidden[copy.real] = None
            notes[f"{copy.real} is hidden: {_why_hidden(entry, copy, tier, shows)}"] = None
    present = {entry.path for entry, _ in copies}
    return Change(
        left=tuple(each for each in entries if each.path not in present),
        shown=tuple(copy for path, copy in shown.items() if path not in hidden),
        hidden=tuple(hidden),
        notes=tuple(notes),
    )


def _is_there(copy: Copy) -> bool:
    """Whether the file still lies where the copy will lie."""
    try:
        found = os.lstat(copy.real)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == copy.stamp[:2]


def git_environment(policy: Policy, home: str) -> dict[str, str]:
    """What lets git work beside a configuration that is hidden: one that it may not read it calls a
    fatal error."""
    hidden = {path for path in policy.denied if path.endswith(("gitconfig", "/git/config"))}
    if not hidden:
        return {}
    found = {}
    if os.path.realpath("/etc/gitconfig") in hidden:
        found["GIT_CONFIG_NOSYSTEM"] = "1"
    persons = (os.path.join(home, name) for name in (".gitconfig", ".config/git/config"))
    if any(os.path.realpath(path) in hidden for path in persons):
        found["GIT_CONFIG_GLOBAL"] = "/dev/null"
    return found


def _why_hidden(entry: Redacted, copy: Copy, tier: str, shows: Shows) -> str:
    if copy.text is None:
        return f"it cannot be read as {entry.as_}"
    if shows == "nothing":
        return f"tier {tier} cannot show it without its secrets"
    return f"a run is shown at most {MAX_COPIES} such files"
