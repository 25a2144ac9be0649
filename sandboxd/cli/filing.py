"""`sandboxd file`: the guarded file operations for people and scripts.

What is read goes to stdout as it is, so that it can be piped; what was changed is shown as a
difference on stdout; notes and refusals go to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click
import msgspec

from sandboxd.cli.reaching import ask_here, here, reach
from sandboxd.cli.told import tell, visible
from sandboxd.client import Client
from sandboxd.errors import InvalidArgument
from sandboxd.model import Approve, Diff, Skipped
from sandboxd.protocol import file_messages as f
from sandboxd.protocol import messages as m


@click.group("file")
@click.option("--socket", metavar="PATH", help="The daemon's socket.")
@click.option("--no-daemon", is_flag=True, help="Use an engine in this process.")
@click.option("--workspace", metavar="DIR", help="The folder that may be written.")
@click.option("--session", metavar="ID", help="The session; the workspace's own by default.")
@click.option("--profile", metavar="P", help="Policy profile: a name or a file.")
@click.pass_context
def file_command(
    context: click.Context,
    socket: str | None,
    no_daemon: bool,
    workspace: str | None,
    session: str | None,
    profile: str | None,
) -> None:
    """Read and change files through the gate.

    A file is changed only when this session has read it and nobody has changed it since; a session
    lasts from call to call.
    """
    opening = here(workspace, profile)
    if session:
        opening = msgspec.structs.replace(opening, session_id=session)
    can_ask = sys.stdin.isatty() and sys.stderr.isatty()
    opening = msgspec.structs.replace(
        opening, capabilities=m.Capabilities(approvals=can_ask, own_terminal=True)
    )
    context.obj = (socket, no_daemon, opening)


@contextmanager
def _client(context: click.Context) -> Iterator[Client]:
    socket, no_daemon, opening = context.obj
    with reach(socket, no_daemon=no_daemon, approver=ask_here) as client:
        client.initialize(opening)
        yield client


_json_option = click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
_approve_option = click.option(
    "--approve",
    type=click.Choice(["none", "mutating", "all"]),
    default="none",
    help="Your word in advance for what would be asked.",
)
_dry_option = click.option("--dry-run", is_flag=True, help="Show what would change.")
_run_option = click.option("--run", "run_id", metavar="ID", help="Group changes for `undo --run`.")


# --------------------------------------------------------------------------- reading


@file_command.command("read")
@click.option("--offset", type=int, metavar="N", help="Begin at this line; the first is 1.")
@click.option("--limit", type=int, metavar="N", help="At most so many lines; 2000 by default.")
@click.option("-n", "--number", "is_numbered", is_flag=True, help="Number the lines.")
@_json_option
@click.argument("path")
@click.pass_context
def read(
    context: click.Context,
    offset: int | None,
    limit: int | None,
    is_numbered: bool,
    is_json: bool,
    path: str,
) -> int:
    """Print a text file, or say what a picture is."""
    with _client(context) as client:
        found = client.files.read(
            path, offset=offset, limit=limit, numbered=is_numbered, again=True
        )
    if is_json:
        _print_json(found)
    elif found.image is not None:
        size = f", {found.image.width} x {found.image.height}" if found.image.width else ""
        click.echo(
            f"{visible(path)}: {found.image.media_type}{size}, {found.image.total_bytes} bytes"
        )
    else:
        sys.stdout.buffer.write(found.text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
        if found.has_more:
            tell(f"more lines follow: --offset {found.last_line + 1}")
    return 0


@file_command.command("list")
@_json_option
@click.argument("path", default=".")
@click.pass_context
def list_(context: click.Context, is_json: bool, path: str) -> int:
    """List a folder."""
    with _client(context) as client:
        found = client.files.list(path)
    if is_json:
        _print_json(found)
        return 0
    for entry in found.entries:
        ending = {"folder": "/", "link": f" -> {visible(entry.target or '')}"}.get(entry.kind, "")
        click.echo(visible(entry.name) + ending)
    _tell_rest(found.skipped, found.total - len(found.entries), "entries")
    return 0


@file_command.command("glob")
@click.option("--ignored", is_flag=True, help="Look at ignored files too.")
@_json_option
@click.argument("pattern")
@click.argument("path", default=".")
@click.pass_context
def glob(context: click.Context, ignored: bool, is_json: bool, pattern: str, path: str) -> int:
    """Print the files whose names match."""
    with _client(context) as client:
        found = client.files.glob(pattern, path, ignored=ignored)
    if is_json:
        _print_json(found)
        return 0
    for name in found.paths:
        click.echo(visible(name))
    _tell_rest(found.skipped, found.total - len(found.paths), "files")
    return 0 if found.paths else 1


@file_command.command("grep")
@click.option("-l", "files_only", is_flag=True, help="Only the files, with their counts.")
@click.option("-C", "--context", "lines", type=int, default=0, metavar="N", help="Lines around.")
@click.option("-i", "--ignore-case", is_flag=True)
@click.option("-F", "--literal", is_flag=True, help="The pattern is a text, no expression.")
@click.option("--glob", "name_glob", metavar="PATTERN", help="Only files whose name matches.")
@click.option("--ignored", is_flag=True, help="Look at ignored files too.")
@_json_option
@click.argument("pattern")
@click.argument("path", default=".")
@click.pass_context
def grep(
    context: click.Context,
    files_only: bool,
    lines: int,
    ignore_case: bool,
    literal: bool,
    name_glob: str | None,
    ignored: bool,
    is_json: bool,
    pattern: str,
    path: str,
) -> int:
    """Print the lines that match, the densest files first. Exit code 1: none does."""
    params = f.FsGrep(
        pattern=pattern,
        path=path,
        output_mode="files" if files_only else "content",
        context=lines,
        ignore_case=ignore_case,
        literal=literal,
        glob=name_glob,
        ignored=ignored,
    )
    with _client(context) as client:
        found = client.files.grep(params)
    if is_json:
        _print_json(found)
        return 0
    for file in found.files if files_only else ():
        click.echo(f"{visible(file.path)}:{file.count}")
    for number, window in enumerate(found.windows):
        if number and lines:
            click.echo("--")
        for line, text in enumerate(window.lines, window.first_line):
            mark = ":" if line in window.matches else "-"
            click.echo(f"{visible(window.path)}{mark}{line}{mark}{visible(text)}")
    shown = len(found.files) if files_only else sum(len(one.matches) for one in found.windows)
    total = found.total_files if files_only else found.total_lines
    _tell_rest(found.skipped, total - shown, "files" if files_only else "lines")
    return 0 if found.total_lines else 1


def _tell_rest(skipped: tuple[Skipped, ...], rest: int, what: str) -> None:
    if rest > 0:
        tell(f"{rest} more {what} are not shown")
    for one in skipped:
        tell(f"skipped {one.path}: {one.reason}")


# --------------------------------------------------------------------------- changing


@file_command.command("write")
@click.option("--content", metavar="TEXT", help="The content; stdin by default.")
@click.option("--expect", metavar="VERSION", help="Only when the file is at this version.")
@_run_option
@_dry_option
@_approve_option
@_json_option
@click.argument("path")
@click.pass_context
def write(
    context: click.Context,
    content: str | None,
    expect: str | None,
    run_id: str | None,
    dry_run: bool,
    approve: Approve,
    is_json: bool,
    path: str,
) -> int:
    """Make a text (stdin, or --content) the whole content of a file."""
    text = content if content is not None else _stdin()
    with _client(context) as client:
        changed = client.files.write(
            path, text, expected_version=expect, dry_run=dry_run, approve=approve, run_id=run_id
        )
    return _show_changed(changed, is_json)


@file_command.command("edit")
@click.option("--old", "old_text", metavar="TEXT", help="The text to replace; empty creates.")
@click.option("--new", "new_text", metavar="TEXT", help="What to put there.")
@click.option("--all", "replace_all", is_flag=True, help="Every place where it stands.")
@click.option("--expect", metavar="VERSION", help="Only when the file is at this version.")
@_run_option
@_dry_option
@_approve_option
@_json_option
@click.argument("path")
@click.pass_context
def edit(
    context: click.Context,
    old_text: str | None,
    new_text: str | None,
    replace_all: bool,
    expect: str | None,
    run_id: str | None,
    dry_run: bool,
    approve: Approve,
    is_json: bool,
    path: str,
) -> int:
    """Replace text in a file that this session has read.

    With --old and --new, or with a JSON list of {"old_text", "new_text", "replace_all"} on stdin.
    """
    if (old_text is None) != (new_text is None):
        raise click.UsageError("--old and --new belong together")
    if old_text is not None and new_text is not None:
        edits = [f.FsReplacement(old_text=old_text, new_text=new_text, replace_all=replace_all)]
    elif replace_all:
        raise click.UsageError("--all belongs to --old and --new")
    else:
        edits = _edits_of(_stdin())
    with _client(context) as client:
        changed = client.files.edit(
            path, *edits, expected_version=expect, dry_run=dry_run, approve=approve, run_id=run_id
        )
    return _show_changed(changed, is_json)


def _edits_of(text: str) -> list[f.FsReplacement]:
    try:
        return msgspec.json.decode(text, type=list[f.FsReplacement])
    except msgspec.MsgspecError as error:
        raise click.UsageError(
            f"stdin is no JSON list of edits ({error}); or give --old and --new"
        ) from error


@file_command.command("copy")
@click.option("--overwrite", is_flag=True, help="Replace a file that was not read.")
@_run_option
@_approve_option
@_json_option
@click.argument("source_path", metavar="SOURCE")
@click.argument("path", metavar="TARGET")
@click.pass_context
def copy(
    context: click.Context,
    overwrite: bool,
    run_id: str | None,
    approve: Approve,
    is_json: bool,
    source_path: str,
    path: str,
) -> int:
    """Copy a file's content, whatever it is."""
    with _client(context) as client:
        changed = client.files.copy(
            source_path, path, overwrite=overwrite, approve=approve, run_id=run_id
        )
    return _show_changed(changed, is_json)


