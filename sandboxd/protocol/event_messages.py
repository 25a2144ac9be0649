"""What travels on the wire about judgement and record: assessments, events, replay, statistics.

Apart from `messages` because few clients speak of these; the rules of that module hold here too.
"""

from __future__ import annotations

from msgspec import Raw, field

from sandboxd.model import Action, CommandClass
from sandboxd.proposals import Risk, Role, Violation
from sandboxd.protocol.messages import Params, Reply


class EventQuery(Params, frozen=True, kw_only=True):
    """Which events; what is left out does not restrict. Without `after_seq` the newest are meant."""

    session_id: str | None = None
    run_id: str | None = None
    kinds: tuple[str, ...] = ()
    since: float | None = None
    """Seconds since the epoch; events at or after it."""
    until: float | None = None
    """Events before it."""
    after_seq: int | None = None
    """Only events behind this number, from the oldest on: for pages, and to follow the log."""
    before_seq: int | None = None
    limit: int = 1000
    """At most 10,000; a page may hold fewer than were asked for."""


class ChangedFile(Reply, frozen=True, kw_only=True):
    """One file of one change by a file operation."""

    change_id: str
    run_id: str
    operation: str
    at: float
    path: str
    diff: str | None
    """Unified, secrets redacted; null where `note` says why not."""
    added: int = 0
    removed: int = 0
    note: str = ""


class ChangeListing(Reply, frozen=True, kw_only=True):
    """The changes of a session whose old contents are still kept, oldest first."""

    changes: tuple[ChangedFile, ...]
    is_abridged: bool = False


class EventChanges(Params, frozen=True, kw_only=True):
    session_id: str
    workspace: str
    """The session's, as its first event names it."""


class EventReplay(Params, frozen=True, kw_only=True):
    """Judge a recorded session again, from the record alone. Without `profile` under what the recorded
    profile says today; a profile that is no more is taken as it was recorded."""

    session_id: str
    profile: str | None = None
    """A name, or the absolute path of a file."""
    recorded: bool = False
    """Under the profile as it was recorded, whatever it says today."""
    rules: dict[str, dict[str, str | tuple[str, ...]]] | None = None
    """Options of rules that go over those of the profile."""


class StatsQuery(Params, frozen=True, kw_only=True):
    session_id: str | None = None
    since_day: str | None = None
    """`YYYY-MM-DD` in UTC, the first day that counts."""


# --------------------------------------------------------------------------- assessments


class IntentAssess(Params, frozen=True, kw_only=True):
    """A call that the caller's own tool would run, for judgement before it does."""

    tool: str
    parameters: dict[str, Raw] = field(default_factory=dict)
    """As the model gave them."""
    roles: dict[str, Role] | None = None
    """What parameters mean, where the caller knows better than the table of tools."""
    cwd: str | None = None
    """Where relative paths begin; null means the session's working directory."""


class IntentAssessment(Reply, frozen=True, kw_only=True, rename={"class_": "class"}):
    """`allow`: go on. `ask`: a person should say yes first. `refuse`: do not run it."""

    decision: Action
    class_: CommandClass
    risk: Risk | None
    """The worst of the violations; null when no rule has anything against the call."""
    reasons: tuple[str, ...]
    violations: tuple[Violation, ...]
    paths: dict[str, str | None]
    """Where the path in each parameter leads, links and `~` resolved: touch that and nothing else.
    Null for one that is no path."""
    assessment_id: str
