"""Whether an independent reader agrees with ours: tree-sitter, else bashlex.

Apart from both readers so that each can be judged alone, and lazily loaded: importing
tree-sitter costs milliseconds that a plain command never pays.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandboxd.model import SimpleCommand, Span

if TYPE_CHECKING:
    from sandboxd.classify.crosscheck import SecondReader
    from sandboxd.classify.parse import BashlexWorker


MAX_CHARACTERS = 32 * 1024
MAX_HERE_DOCUMENTS = 50
"""Beyond these the other readers' time is no longer bounded by ours."""


class SecondOpinion:
    """Holds the independent readers; thread-safe."""

    def __init__(self, *, waits: bool = False) -> None:
        """`waits`: the first text that needs bashlex waits until it has started."""
        self._waits = waits
        self._tree_sitter: SecondReader | None = None
        self._bashlex: BashlexWorker | None = None
        self._lock = threading.Lock()

    def agrees(
        self, text: str, commands: Sequence[SimpleCommand], inert: Sequence[Span]
    ) -> bool | None:
        """Whether tree-sitter, or where it cannot read bashlex, finds the same commands; None
        while bashlex is only being started, so that no request waits for that."""
        if len(text) > MAX_CHARACTERS or _here_documents(commands) > MAX_HERE_DOCUMENTS:
            return False
        with self._lock:
            opinion = self._first_reader().opinion(text, commands)
            if opinion == "cannot read":
                return self._bashlex_agrees(text, commands, inert)
        return opinion == "agrees"

    def warm_up(self) -> None:
        """Load tree-sitter and start bashlex."""
        with self._lock:
            self._first_reader()
            self._worker().commands("true")

    def close(self) -> None:
        if self._bashlex is not None:
            self._bashlex.close()

    def _first_reader(self) -> SecondReader:
        if self._tree_sitter is None:
            from sandboxd.classify.crosscheck import SecondReader

            self._tree_sitter = SecondReader()
        return self._tree_sitter

    def _worker(self) -> BashlexWorker:
        if self._bashlex is None:
            from sandboxd.classify.parse import BashlexWorker

            self._bashlex = BashlexWorker()
        return self._bashlex

    def _bashlex_agrees(
        self, text: str, commands: Sequence[SimpleCommand], inert: Sequence[Span]
    ) -> bool | None:
        from sandboxd.classify.parse import is_misleading, neutralised

        if _here_documents(commands):
            return False
        prepared = neutralised(text, inert)
        if is_misleading(prepared):
            return False
        worker = self._worker()
        if not worker.is_ready() and not self._waits:
            worker.start()
            return None
        found = worker.commands(prepared)
        if found is None:
            return False
        ours = {
            (command.words[0].span[0], len({word.span for word in command.words}))
            for command in commands
            if command.words
        }
        return ours == {(words[0][0], len(words)) for words in found}


def _here_documents(commands: Sequence[SimpleCommand]) -> int:
    return sum(one.body is not None for command in commands for one in command.redirects)
