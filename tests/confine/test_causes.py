"""Facts of a host to cause and remedy: every known host, judged on this one."""

from __future__ import annotations

import pytest

from sandboxd.confine import causes
from sandboxd.confine.causes import HostFacts, explained, gather, has_mounts_below_proc
from sandboxd.model import ProbeResult

EVERYTHING = (1 << 41) - 1

TOLD = {
    "old kernel": (
        "namespaces",
        HostFacts(release="5.4.0-generic"),
        "5.4.0-generic is older than 5.12",
        "kernel of 5.12",
    ),
    "unreadable kernel": (
        "namespaces",
        HostFacts(release="custom"),
        "custom is older",
        "kernel of 5.12",
    ),
    "WSL 1": (
        "namespaces",
        HostFacts(release="5.15.0-19041-Microsoft"),
        "WSL 1",
        "wsl --set-version",
    ),
    "sysctl": (
        "namespaces",
        HostFacts(max_user_namespaces=0),
        "user.max_user_namespaces is 0",
        "`sysctl -w user.max_user_namespaces=15000`",
    ),
    "Debian's switch": (
        "namespaces",
        HostFacts(unprivileged_userns_clone=0),
        "kernel.unprivileged_userns_clone is 0",
        "`sysctl -w kernel.unprivileged_userns_clone=1`",
    ),
    "Ubuntu": (
        "namespaces",
        HostFacts(apparmor_restricts_userns=True, python="/opt/py/bin/python3.12"),
        "kernel.apparmor_restrict_unprivileged_userns is 1",
        "`userns,` for /opt/py/bin/python3.12",
    ),
    "root without capabilities": (
        "namespaces",
        HostFacts(uid=0),
        "CAP_SETFCAP",
        "--cap-add SETFCAP",
    ),
    "container": (
        "namespaces",
        HostFacts(has_seccomp_filter=True),
        "seccomp filter",
        "seccomp=unconfined",
    ),
    "masked /proc": (
        "namespaces",
        HostFacts(is_proc_masked=True),
        "/proc are masked",
        "systempaths=unconfined",
    ),
    "no bwrap": ("bubblewrap", HostFacts(bwrap=None), "no /usr/bin/bwrap", "apt install"),
    "bwrap in a container": (
        "bubblewrap",
        HostFacts(has_seccomp_filter=True),
        "seccomp filter",
        "seccomp=unconfined",
    ),
    "kernel before Landlock": (
        "landlock",
        HostFacts(release="5.10.0"),
        "older than 5.13",
        "kernel of 5.13",
    ),
    "Landlock not booted": (
        "landlock",
        HostFacts(security_modules=("capability", "yama", "apparmor")),
        "not among the kernel's security modules",
        "`lsm=landlock,capability,yama,apparmor`",
    ),
    "Landlock not booted in WSL 2": (
        "landlock",
        HostFacts(
            release="5.15.153.1-microsoft-standard-WSL2", security_modules=("capability", "yama")
        ),
        "not among the kernel's security modules",
        "`kernelCommandLine = lsm=landlock,capability,yama`",
    ),
    "old WSL 2": (
        "namespaces",
        HostFacts(release="5.4.72-microsoft-standard-WSL2"),
        "older than 5.12",
        "wsl --update",
    ),
    "Landlock filtered": (
        "landlock",
        HostFacts(has_seccomp_filter=True, security_modules=("landlock",)),
        "denies the landlock calls",
        "Docker 23.0",
    ),
}


def failed(tier: str) -> ProbeResult:
    return ProbeResult(tier=tier, available=False, seconds=0.1, cause="it broke", remedy="general")


@pytest.mark.parametrize("host", TOLD)
def test_cause_and_exact_remedy_of_a_host(host: str) -> None:
    tier, facts, cause, remedy = TOLD[host]
    found = explained(failed(tier), facts)
    assert cause in (found.cause or "")
    assert "(it broke)" in (found.cause or "")
    assert remedy in (found.remedy or "")


@pytest.mark.parametrize("tier", ["namespaces", "bubblewrap", "landlock", "containment"])
def test_what_no_fact_explains_keeps_the_tiers_own_remedy(tier: str) -> None:
    assert explained(failed(tier), HostFacts()) == failed(tier)


def test_a_tier_that_works_is_left_alone() -> None:
    found = ProbeResult(tier="namespaces", available=True, seconds=0.1)
    assert explained(found, HostFacts(max_user_namespaces=0)) == found


def test_switches_that_bind_only_the_unprivileged_do_not_explain_roots_failure() -> None:
    facts = HostFacts(
        uid=0,
        capabilities=EVERYTHING,
        unprivileged_userns_clone=0,
        apparmor_restricts_userns=True,
    )
    assert explained(failed("namespaces"), facts) == failed("namespaces")


def test_wsl_2_is_an_ordinary_linux() -> None:
    facts = HostFacts(release="5.15.153.1-microsoft-standard-WSL2")
    assert not facts.is_wsl1
    assert facts.version == (5, 15)


def test_a_mount_below_proc_is_a_mask_and_binfmt_misc_is_none() -> None:
    plain = (
        "22 27 0:21 / /proc rw - proc proc rw\n30 22 0:25 / /proc/sys/fs/binfmt_misc rw - b b rw\n"
    )
    assert not has_mounts_below_proc(plain)
    assert has_mounts_below_proc(plain + "31 22 0:5 /null /proc/kcore rw - devtmpfs d rw\n")


def test_the_facts_of_this_host_are_read_from_its_files() -> None:
    facts = gather()
    assert facts.version >= causes.LANDLOCK_SINCE
    with open("/proc/self/status", encoding="utf-8") as file:
        assert f"CapEff:\t{facts.capabilities:016x}\n" in file.read()
