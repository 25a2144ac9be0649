"""The classifier: text in, verdict out. READ THIS FIRST in the classify stage.

    bounds -> cache -> plain lexer, else structure reader -> every command graded by the tables
           -> worst of all parts -> second reading when that says read_only -> keys

Nothing is run and nothing is written. What cannot be read is `destructive`, `parsed: false`,
never remembered, with the one reason `unparsed`. One `Classifier` serves a whole daemon; it is
safe to call from several threads.
"""

from __future__ import annotations

import dataclasses
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from sandboxd.classify.arithmetic import is_integer
from sandboxd.classify.context import Context, Probes
from sandboxd.classify.judge import Judge
from sandboxd.classify.lexer import read_plain
from sandboxd.classify.programs import ProgramFinder
from sandboxd.classify.reading import MAX_COMMANDS, Reading, Unit, Unread
from sandboxd.classify.second_opinion import SecondOpinion
from sandboxd.classify.structure import StructureReader
from sandboxd.classify.tables import Tables
from sandboxd.model import (
    DESTRUCTIVE,
    MUTATING,
    READ_ONLY,
    Reason,
    SimpleCommand,
    Span,
    Verdict,
    Word,
)

__all__ = ["Classifier", "Context"]

MAX_BYTES = 64 * 1024
MAX_DEPTH = 4
CACHE_SIZE = 2048
FINDER_SECONDS = 5.0
MAX_FINDERS = 64

_Request = TypeVar("_Request", str, tuple[str, ...])
_Judging = Callable[[_Request, Context, Probes], Verdict]


