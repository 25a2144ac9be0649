"""The registry of refusals: which expected no each method may answer with.

A module of its own beside the table of methods, because a model acts on codes: `docs/protocol.md`
shows them, and a test refuses a method that has none here. Every method may also answer with
INVALID_REQUEST, OVERLOADED and, when its call is abandoned, CANCELLED; those are not repeated. An
unknown cause is never one of these: it is a fault.
"""

from __future__ import annotations

from sandboxd import errors as e

ANY: tuple[type[e.Refusal], ...] = (e.InvalidRequest, e.Overloaded, e.Cancelled)
_SESSION = (e.SessionUnknown,)
_OPENING = (e.WorkspaceRefused, e.UnknownProfile, e.ProfileBroken, e.TierUnavailable)
_ASKING = (e.ApprovalRequired, e.ApprovalDenied, e.ApprovalTimedOut)
_RUNNING = (
    *(
        *_SESSION,
        *_ASKING,
        e.RuleViolated,
        e.UnknownProfile,
        e.ProfileBroken,
        e.UnknownTier,
        e.TierUnavailable,
    ),
    *(e.CwdMissing, e.ProgramMissing, e.NotExecutable, e.ArgumentsTooLong, e.InvalidArgument),
)
_PLACE = (
    *(*_SESSION, e.NotFound, e.OutsideRoot, e.DeniedPath, e.SpecialFile, e.InvalidArgument),
    *_ASKING,
)
_CHANGING = (
    *(*_PLACE, e.ProtectedPath, e.NotObserved, e.StaleVersion, e.AlreadyExists, e.TooLarge),
    *(e.FileBusy, e.RuleViolated),
)

REFUSALS: dict[str, tuple[type[e.Refusal], ...]] = {
    "initialize": _OPENING,
    "classify": _SESSION,
    "command.exec": _RUNNING,
    "command.write": (e.RunUnknown,),
    "command.terminate": (e.RunUnknown,),
    "command.resize": (e.RunUnknown,),
    "terminal.start": _RUNNING,
    "terminal.write": (*_SESSION, e.RunUnknown, *_ASKING),
    "terminal.read": (*_SESSION, e.RunUnknown),
    "terminal.resize": (*_SESSION, e.RunUnknown),
    "terminal.kill": (*_SESSION, e.RunUnknown),
    "terminal.list": _SESSION,
    "terminal.attach": (*_SESSION, e.RunUnknown),
    "approval.list": (e.Overloaded,),
    "approval.resolve": (e.ApprovalUnknown,),
    "approval.attach": (e.Cancelled,),
    "fs.read": (*_PLACE, e.NotText, e.ImageUnseen, e.TooLarge, e.FileBusy),
    "fs.write": _CHANGING,
    "fs.edit": (*_CHANGING, e.NotText, e.NoMatch, e.AmbiguousMatch, e.OversizedMatch),
    "fs.copy": _CHANGING,
    "fs.patch": (*_CHANGING, e.NotText, e.PatchBroken, e.PatchMismatch),
    "fs.undo": (*_CHANGING, e.ChangeUnknown),
    "fs.changes": _SESSION,
    "fs.list": _PLACE,
    "fs.glob": _PLACE,
    "fs.grep": (*_PLACE, e.TooLarge, e.TierUnavailable),
    "cancel": (e.InvalidRequest,),
    "tier.list": (e.Overloaded,),
    "session.list": (e.Overloaded,),
    "session.close": _SESSION,
    "output.read": (*_SESSION, e.OutputUnknown),
    "profile.show": (
        *_SESSION,
        e.UnknownProfile,
        e.ProfileBroken,
        e.UnknownTier,
        e.TierUnavailable,
    ),
    "profile.explain": (*_SESSION, e.UnknownProfile, e.ProfileBroken),
    "intent.assess": (*_SESSION, e.InvalidRequest),
    "event.query": (e.InvalidRequest,),
    "event.verify": (e.Overloaded,),
    "event.replay": (e.SessionUnknown, e.UnknownProfile, e.ProfileBroken),
    "event.changes": (e.Overloaded,),
    "stats": (e.InvalidRequest,),
    "status": (e.Overloaded,),
}


def refusals_of(method: str) -> tuple[type[e.Refusal], ...]:
    """Everything that a method may answer with, what every method may included."""
    return tuple(dict.fromkeys([*REFUSALS[method], *ANY]))
