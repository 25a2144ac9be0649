"""The world as one session's rules see it. The one canonical path rule is the file tools'.

A module of its own because nothing else that judges may look at files, hosts or time.
"""

from __future__ import annotations

import ipaddress
import os
import stat
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from sandboxd.egress.hosts import HostRules, address_of, canonical, embedded
from sandboxd.errors import SandboxdError
from sandboxd.files.guard import Scope, anchored, protected_by, resolve, shown_as
from sandboxd.files.ledger import HASHED_BYTES, Ledger, Seen, Stamp, stamp_version, version_of
from sandboxd.model import Denial, EgressRules, NetworkMode
from sandboxd.proposals import (
    GrantFact,
    Grounds,
    PathFact,
    RefusalsFact,
    ScriptFact,
    SeenFact,
)
from sandboxd.sessions import Session

SHEBANG_BYTES = 256
"""As much of a first line as the kernel reads (BINPRM_BUF_SIZE)."""


class Sightings(Protocol):
    """Which files the session has seen, and as what."""

    def look(self, path: str) -> SeenFact: ...

    def note(self, path: str) -> None:
        """It counts as seen as it is now."""

    def allow_write(self, path: str) -> None:
        """The caller's own tool may write it now: what it makes of it counts as seen, once."""


class SessionWorld:
    """Answers by looking. `scope` is made when the first path is asked about."""

    def __init__(
        self,
        session: Session,
        scope: Callable[[], Scope],
        sightings: Sightings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._scope = scope
        self._sightings = sightings
        self._clock = clock

    def path(self, text: str) -> PathFact:
        scope = self._scope()
        try:
            path, found = resolve(anchored(text, scope), scope)
        except SandboxdError as error:
            return PathFact(canonical=None, error=str(error))
        return PathFact(
            canonical=path,
            exists=found is not None,
            is_folder=found is not None and stat.S_ISDIR(found.st_mode),
            protected=protected_by(path, scope),
            shown=shown_as(path, scope),
        )

    def seen(self, canonical: str) -> SeenFact:
        return self._sightings.look(canonical)

    def script(self, canonical: str) -> ScriptFact:
        try:
            fd = os.open(canonical, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return ScriptFact()
        try:
            is_file = stat.S_ISREG(os.fstat(fd).st_mode)
            line = os.read(fd, SHEBANG_BYTES).split(b"\n")[0] if is_file else b""
        finally:
            os.close(fd)
        return ScriptFact(interpreters=interpreters_of(line))

    def refusals(self, key: str) -> RefusalsFact:
        count, at = self._session.shared.refusals.get(key, (0, 0.0))
        return RefusalsFact(
            count=count, age_s=round(max(0.0, self._clock() - at), 3) if count else 0
        )

    def grant(self, host: str) -> GrantFact:
        return GrantFact(is_granted=host in self._session.shared.approved_hosts)


def interpreters_of(line: bytes) -> tuple[str, ...]:
    """`#!/usr/bin/env -S python3 -u` -> (/usr/bin/env, python3); a line without `#!` names none."""
    if not line.startswith(b"#!"):
        return ()
    words = line[2:].decode("utf-8", "replace").split()
    if not words:
        return ()
    if os.path.basename(words[0]) != "env":
        return (words[0],)
    rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return (words[0], *rest[:1])


class Seeing:
    """Sightings in the session's own ledger, which its commands and file tools share."""

    def __init__(self, ledger: Ledger, writing: set[str]) -> None:
        """`writing`: files that the caller's own tool was let write and has perhaps not yet written."""
        self._ledger = ledger
        self._writing = writing

    def look(self, path: str) -> SeenFact:
        known, is_own = self._ledger.get(path), path in self._writing
        if known is None and not is_own:
            return SeenFact(is_seen=False)
        now = identity(path)
        if is_own and (known is None or now is None or now.version != known.version):
            self.note(path)
            return SeenFact(is_seen=True)
        is_current = now is not None and known is not None and now.version == known.version
        return SeenFact(is_seen=True, is_current=is_current)

    def note(self, path: str) -> None:
        self._writing.discard(path)
        now = identity(path)
        if now is not None:
            self._ledger.record(now)

    def allow_write(self, path: str) -> None:
        self._writing.add(path)


def identity(path: str) -> Seen | None:
    """A file's content as the ledger knows content; None for what is no regular file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        stamp = Stamp.of(found)
        if not stat.S_ISREG(found.st_mode):
            return None
        if found.st_size > HASHED_BYTES:
            return Seen(path, stamp_version(stamp), stamp)
        return Seen(path, version_of(file.read()), stamp)


# --------------------------------------------------------------------------- hosts


def judge_host(host: str, grounds: Grounds, is_run: bool) -> Denial | None:
    """Whether the network rules deny a host; pure. In mode `host` only what is denied by name is; the
    loopback of a run is its own."""
    name, port = _split(host)
    known = canonical(name)
    if known is None:
        return Denial(evidence="policy", rule="network: no host name", host=host)
    rules = _host_rules(grounds.network, grounds.egress)
    address = address_of(known)
    if address is None:
        return rules.judge_name(known, port)
    if is_run and any(ipaddress.ip_address(str(face)).is_loopback for face in embedded(address)):
        return None
    return rules.judge_address(address, port or 443)


@lru_cache(64)
def _host_rules(mode: NetworkMode, rules: EgressRules) -> HostRules:
    refused = () if mode is NetworkMode.HOST else None
    if refused is None:
        return HostRules(mode, rules, is_own=lambda _: False)
    return HostRules(mode, rules, is_own=lambda _: False, refused=refused)


def _split(host: str) -> tuple[str, int | None]:
    head, colon, tail = host.rpartition(":")
    if colon and tail.isdigit() and ":" not in head.strip("[]").replace("::", ""):
        return head.strip("[]"), int(tail)
    return host.strip("[]"), None
