"""The operations that change files: write, edit, copy, patch and taking back. See `changes`.

Each is a frozen set of arguments with two questions: which files (`locate`), and what becomes of
them (`plan`). Neither touches anything.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass

from sandboxd.errors import (
    AlreadyExists,
    FileRefusal,
    InvalidRequest,
    PatchMismatch,
    Refusal,
    SpecialFile,
    StaleVersion,
)
from sandboxd.files import matching, patches, storage
from sandboxd.files.changes import FileChange, Plan, Target, encoded
from sandboxd.files.guard import Place, locate, shown_as
from sandboxd.files.handles import not_found
from sandboxd.files.ledger import refusal_unless_fresh
from sandboxd.files.matching import Edit
from sandboxd.files.reading import Tools
from sandboxd.files.storage import Content
from sandboxd.files.text import decoded, excerpt
from sandboxd.files.undo import KEPT_BYTES, Before, Kept


@dataclass(frozen=True)
class Write:
    """Make `content` the whole file; a new one with its folders, or one that has been seen."""

    path: str
    content: str
    expected_version: str | None = None
    name: str = "fs.write"

    def locate(self, tools: Tools) -> Target:
        return Target(self.name, (locate(self.path, tools.scope, "write"),))

    def plan(self, tools: Tools, target: Target) -> Plan:
        (place,) = target.writes
        before = _seen_content(tools, place, self.expected_version, "writing it")
        after = encoded(self.content, "content")
        return _plan_of_one(tools, target, place, before, after)


@dataclass(frozen=True)
class EditFile:
    """Replacements in one file, in order, all or nothing. An empty `old_text` creates it."""

    path: str
    edits: tuple[Edit, ...]
    expected_version: str | None = None
    name: str = "fs.edit"

    def locate(self, tools: Tools) -> Target:
        return Target(self.name, (locate(self.path, tools.scope, "write"),))

    def plan(self, tools: Tools, target: Target) -> Plan:
        (place,) = target.writes
        if any(not edit.old_text for edit in self.edits):
            return self._creation(tools, target, place)
        before = _seen_content(
            tools, place, self.expected_version, "an edit", near=self.edits[0].old_text
        )
        if before is None:
            raise not_found(place)
        text = decoded(before.data, place)
        body, strategies = text.text, []
        for number, edit in enumerate(self.edits, 1):
            outcome = matching.applied(body, edit, place.shown)
            if isinstance(outcome, Refusal):
                raise _at_position(outcome, number, len(self.edits))
            body, strategy = outcome
            strategies.append(strategy)
        return _plan_of_one(
            tools, target, place, before, _encoded(text.encoded(""), body), tuple(strategies)
        )

    def _creation(self, tools: Tools, target: Target, place: Place) -> Plan:
        if len(self.edits) > 1:
            raise InvalidRequest(
                "wrong parameters: an empty `old_text` creates a file and cannot be one of several",
                hint="create the file with fs.write, then edit it",
                data={"parameter": "edits"},
            )
        _refuse_if_there(place)
        before = _seen_content(tools, place, self.expected_version, "creating it")
        after = encoded(self.edits[0].new_text, "new_text")
        return _plan_of_one(tools, target, place, before, after, ("create",))


@dataclass(frozen=True)
class Copy:
    """The content of one file becomes another's, as it is on disk."""

    source_path: str
    path: str
    overwrite: bool = False
    name: str = "fs.copy"

    def locate(self, tools: Tools) -> Target:
        source = locate(self.source_path, tools.scope, "read")
        return Target(self.name, (locate(self.path, tools.scope, "write"),), (source,))

    def plan(self, tools: Tools, target: Target) -> Plan:
        (place,), (source,) = target.writes, target.reads
        if place.path == source.path:
            raise InvalidRequest(
                "wrong parameters: `source_path` and `path` are the same file",
                hint="name another file to copy to",
                data={"parameter": "path"},
            )
        content = storage.read_whole(source, tools.scope, limit=KEPT_BYTES)
        before = self._target_content(tools, place)
        mode = stat.S_IMODE(content.found.st_mode) & 0o777 if before is None else None
        return _plan_of_one(tools, target, place, before, content.data, mode=mode)

    def _target_content(self, tools: Tools, place: Place) -> Content | None:
        if place.found is not None and not self.overwrite and not tools.ledger.get(place.path):
            _refuse_if_there(place, "read it first, or send `overwrite: true`")
        if place.found is not None and self.overwrite:
            _refuse_folder(place)
            return storage.read_whole(place, tools.scope, limit=KEPT_BYTES)
        return _seen_content(tools, place, None, "copying over it")


@dataclass(frozen=True)
class Patch:
    """Every file of a patch, all or nothing."""

    patch: str
    name: str = "fs.patch"

    def locate(self, tools: Tools) -> Target:
        writes: dict[str, Place] = {}
        reads: list[Place] = []
        deletes = False
        for file in patches.parse(self.patch):
            deletes = deletes or file.action == "delete"
            if file.action == "copy":
                reads.append(locate(file.path, tools.scope, "read"))
            for path in _written(file):
                place = locate(path, tools.scope, "write")
                writes[place.path] = place
        return Target(self.name, tuple(writes.values()), tuple(reads), deletes)

    def plan(self, tools: Tools, target: Target) -> Plan:
        work = _Work(tools)
        for file in patches.parse(self.patch):
            work.take(file)
        return _plan(tools, target, work.changes())


