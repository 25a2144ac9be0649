"""Why a tier does not hold on this host, and the exact thing to do about it.

A probe says what failed; these facts say why. They are read once, from files, and judged by
functions that touch nothing, so that every host can be tried on any host. Where no fact explains
the failure the tier's own general remedy stands.

Sources: user_namespaces(7), proc_sys_user(5), Documentation/userspace-api/landlock.rst; Ubuntu
24.04's kernel.apparmor_restrict_unprivileged_userns; Docker's and Podman's --security-opt.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass

import msgspec

from sandboxd.confine import bubblewrap
from sandboxd.model import ProbeResult

CAP_SYS_ADMIN, CAP_SETFCAP = 21, 31
NAMESPACES_SINCE = (5, 12)
"""mount_setattr(2), by which the view is made read-only."""
LANDLOCK_SINCE = (5, 13)
NO_NFTABLES = "network.nftables"
"""The step of the set-up that fails then."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What decides about tiers, as this process finds it. None: the host has no such switch."""

    release: str = "6.8.0"
    uid: int = 1000
    capabilities: int = 0
    """The effective set of this process."""
    has_seccomp_filter: bool = False
    """A filter was on before us: a container's, or another sandbox's."""
    max_user_namespaces: int | None = None
    unprivileged_userns_clone: int | None = None
    apparmor_restricts_userns: bool = False
    is_proc_masked: bool = False
    security_modules: tuple[str, ...] | None = None
    bwrap: str | None = "/usr/bin/bwrap"
    python: str = "/usr/bin/python3"

    @property
    def version(self) -> tuple[int, int]:
        """The kernel's version, (0, 0) when its release cannot be read."""
        found = re.match(r"(\d+)\.(\d+)", self.release)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def is_wsl1(self) -> bool:
        """WSL 1 has no Linux kernel at all; WSL 2 calls itself `microsoft-standard-WSL2`."""
        return "Microsoft" in self.release

    @property
    def is_wsl2(self) -> bool:
        """Its kernel and boot line are Windows' to give."""
        return "microsoft" in self.release and not self.is_wsl1

    def has(self, capability: int) -> bool:
        return bool(self.capabilities >> capability & 1)


def gather() -> HostFacts:
    """The facts of this host and process."""
    status = dict(
        line.split(":", 1) for line in _text("/proc/self/status").splitlines() if ":" in line
    )
    modules = _text("/sys/kernel/security/lsm").strip()
    return HostFacts(
        release=os.uname().release,
        uid=os.getuid(),
        capabilities=int(status.get("CapEff", "0"), 16),
        has_seccomp_filter=status.get("Seccomp", "0").strip() == "2",
        max_user_namespaces=_number("/proc/sys/user/max_user_namespaces"),
        unprivileged_userns_clone=_number("/proc/sys/kernel/unprivileged_userns_clone"),
        apparmor_restricts_userns=_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
        == 1,
        is_proc_masked=has_mounts_below_proc(_text("/proc/self/mountinfo")),
        security_modules=tuple(modules.split(",")) if modules else None,
        bwrap=bubblewrap.find(),
        python=os.path.realpath(sys.executable),
    )


def has_mounts_below_proc(mountinfo: str) -> bool:
    """Whether something covers a part of /proc, as container engines do (proc_pid_mountinfo(5)).

    The kernel then lets nobody mount a new /proc in a user namespace. binfmt_misc is an ordinary
    mount there and covers nothing.
    """
    points = [line.split()[4] for line in mountinfo.splitlines() if len(line.split()) > 4]
    return any(
        point.startswith("/proc/") and point != "/proc/sys/fs/binfmt_misc" for point in points
    )


def explained(found: ProbeResult, facts: HostFacts) -> ProbeResult:
    """The result with cause and remedy made exact, where a fact explains the failure."""
    if found.available:
        return found
    if NO_NFTABLES in (found.cause or ""):
        return msgspec.structs.replace(
            found,
            cause=f"this kernel has no nf_tables, or none that redirects ({found.cause})",
            remedy="as root: `modprobe -a nf_tables nft_tproxy`, or a kernel built with CONFIG_NFT_TPROXY",
        )
    why = {
        "namespaces": _why_no_namespaces,
        "bubblewrap": _why_no_bubblewrap,
        "landlock": _why_no_landlock,
    }.get(found.tier)
    told = why(facts) if why is not None else None
    if told is None:
        return found
    reason, remedy = told
    return msgspec.structs.replace(found, cause=f"{reason} ({found.cause})", remedy=remedy)


