"""What may stand in one profile file, as types: the reader, its error messages and the JSON Schema
for editors all come from here.

The docstring below a field is what an editor shows. A value that is absent comes from the layer
beneath. Units stand in the names.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Struct

from sandboxd.model import ApprovalMode, NetworkMode

System = Literal["linux", "macos"]
CopyFormat = Literal["npmrc", "ini", "gitconfig", "json", "toml", "yaml", "maven"]
Otherwise = Literal["hide", "show"]
UnixSocketMode = Literal["none", "workspace"]
TierName = Literal["seatbelt", "namespaces", "bubblewrap", "landlock", "containment"]

HostPattern = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(\*|(\*\.)?[^\s:*/\[\]]+|[0-9.]+/[0-9]+|\[[0-9a-fA-F:.]+(/[0-9]+)?\]"
        r"|[0-9a-fA-F]*:[0-9a-fA-F:.]*(/[0-9]+)?)(:[0-9]{1,5})?$"
    ),
]
"""`host`, `*.domain`, `*`, an address or a range, each with `:port` or without."""
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Denied(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place that no run may read or write, and why."""

    path: str
    why: str = ""
    only: System | None = None
    """The operating system that has it; absent: all of them."""


class Redacted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"as_": "as"}):
    """A configuration file that is shown with its secrets taken out."""

    path: str
    as_: CopyFormat
    """How it is read. A file that cannot be read so is hidden."""
    otherwise: Otherwise = "hide"
    """What happens to it in a tier that cannot show a changed copy; the result says so."""
    why: str = ""
    only: System | None = None


class Files(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Paths begin with `/` or a variable; `protect` holds names in the workspace."""

    read: Literal["all"] | None = None
    """Everything that is not denied may be read."""
    write: tuple[str, ...] | None = None
    """Folders that may be written."""
    deny: tuple[str | Denied, ...] | None = None
    """Must look empty or absent. Added to what the layers beneath deny."""
    redact: tuple[Redacted, ...] | None = None
    """Configuration files shown without their secrets. Added to those of the layers beneath."""
    reveal: tuple[str, ...] | None = None
    """Entries of `deny` and `redact` of the layers beneath that are taken back, as written there."""
    protect: tuple[str, ...] | None = None
    """Names in the workspace that stay read-only, because they run later outside. Added."""
    read_roots: tuple[str, ...] | None = None
    """Where guarded file operations may look."""


class EnvironmentRules(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"pass_": "pass", "set_": "set"},
):
    """Names are shell patterns (fnmatch), compared without regard to case."""

    mode: Literal["scrub", "allowlist"] | None = None
    """`scrub`: everything passes but what `scrub` names; `allowlist`: only what `pass` names."""
    pass_: tuple[str, ...] | None = None
    """Names that pass whatever `scrub` says."""
    scrub: tuple[str, ...] | None = None
    """Names that are taken out. Added to those of the layers beneath."""
    set_: dict[str, str] | None = None
    """Variables of every run; ${TMP}, ${CACHE} and ${HOME} are filled in."""


class NetworkRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run may reach; a bare word stands for the mode."""

    mode: NetworkMode | None = None
    fallback: NetworkMode | None = None
    """For tiers and kernels that cannot enforce `mode`; it holds for the mode it is named with."""
    allow: tuple[HostPattern, ...] | None = None
    """Hosts that may be reached: `host`, `*.domain`, an address or a range, with `:port` or without."""
    deny: tuple[HostPattern, ...] | None = None
    """Hosts that may not, whatever is allowed. Added to those of the layers beneath."""
    allow_private: bool | None = None
    """Private networks may be reached."""
    publish: tuple[Port, ...] | None = None
    """Ports of a run that are reachable on the host's 127.0.0.1."""


class LimitRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resource limits of one run; absent leaves the system's own."""

    wall_s: Seconds | None = None
    """Real time."""
    cpu_s: Count | None = None
    """Processor time."""
    memory_bytes: Count | None = None
    processes: Count | None = None
    open_files: Count | None = None
    file_bytes: Count | None = None
    """Size of one written file."""
    output_bytes: Count | None = None
    """How much of its output a reply carries; the rest is kept and can be read."""
    cache_bytes: Count | None = None
    """What the session's temporary folder and caches may hold before it is reported."""


class ProfileFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file as written. What is absent comes from the layer beneath."""

    extends: str | None = None
    """The profile beneath: a name, or a file (with a slash in it) beside this one."""
    approval: ApprovalMode | None = None
    """Who is asked about what: see the README."""
    min_tier: TierName | None = None
    """The weakest tier that will do; without it, runs are refused rather than run weaker."""
    network: NetworkMode | NetworkRules | None = None
    unix_sockets: UnixSocketMode | None = None
    """Stream sockets in the folders that may be written, or none."""
    files: Files | None = None
    environment: EnvironmentRules | None = None
    limits: LimitRules | None = None
    commands: tuple[str, ...] | None = None
    """Further command tables."""
    rules: dict[str, dict[str, str | tuple[str, ...]]] | None = None
    """Options of the rules that judge every call, by rule and option; `enabled: false` turns one off."""

    @property
    def network_rules(self) -> NetworkRules:
        """`network` with a bare word spelled out."""
        if isinstance(self.network, NetworkMode):
            return NetworkRules(mode=self.network)
        return self.network or NetworkRules()