class Classifier:
    """Tables, cache and second readers; `close` ends the bashlex worker."""

    def __init__(self, tables: Tables, *, waits: bool = False) -> None:
        """`waits`: a text that needs a reader which is not loaded yet waits for it; otherwise it is
        called mutating until then."""
        self._tables = tables
        self._second = SecondOpinion(waits=waits)
        self._cache: dict[tuple[object, ...], tuple[Verdict, Probes]] = {}
        self._finders: dict[tuple[str, tuple[str, ...]], tuple[float, ProgramFinder]] = {}
        self._lock = threading.Lock()

    def classify_text(self, text: str, context: Context) -> Verdict:
        """The verdict on shell text as bash would run it."""
        return self._guarded(text, context, self._text)

    def classify_argv(self, argv: Sequence[str], context: Context) -> Verdict:
        """The verdict on an argument vector; no shell is involved, every word is literal."""
        return self._guarded(tuple(argv), context, self._argv)

    def warm_up(self) -> None:
        """Load the second readers now, so that no request waits for them; a daemon may call it
        from a thread. Until bashlex answers, texts that need it are not read-only."""
        self._second.warm_up()

    def close(self) -> None:
        self._second.close()

    def _guarded(self, request: _Request, context: Context, judge: _Judging[_Request]) -> Verdict:
        """The cached verdict while every fact it used still holds, else a new one. A defect
        anywhere below must end in a question, never in an answer or a crash."""
        try:
            key = (request, context.cache_key())
            with self._lock:
                found = self._cache.get(key)
                finder = self._finder(context)
            if found is not None and found[1].still_hold(finder):
                return found[0]
            probes = Probes(finder)
            verdict = judge(request, context, probes)
            self._remember(key, verdict, probes)
            return verdict
        except Exception as defect:
            message = f"the classifier failed on it ({type(defect).__name__})"
            return _unparsed(Unread(message, 0), len(request) if isinstance(request, str) else 0)

    def _remember(self, key: tuple[object, ...], verdict: Verdict, probes: Probes) -> None:
        with self._lock:
            self._cache[key] = (verdict, probes)
            if len(self._cache) > CACHE_SIZE:
                del self._cache[next(iter(self._cache))]

    def _finder(self, context: Context) -> ProgramFinder:
        """The finder for this PATH, made anew every few seconds: people move folders too.
        Called with the lock held."""
        key = (context.path, context.writable_roots)
        now = time.monotonic()
        kept = self._finders.get(key)
        if kept is not None and now - kept[0] < FINDER_SECONDS:
            return kept[1]
        if len(self._finders) >= MAX_FINDERS:
            self._finders.clear()
        finder = ProgramFinder(context.path, context.writable_roots)
        self._finders[key] = (now, finder)
        return finder

    def _text(self, text: str, context: Context, probes: Probes, depth: int = 0) -> Verdict:
        inert: list[Span] = []
        try:
            if len(text) > MAX_BYTES or not text.isascii() or "\0" in text:
                _check_bounds(text)
            if depth > MAX_DEPTH:
                raise Unread("commands are nested too deeply", 0)
            home = context.environment.get("HOME", context.home) or ""
            reading = read_plain(text, home)
            if reading is None:
                reading, inert = _read_structure(text, context, home)
            for unit in reading.units:
                probes.commands += len(unit.commands)
            if probes.commands > MAX_COMMANDS:
                raise Unread(f"the text holds more than {MAX_COMMANDS} commands", 0)
        except Unread as unread:
            return _unparsed(unread, len(text))
        judge = Judge(self._tables, context, probes, depth, self._nested)
        verdict = judge.verdict(text, reading)
        if reading.is_common or verdict.class_ is not READ_ONLY:
            return verdict
        return self._confirmed(verdict, text, reading, inert, context, probes)

    def _confirmed(
        self,
        verdict: Verdict,
        text: str,
        reading: Reading,
        inert: list[Span],
        context: Context,
        probes: Probes,
    ) -> Verdict:
        """A read-only verdict on a text that is not plain: it stands when another reader agrees."""
        if context.shell != "bash":
            message = f"only bash is read in full, and this is for {context.shell}"
            return _doubted(verdict, "shell", message, (0, len(text)))
        if reading.is_plain:
            return verdict
        commands = [command for unit in reading.units for command in unit.commands]
        agrees = self._second.agrees(text, commands, inert)
        if agrees is None:
            probes.is_final = False
            message = "the second reader of this text is only just starting"
            return _doubted(verdict, "readings-differ", message, (0, len(text)))
        if not agrees:
            message = "two independent readings of this text differ"
            return _doubted(verdict, "readings-differ", message, (0, len(text)))
        return verdict

    def _argv(self, argv: tuple[str, ...], context: Context, probes: Probes) -> Verdict:
        try:
            if not argv or not argv[0]:
                raise Unread("there is no program to run", 0)
            for argument in argv:
                _check_characters(argument)
        except Unread as unread:
            return _unparsed(unread, 0)
        text = shlex.join(argv)
        words: list[Word] = []
        position = 0
        for argument in argv:
            end = position + len(shlex.quote(argument))
            words.append(Word(text=argument, span=(position, end)))
            position = end + 1
        span = (0, len(text))
        unit = Unit(span, (" argv", *argv), (SimpleCommand(words=tuple(words), span=span),), last=0)
        reading = Reading([unit], is_plain=True, is_common=True)
        judge = Judge(self._tables, context, probes, 0, self._nested)
        return judge.verdict(text, reading, is_executed=True)

    def _nested(
        self, text: str, folder: str | None, context: Context, depth: int, probes: Probes
    ) -> Verdict:
        """The verdict on text inside a command of a text at `depth`; None is an unknown folder."""
        inner = dataclasses.replace(context, cwd=folder if folder is not None else "")
        return self._text(text, inner, probes, depth + 1)


def _read_structure(text: str, context: Context, home: str) -> tuple[Reading, list[Span]]:
    """Read the text; also the spans in which nothing is code, for the second readers."""
    overlay = context.environment
    reader = StructureReader(text, home)
    reader.foreign_names = [n for n, value in overlay.items() if value and not is_integer(value)]
    try:
        return reader.read_units(), reader.inert
    except RecursionError:
        raise Unread("commands are nested too deeply", 0) from None


def _check_bounds(text: str) -> None:
    _check_characters(text)
    if len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
        raise Unread(f"the text is longer than {MAX_BYTES // 1024} KiB", 0)


def _check_characters(text: str) -> None:
    if (place := text.find("\0")) >= 0:
        raise Unread("the text contains a NUL", place)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Unread("the text is not valid Unicode", error.start) from None


def _unparsed(unread: Unread, length: int) -> Verdict:
    span = (min(unread.offset, length), length)
    return Verdict(
        class_=DESTRUCTIVE,
        parsed=False,
        cacheable=False,
        reasons=(Reason("unparsed", f"cannot be read: {unread.message}", span),),
    )


def _doubted(verdict: Verdict, rule: str, message: str, span: Span) -> Verdict:
    """A read-only verdict that must not stand: asked each time, never remembered."""
    return replace(
        verdict,
        class_=MUTATING,
        cacheable=False,
        reasons=(Reason(rule, message, span),),
        read_paths=(),
        approval_key=None,
        unit_keys=(),
        git_hardening=False,
    )
