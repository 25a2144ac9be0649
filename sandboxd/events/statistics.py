"""Counts turned into an answer: how calls ended, whose the failures were, by day and session. Pure.

A call is one that ended: a finished run, a refusal, a fault, or a caller that vanished. It failed
unless it was a run that ended well or whose exit code is an answer. Layers that an event did not
say are inferred here, by the table of `attribution`, and counted as `inferred`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from sandboxd.events.attribution import lookup
from sandboxd.events.tally import ANSWER, OK, Key, Tally

CALL_KINDS = ("result", "refusal", "fault", "abandoned")
MOST_SESSIONS = 50


class LayerCount(Struct, frozen=True, kw_only=True):
    layer: str
    count: int
    share: float
    """Of all failures, 0 to 1."""


class ReasonCount(Struct, frozen=True, kw_only=True):
    reason: str
    layer: str
    origin: str
    count: int
    share: float
    inferred: int = 0
    """How many of them are of an older version that did not say the layer."""


class Group(Struct, frozen=True, kw_only=True):
    """One day (UTC) or one session."""

    name: str
    calls: int
    failed: int
    layers: dict[str, int]


class Statistics(Struct, frozen=True, kw_only=True):
    """Counts over the log, or over one session, or since a day."""

    calls: int
    ok: int
    answers: int
    """Runs whose nonzero exit code is an answer."""
    failed: int
    layers: tuple[LayerCount, ...]
    """Every layer that failed, most first."""
    unknown_share: float
    reasons: tuple[ReasonCount, ...]
    days: tuple[Group, ...]
    sessions: tuple[Group, ...]
    """The 50 with the most calls."""
    classes: dict[str, int]
    decisions: dict[str, int]
    """`allow`, `allow:person`, `allow:caller`, ...: with whose word."""
    tiers: dict[str, int]
    kinds: dict[str, int]
    """Events of each kind."""


def statistics(tally: Tally, sessions: Tally | None = None) -> Statistics:
    """The statistics of these counts; `sessions` are those of the sessions to be named, when the
    counts themselves name none."""
    calls = {key: count for key, count in tally.items() if key[2] in CALL_KINDS}
    failures = {key: count for key, count in calls.items() if _is_failure(key)}
    failed = sum(failures.values())
    layers = Counter[str]()
    for key, count in failures.items():
        layers[_layer(key)] += count
    return Statistics(
        calls=sum(calls.values()),
        ok=sum(count for key, count in calls.items() if key[2:4] == ("result", OK)),
        answers=sum(count for key, count in calls.items() if key[2:4] == ("result", ANSWER)),
        failed=failed,
        layers=tuple(
            LayerCount(layer=layer, count=count, share=_share(count, failed))
            for layer, count in layers.most_common()
        ),
        unknown_share=_share(layers["unknown"], failed),
        reasons=tuple(_reasons(failures, failed)),
        days=tuple(_groups(calls, 0)),
        sessions=_sessions(calls if sessions is None else sessions),
        classes=_by_reason(tally, "verdict"),
        decisions=_by_reason(tally, "decision"),
        tiers=_by_reason(tally, "launch"),
        kinds=_by_kind(tally),
    )


def _sessions(tally: Tally) -> tuple[Group, ...]:
    calls = {key: count for key, count in tally.items() if key[2] in CALL_KINDS}
    return tuple(sorted(_groups(calls, 1), key=lambda group: -group.calls)[:MOST_SESSIONS])


def _is_failure(key: Key) -> bool:
    return not (key[2] == "result" and key[3] in (OK, ANSWER))


def _layer(key: Key) -> str:
    return key[4] or lookup(key[3], key[5])[0]


def _reasons(failures: Tally, failed: int) -> Iterable[ReasonCount]:
    counts = Counter[tuple[str, str, str]]()
    inferred = Counter[tuple[str, str, str]]()
    for key, count in failures.items():
        name = (key[3], _layer(key), key[5] or lookup(key[3], key[5])[1])
        counts[name] += count
        inferred[name] += 0 if key[4] else count
    for name, count in counts.most_common():
        yield ReasonCount(
            reason=name[0],
            layer=name[1],
            origin=name[2],
            count=count,
            share=_share(count, failed),
            inferred=inferred[name],
        )


def _groups(calls: Tally, which: int) -> list[Group]:
    total, layers = Counter[str](), dict[str, Counter[str]]()
    for key, count in calls.items():
        name = key[which]
        total[name] += count
        found = layers.setdefault(name, Counter())
        if _is_failure(key):
            found[_layer(key)] += count
    return [
        Group(
            name=name,
            calls=count,
            failed=layers[name].total(),
            layers=dict(layers[name].most_common()),
        )
        for name, count in sorted(total.items())
        if name
    ]


def _by_reason(tally: Mapping[Key, int], kind: str) -> dict[str, int]:
    counts = Counter[str]()
    for key, count in tally.items():
        if key[2] == kind:
            counts[key[3]] += count
    return dict(counts.most_common())


def _by_kind(tally: Mapping[Key, int]) -> dict[str, int]:
    counts = Counter[str]()
    for key, count in tally.items():
        counts[key[2]] += count
    return dict(counts.most_common())


def _share(count: int, whole: int) -> float:
    return round(count / whole, 4) if whole else 0.0
