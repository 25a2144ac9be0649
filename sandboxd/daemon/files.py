"""Handlers of `fs.*`: parameters to operations of the files stage, what they did to results."""

from __future__ import annotations

from sandboxd.daemon.calls import Call
from sandboxd.daemon.handlers import Handlers
from sandboxd.daemon.terminals import Asking
from sandboxd.errors import InvalidRequest
from sandboxd.events import kinds
from sandboxd.files import reading, searching
from sandboxd.files.changes import Done, Operation, Preview
from sandboxd.files.guard import shown_as
from sandboxd.files.matching import Edit
from sandboxd.files.operations import Copy, EditFile, Patch, TakeBack, Write
from sandboxd.files.reading import Reading, Tools
from sandboxd.model import Approve
from sandboxd.pipeline import change_file, grep_files, look_at_files
from sandboxd.protocol import file_messages as f
from sandboxd.protocol import messages as m


class FileHandlers(Handlers):
    """The part of a connection's `Service` that speaks about files."""

    # ----------------------------------------------------------------- reading

    async def fs_read(self, call: Call, params: f.FsRead) -> f.FsReading:
        session = self._session()

        def look(tools: Tools) -> Reading:
            return reading.read(
                tools,
                params.path,
                offset=params.offset,
                limit=params.limit,
                is_numbered=params.numbered,
                again=params.again,
            )

        def touched(found: Reading) -> kinds.FilesTouched:
            return kinds.FilesTouched(
                session_id=session.id,
                run_id=f"f-{call.id}",
                operation="fs.read",
                paths=(found.path,),
                versions=(found.version,),
            )

        found = await look_at_files(
            self._host.engine,
            session,
            "fs.read",
            look,
            Asking(self._caller, self._capabilities),
            sees_images=self._capabilities.images,
            touched=touched,
        )
        return f.FsReading(
            path=found.shown,
            text=found.text,
            version=found.version,
            total_lines=found.total_lines,
            first_line=found.first_line,
            last_line=found.last_line,
            has_more=found.has_more,
            unchanged=found.is_unchanged,
            newline=found.newline,
            image=found.image,
        )

    async def fs_list(self, call: Call, params: f.FsList) -> f.FsListing:
        found = await look_at_files(
            self._host.engine,
            self._session(),
            "fs.list",
            lambda tools: searching.list_folder(tools, params.path),
            Asking(self._caller, self._capabilities),
        )
        return f.FsListing(
            path=found.shown, entries=found.entries, total=found.total, skipped=found.skipped
        )

    async def fs_glob(self, call: Call, params: f.FsGlob) -> f.FsGlobbed:
        found = await look_at_files(
            self._host.engine,
            self._session(),
            "fs.glob",
            lambda tools: searching.glob(
                tools, params.pattern, params.path, with_ignored=params.ignored
            ),
            Asking(self._caller, self._capabilities),
        )
        return f.FsGlobbed(paths=found.paths, total=found.total, skipped=found.skipped)

    async def fs_grep(self, call: Call, params: f.FsGrep) -> f.FsGrepped:
        search = searching.Search(
            pattern=params.pattern,
            is_content=params.output_mode == "content",
            context=max(0, min(params.context, searching.MAX_CONTEXT)),
            ignore_case=params.ignore_case,
            is_literal=params.literal,
            glob=params.glob,
            with_ignored=params.ignored,
        )
        found = await grep_files(
            self._host.engine,
            self._session(),
            params.path,
            search,
            Asking(self._caller, self._capabilities),
        )
        return f.FsGrepped(
            files=found.files,
            windows=found.windows,
            total_files=found.total_files,
            total_lines=found.total_lines,
            skipped=found.skipped,
            engine=found.engine,
        )

    # ----------------------------------------------------------------- changing

    async def fs_write(self, call: Call, params: f.FsWrite) -> f.FsChanged:
        operation = Write(params.path, params.content, params.expected_version)
        return _changed(
            await self._change(operation, params.approve, params.run_id, params.dry_run)
        )

    async def fs_edit(self, call: Call, params: f.FsEdit) -> f.FsChanged:
        operation = EditFile(params.path, _edits(params), params.expected_version)
        return _changed(
            await self._change(operation, params.approve, params.run_id, params.dry_run)
        )

    async def fs_copy(self, call: Call, params: f.FsCopy) -> f.FsChanged:
        operation = Copy(params.source_path, params.path, params.overwrite)
        return _changed(
            await self._change(operation, params.approve, params.run_id, params.dry_run)
        )

    async def fs_patch(self, call: Call, params: f.FsPatch) -> f.FsPatched:
        operation = Patch(params.patch)
        return _patched(
            await self._change(operation, params.approve, params.run_id, params.dry_run)
        )

    async def fs_undo(self, call: Call, params: f.FsUndo) -> f.FsPatched:
        session = self._session()
        undo = self._host.engine.filing.undo
        kept = await self._host.engine.filing.run(
            undo.find,
            session.workspace,
            change_id=params.change_id,
            run_id=params.run_id,
        )
        operation = TakeBack(tuple(kept))
        return _patched(await self._change(operation, params.approve, None, params.dry_run))

    async def fs_changes(self, call: Call, params: m.Empty) -> f.FsChanges:
        def look(tools: Tools) -> f.FsChanges:
            return f.FsChanges(
                changes=tuple(
                    f.FsChange(
                        change_id=change.change_id,
                        run_id=change.run_id,
                        session_id=change.session_id,
                        operation=change.operation,
                        at=change.at,
                        paths=tuple(shown_as(file.path, tools.scope) for file in change.files),
                    )
                    for change in tools.undo.listing(tools.scope.workspace)
                )
            )

        return await look_at_files(
            self._host.engine,
            self._session(),
            "fs.changes",
            look,
            Asking(self._caller, self._capabilities),
        )

    async def _change(
        self, operation: Operation, approve: Approve, run_id: str | None, is_dry_run: bool
    ) -> Done | Preview:
        return await change_file(
            self._host.engine,
            self._session(),
            operation,
            Asking(self._caller, self._capabilities),
            approve=approve,
            run_id=run_id,
            is_dry_run=is_dry_run,
        )


