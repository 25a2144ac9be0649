"""What travels on the wire beside the model: parameters and results of every method.

A module of its own because these structs are the protocol's surface: `sandboxd schema` and
`docs/protocol.md` are generated from them. Parameters refuse unknown names; results may grow,
so readers ignore names they do not know. Names on the wire are stable: add, never rename.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

from sandboxd.model import Answer, ApprovalAsk, Approve, Limits, Tier, Verdict

PROTOCOL_VERSION = 1

RunState = Literal[
    "waiting_for_approval", "running", "stopped", "waiting_for_input", "polls_input", "exited"
]
TerminalState = Literal[
    "waiting_for_input", "polls_input", "at_prompt", "running", "unknown", "exited"
]
StreamName = Literal["stdout", "stderr", "output"]


class Params(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Root of parameters: strict about names, silent about what was not said."""


class Reply(Struct, frozen=True, kw_only=True):
    """Root of results: every field is written out, so that readers need no defaults."""


class Empty(Params, frozen=True, kw_only=True):
    """No parameters."""


class Done(Reply, frozen=True, kw_only=True):
    """Nothing to say beyond that it was done."""


# --------------------------------------------------------------------------- initialize


class ClientInfo(Params, frozen=True, kw_only=True):
    name: str
    version: str = ""


class Capabilities(Params, frozen=True, kw_only=True):
    """What the client can do for the server."""

    approvals: bool = False
    """Answers `approval.request` by asking a person."""
    own_terminal: bool = False
    """With `approvals`: that person sits at the terminal of this one command, so an attached approver
    (`approval.attach`) is asked before."""
    images: bool | None = None
    """Whether its model sees pictures: false has them refused with a reason; null says nothing."""


class Initialize(Params, frozen=True, kw_only=True):
    """Opens a session, or joins one by id. Once per connection, before anything that runs."""

    protocol_version: int
    client: ClientInfo | None = None
    capabilities: Capabilities = Capabilities()
    workspace: str | None = None
    """Absolute path. Null: the top of the checkout that holds `cwd`, else `cwd`."""
    cwd: str | None = None
    """Where commands without a `cwd` run; null means the workspace."""
    profile: str | None = None
    session_id: str | None = None
    env: dict[str, str] | None = None
    """The base environment of this connection's commands."""


class ServerInfo(Reply, frozen=True, kw_only=True):
    name: str
    version: str


class Initialized(Reply, frozen=True, kw_only=True):
    protocol_version: int
    server: ServerInfo
    session_id: str
    tier: Tier
    profile: str
    workspace: str


# --------------------------------------------------------------------------- classify


class Classify(Params, frozen=True, kw_only=True):
    """Shell text in `command` or an argument vector in `argv`, never both."""

    command: str | None = None
    argv: tuple[str, ...] | None = None
    cwd: str | None = None
    env: dict[str, str | None] | None = None
    shell: str = "bash"


# --------------------------------------------------------------------------- commands


class CommandWrite(Params, frozen=True, kw_only=True):
    """Input for a running command; answered when its pipe has taken everything."""

    run_id: str
    text: str | None = None
    bytes_b64: str | None = None
    eof: bool = False
    """No more input after this."""


class CommandTerminate(Params, frozen=True, kw_only=True):
    run_id: str
    signal: str = "TERM"
    """A signal name, with or without SIG."""


class CommandResize(Params, frozen=True, kw_only=True):
    """The new size of the pty of a running command."""

    run_id: str
    cols: int
    rows: int


class CommandOutput(Params, frozen=True, kw_only=True):
    """A piece of live output. `lines` when rendered, `bytes_b64` when raw."""

    run_id: str
    stream: StreamName
    lines: tuple[str, ...] | None = None
    bytes_b64: str | None = None
    gap_bytes: int = 0
    """Bytes of the run left out before this piece, because the client read too slowly."""
    gap_lines: int = 0


