"""The file tools of a session over a throw-away workspace."""

from __future__ import annotations

from pathlib import Path

from scopes import scope_of

from sandboxd.errors import Refusal
from sandboxd.files.changes import Done, Preview, Target, attempt
from sandboxd.files.ledger import Ledger
from sandboxd.files.locks import Locks
from sandboxd.files.matching import Edit
from sandboxd.files.operations import EditFile, Write
from sandboxd.files.reading import Reading, Tools, read
from sandboxd.files.undo import Undo


def yes(target: Target) -> bool:
    return True


class Bench:
    """`base/work` with everything that a session's file tools need."""

    def __init__(self, base: Path, **more: object) -> None:
        self.base = base
        self.work = base / "work"
        self.tools = Tools(
            scope=scope_of(base, **more),  # type: ignore[arg-type]
            ledger=Ledger(str(base / "ledger")),
            locks=Locks(str(base / "locks"), wait_s=20),
            undo=Undo(str(base / "undo")),
            session_id="s",
        )

    def read(self, path: str, **more: object) -> Reading:
        return read(self.tools, path, **more)  # type: ignore[arg-type]

    def do(self, operation: object, **more: object) -> Done | Preview:
        """The change, or its refusal raised."""
        outcome = attempt(self.tools, operation, yes, **more)  # type: ignore[arg-type]
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome

    def write(self, path: str, content: str, **more: object) -> Done | Preview:
        return self.do(Write(path, content), **more)

    def edit(self, path: str, old: str, new: str, *, replace_all: bool = False) -> Done | Preview:
        return self.do(EditFile(path, (Edit(old, new, replace_all),)))

    def text(self, path: str) -> str:
        return (self.work / path).read_bytes().decode()
