"""The frozen vocabulary that stages hand to each other; no behaviour beyond small questions.

It is one module so that `request -> classify -> decide -> confine -> spawn -> output -> reply`
can be read as types. Stages import this and never each other. The structs are msgspec structs:
the same definition is the model, the wire format and the JSON Schema.

This file is long because the vocabulary is one: split, its parts would import each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import Struct

# --------------------------------------------------------------------------- classify


class CommandClass(StrEnum):
    """What a command would do. The order of definition is the order of severity."""

    severity: int

    def __new__(cls, value: str) -> CommandClass:
        member = str.__new__(cls, value)
        member._value_ = value
        member.severity = len(cls.__members__)
        return member

    READ_ONLY = "read_only"
    MUTATING = "mutating"
    DESTRUCTIVE = "destructive"


READ_ONLY, MUTATING, DESTRUCTIVE = CommandClass
"""The same by short names; before Python 3.12 reading one off its class is a function call."""


def worst(classes: Iterable[CommandClass]) -> CommandClass:
    """A compound is as bad as its worst part; nothing at all is read-only."""
    found = READ_ONLY
    for kind in classes:
        if kind.severity > found.severity:
            found = kind
    return found


Span = tuple[int, int]
"""Half-open range of character offsets in the command text (or in `shlex.join(argv)`)."""


class Word(Struct, frozen=True, kw_only=True, gc=False):
    """One shell word after our own unquoting of `source[span]`."""

    text: str
    """The exact value when `is_literal`; otherwise literal parts unquoted, expansions as written."""
    span: Span
    is_literal: bool = True
    """Nothing bash does can change the value: argv gets exactly `text`."""
    may_split: bool = False
    """May become no word or several: unquoted `$x` or `$(..)`, a glob, `"$@"`."""
    has_glob: bool = False
    may_be_option: bool = False
    """Not literal and the value could begin with `-` (a leading expansion or glob)."""


class Redirect(Struct, frozen=True, kw_only=True, gc=False):
    operator: str
    """As written without the descriptor: `<`, `>`, `>>`, `>|`, `<>`, `&>`, `&>>`, `>&`, `<&`, `<<`, `<<-`, `<<<`."""
    target: Word | None = None
    """None for here-documents."""
    descriptor: int | None = None
    body: str | None = None
    """The body of a here-document, tabs already stripped for `<<-`."""
    is_literal_body: bool = True


class Assignment(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    value: Word | None = None
    """None for an array value."""
    has_subscript: bool = False
    is_append: bool = False


class SimpleCommand(Struct, frozen=True, kw_only=True, gc=False):
    """One simple command as the parser found it; compounds are flattened around it."""

    words: tuple[Word, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    span: Span = (0, 0)
    piped_from: tuple[str, ...] = ()
    """Names of the commands whose output is its stdin, nearest last (empty: not in a pipe)."""
    is_piped_to: bool = False
    """Whether its stdout is a pipe."""


class Grade(Struct, frozen=True, kw_only=True, gc=False, rename={"class_": "class"}):
    """What the tables say about one simple command, its redirects and assignments included."""

    class_: CommandClass
    rule: str
    """Which entry decided: `git.branch`, `rm`, `redirect`, `assignment`, `unknown-command`, ..."""
    reason: str
    is_cacheable: bool = True
    parts: tuple[Part, ...] = ()
    """Commands found inside (a wrapper's command, `sh -c` text), graded each."""
    read_paths: tuple[str, ...] = ()
    write_paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    """Every program name that would be looked up on PATH (builtins and keywords are not)."""
    exit_meaning: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_git_reader: bool = False
    changes_meaning: bool = False
    """Changes what later commands mean: `cd` to a non-literal, `set`, `export`, `source`, `alias`."""
    changes_directory_to: str | None = None
    """The literal folder of a `cd`, so that later units are keyed on where they run."""


class Reason(Struct, frozen=True, gc=False):
    """Why the verdict is not milder: the rule that decided, in words a person understands."""

    rule: str
    message: str
    span: Span | None = None


class Part(Struct, frozen=True, gc=False, rename={"class_": "class"}):
    """One simple command of the text (also inside substitutions, functions and loops)."""

    span: Span
    command: str
    class_: CommandClass
    rule: str
    reason: str


class Verdict(Struct, frozen=True, kw_only=True, gc=False, rename={"class_": "class"}):
    """What the command would do, and why. It never refuses anything."""

    class_: CommandClass
    parsed: bool
    cacheable: bool
    """Whether an approval of this may be remembered for the session."""
    reasons: tuple[Reason, ...] = ()
    parts: tuple[Part, ...] = ()
    read_paths: tuple[str, ...] = ()
    write_paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    approval_key: str | None = None
    """Digest over everything an approval must cover; None when it may not be remembered."""
    unit_keys: tuple[str, ...] = ()
    """Keys of the top-level pipelines, each rememberable by itself; empty when only the whole is."""
    exit_meaning: dict[str, str] = msgspec.field(default_factory=dict)
    """Exit codes of the last command that are answers, not failures (`{"1": "no match"}`)."""
    git_hardening: bool = False
    """A read-only git run: launch it with the neutralising git environment."""


# --------------------------------------------------------------------------- decide


class Action(StrEnum):
    """What we do about it."""

    ALLOW = "allow"
    ASK = "ask"
    REFUSE = "refuse"


ApprovalMode = Literal["standard", "trust-sandbox", "ask-all", "never"]
Approve = Literal["none", "mutating", "all"]
"""The caller's own word in advance: nothing, up to mutating, or everything."""
Answer = Literal["once", "session", "deny", "stop"]


class Decision(Struct, frozen=True, kw_only=True):
    action: Action
    mode: ApprovalMode
    reasons: tuple[str, ...]
    approved_by: str | None = None
    """`caller` (--approve), `session` (remembered) or `person`."""


# --------------------------------------------------------------------------- policy


class NetworkMode(StrEnum):
    """What a run may reach. `allowlist` and `open` go through the daemon's relay."""

    OFF = "off"
    """A loopback of its own and nothing else."""
    ALLOWLIST = "allowlist"
    """The hosts that are named."""
    OPEN = "open"
    """The internet; not this host's loopback, private networks or cloud metadata, unless named."""
    HOST = "host"
    """The host's own network."""


REFUSED_RANGES = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
)
"""What the relay refuses unless it is named: this host, private networks, link-local addresses and
with them cloud metadata. Documentation ranges are not among them."""
PROXY_PORT = 3128
"""Where the proxy listens on the 127.0.0.1 of a run."""


