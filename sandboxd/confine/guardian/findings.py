"""What a run's guard has to say in the result."""

from __future__ import annotations

from msgspec import Struct, field


class Findings(Struct):
    """Three lists, each item once."""

    set_aside: list[str] = field(default_factory=list)
    """Paths that were moved out of the way."""
    notices: list[str] = field(default_factory=list)
    """One sentence for each thing done or seen."""
    gaps: list[str] = field(default_factory=list)
    """What was open for a time, or stays open."""

    def list(self, path: str) -> None:
        _add(self.set_aside, path)

    def say(self, sentence: str) -> None:
        _add(self.notices, sentence)

    def admit(self, gap: str) -> None:
        _add(self.gaps, gap)

    def merge(self, other: Findings) -> None:
        for path in other.set_aside:
            self.list(path)
        for sentence in other.notices:
            self.say(sentence)
        for gap in other.gaps:
            self.admit(gap)


def _add(items: list[str], item: str) -> None:
    if item not in items:
        items.append(item)
