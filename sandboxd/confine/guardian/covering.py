"""Keeping a run's covers in place: asks for them again whenever a covered name has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from sandboxd.confine.guardian.findings import Findings

Steps = Sequence[tuple[str, str]]
Remask = Callable[[Steps], Awaitable[bool]]
"""Covers what is bare of these (`pin`, `readonly` or `blank`, path) in the living run; False when
something stays bare."""
REMASKED = ("pin", "readonly", "blank")


class Covering:
    """The covers of one run. What is asked for before the run lives is done when it does."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._remask: Remask | None = None
        self._steps: list[tuple[str, str]] = []
        self._working: asyncio.Future[None] | None = None
        self._is_needed = False
        self._is_over = False

    def start(self, steps: Steps, remask: Remask) -> None:
        hidden = [("blank", path) for kind, path in steps if kind == "copy"]
        self._steps = [*(step for step in steps if step[0] in REMASKED), *hidden]
        self._remask = remask
        if self._is_needed:
            self.mend()

    def stop(self) -> None:
        self._is_over = True

    def mend(self) -> None:
        """Cover again what has become bare; changes that come meanwhile are covered after it."""
        self._is_needed = True
        if self._remask is None or self._working is not None or self._is_over:
            return
        if not self._steps:  # a tier whose covers are not ours: bubblewrap's
            self._findings.admit("a name that changed on the host could not be covered again")
            return
        self._working = asyncio.ensure_future(self._until_done(self._remask))

    async def _until_done(self, remask: Remask) -> None:
        try:
            while self._is_needed and not self._is_over:
                self._is_needed = False
                if not await remask(self._steps) and not self._is_over:
                    self._findings.admit(
                        "a name that changed on the host could not be covered again"
                    )
        finally:
            self._working = None