class EgressRules(Struct, frozen=True, kw_only=True):
    """Which hosts a run may reach through the relay; a deny wins over every allow.

    An entry is `host`, `*.domain`, an address or an address range, each with `:port` or without.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    allow_private: bool = False
    """Private ranges may be reached. Loopback and link-local addresses are not among them."""
    publish: tuple[int, ...] = ()
    """TCP ports of the run that are reachable on the host's 127.0.0.1."""
    host_ports: tuple[int, ...] = ()
    """TCP ports of the host's loopback that `allow` names: the run reaches them on its own."""


UnixSockets = Literal["none", "workspace"]
"""Whether a run may use Unix stream sockets in its workspace and temporary folder."""


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resource limits of one run; None leaves the system's own. Units stand in the names."""

    wall_s: float | None = None
    cpu_s: int | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    open_files: int | None = None
    file_bytes: int | None = None
    output_bytes: int | None = None
    """How much of its output a reply carries, head and tail together; the rest is kept."""


class Redacted(Struct, frozen=True, kw_only=True):
    """A configuration file that is to be shown with its secrets taken out."""

    path: str
    as_: str
    """How it is read: a word of `profiles.schema.CopyFormat`."""
    otherwise: Literal["hide", "show"] = "hide"
    """In a tier that cannot show a changed copy."""


class ShownCopy(Struct, frozen=True, kw_only=True):
    """What a run sees in place of a file: the same without its secrets."""

    path: str
    """Where the file really lies, links resolved."""
    text: str


