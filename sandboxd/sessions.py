"""Sessions: one agent's working context. Workspace rules, private temporary folder, approvals.

A session outlives a call: its /tmp and what a person approved survive until it is closed or has
been idle for a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from sandboxd import config, environment
from sandboxd.errors import InvalidRequest, WorkspaceRefused
from sandboxd.events.redaction import Redactor
from sandboxd.filling import CACHE
from sandboxd.policy import workspace_owner
from sandboxd.profiles import Profile, effective_profile
from sandboxd.proposals import Laid

PER_WORKSPACE = "workspace"
"""The session id that stands for "the one of this workspace"."""
IDLE_S = 24 * 3600.0
SET_ASIDE = "set-aside"
"""The guardian's folder in the session's, for what it moved out of the way."""


APPROVALS = "approvals.json"
"""The file in a lasting session's folder that keeps what was approved for it."""


@dataclass
class Shared:
    """What all clients of one session share."""

    approved: dict[str, set[str]] = field(default_factory=dict)
    """Approval keys by the scope they were approved in."""
    approved_hosts: set[str] = field(default_factory=set)
    grounds: dict[tuple[object, ...], tuple[str, Laid]] = field(default_factory=dict)
    """What was judged against so far, with the names that the event log knows."""
    recorded_grounds: set[str] = field(default_factory=set)
    refusals: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Calls that were refused in a row: how often, and when the last time was (epoch seconds)."""
    clients: int = 0
    """Connections that have it open."""
    is_recorded: bool = False
    """Whether the event log knows it."""
    last_used: float = field(default_factory=time.monotonic)
    is_closed: bool = False
    _when_closed: set[Callable[[], None]] = field(default_factory=set)

    @property
    def idle_s(self) -> float:
        return time.monotonic() - self.last_used

    def is_idle(self, for_s: float) -> bool:
        """Whether nobody has it open and nobody has used it for so long."""
        return not self.clients and self.idle_s >= for_s

    def when_closed(self, told: Callable[[], None]) -> Callable[[], None]:
        """Be told when it is closed under its clients, until what is returned is called."""
        self._when_closed.add(told)
        return lambda: self._when_closed.discard(told)

    def close(self) -> None:
        self.is_closed = True
        for told in tuple(self._when_closed):
            told()


@dataclass
class Session:
    """One agent's working context, as one client sees it."""

    id: str
    workspace: str
    cwd: str
    rules: Profile
    environment: dict[str, str]
    folder: str
    is_lasting: bool = False
    """Its folder stays when the session closes: the command line's sessions."""
    shared: Shared = field(default_factory=Shared)

    @cached_property
    def redactor(self) -> Redactor:
        """What hides the secrets of this session's environment from the event log."""
        return Redactor(environment.secret_values(self.environment, self.rules))

    @property
    def profile(self) -> str:
        """The profile's name, as it was asked for."""
        return self.rules.name

    def rules_for(self, profile: str | None) -> Profile:
        """The session's own profile, or another that a request names, in the same layers."""
        return effective_profile(profile, self.workspace) if profile else self.rules

    @property
    def private_tmp(self) -> str:
        return os.path.join(self.folder, "tmp")

    @property
    def output_folder(self) -> str:
        return os.path.join(self.folder, "output")

    @property
    def home(self) -> str:
        return self.environment.get("HOME", "/")


def open_session(
    *,
    workspace: str | None,
    cwd: str,
    session_id: str | None,
    profile: str | None,
    base: Mapping[str, str] | None,
) -> Session:
    """A new session, its folders made. Raises WorkspaceRefused, UnknownProfile, ProfileBroken."""
    env = dict(base) if base is not None else environment.default_base()
    root = resolve_workspace(workspace or env.get("SANDBOXD_WORKSPACE"), cwd, env.get("HOME"))
    name, lasting = _session_name(session_id, root)
    session = Session(
        id=name,
        workspace=root,
        cwd=cwd if os.path.isabs(cwd) else root,
        rules=effective_profile(profile, root),
        environment=env,
        folder=os.path.join(config.temp_folder(), name),
        is_lasting=lasting,
    )
    _make_folders(session)
    return session


def used(session: Session, *, is_new: bool = True) -> None:
    """It is not idle: somebody does something in it now (`is_new`), or has it open."""
    if is_new:
        session.shared.last_used = time.monotonic()
    try:
        os.utime(session.folder)
    except FileNotFoundError:  # swept, although it was only asleep
        _make_folders(session)


def remember(session: Session, scope: str, keys: Iterable[str], hosts: Iterable[str]) -> None:
    """Keep what a person approved for the session: over calls, and on disk when it is a lasting one."""
    session.shared.approved.setdefault(scope, set()).update(keys)
    session.shared.approved_hosts.update(hosts)
    if session.is_lasting:
        _save(session)


