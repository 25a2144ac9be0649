"""Parameters and results of `fs.*`; see `messages`, of which this is the part about files."""

from __future__ import annotations

from typing import Literal

from sandboxd.model import Approve, Diff, FileCount, FileEntry, GrepWindow, Image, Skipped
from sandboxd.protocol.messages import Params, Reply


class FsRead(Params, frozen=True, kw_only=True):
    """Lines of a text file from `offset` (the first is 1), or a picture. A relative path begins at
    the session's working directory; in results too."""

    path: str
    offset: int | None = None
    limit: int | None = None
    """Lines; null means 2,000. A reading ends at 256 KiB all the same."""
    numbered: bool = True
    """Lines with their numbers, as `cat -n` writes them; an edit forgives numbers that are copied."""
    again: bool = False
    """Send the text even when the same reading was sent before and nothing has changed."""


class FsReading(Reply, frozen=True, kw_only=True):
    path: str
    text: str
    version: str
    """The identity of the whole file's content: for `expected_version`."""
    total_lines: int | None
    """Null when counting them would have meant reading a file of more than 16 MiB."""
    first_line: int = 0
    last_line: int = 0
    has_more: bool = False
    """Lines follow that were not asked for or did not fit."""
    unchanged: bool = False
    """`text` is a note: this very reading was sent before and is still true."""
    newline: str = "\n"
    image: Image | None = None


class FsWrite(Params, frozen=True, kw_only=True):
    """Make `content` the whole file. What exists must have been read in this session."""

    path: str
    content: str
    expected_version: str | None = None
    dry_run: bool = False
    approve: Approve = "none"
    run_id: str | None = None
    """Groups changes, so that they can be taken back together."""


class FsReplacement(Params, frozen=True, kw_only=True):
    """One of several edits."""

    old_text: str
    new_text: str
    replace_all: bool = False


class FsEdit(Params, frozen=True, kw_only=True):
    """Replace `old_text` by `new_text`, or each of `edits` in order; never both, all or nothing. An
    empty `old_text` creates the file."""

    path: str
    old_text: str | None = None
    new_text: str | None = None
    replace_all: bool | None = None
    edits: tuple[FsReplacement, ...] | None = None
    expected_version: str | None = None
    dry_run: bool = False
    approve: Approve = "none"
    run_id: str | None = None


class FsCopy(Params, frozen=True, kw_only=True):
    """The content of `source_path`, as it is on disk, becomes that of `path`."""

    source_path: str
    path: str
    overwrite: bool = False
    """Replace a file that was not read."""
    dry_run: bool = False
    approve: Approve = "none"
    run_id: str | None = None


class FsChanged(Reply, frozen=True, kw_only=True):
    """What became of one file."""

    path: str
    action: Literal["add", "update", "delete"]
    version: str | None
    """The identity of its new content; null when it was removed."""
    diff: Diff
    created_directories: tuple[str, ...] = ()
    strategy: tuple[str, ...] = ()
    """How each edit's text was found."""
    refreshed: str | None = None
    """The command of this session that had changed the file after it was read."""
    change_id: str | None = None
    """For fs.undo; null for a dry run, and for what is too large to be kept."""
    dry_run: bool = False


class FsPatch(Params, frozen=True, kw_only=True):
    """A unified diff or a `*** Begin Patch` text, applied to every file in it or to none."""

    patch: str
    dry_run: bool = False
    approve: Approve = "none"
    run_id: str | None = None


class FsPatchedFile(Reply, frozen=True, kw_only=True):
    path: str
    action: Literal["add", "update", "delete"]
    version: str | None
    diff: Diff
    moved_from: str | None = None


class FsPatched(Reply, frozen=True, kw_only=True):
    files: tuple[FsPatchedFile, ...]
    created_directories: tuple[str, ...] = ()
    change_id: str | None = None
    dry_run: bool = False


class FsUndo(Params, frozen=True, kw_only=True):
    """Take back one change, all changes of a run, or with neither the last one of this workspace.
    Refused when a file has changed since."""

    change_id: str | None = None
    run_id: str | None = None
    dry_run: bool = False
    approve: Approve = "none"


class FsChange(Reply, frozen=True, kw_only=True):
    """One change that can be taken back."""

    change_id: str
    run_id: str
    session_id: str
    operation: str
    at: float
    """Seconds since the epoch."""
    paths: tuple[str, ...]


class FsChanges(Reply, frozen=True, kw_only=True):
    changes: tuple[FsChange, ...]
    """The oldest first."""


class FsList(Params, frozen=True, kw_only=True):
    path: str = "."


class FsListing(Reply, frozen=True, kw_only=True):
    """A folder, folders first; links are shown, not followed."""

    path: str
    entries: tuple[FileEntry, ...]
    total: int
    """All entries, also those over the 1,000 that are listed."""
    skipped: tuple[Skipped, ...] = ()


class FsGlob(Params, frozen=True, kw_only=True):
    """Files by name: `*`, `?`, `[..]`, `{a,b}` and `**` for any folders. A pattern without a slash is
    looked for at any depth. What .gitignore, .ignore and .git/info/exclude leave out is left out."""

    pattern: str
    path: str = "."
    ignored: bool = False
    """Look at ignored files too."""


class FsGlobbed(Reply, frozen=True, kw_only=True):
    paths: tuple[str, ...]
    total: int
    """All that match, also those over the 1,000 that are listed."""
    skipped: tuple[Skipped, ...] = ()


class FsGrep(Params, frozen=True, kw_only=True):
    """Lines that a regular expression matches. `files`: the files with their counts, densest first;
    `content`: the lines with `context` around them. It does not count as having read a file."""

    pattern: str
    path: str = "."
    output_mode: Literal["files", "content"] = "files"
    context: int = 0
    ignore_case: bool = False
    literal: bool = False
    """The pattern is a text, not an expression."""
    glob: str | None = None
    """Only files whose name matches."""
    ignored: bool = False


class FsGrepped(Reply, frozen=True, kw_only=True):
    files: tuple[FileCount, ...]
    windows: tuple[GrepWindow, ...] = ()
    total_files: int
    total_lines: int
    """All that match, also those over the limits (200 files, 1,000 lines)."""
    skipped: tuple[Skipped, ...] = ()
    engine: Literal["ripgrep", "python"]