class Policy(Struct, frozen=True, kw_only=True):
    """What one run may touch: a profile with its variables filled in. All paths absolute."""

    profile: str
    workspace: str
    writable: tuple[str, ...]
    """Roots that may be written, the workspace first. Existing folders."""
    denied: tuple[str, ...] = ()
    """Files and folders that must look absent or empty. They may not exist."""
    redacted: tuple[Redacted, ...] = ()
    """Files to be shown without their secrets; what became of each is in `shown` or `denied`."""
    shown: tuple[ShownCopy, ...] = ()
    """Copies that a run sees in place of the files."""
    protected: tuple[str, ...] = ()
    """Names inside writable roots that stay read-only because they run later, outside."""
    pinned: tuple[str, ...] = ()
    """Folders around protected names: writable, but neither renamed nor removed. Outer ones first."""
    own: tuple[str, ...] = ()
    """sandboxd's own code and interpreter where they lie in a writable root (also in `protected`)."""
    private_tmp: str
    """The session's own temporary folder on the host; where there is a mount namespace it is /tmp."""
    visible: tuple[str, ...] = ()
    """Folders under the host's /tmp that stay visible, read-only (programs on PATH, the interpreter)."""
    network: NetworkMode = NetworkMode.HOST
    egress: EgressRules = EgressRules()
    unix_sockets: UnixSockets = "workspace"
    limits: Limits = Limits()
    approval: ApprovalMode = "standard"
    min_tier: str | None = None
    owner: tuple[int, int] | None = None
    """(uid, gid) that the run acts as when we are root: the workspace's owner. None: ourselves."""
    notes: tuple[str, ...] = ()
    """What this policy leaves open whatever the tier, in words; becomes part of the gaps."""


class Invocation(Struct, frozen=True, kw_only=True):
    """What is to be executed, before any tier has shaped it."""

    program: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    cwd: str
    umask: int = 0o022
    has_terminal: bool = False
    """It will run on a pty of its own."""


# --------------------------------------------------------------------------- confine

TIER_NAMES: tuple[str, ...] = (
    "seatbelt",
    "namespaces",
    "bubblewrap",
    "landlock",
    "inherited",
    "containment",
)
"""Strongest first. `inherited`: nothing could be added to a sandbox that we already live in."""


class Tier(Struct, frozen=True, kw_only=True):
    """The tier that was really enforced, what it holds, and what it leaves open."""

    name: str
    kernel: bool
    enforces: tuple[str, ...]
    gaps: tuple[str, ...]
    why_not_stronger: tuple[str, ...] = ()


class ProbeResult(Struct, frozen=True, kw_only=True):
    """One rung of the ladder, really run."""

    tier: str
    available: bool
    seconds: float
    cause: str | None = None
    remedy: str | None = None


class MountStep(Struct, frozen=True):
    """One step of building the run's view of the file system, in order.

    `bind`      path stays (or becomes) visible and writable; `source` when it comes from elsewhere
    `pin`       path is bound on itself, so that it can be neither renamed nor removed
    `readonly`  path is bound on itself and made read-only (skipped when absent)
    `visible`   path is shown read-only although a parent was covered (skipped when absent)
    `blank`     path is covered by an empty unreadable folder or file (skipped when absent)
    `tmp`       the private temporary folder `source` becomes `path`
    `dev`       a private /dev with its own devpts
    `proc`      a /proc of the run's own pid namespace, its dangerous parts read-only
    `text`      the file at path is covered by one that holds the text `source` (skipped when absent)
    `copy`      the same for a file without its secrets; once the host replaces it, it is hidden
    """

    kind: Literal[
        "bind", "pin", "readonly", "visible", "blank", "tmp", "dev", "proc", "text", "copy"
    ]
    path: str
    source: str | None = None


class LandlockRules(Struct, frozen=True, kw_only=True):
    """Path rules by kind of access (landlock(7)); everything handled and not granted is denied."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """Character devices and pty folders: read, write and IOCTL_DEV without creating."""
    abi: int | None = None
    """Use nothing newer than this version of Landlock; None: all that the kernel has."""
    shown: tuple[str, ...] = ()
    """Files that may be read as they are in the run's own view, once it is built: copies in memory."""
    list: tuple[str, ...] = ()
    """Folders whose names may be listed, also those of all folders below."""
    version: int = 0
    """Another number whenever `read` was computed anew: what was made ready for one holds for it
    alone. 0: nothing is to be made ready."""