def recall(session: Session) -> None:
    """Read back what a lasting session's folder keeps; nothing where there is none, or none of ours."""
    if not session.is_lasting:
        return
    try:
        with open(os.path.join(session.folder, APPROVALS), "rb") as file:
            kept = msgspec.json.decode(file.read(), type=_Kept)
    except (OSError, msgspec.MsgspecError):
        return
    session.shared.approved = kept.approved
    session.shared.approved_hosts = kept.hosts


class _Kept(msgspec.Struct, frozen=True):
    approved: dict[str, set[str]]
    hosts: set[str]


def _save(session: Session) -> None:
    """A whole file or none: several commands of one workspace may do so at once."""
    kept = _Kept(session.shared.approved, session.shared.approved_hosts)
    path = os.path.join(session.folder, APPROVALS)
    new = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(kept))
        os.replace(new, path)


def resolve_workspace(named: str | None, cwd: str, home: str | None) -> str:
    """The real path of the workspace: what was named, else the enclosing git checkout, else cwd.

    The search never stops at the home folder or at `/`; `/` is refused always.
    """
    start = os.path.realpath(os.path.join(cwd, named) if named else cwd)
    if not os.path.isdir(start):
        raise WorkspaceRefused(
            f"the workspace {start} is not a folder",
            hint="name an existing folder with --workspace",
            path=start,
        )
    root = start if named else (_git_top(start, os.path.realpath(home) if home else None) or start)
    if root == "/":
        raise WorkspaceRefused(
            "the root of the file system cannot be a workspace",
            hint="change into a project folder or name one with --workspace",
            path="/",
        )
    return root


def _git_top(start: str, home: str | None) -> str | None:
    folder = start
    while folder not in ("/", home):
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder
        folder = os.path.dirname(folder)
    return None


def _session_name(session_id: str | None, workspace: str) -> tuple[str, bool]:
    if session_id is None:
        return "s-" + secrets.token_hex(8), False
    if session_id == PER_WORKSPACE:
        return "w-" + hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16], True
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", session_id):
        raise InvalidRequest(
            "a session id has 1 to 64 letters, digits, dots, dashes or underscores",
            hint="choose another session id, or leave it out",
        )
    return session_id, not re.fullmatch(r"s-[0-9a-f]{16}", session_id)


def _make_folders(session: Session) -> None:
    owner = workspace_owner(session.workspace)
    is_foreign = owner is not None and owner[0] != 0
    os.makedirs(session.folder, mode=0o711 if is_foreign else 0o700, exist_ok=True)
    os.makedirs(session.output_folder, mode=0o700, exist_ok=True)
    try:
        os.mkdir(session.private_tmp, 0o700)
        made = _link_cargo(session)  # now, while no run could have put a link in the way
        if is_foreign and owner is not None:
            for path in made:
                os.chown(path, *owner)
    except FileExistsError:
        pass
    if is_foreign and owner is not None:
        os.chown(session.private_tmp, *owner)
    os.utime(session.folder)


def _link_cargo(session: Session) -> tuple[str, str]:
    """cargo reads its configuration beside its cache, which the profiles move: lead it back to the
    person's, which runs see without its secrets. The folders that were made."""
    usual = os.path.join(session.home, ".cargo")
    folder = os.path.join(session.private_tmp, CACHE, "cargo")
    os.makedirs(folder, mode=0o700)
    target = os.path.join(session.environment.get("CARGO_HOME") or usual, "config.toml")
    os.symlink(target, os.path.join(folder, "config.toml"))
    return os.path.dirname(folder), folder


def remove_folder(session: Session) -> None:
    """Delete the session's temporary files; what cannot be deleted stays for the next sweep.

    What was set aside may be a person's own file: it stays until the session would be idle.
    """
    if not os.path.isdir(os.path.join(session.folder, SET_ASIDE)):
        shutil.rmtree(session.folder, ignore_errors=True)
        return
    for entry in os.scandir(session.folder):
        if entry.name != SET_ASIDE and entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)


def sweep_idle(now: float | None = None) -> int:
    """Remove session folders that nobody used for a day; how many went."""
    base = config.temp_folder()
    limit = (now if now is not None else time.time()) - IDLE_S
    idle = [entry.path for entry in os.scandir(base) if _used_at(entry) < limit]
    for path in idle:
        shutil.rmtree(path, ignore_errors=True)
    return len(idle)


def _used_at(entry: os.DirEntry[str]) -> float:
    """When the folder was last used; never idle when another process has just removed it."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return math.inf
