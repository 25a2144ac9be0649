"""Every way sandboxd says no, and the one way it says that it broke.

SandboxdError
+-- Refusal                     expected; typed `code`, `message`, `hint`; a model can act on it
|   +-- UsageRefusal            the request itself is wrong (exit 2 on the command line)
|   |   +-- UnknownTier         UNKNOWN_TIER
|   |   +-- UnknownProfile      UNKNOWN_PROFILE
|   |   +-- ProfileBroken       PROFILE_BROKEN      names file, line and key
|   |   +-- ProfileRelaxes      PROFILE_RELAXES     a project's file against a more trusted one
|   |   +-- InvalidRequest      INVALID_REQUEST     a parameter is missing, unknown or of the wrong type
|   |   +-- InvalidArgument     INVALID_ARGUMENT    a NUL, or text that no program could receive
|   +-- ApprovalRequired        APPROVAL_REQUIRED   nobody could be asked
|   +-- RuleViolated        RULE_VIOLATED       a rule has something against the call
|   +-- ApprovalDenied          APPROVAL_DENIED     a person said no
|   +-- ApprovalTimedOut        APPROVAL_TIMEOUT    nobody answered in time
|   +-- ApprovalUnknown         APPROVAL_UNKNOWN    answered already, withdrawn, or never asked
|   +-- EscalationRefused       ESCALATION_REFUSED  used, too old, or another command's
|   +-- TierUnavailable         TIER_UNAVAILABLE    named cause and remedy
|   +-- WorkspaceRefused        WORKSPACE_REFUSED
|   +-- CwdMissing              CWD_MISSING
|   +-- ProgramMissing          PROGRAM_MISSING     (exit 127)
|   +-- NotExecutable           NOT_EXECUTABLE      (exit 126)
|   +-- ArgumentsTooLong        ARGUMENTS_TOO_LONG  E2BIG
|   +-- Cancelled               CANCELLED
|   +-- Overloaded              OVERLOADED          try again later
|   +-- SessionUnknown          SESSION_UNKNOWN
|   +-- OutputUnknown           OUTPUT_UNKNOWN
|   +-- RunUnknown              RUN_UNKNOWN
|   +-- PeerRefused             PEER_REFUSED        another user's process on the socket
|   +-- PeerConfined            PEER_CONFINED       a process from inside a sandbox
|   +-- DaemonRunning           DAEMON_RUNNING      says who holds the socket
|   +-- DaemonUnreachable       DAEMON_UNREACHABLE
|   +-- SocketUnusable          SOCKET_UNUSABLE     unwritable folder, path too long
|   +-- PlatformUnsupported     PLATFORM_UNSUPPORTED
|   +-- FileRefusal             FILE_REFUSED        a file was not touched; below, why
|       +-- NotFound            NOT_FOUND
|       +-- OutsideRoot         OUTSIDE_ROOT        names the path that links lead to
|       +-- DeniedPath          DENIED_PATH         a place that runs must not see
|       +-- ProtectedPath       PROTECTED_PATH      runs later, outside; nobody could be asked
|       +-- SpecialFile         SPECIAL_FILE        a FIFO, device, socket or folder
|       +-- NotText             NOT_TEXT            names the first bad byte
|       +-- ImageUnseen         IMAGE_UNSEEN        the caller's model sees no images
|       +-- TooLarge            TOO_LARGE
|       +-- NotObserved         FS_NOT_OBSERVED     not read before
|       +-- StaleVersion        FS_STALE_VERSION    changed since it was read; carries it as it is now
|       +-- AlreadyExists       ALREADY_EXISTS
|       +-- NoMatch             NO_MATCH            shows the nearest lines
|       +-- AmbiguousMatch      AMBIGUOUS_MATCH     counts and shows the places
|       +-- OversizedMatch      OVERSIZED_MATCH     would replace far more than was named
|       +-- PatchBroken         PATCH_BROKEN        cannot be read as a patch
|       +-- PatchMismatch       PATCH_MISMATCH      a hunk is not in the file
|       +-- FileBusy            FILE_BUSY           locked by another writer for too long
|       +-- ChangeUnknown       CHANGE_UNKNOWN      no such change is kept
+-- Fault                       our machinery failed; carries the cause

The same class is raised in the daemon, carried over the wire by its code and raised again
by the Python client. This file is long because it is one tree. The command line's fast path imports this module, so it imports nothing, not even `typing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar


class SandboxdError(Exception):
    """Root of everything sandboxd raises on purpose."""


class Refusal(SandboxdError):
    """An expected no.

    `message` states the fact in one sentence, `hint` says what to do next, `origin` names the
    part that said no (gate, rule, sandbox, limit, host, tool, client).
    """

    code: ClassVar[str] = "REFUSED"
    origin: ClassVar[str] = "gate"
    exit_code: ClassVar[int] = 125
    retryable: ClassVar[bool] = False
    recovery: ClassVar[str] = ""
    """What a model is told beside the hint; see `for_model`."""

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        path: str | None = None,
        rule: str | None = None,
        evidence: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = path
        self.rule = rule
        self.evidence = evidence
        self.data = data

    def to_wire(self) -> dict[str, Any]:
        """The refusal as the `data` of a JSON-RPC error; absent fields are left out."""
        wire: dict[str, Any] = {
            "code": self.code,
            "origin": self.origin,
            "message": self.message,
            "hint": self.hint,
            "retryable": self.retryable,
        }
        for name in ("path", "rule", "evidence", "data"):
            value = getattr(self, name)
            if value is not None:
                wire[name] = value
        return wire

    @staticmethod
    def from_wire(wire: dict[str, Any]) -> Refusal:
        """The refusal a server sent, as the very class the server raised."""
        kind = _BY_CODE.get(str(wire.get("code")), Refusal)
        refusal = kind(
            str(wire.get("message", "refused without a message")),
            hint=str(wire.get("hint", "")),
            path=wire.get("path"),
            rule=wire.get("rule"),
            evidence=wire.get("evidence"),
            data=wire.get("data"),
        )
        if kind is Refusal and "code" in wire:
            refusal.code = str(wire["code"])  # type: ignore[misc]  # a newer server's code
        return refusal


class UsageRefusal(Refusal):
    """The request cannot be meant as it stands; exit 2 on the command line."""

    code = "USAGE"
    origin = "client"
    exit_code = 2


class UnknownTier(UsageRefusal):
    """No tier of this name exists on any host."""

    code = "UNKNOWN_TIER"


class UnknownProfile(UsageRefusal):
    """No profile of this name and no such file."""

    code = "UNKNOWN_PROFILE"


class ProfileBroken(UsageRefusal):
    """A profile or configuration file cannot be read as one; names file, line and key."""

    code = "PROFILE_BROKEN"


class ProfileRelaxes(UsageRefusal):
    """A project's file would relax what a more trusted layer says; names both files and lines."""

    code = "PROFILE_RELAXES"


