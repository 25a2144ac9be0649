"""`Client.files` and `AsyncClient.files`: the file operations of a session, by name.

A module of its own so that the clients stay about connections. Both return the protocol's structs
and raise the very refusals of `errors.py`; `errors.for_model` makes the text that a model reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandboxd.model import Approve
from sandboxd.protocol import file_messages as f
from sandboxd.protocol import messages as m
from sandboxd.protocol.blocking import Blocking, blocking
from sandboxd.protocol.calls import AsyncCalls


def _replacements(
    edits: Sequence[tuple[str, str] | f.FsReplacement],
) -> tuple[f.FsReplacement, ...]:
    return tuple(
        edit
        if isinstance(edit, f.FsReplacement)
        else f.FsReplacement(old_text=edit[0], new_text=edit[1])
        for edit in edits
    )


class AsyncFiles:
    """The file operations of a session."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._call = calls.call

    async def read(self, path: str, *, offset: int | None = None, limit: int | None = None,
             numbered: bool = True, again: bool = False) -> f.FsReading:  # fmt: skip
        params = f.FsRead(path=path, offset=offset, limit=limit, numbered=numbered, again=again)
        return await self._call("fs.read", params, f.FsReading)

    async def write(self, path: str, content: str, *, expected_version: str | None = None,
              dry_run: bool = False, approve: Approve = "none", run_id: str | None = None) -> f.FsChanged:  # fmt: skip
        params = f.FsWrite(path=path, content=content, expected_version=expected_version,
                           dry_run=dry_run, approve=approve, run_id=run_id)  # fmt: skip
        return await self._call("fs.write", params, f.FsChanged)

    async def edit(self, path: str, *edits: tuple[str, str] | f.FsReplacement,
             expected_version: str | None = None, dry_run: bool = False,
             approve: Approve = "none", run_id: str | None = None) -> f.FsChanged:  # fmt: skip
        """Each edit is a pair (old text, new text); all of them or none."""
        params = f.FsEdit(path=path, edits=_replacements(edits), expected_version=expected_version,
                          dry_run=dry_run, approve=approve, run_id=run_id)  # fmt: skip
        return await self._call("fs.edit", params, f.FsChanged)

    async def copy(self, source_path: str, path: str, *, overwrite: bool = False,
             approve: Approve = "none", run_id: str | None = None) -> f.FsChanged:  # fmt: skip
        params = f.FsCopy(source_path=source_path, path=path, overwrite=overwrite,
                          approve=approve, run_id=run_id)  # fmt: skip
        return await self._call("fs.copy", params, f.FsChanged)

    async def patch(self, patch: str, *, dry_run: bool = False, approve: Approve = "none",
              run_id: str | None = None) -> f.FsPatched:  # fmt: skip
        params = f.FsPatch(patch=patch, dry_run=dry_run, approve=approve, run_id=run_id)
        return await self._call("fs.patch", params, f.FsPatched)

    async def undo(self, change_id: str | None = None, *, run_id: str | None = None,
             dry_run: bool = False, approve: Approve = "none") -> f.FsPatched:  # fmt: skip
        params = f.FsUndo(change_id=change_id, run_id=run_id, dry_run=dry_run, approve=approve)
        return await self._call("fs.undo", params, f.FsPatched)

    async def changes(self) -> tuple[f.FsChange, ...]:
        return (await self._call("fs.changes", m.Empty(), f.FsChanges)).changes

    async def list(self, path: str = ".") -> f.FsListing:
        return await self._call("fs.list", f.FsList(path=path), f.FsListing)

    async def glob(self, pattern: str, path: str = ".", *, ignored: bool = False) -> f.FsGlobbed:
        return await self._call("fs.glob", f.FsGlob(pattern=pattern, path=path, ignored=ignored), f.FsGlobbed)  # fmt: skip

    async def grep(self, params: f.FsGrep) -> f.FsGrepped:
        return await self._call("fs.grep", params, f.FsGrepped)


class Files(Blocking[AsyncFiles]):
    """The same for a blocking client."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = AsyncFiles(calls)

    read = blocking(AsyncFiles.read)
    write = blocking(AsyncFiles.write)
    edit = blocking(AsyncFiles.edit)
    copy = blocking(AsyncFiles.copy)
    patch = blocking(AsyncFiles.patch)
    undo = blocking(AsyncFiles.undo)
    changes = blocking(AsyncFiles.changes)
    list = blocking(AsyncFiles.list)
    glob = blocking(AsyncFiles.glob)
    grep = blocking(AsyncFiles.grep)