def _written(file: patches.FilePatch) -> tuple[str, ...]:
    if file.action == "copy":
        return (file.moved_to or "",)
    return (file.path, *((file.moved_to,) if file.moved_to is not None else ()))


@dataclass(frozen=True)
class TakeBack:
    """Put back what a kept change, or all changes of a run, replaced."""

    kept: tuple[Kept, ...]
    """The latest first."""
    name: str = "fs.undo"

    def locate(self, tools: Tools) -> Target:
        places = {}
        for kept in self.kept:
            for file in kept.change.files:
                place = locate(file.path, tools.scope, "write")
                if place.path != file.path:
                    raise StaleVersion(
                        f"{place.shown} is reached through a link by now",
                        hint="put it back by hand",
                        path=place.shown,
                    )
                places[place.path] = place
        return Target(self.name, tuple(places.values()))

    def plan(self, tools: Tools, target: Target) -> Plan:
        wanted: dict[str, tuple[str | None, Before, bytes]] = {}
        for kept in self.kept:
            for file, content in zip(kept.change.files, kept.contents, strict=True):
                after = wanted[file.path][0] if file.path in wanted else file.after
                wanted[file.path] = (after, file, content)
        changes = []
        for place in target.writes:
            after, before, content = wanted[place.path]
            change = self._one(tools, place, after, before, content)
            changes += [change] if change is not None else []
        undone = tuple(kept.change.change_id for kept in self.kept)
        return _plan(tools, target, changes, undone=undone)

    def _one(
        self, tools: Tools, place: Place, after: str | None, before: Before, content: bytes
    ) -> FileChange | None:
        now = None
        if place.found is not None:
            now = storage.read_whole(place, tools.scope, limit=KEPT_BYTES)
        if now is None and not before.existed:
            return None
        if (now.version if now is not None else None) != after:
            if now is not None and before.existed and now.data == content:
                return None  # a change that was cut in two had not come to this file
            raise StaleVersion(
                f"{place.shown} has changed since the change that is to be taken back",
                hint="take back the later changes first, or put it right by hand",
                path=place.shown,
                data={"version": now.version if now is not None else None},
            )
        if not before.existed:
            return FileChange(place, "delete", now, None)
        action = "update" if now is not None else "add"
        return FileChange(place, action, now, content, mode=before.mode)  # type: ignore[arg-type]


# --------------------------------------------------------------------------- patches