def _edits(params: f.FsEdit) -> tuple[Edit, ...]:
    """One edit or several, never both; nothing that was said is dropped."""
    single = (params.old_text, params.new_text, params.replace_all)
    if params.edits is None:
        if params.old_text is None or params.new_text is None:
            missing = "old_text" if params.old_text is None else "new_text"
            raise InvalidRequest(
                f"wrong parameters: `{missing}` is missing",
                hint="send `old_text` and `new_text`, or `edits` with several of them",
                data={"parameter": missing},
            )
        return (Edit(params.old_text, params.new_text, bool(params.replace_all)),)
    if single != (None, None, None):
        beside = next(
            name
            for name, value in zip(("old_text", "new_text", "replace_all"), single, strict=True)
            if value is not None
        )
        raise InvalidRequest(
            f"wrong parameters: `{beside}` beside `edits`",
            hint="send one shape of edit: put every replacement (with its own `replace_all`) in `edits`",
            data={"parameter": beside},
        )
    if not params.edits:
        raise InvalidRequest(
            "wrong parameters: `edits` is empty",
            hint="send at least one replacement",
            data={"parameter": "edits"},
        )
    return tuple(Edit(edit.old_text, edit.new_text, edit.replace_all) for edit in params.edits)


def _changed(outcome: Done | Preview) -> f.FsChanged:
    plan, (file,) = outcome.plan, outcome.plan.files
    return f.FsChanged(
        path=file.place.shown,
        action=file.action,
        version=file.version,
        diff=file.diff,
        created_directories=plan.shown_creates,
        strategy=plan.strategies,
        refreshed=plan.refreshed,
        change_id=outcome.change_id if isinstance(outcome, Done) else None,
        dry_run=isinstance(outcome, Preview),
    )


def _patched(outcome: Done | Preview) -> f.FsPatched:
    return f.FsPatched(
        files=tuple(
            f.FsPatchedFile(
                path=file.place.shown,
                action=file.action,
                version=file.version,
                diff=file.diff,
                moved_from=file.moved_from,
            )
            for file in outcome.plan.files
        ),
        created_directories=outcome.plan.shown_creates,
        change_id=outcome.change_id if isinstance(outcome, Done) else None,
        dry_run=isinstance(outcome, Preview),
    )