class CommandState(Params, frozen=True, kw_only=True):
    """What a run is doing now. A run with neither live output nor open stdin that is over within
    50 ms sends none: its result says it all. `waiting_for_input` and `polls_input` are told when one
    whose stdin is open, or that has a pty, comes to a stop there, `running` when it has gone on, and
    `stopped` when job control has stopped it. `waiting_for_approval` comes before all of them, when
    somebody other than this client is asked; `request_id` names the question then."""

    run_id: str
    state: RunState
    password: bool = False
    """It reads a line that is not shown."""
    request_id: str | None = None


class Cancel(Params, frozen=True, kw_only=True):
    """Ends a running call: it answers with the refusal CANCELLED once its tree is dead."""

    id: int | str


# --------------------------------------------------------------------------- approvals


class ApprovalEntry(Reply, frozen=True, kw_only=True):
    """A question that waits for its answer."""

    ask: ApprovalAsk
    asked_of: Literal["client", "approver", "terminal"]
    """Who is asked now: a client of its callers, the attached approvers, a command's own terminal."""
    waits_s: float
    callers: int
    """Calls that wait for this one answer."""


class ApprovalListing(Reply, frozen=True, kw_only=True):
    requests: tuple[ApprovalEntry, ...]


class ApprovalResolve(Params, frozen=True, kw_only=True):
    request_id: str
    answer: Answer
    reason: str | None = None


class ApprovalResolved(Reply, frozen=True, kw_only=True):
    """The answer as it counts; null when it needs none any more: its callers have gone or given up."""

    request_id: str
    answer: Answer | None = None


# --------------------------------------------------------------------------- terminals


class TerminalStart(Params, frozen=True, kw_only=True):
    """Shell text in `command` or an argument vector in `argv`; neither starts bash."""

    command: str | None = None
    argv: tuple[str, ...] | None = None
    terminal_id: str | None = None
    cwd: str | None = None
    cols: int = 80
    rows: int = 24
    env: dict[str, str | None] = {}
    env_pass: tuple[str, ...] = ()
    profile: str | None = None
    tier: str | None = None
    min_tier: str | None = None
    approve: Approve = "none"
    timeout_s: float | None = None
    limits: Limits | None = None
    allow_hosts: tuple[str, ...] = ()
    publish: tuple[int, ...] = ()


class TerminalStarted(Reply, frozen=True, kw_only=True):
    terminal_id: str
    tier: Tier
    verdict: Verdict


class TerminalNamed(Params, frozen=True, kw_only=True):
    terminal_id: str


class TerminalRead(Params, frozen=True, kw_only=True):
    """What has come since the last read."""

    terminal_id: str
    wait_s: float = 0.0
    """How long to wait for the program to need input or to end; at most 60."""


class TerminalReading(Reply, frozen=True, kw_only=True):
    """Rows that are final, rows that may still change, and what the program does."""

    lines: tuple[str, ...]
    """Final rows since the last read."""
    live: tuple[str, ...]
    """The last rows as they stand now; they come again until they are final."""
    state: TerminalState
    password: bool = False
    """It reads a line that is not shown while it is typed."""
    exit_code: int | None = None
    gap_lines: int = 0
    gap_bytes: int = 0
    """Rows that made room before anybody read them."""
    note: str
    """What reading again will and will not change."""


class TerminalWrite(Params, frozen=True, kw_only=True):
    """Text as it is, keys by name (`enter`, `up`, `ctrl-c`, ...), or bytes. A line that a shell would
    run is judged like a command; `approve` is the caller's own word for it in advance."""

    terminal_id: str
    text: str | None = None
    keys: tuple[str, ...] | None = None
    bytes_b64: str | None = None
    approve: Approve = "none"


class TerminalResize(Params, frozen=True, kw_only=True):
    terminal_id: str
    cols: int
    rows: int


class TerminalKill(Params, frozen=True, kw_only=True):
    """Without a signal the whole tree is ended; with one, what is in the foreground gets it."""

    terminal_id: str
    signal: str | None = None


class TerminalEntry(Reply, frozen=True, kw_only=True):
    terminal_id: str
    command: str
    state: Literal["running", "exited"]
    exit_code: int | None
    cols: int
    rows: int