class InvalidRequest(UsageRefusal):
    """A parameter is missing, unknown or of the wrong type."""

    code = "INVALID_REQUEST"


class InvalidArgument(UsageRefusal):
    """An argument that execve(2) cannot carry (a NUL) or JSON cannot (broken UTF-8)."""

    code = "INVALID_ARGUMENT"


class ApprovalRequired(Refusal):
    """The command must be asked about and nobody could be asked."""

    code = "APPROVAL_REQUIRED"


class RuleViolated(Refusal):
    """A rule has something against the call; `rule` names it, `data.violations` lists them all."""

    code = "RULE_VIOLATED"
    origin = "rule"


class ApprovalDenied(Refusal):
    """A person was asked and said no."""

    code = "APPROVAL_DENIED"


class ApprovalTimedOut(Refusal):
    """Somebody could be asked, and did not answer in time."""

    code = "APPROVAL_TIMEOUT"
    retryable = True


class ApprovalUnknown(Refusal):
    """No question of this id waits: it was answered, or withdrawn with its caller."""

    code = "APPROVAL_UNKNOWN"
    origin = "client"


class EscalationRefused(Refusal):
    """The escalation token was used, is too old, or was given for something else."""

    code = "ESCALATION_REFUSED"
    origin = "client"


class TierUnavailable(Refusal):
    """The tier asked for, or one at least that strong, is not to be had on this host."""

    code = "TIER_UNAVAILABLE"
    origin = "host"


class WorkspaceRefused(Refusal):
    """The folder cannot be a workspace (the root of the file system, not a folder, gone)."""

    code = "WORKSPACE_REFUSED"


class CwdMissing(Refusal):
    """The working directory does not exist or cannot be entered inside the sandbox."""

    code = "CWD_MISSING"
    origin = "client"


class ProgramMissing(Refusal):
    """No such program on the run's PATH; 127 as shells say it."""

    code = "PROGRAM_MISSING"
    origin = "host"
    exit_code = 127


class NotExecutable(Refusal):
    """The program exists and cannot be executed; 126 as shells say it."""

    code = "NOT_EXECUTABLE"
    origin = "host"
    exit_code = 126


class ArgumentsTooLong(Refusal):
    """execve(2) said E2BIG: one argument over 128 KiB, or all of them over the stack limit."""

    code = "ARGUMENTS_TOO_LONG"
    origin = "limit"


class Cancelled(Refusal):
    """The caller cancelled; the tree is dead and `data` holds the partial output."""

    code = "CANCELLED"
    origin = "client"


class Overloaded(Refusal):
    """Queues are full; nothing was started."""

    code = "OVERLOADED"
    origin = "limit"
    retryable = True


class SessionUnknown(Refusal):
    """No session of this id, or `initialize` was not called."""

    code = "SESSION_UNKNOWN"
    origin = "client"


class OutputUnknown(Refusal):
    """No kept output of this id in this session."""

    code = "OUTPUT_UNKNOWN"
    origin = "client"


class RunUnknown(Refusal):
    """No running command of this id on this connection."""

    code = "RUN_UNKNOWN"
    origin = "client"


