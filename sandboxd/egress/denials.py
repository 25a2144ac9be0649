"""What was denied to one run, kept in a bounded list, each host and rule once."""

from __future__ import annotations

from collections.abc import Callable

from sandboxd.model import Denial

MAX_DENIALS = 100


class Denials:
    """Collects denials; `on_denial` hears of each new one."""

    def __init__(self, on_denial: Callable[[Denial], None]) -> None:
        self._on_denial = on_denial
        self._seen: dict[tuple[str | None, str], Denial] = {}

    @property
    def first(self) -> Denial | None:
        """The one that came first: what followed is often its consequence."""
        return next(iter(self._seen.values()), None)

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, denial: Denial) -> None:
        key = (denial.host, denial.rule)
        if key not in self._seen and len(self._seen) < MAX_DENIALS:
            self._seen[key] = denial
            self._on_denial(denial)