class TerminalListing(Reply, frozen=True, kw_only=True):
    terminals: tuple[TerminalEntry, ...]


class TerminalOutput(Params, frozen=True, kw_only=True):
    """Bytes of a terminal that this connection is attached to, as they come."""

    terminal_id: str
    bytes_b64: str
    gap_bytes: int = 0


# --------------------------------------------------------------------------- listings


class TierStatus(Reply, frozen=True, kw_only=True):
    """One rung of the ladder, really run."""

    tier: Tier
    available: bool
    seconds: float
    cause: str | None = None
    remedy: str | None = None


class TierListing(Reply, frozen=True, kw_only=True):
    tiers: tuple[TierStatus, ...]


class SessionEntry(Reply, frozen=True, kw_only=True):
    session_id: str
    workspace: str
    profile: str
    cwd: str
    clients: int = 0
    """Connections that have it open."""
    terminals: int = 0
    idle_s: float = 0.0
    """Since somebody last ran something in it or left it."""
    lasting: bool = False
    """It stays until it has been idle for a day; others go ten minutes after their last client."""


class SessionListing(Reply, frozen=True, kw_only=True):
    sessions: tuple[SessionEntry, ...]


class SessionClose(Params, frozen=True, kw_only=True):
    session_id: str


class OutputRead(Params, frozen=True, kw_only=True):
    """A part of kept output, by line or by byte (from 1 and from 0); never both."""

    output_id: str
    from_line: int | None = None
    from_byte: int | None = None
    count: int | None = None
    """Lines or bytes; null means as many as one reply carries."""
    raw: bool = False
    """Answer with the bytes themselves in `bytes_b64`."""


class OutputPart(Reply, frozen=True, kw_only=True):
    text: str | None = None
    bytes_b64: str | None = None
    total_bytes: int
    total_lines: int


class Status(Reply, frozen=True, kw_only=True):
    server: ServerInfo
    pid: int
    socket: str | None
    """Null over stdio and in process."""
    uptime_s: float
    sessions: int
    connections: int
    runs: int
    max_rss_bytes: int
    rss_bytes: int = 0
    open_files: int = 0
    calls: int = 0
    """Calls that are being answered or wait to be, over all connections."""
    queued_bytes: int = 0
    """What waits to be sent to clients that read slowly."""
    approvals: int = 0
    """Questions that wait for a person."""
    terminals: int = 0


# --------------------------------------------------------------------------- profiles


class ProfileShow(Params, frozen=True, kw_only=True):
    """The session's own profile, or another in its place."""

    profile: str | None = None
    """A name, or the absolute path of a file."""
    tier: str | None = None
    """Also the launch plan as this tier would set it up."""


class ProfileValue(Reply, frozen=True, kw_only=True):
    """One value, or one entry of a list, and where it stands; null: no file says it."""

    key: str
    value: str
    why: str = ""
    file: str | None = None
    line: int | None = None


class ProfileShown(Reply, frozen=True, kw_only=True):
    """The merged profile."""

    profile: str
    layers: tuple[str, ...]
    """The files it was merged from, the nearest last."""
    values: tuple[ProfileValue, ...]
    plan: Raw
    """What `tier` would set up, by the names of the launch plan, its filter as base64; null without."""


class ProfileExplain(Params, frozen=True, kw_only=True):
    """Exactly one of `read`, `write`, `host` and `command`."""

    read: str | None = None
    write: str | None = None
    host: str | None = None
    """`host` or `host:port`."""
    command: str | None = None
    """Shell text."""
    profile: str | None = None
    tier: str | None = None


class Explanation(Reply, frozen=True, kw_only=True):
    """What would happen, which line decides, what to change."""

    allowed: bool
    """It would happen without anybody being asked."""
    outcome: str
    """One word: `readable`, `writable`, `denied`, `redacted`, `protected`, `reached`, `refused`,
    `allow`, `ask`, ..."""
    sentence: str
    rule: str | None = None
    """The key in the profile, or the rule of the command tables."""
    file: str | None = None
    line: int | None = None
    change: str = ""
    tier: str