Told = tuple[str, str] | None
"""Reason and remedy; None when no fact explains it."""


def _why_no_namespaces(facts: HostFacts) -> Told:
    if facts.version < NAMESPACES_SINCE:
        return f"Linux {facts.release} is older than 5.12", _newer_kernel(facts, "5.12")
    return _why_no_user_namespace(facts) or _why_no_mounts(facts)


def _why_no_bubblewrap(facts: HostFacts) -> Told:
    if facts.bwrap is None:
        return (
            f"there is no {' or '.join(bubblewrap.PLACES)} that only root can write",
            "install it from the distribution: `apt install bubblewrap`, `dnf install bubblewrap`",
        )
    return _why_no_user_namespace(facts)


def _why_no_user_namespace(facts: HostFacts) -> Told:
    if facts.is_wsl1:
        return "WSL 1 has no namespaces", "move to WSL 2: `wsl --set-version DISTRIBUTION 2`"
    if facts.max_user_namespaces == 0:
        return (
            "user.max_user_namespaces is 0",
            "as root: `sysctl -w user.max_user_namespaces=15000`, and the same line in /etc/sysctl.d/",
        )
    if facts.unprivileged_userns_clone == 0 and not facts.has(CAP_SYS_ADMIN):
        return (
            "kernel.unprivileged_userns_clone is 0",
            "as root: `sysctl -w kernel.unprivileged_userns_clone=1`, and the same line in /etc/sysctl.d/",
        )
    if facts.apparmor_restricts_userns and not facts.has(CAP_SYS_ADMIN):
        return (
            (
                "AppArmor takes the capabilities out of user namespaces "
                "(kernel.apparmor_restrict_unprivileged_userns is 1)"
            ),
            (
                f"as root: write an AppArmor profile with the rule `userns,` for {facts.python} or for "
                "/usr/bin/bwrap, or for all programs `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`"
            ),
        )
    return _why_root_cannot_map(facts) or _why_a_filter_denies(facts)


def _why_root_cannot_map(facts: HostFacts) -> Told:
    if facts.uid != 0 or facts.has(CAP_SETFCAP):
        return None
    return (
        "uid 0 without CAP_SETFCAP may not map itself into a user namespace",
        "run sandboxd as a normal user, or leave it the capability (`--cap-add SETFCAP`)",
    )


def _why_a_filter_denies(facts: HostFacts) -> Told:
    if not facts.has_seccomp_filter:
        return None
    return (
        "a seccomp filter is on, as in a container, and denies unshare, clone or mount",
        (
            "start the container with a seccomp profile that permits them "
            "(`docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined`, in "
            "Kubernetes seccompProfile: {type: Unconfined})"
        ),
    )


def _why_no_mounts(facts: HostFacts) -> Told:
    if not facts.is_proc_masked:
        return None
    return (
        "parts of /proc are masked, so no new /proc can be mounted",
        (
            "start the container with `docker run --security-opt systempaths=unconfined`, in "
            "Kubernetes procMount: Unmasked"
        ),
    )


def _why_no_landlock(facts: HostFacts) -> Told:
    if facts.version < LANDLOCK_SINCE:
        return f"Linux {facts.release} is older than 5.13", _newer_kernel(facts, "5.13")
    if facts.security_modules is not None and "landlock" not in facts.security_modules:
        return (
            "landlock is not among the kernel's security modules",
            _boot_with(facts, f"lsm=landlock,{','.join(facts.security_modules)}"),
        )
    if facts.has_seccomp_filter:
        return (
            "a seccomp filter is on, as in a container, and denies the landlock calls",
            (
                "use a container engine whose seccomp profile permits landlock_* "
                "(Docker 23.0 or newer, Podman 4.3 or newer)"
            ),
        )
    return None


def _newer_kernel(facts: HostFacts, version: str) -> str:
    update = " (in Windows: `wsl --update`, then `wsl --shutdown`)" if facts.is_wsl2 else ""
    return f"use a kernel of {version} or newer{update}"


def _boot_with(facts: HostFacts, words: str) -> str:
    if not facts.is_wsl2:
        return f"boot with `{words}`"
    return (
        f"in %UserProfile%\\.wslconfig, section [wsl2], set `kernelCommandLine = {words}`, then "
        "`wsl --shutdown`; it needs a WSL kernel that was built with Landlock (`wsl --update`)"
    )


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _number(path: str) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None
