"""The context that classifier tests share: an ordinary machine, an empty folder."""

from __future__ import annotations

from sandboxd.classify.context import Context

CONTEXT = Context(
    cwd="/nowhere/project",
    path="/usr/local/bin:/usr/bin:/bin",
    home="/home/user",
    writable_roots=("/nowhere/project",),
)