class PeerRefused(Refusal):
    """The process at the other end of the socket belongs to another user."""

    code = "PEER_REFUSED"


class PeerConfined(Refusal):
    """The process at the other end of the socket runs inside a sandbox."""

    code = "PEER_CONFINED"


class DaemonRunning(Refusal):
    """Another daemon holds the socket."""

    code = "DAEMON_RUNNING"
    origin = "host"


class DaemonUnreachable(Refusal):
    """No daemon answers on the socket that was named."""

    code = "DAEMON_UNREACHABLE"
    origin = "host"
    retryable = True


class SocketUnusable(Refusal):
    """The socket's folder cannot be used or its path is over the system's limit."""

    code = "SOCKET_UNUSABLE"
    origin = "host"


class PlatformUnsupported(Refusal):
    """This build cannot do that on this operating system."""

    code = "PLATFORM_UNSUPPORTED"
    origin = "host"


class FileRefusal(Refusal):
    """A guarded file operation said no; nothing was changed."""

    code = "FILE_REFUSED"
    recovery = "Nothing was changed and the file tools work: do what the hint says, then try again."


class NotFound(FileRefusal):
    """Nothing has this name."""

    code = "NOT_FOUND"


class OutsideRoot(FileRefusal):
    """The path leads out of the folders that the session may read or write."""

    code = "OUTSIDE_ROOT"


class DeniedPath(FileRefusal):
    """The profile denies this place to every run."""

    code = "DENIED_PATH"


class ProtectedPath(FileRefusal):
    """What is written here runs later, outside, and nobody could be asked about it."""

    code = "PROTECTED_PATH"


class SpecialFile(FileRefusal):
    """Not a regular file: a folder, FIFO, device or socket."""

    code = "SPECIAL_FILE"


class NotText(FileRefusal):
    """The content is no UTF-8 text."""

    code = "NOT_TEXT"


class ImageUnseen(FileRefusal):
    """An image, and the caller said that its model sees none."""

    code = "IMAGE_UNSEEN"


class TooLarge(FileRefusal):
    """Over the limit of the operation."""

    code = "TOO_LARGE"
    origin = "limit"


class NotObserved(FileRefusal):
    """The session has not seen the file that it wants to change."""

    code = "FS_NOT_OBSERVED"
    origin = "rule"


class StaleVersion(FileRefusal):
    """The file changed after it was seen; `data` holds what stands there now."""

    code = "FS_STALE_VERSION"
    origin = "rule"


class AlreadyExists(FileRefusal):
    """What should be created is there already."""

    code = "ALREADY_EXISTS"


class NoMatch(FileRefusal):
    """The text to replace is not in the file; `data` shows the nearest lines."""

    code = "NO_MATCH"


class AmbiguousMatch(FileRefusal):
    """The text to replace is there more than once; `data` counts and shows the places."""

    code = "AMBIGUOUS_MATCH"


class OversizedMatch(FileRefusal):
    """Only a match far larger than the text that was named."""

    code = "OVERSIZED_MATCH"


class PatchBroken(FileRefusal):
    """The text cannot be read as a patch."""

    code = "PATCH_BROKEN"


class PatchMismatch(FileRefusal):
    """A hunk's lines are not in the file, or in more than one place."""

    code = "PATCH_MISMATCH"


class FileBusy(FileRefusal):
    """Another writer holds the file's lock."""

    code = "FILE_BUSY"
    origin = "limit"
    retryable = True


class ChangeUnknown(FileRefusal):
    """No change of this id or run is kept (any more)."""

    code = "CHANGE_UNKNOWN"
    origin = "client"


class Fault(SandboxdError):
    """Our machinery failed, or the system beneath it (a full disk, a vanished folder).

    `str(fault)` is safe to show, `hint` says what may help; the cause is chained, never sent.
    """

    code: ClassVar[str] = "FAULT"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def for_model(refusal: Refusal | Fault) -> str:
    """The refusal as a model reads it: the fact with its code, the hint, and how to go on.

    The one place that adds a recovery sentence and the lines that `data` holds; on the wire there
    are code, message, hint and data.
    """
    hint = f"\nhint: {refusal.hint}" if refusal.hint else ""
    if isinstance(refusal, Fault):
        return f"failed: {refusal} ({refusal.code}){hint}"
    recovery = f"\n{refusal.recovery}" if refusal.recovery else ""
    return f"{refusal.message} ({refusal.code}){hint}{recovery}{_lines_of(refusal.data or {})}"


def _lines_of(data: dict[str, Any]) -> str:
    """Real lines of a file that a refusal carries: a model cannot act on what it does not see."""
    for name in ("lines", "nearest"):
        found = data.get(name)
        if isinstance(found, list):
            found = "\n".join(map(str, found))
        if found:
            return f"\n\n{found}".rstrip("\n")
    return ""


def _collect(kind: type[Refusal]) -> dict[str, type[Refusal]]:
    found = {kind.code: kind}
    for child in kind.__subclasses__():
        found.update(_collect(child))
    return found


_BY_CODE = _collect(Refusal)
