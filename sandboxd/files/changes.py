"""What changes files, in two steps: a plan that touches nothing, then all of it or nothing.

An operation locates its files (what is judged), plans under their locks (reads, checks the ledger,
matches, builds the new contents) and is committed under the same locks. When a person has to be
asked, the locks are let go after a first plan; the second one must come to the same contents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

from sandboxd.errors import InvalidArgument, Refusal, SandboxdError, StaleVersion
from sandboxd.files import storage
from sandboxd.files.guard import Place
from sandboxd.files.ledger import Seen, version_of
from sandboxd.files.locks import Held
from sandboxd.files.reading import Tools
from sandboxd.files.storage import Content
from sandboxd.files.text import difference
from sandboxd.files.undo import Before
from sandboxd.model import Diff

Action = Literal["add", "update", "delete"]


@dataclass(frozen=True)
class Target:
    """What an operation is about, as it is judged."""

    operation: str
    writes: tuple[Place, ...]
    reads: tuple[Place, ...] = ()
    deletes: bool = False
    """It removes a file, rather than replacing what is in it."""

    @property
    def protected(self) -> tuple[str, ...]:
        return tuple(place.protected for place in self.writes if place.protected is not None)


@dataclass(frozen=True)
class FileChange:
    """One file of a plan: what it is, and what it becomes."""

    place: Place
    action: Action
    before: Content | None
    after: bytes | None
    mode: int | None = None
    moved_from: str | None = None

    @cached_property
    def diff(self) -> Diff:
        """The lines that change; counts alone where one side is no text."""
        try:
            before = self.before.data.decode() if self.before is not None else ""
            return difference(before, (self.after or b"").decode())
        except UnicodeDecodeError:
            return Diff(is_abridged=True)

    @cached_property
    def version(self) -> str | None:
        """The identity of what it becomes."""
        return version_of(self.after) if self.after is not None else None


@dataclass(frozen=True)
class Plan:
    """Everything that a change would do."""

    target: Target
    files: tuple[FileChange, ...]
    creates: tuple[str, ...] = ()
    """Folders that will be made, absolute."""
    shown_creates: tuple[str, ...] = ()
    """The same as messages name them."""
    strategies: tuple[str, ...] = ()
    refreshed: str | None = None
    """The command of ours that has changed the file since it was read."""
    undone: tuple[str, ...] = ()
    """Changes that this one takes back."""

    @cached_property
    def digest(self) -> str:
        """Two plans of one digest do the same to the same files."""
        parts = hashlib.sha256()
        for file in self.files:
            before = file.before.version if file.before is not None else ""
            parts.update(f"{file.place.path}\0{before}\0{file.version}\0{file.mode}\0".encode("utf-8", "surrogateescape"))  # fmt: skip
        return parts.hexdigest()


class Operation(Protocol):
    """One kind of change with its arguments."""

    @property
    def name(self) -> str:
        """As the wire names it."""

    def locate(self, tools: Tools) -> Target:
        """The files it is about. Raises what `guard.locate` does."""

    def plan(self, tools: Tools, target: Target) -> Plan:
        """What it would do; under the locks of `target`. Raises every refusal of its kind."""


@dataclass(frozen=True)
class Preview:
    """Nothing was touched: a dry run, or somebody must be asked first."""

    plan: Plan


@dataclass(frozen=True)
class Done:
    """The change was made."""

    plan: Plan
    change_id: str | None
    """Under which it can be taken back; None when it was too large to be kept."""


def attempt(
    tools: Tools,
    operation: Operation,
    is_allowed: Callable[[Target], bool],
    *,
    run_id: str | None = None,
    is_dry_run: bool = False,
    approved: str | None = None,
) -> Preview | Done | Refusal:
    """Make the change when `is_allowed` says so, else show what it would be.

    What the files themselves forbid (stale, ambiguous, no such text) is said before anybody is asked.
    `approved` is the digest of the plan that a person has seen. The refusal is a value; Fault is
    raised. Blocks: call it in a thread.
    """
    try:
        target = operation.locate(tools)
        paths = [place.path for place in target.writes]
        with tools.locks.holding(paths) as held:
            target = operation.locate(tools)
            if [place.path for place in target.writes] != paths:
                raise _led_elsewhere(target)
            plan = operation.plan(tools, target)
            if is_dry_run or not is_allowed(target):
                return Preview(plan)
            if approved is not None and plan.digest != approved:
                raise _changed_meanwhile(plan)
            return _commit(tools, plan, held, run_id)
    except Refusal as refusal:
        return refusal


def _led_elsewhere(target: Target) -> StaleVersion:
    shown = ", ".join(place.shown for place in target.writes[:3])
    return StaleVersion(
        f"{shown} became a link to another place in this very moment",
        hint="something else changes this folder; look again with fs.list",
    )


def _changed_meanwhile(plan: Plan) -> StaleVersion:
    shown = ", ".join(file.place.shown for file in plan.files[:3])
    return StaleVersion(
        f"{shown} changed while a person was asked about it",
        hint="read it again with fs.read and send the change anew",
        path=plan.files[0].place.shown if plan.files else None,
    )


# --------------------------------------------------------------------------- commit


def _commit(tools: Tools, plan: Plan, held: Held, run_id: str | None) -> Done:
    files = [file for file in plan.files if not _is_idle(file)]
    change_id = _keep(tools, plan, files, run_id)
    made: list[FileChange] = []
    stamps = {}
    try:
        for file in files:
            stamps[file.place.path] = _touch(tools, plan, file, held)
            made.append(file)
    except BaseException:
        _take_back(tools, made, held)
        tools.undo.drop(change_id)
        raise
    for file in plan.files:
        _remember(tools, file, stamps.get(file.place.path))
    for undone in plan.undone:
        tools.undo.drop(undone)
    return Done(plan, change_id)


def _is_idle(file: FileChange) -> bool:
    return (
        file.before is not None
        and file.after is not None
        and file.before.data == file.after
        and file.mode is None
    )


def _keep(tools: Tools, plan: Plan, files: list[FileChange], run_id: str | None) -> str | None:
    """Keep the contents that are about to go; a full disk is no reason not to change anything."""
    if not files:
        return None
    with suppress(OSError):
        return tools.undo.keep(
            [(_before(file), file.before.data if file.before else b"") for file in files],
            run_id=run_id,
            session_id=tools.session_id,
            workspace=tools.scope.workspace,
            operation=plan.target.operation,
        )
    return None


def _before(file: FileChange) -> Before:
    before = file.before
    return Before(
        path=file.place.path,
        existed=before is not None,
        size=len(before.data) if before is not None else 0,
        mode=before.found.st_mode & 0o777 if before is not None else 0o644,
        after=file.version,
    )


def _touch(tools: Tools, plan: Plan, file: FileChange, held: Held) -> Seen | None:
    """Write or remove one file."""
    base = file.before.found if file.before is not None else None
    if file.after is None:
        assert base is not None  # nobody plans to remove what is not there
        storage.remove(file.place, tools.scope, base)
        return None
    storage.make_parents(file.place, tools.scope, _parents(plan, file))
    stamp = storage.put(file.place, tools.scope, file.after, base, held, mode=file.mode)
    return Seen(file.place.path, file.version or "", stamp)


def _parents(plan: Plan, file: FileChange) -> tuple[str, ...]:
    return tuple(folder for folder in plan.creates if file.place.path.startswith(folder + "/"))


def _take_back(tools: Tools, made: Iterable[FileChange], held: Held) -> None:
    """All or nothing: put back what was changed before something failed."""
    for file in reversed(list(made)):
        with suppress(SandboxdError):
            current = None
            if file.after is not None:
                current = storage.read_whole(file.place, tools.scope, limit=len(file.after))
            if file.before is not None:
                base = current.found if current is not None else None
                mode = file.before.found.st_mode & 0o777
                storage.put(file.place, tools.scope, file.before.data, base, held, mode=mode)
            elif current is not None:
                storage.remove(file.place, tools.scope, current.found)


def _remember(tools: Tools, file: FileChange, seen: Seen | None) -> None:
    """Our own change is no reason to call the next one stale."""
    if file.after is None:
        tools.ledger.forget(file.place.path)
    elif seen is not None:
        tools.ledger.record(seen)
    elif file.before is not None:
        tools.ledger.record(Seen(file.place.path, file.before.version, file.before.stamp))


def encoded(text: str, name: str) -> bytes:
    """Text of a request as bytes. Raises InvalidArgument."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"`{name}` holds half a character (an unpaired surrogate) at {error.start}",
            hint="send whole Unicode characters",
        ) from error
