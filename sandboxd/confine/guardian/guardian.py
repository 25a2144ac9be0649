"""The guardian of one engine: what its runs' guards share, and the sweep after a crash."""

from __future__ import annotations

import os
import time

from sandboxd.confine.guardian import journal, restore
from sandboxd.confine.guardian.aside import PREFIX, Store, open_beneath
from sandboxd.confine.guardian.findings import Findings
from sandboxd.confine.guardian.guard import Guard
from sandboxd.confine.guardian.journal import Watched
from sandboxd.confine.guardian.names import Folder, Stamp
from sandboxd.confine.guardian.watch import Listener, Watch

MAX_KNOWN = 1000
"""Folders whose absent names are remembered."""


class Guardian:
    """Makes a guard for each run; one watch and one memory of contents for all."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.keeper = restore.Keeper()
        self.heads: dict[str, tuple[Stamp, bytes]] = {}
        self.folders: dict[str, Folder] = {}
        self._living: set[Guard] = set()
        self._approved: dict[str, float] = {}
        self._swept: dict[str, Findings] = {}
        """By workspace: what the sweep found, told with the next run there."""

    def begin(self, run: Watched) -> Guard:
        """Look and watch from now on. Call `finish` with the guard whatever happens to the run."""
        if len(self.folders) > MAX_KNOWN:
            self.folders.clear()
            self.heads.clear()
        guard = Guard(self, run)
        for path in run.opened:
            self._approved[path] = float("inf")
        guard.begin()
        self._living.add(guard)
        return guard

    def finish(self, guard: Guard) -> Findings:
        self._living.discard(guard)
        findings = guard.finish()
        for path in guard.run.opened:
            self._approved[path] = time.monotonic()
        swept = self._swept.pop(guard.run.policy.workspace, None)
        if swept is not None:
            findings.merge(swept)
        return findings

    def close(self) -> None:
        self.watch.close()

    # -- what guards share

    def listen(self, folder: str, listener: Listener) -> None:
        self.watch.add(folder, listener)

    def unlisten(self, folder: str, listener: Listener) -> None:
        self.watch.remove(folder, listener)

    def was_set_aside(self, path: str) -> None:
        for guard in self._living:
            guard.told(path)

    def is_approved(self, path: str, since: float) -> bool:
        return any(
            until >= since and (path == opened or path.startswith(opened + "/"))
            for opened, until in self._approved.items()
        )

    # -- after a crash

    def sweep(self, sessions_folder: str) -> Findings:
        """Finish what engines began that live no more; what was found, also told with the next
        run in the same workspace."""
        everything = Findings()
        for record, leftovers, files in journal.abandoned(sessions_folder):
            guard = Guard(self, record.run)
            guard.resume(record)
            try:
                findings = guard.finish()
            except OSError as error:
                findings = Findings(notices=[f"an unfinished run could not be swept: {error}"])
            for place in leftovers:
                _carry_away(guard, place)
            for path in files:
                _unlink(path)
            workspace = record.run.policy.workspace
            self._swept.setdefault(workspace, Findings()).merge(findings)
            everything.merge(findings)
        return everything


def _carry_away(guard: Guard, place: str) -> None:
    """A plant that had its harmless name already when the engine died."""
    name = os.path.basename(place)
    if not name.startswith(PREFIX):
        return
    store = Store(guard.store.folder, lambda _: None)
    try:
        parent = open_beneath(guard.place.root_of(place), os.path.dirname(place))
    except OSError:
        return
    try:
        if name in os.listdir(os.path.dirname(place)):
            store.carry(parent, name, "plant")
    finally:
        os.close(parent)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
