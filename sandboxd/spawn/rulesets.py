"""Landlock rulesets: made rule by rule, entered once, and the long part made ahead of time.

What may be read is a list of many paths (the siblings of everything denied), and each costs some
microseconds. The list is the same for every run of a policy while the folders it was made from do
not change, which its `version` says. A ruleset cannot be copied, and a run with mounts of its own adds
rules of its own (its /proc, its /dev), so while the zygote has nothing to do it makes the next one
ready. Runs without mounts of their own share one whole ruleset: entering it does not change it.
Rules stick to inodes (landlock(7)), and those of the host's folders are the same in a run's view.
"""

from __future__ import annotations

import errno
import os

from sandboxd.system import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Rules = dict[str, Any]
    """`LandlockRules` as marshal carries them."""

KEPT = 4
"""Rulesets made ready at a time, each for another version of a list."""

Key = tuple[object, ...]


class Ready:
    """Rulesets that are made already and wait for their run."""

    def __init__(self) -> None:
        self.made: dict[Key, int] = {}
        """With the readable paths only; each for one run."""
        self.whole: dict[Key, int] = {}
        """With everything; for any number of runs."""
        self.wanted: tuple[Rules, bool] | None = None
        """What the last run had: the next one is likely to want the same."""

    def take(self, rules: Rules | None, *, is_whole: bool = False) -> int:
        """A ruleset for exactly these readable paths, or for all of the rules, which is the
        caller's now; -1 when none is ready."""
        if rules is None or not rules["version"]:
            return -1
        if is_whole:
            ready = self.whole.get(_whole_key(rules))
            if ready is not None:
                return os.dup(ready)
        self.wanted = (rules, is_whole)
        return -1 if is_whole else self.made.pop(_key(rules), -1)

    def drop(self) -> None:
        """Throw them away: a new mount on a readable path has another inode."""
        for kept in (self.made, self.whole):
            while kept:
                os.close(kept.popitem()[1])

    def make(self) -> None:
        """Make one ready for what the last run had."""
        wanted, self.wanted = self.wanted, None
        if wanted is None:
            return
        rules, is_whole = wanted
        kept, key = (self.whole, _whole_key(rules)) if is_whole else (self.made, _key(rules))
        if key in kept:
            return
        while len(kept) >= KEPT:
            os.close(kept.pop(next(iter(kept))))
        try:
            made = _make_readable(rules)
            if is_whole:
                _add_the_rest(made, rules)
            kept[key] = made
        except OSError:
            pass  # the run will meet the same error and report it


def _key(rules: Rules) -> Key:
    return _abi(rules), rules["version"]


def _whole_key(rules: Rules) -> Key:
    """Also which folders lie now where the run may write: rules stick to inodes."""
    written = tuple((path, _identity(path)) for path in rules["write"])
    return (*_key(rules), written, *rules["list"], "devices", *rules["devices"])


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def enter(rules: Rules, ready: int, *, is_whole: bool = False, proc: int = -1) -> None:
    """Restrict this process for good; `ready` is a ruleset that holds the readable paths, or all
    of the rules, or -1. `proc` is a /proc that no name leads to and that init goes on reading."""
    ruleset = ready if ready >= 0 else _make_readable(rules)
    if ready < 0 or not is_whole:
        _add_the_rest(ruleset, rules)
    if proc >= 0:
        linux.landlock_allow(ruleset, proc, linux.LANDLOCK_READ)
    linux.landlock_restrict(ruleset)
    os.close(ruleset)


def _add_the_rest(ruleset: int, rules: Rules) -> None:
    handled = linux.landlock_rights(_abi(rules))
    device = linux.LANDLOCK_WRITE_FILE | linux.LANDLOCK_READ | linux.LANDLOCK_IOCTL_DEV
    everything = handled & ~linux.LANDLOCK_IOCTL_DEV
    for kind, rights in (
        ("shown", linux.LANDLOCK_READ),
        ("list", linux.LANDLOCK_READ_DIR),
        ("write", everything),
        ("devices", device),
    ):
        for path in rules[kind]:
            _allow_path(ruleset, path, rights & handled)


def _abi(rules: Rules) -> int:
    abi = linux.landlock_abi()
    wanted: int | None = rules["abi"]
    return abi if wanted is None else min(abi, wanted)


def _make_readable(rules: Rules) -> int:
    abi = _abi(rules)
    if abi == 0:
        raise OSError(errno.ENOSYS, "no Landlock")
    ruleset = linux.landlock_create(abi)
    for path in rules["read"]:
        _allow_path(ruleset, path, linux.LANDLOCK_READ)
    return ruleset


def _allow_path(ruleset: int, path: str, rights: int) -> None:
    """Grant beneath `path`; what does not exist or cannot be reached needs no rule. The kernel
    says EINVAL when a file is granted what only folders have: cheaper than a look at each."""
    try:
        fd = os.open(path, linux.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        linux.landlock_allow(ruleset, fd, rights)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        linux.landlock_allow(ruleset, fd, rights & linux.LANDLOCK_FILE_ONLY)
    finally:
        os.close(fd)