class NetworkSetup(Struct, frozen=True, kw_only=True):
    """What init makes in the run's own network namespace and hands to the daemon."""

    carries: Literal["everything", "proxy", "nothing"]
    """`everything`: all TCP and DNS arrive at sockets of the daemon; `proxy`: only what programs
    send to the proxy's port does; `nothing`: there is a loopback."""
    has_ipv6_source: bool = False
    """Give `lo` an IPv6 address that is not loopback, so that look-ups ask for AAAA records."""
    unreachable: tuple[str, ...] = ()
    """Address ranges that fail at connect(2) at once."""
    proxy_port: int | None = None
    """Listen here, on the run's 127.0.0.1, for the daemon's proxy."""
    host_ports: tuple[int, ...] = ()
    """Listen on these ports of the run's loopback too, for the daemon to lead to the host's."""
    publish_pool: int = 0
    """How many unconnected sockets to hand out, for connections into the run."""


class Pty(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A terminal of the run's own: its size in characters, and which of fds 0 to 2 it is."""

    cols: int = 80
    rows: int = 24
    fds: tuple[Literal[0, 1, 2], ...] = (0, 1, 2)


class Maker(Struct, frozen=True, kw_only=True):
    """A helper that makes the namespaces of a run, which init then enters."""

    program: str
    argv: tuple[str, ...]
    passed: dict[int, bytes]
    """Descriptors that it inherits besides 0 to 2, each with this content."""
    status_fd: int
    """One of `passed`: where it tells which process is pid 1."""
    roots: tuple[tuple[str, str], ...] = ()
    """Folders as the run sees them and as they are named outside; another folder there ends it."""
    has_proc: bool = True
    """Whether /proc of the view shows the processes of the run."""


class LaunchPlan(Struct, frozen=True, kw_only=True):
    """Exactly what will be set up for one run; pure data, made by `tier.plan()`."""

    tier: Tier
    argv: tuple[str, ...]
    """Resolved: `argv[0]` is what the program sees, `program` is what is executed."""
    program: str
    environment: dict[str, str]
    cwd: str
    umask: int = 0o022
    rlimits: dict[str, int] = msgspec.field(default_factory=dict)
    """Names of resource.RLIMIT_* constants without the prefix, soft and hard alike."""
    namespaces: tuple[str, ...] = ()
    """Subset of user, mount, pid, ipc, uts, net."""
    network: NetworkSetup | None = None
    """Set up in a network namespace; None where there is none."""
    inside_ids: tuple[int, int] | None = None
    """(uid, gid) that the run sees; None keeps the caller's."""
    outside_ids: tuple[int, int] | None = None
    """(uid, gid) on the host that they map to: the workspace's owner when we are root."""
    mounts: tuple[MountStep, ...] = ()
    """With a `maker` only what is to be covered again when the host replaces it."""
    maker: Maker | None = None
    """Makes the namespaces in our place; `namespaces` is empty then."""
    landlock: LandlockRules | None = None
    seccomp: bytes | None = None
    """A whole struct sock_filter array for this machine's architecture."""
    connect_roots: tuple[str, ...] | None = None
    """Init performs connect(2) for the run: Unix sockets beneath these folders, every other family.
    None: the filter supervises nothing."""
    connect_secret: tuple[int, int] = (0, 0)
    """The words in the filter that init replaces by random ones of its own."""
    drop_privileges: bool = True
    """Empty every capability set and set no_new_privs."""
    passed: dict[int, bytes] = msgspec.field(default_factory=dict)
    """Descriptors that the leader inherits besides 0 to 2, each with this content."""
    status_fd: int | None = None
    """One of `passed`: the leader is a helper that tells there about the program beneath it."""
    pty: Pty | None = None
    """Made by init and handed to the daemon; the program is in its foreground."""
    keeps_background: bool = False
    """What outlives the leader is left alone until it ends or is ended."""
    tells_cwd: bool = False
    """The leader stops itself at its end, for init to see which folder it stands in."""


# --------------------------------------------------------------------------- request


class ExecRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`command.exec`: shell text in `command` or an argument vector in `argv`, never both.

    `env` overlays the session's base environment; a null unsets. `stdin` is text, `stdin_b64`
    bytes; with neither, and without `stdin_open`, the run reads /dev/null.
    """

    command: str | None = None
    argv: tuple[str, ...] | None = None
    run_id: str | None = None
    cwd: str | None = None
    env: dict[str, str | None] = msgspec.field(default_factory=dict)
    env_pass: tuple[str, ...] = ()
    profile: str | None = None
    tier: str | None = None
    min_tier: str | None = None
    approve: Approve = "none"
    timeout_s: float | None = None
    stdin: str | None = None
    stdin_b64: str | None = None
    stdin_open: bool = False
    """The caller will send input with `command.write` and end it with `eof`."""
    head_bytes: int | None = None
    tail_bytes: int | None = None
    head_lines: int | None = None
    """Lines of the head and of the tail at most, within their bytes; null means as many as fit."""
    tail_lines: int | None = None
    merge: bool = False
    keep_background: bool = False
    """Answer when the program ends and let what it left behind live: it is listed in `left_running` and
    ends by itself, by `command.terminate`, or with its session. Its later output is kept, not sent."""
    stream: Literal["none", "lines", "raw"] = "none"
    """Send `command.output` notifications, as rendered lines or as the bytes themselves."""
    pace: bool = False
    """With `stream: raw`: hold the command back rather than leave output out for a slow reader."""
    limits: Limits | None = None
    allow_hosts: tuple[str, ...] = ()
    """Hosts this run may reach beyond those its profile names (`host`, `*.domain`, address, `:port`)."""
    publish: tuple[int, ...] = ()
    """TCP ports of the run to make reachable on the host's 127.0.0.1."""
    escalation: str | None = None
    """The token of a denial: ask a person to let the same command run without the sandbox."""
    approval_wait_s: float | None = None
    """How long to wait for a person's answer when one must be asked; null: ten minutes."""
    learn: bool = False
    """Answer with the smallest profile that this run needed, in `learned`."""
    pty: Pty | None = None
    """Run it on a terminal of its own. What it prints there is the stream `output`; `eof` types the
    end-of-file character."""


class Escalation(Struct, frozen=True, kw_only=True):
    """The way to ask for this very command again without the sandbox: `command.exec {escalation}`."""

    token: str
    expires_s: float


class Denial(Struct, frozen=True, kw_only=True):
    """Why the sandbox is thought to have said no; `evidence` grades how sure that is.

    `kernel`: it refused a system call. `proxy`: our relay refused a connection. `policy`: the output
    names a path, and a probe under the same plan is refused there and not outside. `text`: words only,
    which any program can print.
    """

    evidence: Literal["kernel", "proxy", "policy", "text"]
    rule: str
    path: str | None = None
    host: str | None = None
    hint: str | None = None
    escalation: Escalation | None = None
    """A person may be asked to let it run without the sandbox; not offered on words alone."""


class EscalationAsk(Struct, frozen=True, kw_only=True):
    """The question is to run the command again, from the beginning, without a sandbox."""

    denial: Denial
    tier: str
    """The tier that stopped it."""
    ran: str
    """How far it got, in words: what it did already is done."""


class ApprovalAsk(Struct, frozen=True, kw_only=True):
    """What a person sees before they answer."""

    request_id: str
    command: str
    verdict: Verdict
    tier: Tier
    writes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    creates: tuple[str, ...] = ()
    """Folders that would have to be made for what it writes."""
    loses: str | None = None
    """For a destructive command: what would be gone."""
    diff: str | None = None
    """For a change of a file: what would change."""
    marks: tuple[Span, ...] = ()
    """The parts of `command` that decide its class."""
    reasons: tuple[str, ...] = ()
    """Why a person is asked."""
    may_remember: bool = False
    """Whether `session` may be answered; it counts as `once` otherwise."""
    session_id: str = ""
    workspace: str = ""
    cwd: str = ""
    escalation: EscalationAsk | None = None


class ApprovalReply(Struct, frozen=True, kw_only=True):
    """`stop` denies and asks the caller to end its turn; a reason reaches the model."""

    answer: Answer
    reason: str | None = None


# --------------------------------------------------------------------------- spawn


class Usage(Struct, frozen=True, kw_only=True):
    user_s: float = 0.0
    system_s: float = 0.0
    max_rss_bytes: int = 0


class Exit(Struct, frozen=True, kw_only=True):
    """How a run ended. `code` is 128 + n when signal n ended it."""

    code: int
    signal: int | None = None
    usage: Usage = Usage()
    survivors: int = 0
    """Processes that outlived the leader and were killed."""


# --------------------------------------------------------------------------- output


class Captured(Struct, frozen=True, kw_only=True):
    """One stream as a person would read it: head, a marker with true counts, tail."""

    text: str
    total_bytes: int
    total_lines: int
    omitted_bytes: int = 0
    omitted_lines: int = 0
    output_id: str | None = None


# --------------------------------------------------------------------------- reply


Layer = Literal["agent", "harness", "workflow", "environment", "provider", "operator", "unknown"]
Origin = Literal["gate", "rule", "sandbox", "limit", "host", "tool", "client"]


class Attribution(Struct, frozen=True, kw_only=True):
    """The one layer a failure belongs to."""

    primary: Layer
    origin: Origin
    reason: str
    """A name that stays the same from release to release: `exit_status`, `limit.wall`, ..."""
    detail: str | None = None
    """The same in a sentence, where there is more to say."""


class LeftRunning(Struct, frozen=True, kw_only=True):
    """A process that was left in the background: the host's pid, and its command line, shortened."""

    pid: int
    command: str


class Result(Struct, frozen=True, kw_only=True, omit_defaults=False):
    """The reply to `command.exec`, and the object that `exec --json` prints."""

    run_id: str
    exit_code: int
    signal: str | None = None
    timed_out: bool = False
    duration_s: float
    cwd: str
    """Where shell text ended up after its `cd`, for the next command to begin in; else where it began."""
    tier: Tier
    unconfined: bool = False
    """It ran without a sandbox: a person let it (`escalation`)."""
    verdict: Verdict
    decision: Decision
    stdout: Captured | None = None
    stderr: Captured | None = None
    output: Captured | None = None
    """stdout and stderr in arrival order, when the request said `merge`."""
    denial: Denial | None = None
    limit: str | None = None
    survivors: int = 0
    left_running: tuple[LeftRunning, ...] = ()
    """With `keep_background`: the survivors, which were not killed."""
    set_aside: tuple[str, ...] = ()
    """Protected names that appeared or changed during the run and were moved out of the way."""
    notices: tuple[str, ...] = ()
    """What happened to protected names, a sentence each: set aside where, kept why, put back."""
    refreshed: tuple[str, ...] = ()
    """Files seen before that this run has changed: what was read of them is out of date."""
    scrubbed_env: tuple[str, ...] = ()
    learned: str | None = None
    """For `learn`: a profile, as YAML for a person to read and edit."""
    usage: Usage = Usage()
    exit_meaning: str | None = None
    """What a nonzero exit code answers (`no match`): the command has not failed then."""
    attribution: Attribution | None = None
    """Whose failure it is; null when nothing failed."""


# --------------------------------------------------------------------------- files


class Hunk(Struct, frozen=True, kw_only=True):
    """Lines that changed, with what stands around them; each begins with ` `, `-` or `+`."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: tuple[str, ...]


class Diff(Struct, frozen=True, kw_only=True):
    """What a change did to the lines of one file."""

    added: int = 0
    removed: int = 0
    hunks: tuple[Hunk, ...] = ()
    is_abridged: bool = False
    """Lines beyond the limit are counted and not listed."""


class Image(Struct, frozen=True, kw_only=True):
    """A picture; `width` and `height` are None where its header does not say."""

    media_type: str
    width: int | None
    height: int | None
    total_bytes: int
    data_b64: str


class Skipped(Struct, frozen=True):
    """What a walk could not look at."""

    path: str
    reason: str


FileKind = Literal["file", "folder", "link", "other"]


class FileEntry(Struct, frozen=True, kw_only=True):
    """One name in a folder."""

    name: str
    kind: FileKind
    size: int | None = None
    """Bytes of a file."""
    target: str | None = None
    """Where a link points, as it is written in it."""


class FileCount(Struct, frozen=True, kw_only=True):
    """A file that matches, and in how many of its lines."""

    path: str
    count: int


class GrepWindow(Struct, frozen=True, kw_only=True):
    """Neighbouring lines of one file; contexts that touch are one window."""

    path: str
    first_line: int
    lines: tuple[str, ...]
    matches: tuple[int, ...]
    """The numbers of the lines that match."""