class _Work:
    """The files of a patch as they become, one section after the other."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._before: dict[str, Content | None] = {}
        self._after: dict[str, bytes | None] = {}
        self._places: dict[str, Place] = {}
        self._modes: dict[str, int] = {}
        self._moved: dict[str, str] = {}

    def take(self, file: patches.FilePatch) -> None:
        place = self._open(file.path, "read" if file.action == "copy" else "write")
        if file.action == "add":
            self._add(place, patches.apply("", file, place.shown), file.mode)
        elif file.action == "delete":
            self._delete(place, file)
        else:
            self._update(place, file)

    def _update(self, place: Place, file: patches.FilePatch) -> None:
        data = self._content(place)
        text = decoded(data, place) if file.hunks else None
        fresh = data
        if text is not None:
            body = patches.apply(text.text, file, place.shown)
            fresh = _encoded(text.encoded(""), body)
        if file.action == "update":
            self._after[place.path] = fresh
        else:
            target = self._open(file.moved_to or "", "write")
            before = self._before[place.path]
            mode = before.found.st_mode & 0o777 if before is not None else None
            if target.path != place.path:
                self._add(target, fresh, file.mode or mode)
            if file.action == "move":
                self._moved[target.path] = place.shown
                if target.path != place.path:
                    self._after[place.path] = None
        if file.action == "update" and file.mode is not None:
            self._modes[place.path] = file.mode

    def _open(self, path: str, want: str) -> Place:
        place = locate(path, self._tools.scope, "read" if want == "read" else "write")
        if place.path not in self._places:
            _refuse_folder(place)
            content = None
            if place.found is not None:
                content = storage.read_whole(place, self._tools.scope)
            self._places[place.path] = place
            self._before[place.path] = content
            self._after[place.path] = content.data if content is not None else None
        return place

    def _content(self, place: Place) -> bytes:
        data = self._after[place.path]
        if data is None:
            refused = refusal_unless_fresh(
                self._tools.ledger, place.path, place.shown, None, operation="a patch"
            )
            raise refused or not_found(place)
        return data

    def _add(self, place: Place, text: str | bytes, mode: int | None) -> None:
        if self._after[place.path] is not None:
            raise _there(place, "update it instead, or delete it in the same patch first")
        if self._before[place.path] is None:
            _raise(
                refusal_unless_fresh(
                    self._tools.ledger, place.path, place.shown, None, operation="a patch"
                )
            )
        self._after[place.path] = encoded(text, "patch") if isinstance(text, str) else text
        if mode is not None:
            self._modes[place.path] = mode

    def _delete(self, place: Place, file: patches.FilePatch) -> None:
        data = self._content(place)
        if file.hunks:
            rest = patches.apply(decoded(data, place).text, file, place.shown)
            if rest:
                raise PatchMismatch(
                    f"the patch deletes {place.shown}, which has lines that the patch does not name",
                    hint="read it with fs.read and make the patch anew",
                    path=place.shown,
                )
        else:
            before = self._before[place.path]
            version = before.version if before is not None else None
            refused = refusal_unless_fresh(
                self._tools.ledger, place.path, place.shown, version, operation="deleting it"
            )
            _raise(_with_excerpt(refused, before, place))
        self._after[place.path] = None

    def changes(self) -> list[FileChange]:
        found = []
        for path, place in self._places.items():
            before, after = self._before[path], self._after[path]
            mode = self._modes.get(path)
            if (before.data if before is not None else None) == after and mode is None:
                continue
            action = "add" if before is None else "delete" if after is None else "update"
            moved = self._moved.get(path)
            found.append(FileChange(place, action, before, after, mode, moved))  # type: ignore[arg-type]
        return found


# --------------------------------------------------------------------------- shared


def _seen_content(
    tools: Tools,
    place: Place,
    expected_version: str | None,
    operation: str,
    *,
    near: str | None = None,
) -> Content | None:
    """What stands there now, when the session may change it; None when nothing does."""
    _refuse_folder(place)
    content = None
    if place.found is not None:
        content = storage.read_whole(place, tools.scope, limit=KEPT_BYTES)
    version = content.version if content is not None else None
    if expected_version is not None:
        if version == expected_version:
            return content
        refused: FileRefusal | None = StaleVersion(
            f"{place.shown} is not at the version that was expected",
            hint="`data` shows it as it is now; read it again with fs.read",
            path=place.shown,
            data={"expected_version": expected_version, "version": version},
        )
    else:
        refused = refusal_unless_fresh(
            tools.ledger, place.path, place.shown, version, operation=operation
        )
    _raise(_with_excerpt(refused, content, place, near))
    return content


def _with_excerpt(
    refused: FileRefusal | None, content: Content | None, place: Place, near: str | None = None
) -> FileRefusal | None:
    """A stale refusal with the lines as they are now."""
    if isinstance(refused, StaleVersion) and content is not None:
        try:
            text = decoded(content.data, place).text
        except FileRefusal:
            return refused
        line = matching.nearest_line(text, near) if near else None
        lines = excerpt(text, line + 1 if line is not None else None)
        refused.data = {**(refused.data or {}), "lines": lines, "total_lines": text.count("\n")}
    return refused


def _raise(refused: FileRefusal | None) -> None:
    if refused is not None:
        raise refused


def _refuse_folder(place: Place) -> None:
    if place.found is not None and stat.S_ISDIR(place.found.st_mode):
        raise SpecialFile(
            f"{place.shown} is a folder, not a file",
            hint="name a file in it",
            path=place.shown,
        )


def _refuse_if_there(place: Place, hint: str = "read it, then edit or write it") -> None:
    _refuse_folder(place)
    if place.found is not None:
        raise _there(place, hint)


def _there(place: Place, hint: str) -> AlreadyExists:
    return AlreadyExists(f"{place.shown} exists already", hint=hint, path=place.shown)


def _at_position(refusal: Refusal, number: int, total: int) -> Refusal:
    """Which of several edits it was; nothing of them has been made."""
    if total == 1:
        return refusal
    return type(refusal)(
        f"edit {number} of {total}: {refusal.message}; none was made",
        hint=refusal.hint,
        path=refusal.path,
        data={**(refusal.data or {}), "edit": number},
    )


def _encoded(prefix: bytes, body: str) -> bytes:
    return prefix + encoded(body, "new_text")


def _plan_of_one(
    tools: Tools,
    target: Target,
    place: Place,
    before: Content | None,
    after: bytes,
    strategies: tuple[str, ...] = (),
    *,
    mode: int | None = None,
) -> Plan:
    seen = tools.ledger.get(place.path)
    change = FileChange(place, "add" if before is None else "update", before, after, mode)
    refreshed = seen.refreshed_by if seen is not None and before is not None else None
    return _plan(tools, target, [change], strategies, refreshed=refreshed)


def _plan(
    tools: Tools,
    target: Target,
    changes: list[FileChange],
    strategies: tuple[str, ...] = (),
    *,
    refreshed: str | None = None,
    undone: tuple[str, ...] = (),
) -> Plan:
    creates: dict[str, None] = {}
    for change in changes:
        if change.action == "add":
            creates.update(dict.fromkeys(storage.missing_parents(change.place)))
    return Plan(
        target=target,
        files=tuple(changes),
        creates=tuple(creates),
        shown_creates=tuple(shown_as(folder, tools.scope) for folder in creates),
        strategies=strategies,
        refreshed=refreshed,
        undone=undone,
    )