@file_command.command("patch")
@_run_option
@_dry_option
@_approve_option
@_json_option
@click.argument("patch_file", metavar="[FILE]", type=click.File("rb"), default="-")
@click.pass_context
def patch(
    context: click.Context,
    run_id: str | None,
    dry_run: bool,
    approve: Approve,
    is_json: bool,
    patch_file: BinaryIO,
) -> int:
    """Apply a patch (a file, or stdin) to every file in it or to none."""
    text = _text_of(patch_file.read())
    with _client(context) as client:
        done = client.files.patch(text, dry_run=dry_run, approve=approve, run_id=run_id)
    return _show_patched(done, is_json)


@file_command.command("undo")
@click.option("--change", "change_id", metavar="ID", help="This change.")
@click.option("--run", "run_id", metavar="ID", help="Every change of this run.")
@click.option("--list", "is_listing", is_flag=True, help="Show what can be taken back.")
@_dry_option
@_approve_option
@_json_option
@click.pass_context
def undo(
    context: click.Context,
    change_id: str | None,
    run_id: str | None,
    is_listing: bool,
    dry_run: bool,
    approve: Approve,
    is_json: bool,
) -> int:
    """Take back a change, all changes of a run, or the last one of this workspace."""
    with _client(context) as client:
        if is_listing:
            return _show_changes(client.files.changes(), is_json)
        done = client.files.undo(change_id, run_id=run_id, dry_run=dry_run, approve=approve)
    return _show_patched(done, is_json)


