"""One run's protected names from its beginning to its end.

Two kinds of tiers behave differently. Where protected names are covered by mounts the run cannot
replace a name that is there, so whoever did was the host: the new file is taken for the truth and
covered again. Where they are not (`landlock`, `containment`) nobody knows who changed a name, so
what was there is put back at the end and what was found is set aside.

A name that was absent is watched in both, and set aside as soon as it appears.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from sandboxd.confine.guardian import planted, repository, restore
from sandboxd.confine.guardian.aside import Store, read_beneath, write_beneath
from sandboxd.confine.guardian.covering import Covering, Remask, Steps
from sandboxd.confine.guardian.findings import Findings
from sandboxd.confine.guardian.journal import Journal, Record, Watched
from sandboxd.confine.guardian.names import Folder, Name, Stamp, look, look_into, names_of
from sandboxd.confine.guardian.watch import Listener
from sandboxd.system import posix

ADOPT_S = 1.0
"""An editor renames the old file away and writes a new one: within this time what comes back under
the name is taken to be the host's."""
BUSY_S = 2.0
"""How long what git may still be checking out is waited for."""
CREATING_S = 60.0
"""The same in a repository that the run is making: a clone."""
REVISIT_S = 0.03
MAX_HEAD = 4096
MAX_WRITTEN = 64
MAX_ENTRIES = 128


class Shared(Protocol):
    """What the guards of one engine have in common."""

    heads: dict[str, tuple[Stamp, bytes]]
    folders: dict[str, Folder]
    keeper: restore.Keeper

    def listen(self, folder: str, listener: Listener) -> None: ...

    def unlisten(self, folder: str, listener: Listener) -> None: ...

    def was_set_aside(self, path: str) -> None:
        """Tell every living guard that watches the path."""

    def is_approved(self, path: str, since: float) -> bool:
        """Whether another run was let write it at any time since then (time.monotonic())."""