def _show_changes(changes: tuple[f.FsChange, ...], is_json: bool) -> int:
    if is_json:
        _print_json(f.FsChanges(changes=changes))
        return 0
    for change in changes:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change.at))
        paths = visible(", ".join(change.paths))
        click.echo(f"{change.change_id}  {at}  {change.operation:8}  {paths}")
    return 0


# --------------------------------------------------------------------------- words


def _stdin() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("nothing on stdin; pipe the text in, or use the options")
    return _text_of(sys.stdin.buffer.read())


def _text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"the text is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            hint="convert it first, or use `file copy` for what is no text",
        ) from error


def _print_json(value: msgspec.Struct) -> None:
    text = json.dumps(msgspec.to_builtins(value), separators=(",", ":"), ensure_ascii=False)
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
    sys.stdout.buffer.flush()


def _show_changed(changed: f.FsChanged, is_json: bool) -> int:
    if is_json:
        _print_json(changed)
        return 0
    _show_diff(changed.diff, changed.path)
    for folder in changed.created_directories:
        tell(f"{'would make' if changed.dry_run else 'made'} the folder {folder}")
    fuzzy = [name for name in changed.strategy if name not in ("exact", "create")]
    if fuzzy:
        tell("found by " + ", ".join(fuzzy))
    if changed.refreshed is not None:
        tell(f"it was changed after it was read, by: {changed.refreshed}")
    _tell_change(changed.change_id, changed.dry_run)
    return 0


def _show_patched(done: f.FsPatched, is_json: bool) -> int:
    if is_json:
        _print_json(done)
        return 0
    for file in done.files:
        _show_diff(file.diff, file.path)
        moved = f", from {file.moved_from}" if file.moved_from else ""
        tell(f"{file.action} {file.path}{moved}")
    _tell_change(done.change_id, done.dry_run)
    return 0


def _tell_change(change_id: str | None, is_dry_run: bool) -> None:
    if is_dry_run:
        tell("nothing was changed (--dry-run)")
    elif change_id is not None:
        tell(f"take it back with: sandboxd file undo --change {change_id}")


def _show_diff(diff: Diff, name: str) -> None:
    from sandboxd.files.text import unified

    is_terminal = os.isatty(1) and "NO_COLOR" not in os.environ
    for line in unified(diff, name).splitlines():
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1]) if is_terminal else None
        click.echo(click.style(visible(line), fg=colour) if colour else visible(line))