class Guard:
    """See the module."""

    def __init__(self, shared: Shared, run: Watched) -> None:
        self.shared = shared
        self.run = run
        self.names = names_of(run.policy)
        self.findings = Findings()
        self.journal = Journal(run.session_folder, run.run_id)
        folder = os.path.join(run.session_folder, "set-aside", run.run_id.replace("/", "_"))
        self.store = Store(folder, self.journal.note)
        self.found: dict[str, Stamp | None] = {}
        self.now: dict[str, Stamp | None] = {}
        self._folders: dict[str, Folder] = {}
        self.kept = restore.Kept()
        self.heads: dict[str, bytes] = {}
        self.begun = time.monotonic()
        self.begun_ns = time.time_ns()
        self._gone: dict[str, float] = {}
        self._pending: dict[str, float] = {}
        self._allowed: dict[str, str] = {}
        self._listening: set[str] = set()
        self._covering = Covering(self.findings)
        self._revisit: asyncio.TimerHandle | None = None
        self._cleaning: asyncio.TimerHandle | None = None
        self._is_over = False

    # -- the beginning

    def begin(self) -> None:
        """Look at every name, watch their folders, write the journal. Before the launch."""
        self._look_at_all()
        self.now = dict(self.found)
        self._place_git = planted.git_folder(self.run.policy)
        self._note_heads()
        self._note_links()
        kept = self._present() if not self.run.is_masked else []
        kept += [path for path in self.run.opened if self.found.get(path)]
        self.kept = self.shared.keeper.keep(self.place.root_of, kept)
        for folder in self.names.kept_in:
            self._listen(folder)
        try:
            self.journal.open(self._record())
        except OSError as error:
            self.findings.admit(
                f"no journal ({posix.words(error)}): if sandboxd is killed, what this run plants stays"
            )

    def _record(self) -> Record:
        run, begun = self.run, self.begun_ns
        return Record(run=run, begun_ns=begun, found=self.found, kept=self.kept, heads=self.heads)

    def _look_at_all(self) -> None:
        for folder, paths in self.names.by_folder:
            known = self.shared.folders.get(folder)
            found, trusted = look_into(folder, paths, known, self.begun_ns)
            self.found |= found
            if trusted is not None:
                self._folders[folder] = self.shared.folders[folder] = trusted

    def resume(self, record: Record) -> None:
        """Take up a run that another engine began and never finished."""
        self.found, self.kept, self.heads = record.found, record.kept, record.heads
        self.now = dict(self.found)
        self.begun_ns = record.begun_ns
        self._place_git = planted.git_folder(self.run.policy)

    def launched(self, steps: Steps, remask: Remask) -> None:
        """The run lives: `steps` are its plan's mount steps, `remask` covers them again."""
        self._covering.start(steps, remask)
        for folder in self.names.hidden_in:
            self._listen(folder)

    def _note_heads(self) -> None:
        for name in self.names.stamped:
            stamp = self.found[name.path]
            if name.kind != "head" or stamp is None:
                continue
            known = self.shared.heads.get(name.path)
            if known is None or known[0] != stamp:
                data = read_beneath(os.path.dirname(name.path), name.path, MAX_HEAD)
                if data is None:
                    continue
                known = self.shared.heads[name.path] = (stamp, data)
            self.heads[name.path] = known[1]

    def _note_links(self) -> None:
        for path, stamp in self.found.items():
            if stamp is not None and stamp.is_file and stamp.links > 1 and path in self._protected:
                self.findings.admit(
                    f"{path} has {stamp.links} names (hard links): through another one it can be written"
                )
        for path in self.run.written[:MAX_WRITTEN]:
            stamp = look(path)
            if stamp is not None and stamp.is_file and stamp.links > 1:
                self.findings.admit(
                    f"{path} has {stamp.links} names (hard links): what is written to it shows under all"
                )

    @property
    def _protected(self) -> set[str]:
        return {name.path for name in self.names.stamped if name.kind == "protected"}

    def _present(self) -> list[str]:
        return [
            name.path
            for name in self.names.stamped
            if name.kind == "protected"
            and self.found[name.path] is not None
            and name.path not in self.run.opened
        ]

    @property
    def place(self) -> planted.Place:
        policy = self.run.policy
        return planted.Place(
            workspace=policy.workspace,
            git=self._place_git,
            roots=policy.writable,
            owner=policy.owner,
            begun_ns=self.begun_ns,
            is_created=self._is_created,
            is_over=self._is_over,
        )

    @property
    def _is_created(self) -> bool:
        """Whether the workspace got its repository during this run."""
        stamp = look(self._own_git) if self.found.get(self._own_git, True) is None else None
        return stamp is not None and stamp.is_folder

    # -- while it lives

    def _listen(self, folder: str) -> None:
        if folder not in self._listening:
            self._listening.add(folder)
            self.shared.listen(folder, self._on_event)

    def _on_event(self, folder: str, name: str | None) -> None:
        if self._is_over:
            return
        known = self.names.all if name is None else self.names.by_place.get((folder, name), ())
        for each in known:
            self._safely(partial(self._examine, each))
        if self._is_created and folder.startswith(self._own_git + "/"):
            self._clean_soon()

    def _safely(self, work: Callable[[], None]) -> None:
        """A file system that fails us is said in the result; it must not stop the rest."""
        try:
            work()
        except planted.Locked:
            self._clean_soon()
        except OSError as error:
            place = f" ({error.filename})" if error.filename else ""
            self.findings.say(
                f"protected names could not be looked after: {posix.words(error)}{place}"
            )

    @property
    def _own_git(self) -> str:
        return os.path.join(self.run.policy.workspace, ".git")

    def _examine(self, name: Name) -> None:
        if name.kind in ("pinned", "denied"):
            self._cover_again()
        elif name.kind == "protected":
            self._examine_protected(name.path)
        elif name.kind == "head":
            self._examine_head(name.path)
        elif name.kind == "bare":
            self._examine_bare()
        else:
            self._examine_repository(name.path)

    def _examine_protected(self, path: str) -> None:
        if path in self.run.opened or path in self._pending:
            return
        if not self.run.is_masked and self.found.get(path) is not None:
            return  # nobody knows who changes it: put back at the end
        old, stamp = self.now.get(path), look(path)
        if stamp is None:
            if old is not None:
                self._gone[path] = time.monotonic()
            self.now[path] = None
        elif old is None:
            if self.run.is_masked and time.monotonic() - self._gone.get(path, -1e9) < ADOPT_S:
                self._adopt(path, stamp)
            else:
                self._appeared(path)
        elif not stamp.is_same_file(old) and self.run.is_masked:
            self._adopt(path, stamp)

    def _adopt(self, path: str, stamp: Stamp) -> None:
        """The host replaced it: cover the new file, and say that it lay bare for a moment."""
        self.now[path] = stamp
        self.findings.admit(
            f"{path} was replaced on the host during the run; until it was covered again the run could write it"
        )
        self._cover_again()

    def _appeared(self, path: str) -> None:
        if self._is_created and path.startswith(self._own_git + "/"):
            self._clean_soon()
            return
        self._pending.setdefault(path, time.monotonic())
        self._decide(path)

    def _decide(self, path: str) -> None:
        """Keep it, set it aside, or wait for git to finish; the last only while the run lives."""
        if look(path) is None:
            self._pending.pop(path, None)
            return
        place = self.place
        age = time.monotonic() - self._pending[path]
        is_busy = not self._is_over and planted.is_git_busy(self._git_folders())
        reason = planted.why_kept(place, path)
        limit = CREATING_S if place.is_created or reason else BUSY_S
        if is_busy and age < limit:
            self._revisit_soon()
            return
        self._pending.pop(path, None)
        if reason is None:
            self._set_aside(path)
        else:
            self.now[path] = look(path)
            self._allowed[path] = reason
            self._cover_again()

    def _git_folders(self) -> list[str]:
        heads = [name.folder for name in self.names.stamped if name.kind == "head"]
        return list(dict.fromkeys([self._own_git, *heads]))

    def _revisit_soon(self) -> None:
        if self._revisit is None and not self._is_over:
            self._revisit = asyncio.get_running_loop().call_later(REVISIT_S, self._revisit_now)

    def _revisit_now(self) -> None:
        self._revisit = None
        for path in list(self._pending):
            self._safely(partial(self._decide, path))

    def _examine_head(self, path: str) -> None:
        """git looks elsewhere for a repository when HEAD is missing: put it back at once."""
        stamp = look(path)
        if stamp is not None:
            if stamp != self.now.get(path):
                self.now[path] = stamp
                data = read_beneath(os.path.dirname(path), path, MAX_HEAD)
                if data is not None and stamp.is_file:
                    self.heads[path] = data
            return
        data = self.heads.get(path)
        if data is None or not os.path.isdir(os.path.dirname(path)):
            return
        try:
            write_beneath(self.place.root_of(path), path, data, 0o644, self.run.policy.owner)
        except OSError as error:
            self.findings.say(f"{path} is missing and could not be put back: {error.strerror}")
        else:
            self.findings.say(f"{path} was taken away and has been put back")

    def _examine_bare(self) -> None:
        """The workspace dressed as a repository of its own, beside or instead of `.git`."""
        workspace = self.run.policy.workspace
        was_bare = all(
            self.found.get(os.path.join(workspace, n)) for n in ("HEAD", "objects", "refs")
        )
        if was_bare or not repository.is_bare(workspace):
            return
        if self.found.get(self._own_git, True) is not None:
            self._set_aside(os.path.join(workspace, "HEAD"))
        else:
            self._clean_soon()

    def _examine_repository(self, path: str) -> None:
        stamp = look(path)
        if stamp is None:
            return
        if self.found.get(path) is None:
            if stamp.is_folder:
                self._listen(path)
                self._listen(os.path.join(path, "hooks"))
                self._clean_soon()
            else:
                self._set_aside(path)
        elif not stamp.is_same_file(self.now.get(path)):
            self.now[path] = stamp
            self._cover_again()
            if not self.run.is_masked:
                self.findings.say(f"{path} was replaced: it is another repository than before")

    # -- what is done about it

    def _set_aside(self, path: str) -> None:
        try:
            where = self.store.take(self.place.root_of(path), path)
        except OSError as error:
            self.findings.say(
                f"{path} appeared during the run and could not be set aside: {error.strerror}"
            )
            return
        if where is None:
            return
        self.now[path] = None
        self._allowed.pop(path, None)
        self.findings.say(f"{path} appeared during the run; it was set aside in {where}")
        self.findings.list(path)
        self.shared.was_set_aside(path)

    def told(self, path: str) -> None:
        """Another run's guard has set aside what appeared in a place that we watch too."""
        if path in self.found:
            self.findings.list(path)

    def _clean_soon(self) -> None:
        if self._cleaning is None and not self._is_over:
            loop = asyncio.get_running_loop()
            self._cleaning = loop.call_later(REVISIT_S, self._clean_if_idle)

    def _clean_if_idle(self) -> None:
        self._cleaning = None
        self._safely(self._clean)

    def _clean(self) -> None:
        workspace = self.run.policy.workspace
        for git in (self._own_git, workspace):
            is_there = self._is_created if git == self._own_git else repository.is_bare(workspace)
            if is_there and self.found.get(self._own_git, True) is None:
                if not self._is_over:
                    self._listen(os.path.join(git, "hooks"))
                planted.clean_repository(self.place, git, self._set_aside, self.findings.say)

    def _cover_again(self) -> None:
        if self.run.is_masked:
            self._covering.mend()

    # -- the end

    def finish(self) -> Findings:
        """Everything of the run is dead: compare, set aside, put back; what is to be said."""
        self._is_over = True
        self._covering.stop()
        for timer in (self._revisit, self._cleaning):
            if timer is not None:
                timer.cancel()
        for folder in self._listening:
            self.shared.unlisten(folder, self._on_event)
        self._pending = dict.fromkeys(self._pending, self.begun)
        try:
            self._compare()
        finally:
            self.journal.close()
        return self.findings

    def _compare(self) -> None:
        if not self.run.is_masked:
            self._safely(self._put_back)
        self._revisit_now()
        quiet = {
            path
            for folder, known in self._folders.items()
            if look(folder) == known.stamp
            for path in known.absent
        }
        for name in self.names.stamped:
            if name.path not in quiet or self.now.get(name.path) is not None:
                self._safely(partial(self._examine, name))
        self._safely(self._look_at_kept_again)
        self._safely(self._clean)
        self._safely(self._set_back_opened)
        if not self.run.is_reader:
            self._safely(self._report_nested)

    def _look_at_kept_again(self) -> None:
        """What was kept while the run lived may have been changed by it since."""
        for path, reason in list(self._allowed.items()):
            if look(path) is None:
                continue
            if planted.why_kept(self.place, path) is None:
                self._set_aside(path)
            else:
                self.findings.say(f"{path} appeared during the run and was kept: {reason}")

    def _put_back(self) -> None:
        """Undo what a tier without mounts could not prevent."""
        for change in restore.changes(self.place.root_of, self._present(), self.kept):
            if self.shared.is_approved(change.path, self.begun):
                self.findings.say(
                    f"{change.path} changed during the run; another run was allowed to write it"
                )
                continue
            self._undo(change)

    def _undo(self, change: restore.Change) -> None:
        path = change.path
        if change.kind != "gone":
            self._set_aside(path)
        copy = change.copy
        if copy is None:
            return
        if copy.data is None:
            self.findings.say(
                f"{path} was {change.kind} by the run and cannot be put back: it was not kept"
            )
            return
        try:
            root = self.place.root_of(path)
            write_beneath(root, path, copy.data, copy.mode, self.run.policy.owner)
        except OSError as error:
            self.findings.say(f"{path} could not be put back: {error.strerror}")
        else:
            self.now[path] = look(path)
            self.findings.say(f"{path} was {change.kind} by the run and has been put back")

    def _set_back_opened(self) -> None:
        """What an approval let the run write: keys that run a program go back, the rest is said."""
        for path in self.run.opened:
            if os.path.basename(path) in planted.CONFIGURATIONS:
                copy = self.kept.copies.get(path)
                before = (copy.data if copy is not None else None) or b""
                keys = planted.set_back_file(self.place, path, before)
                if keys is None:
                    self._set_aside(path)
                elif keys:
                    self.findings.say(
                        f"{path}: {', '.join(keys)} makes git run a program and was set back"
                    )
            elif look(path) != self.found.get(path) and look(path) is not None:
                self.findings.say(f"{path} was written; the approval of this command names it")

    def _report_nested(self) -> None:
        workspace = self.run.policy.workspace
        for folder in planted.nested_plants(workspace, MAX_ENTRIES, self.begun_ns):
            self.findings.say(
                f"{folder} has become a repository without a working tree: git run in it obeys its "
                "configuration (`git config --global safe.bareRepository explicit` prevents that)"
            )
