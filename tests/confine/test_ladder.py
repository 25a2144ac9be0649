"""Which rung is taken on which host, how it is said, and that nothing slow or false is believed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.confine.probe import LIMIT_S
from tests.confined import Ground, make_ground

ROOT = Path(__file__).resolve().parents[2]

TELLS_CAPABILITIES = "uid 0 without CAP_SETFCAP"
HOSTS: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "plain": ("namespaces", {}),
    "container": (
        "landlock",
        {
            "namespaces": ("a seccomp filter is on", "--security-opt seccomp=unconfined"),
            "bubblewrap": ("a seccomp filter is on", "--security-opt seccomp=unconfined"),
        },
    ),
    "no_user_namespaces": (
        "landlock",
        {
            "namespaces": ("max_user_namespaces is 0", "sysctl -w user.max_user_namespaces="),
            "bubblewrap": ("max_user_namespaces is 0", "sysctl -w user.max_user_namespaces="),
        },
    ),
    "masked_proc": (
        "bubblewrap",
        {"namespaces": ("parts of /proc are masked", "systempaths=unconfined")},
    ),
}
"""Host: the tier that must be chosen; for each missing tier words of its cause and its remedy."""


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


def on_host(host: str, **settings: object) -> dict[str, Any]:
    words = [f"{key}={value}" for key, value in settings.items()]
    done = subprocess.run(
        [sys.executable, "-m", "tests.confine.emulated", host, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(found: dict[str, Any], chosen: str, missing: dict[str, tuple[str, str]]) -> None:
    """Chosen by name; each missing tier with cause and remedy, everywhere it is said."""
    assert found["chosen"] == chosen
    unavailable = {name for name, cause in found["probes"].items() if cause is not None}
    assert unavailable == set(missing)
    assert set(found["refused"]) - {"seatbelt", "inherited", "containment"} == set(missing)
    for name, (cause, remedy) in missing.items():
        code, message, _ = found["refused"][name]
        assert code == "TIER_UNAVAILABLE"
        for words in (message, found["probes"][name] + found["remedies"][name]):
            assert cause in words
            assert remedy in words
        [why] = [reason for reason in found["why"] if reason.startswith(name + ": ")]
        assert cause in why
        assert remedy in why


@pytest.mark.parametrize("host", HOSTS)
def test_the_right_rung_is_taken_and_the_remedy_said(host: str) -> None:
    check(on_host(host), *HOSTS[host])


def test_a_host_that_masks_proc_gets_bubblewrap_with_that_gap_said() -> None:
    assert any("/proc is the host's" in gap for gap in on_host("masked_proc")["gaps"])
    assert not any("/proc is the host's" in gap for gap in on_host("plain")["gaps"])


def test_root_without_capabilities_is_told_which_one_it_lacks() -> None:
    if os.getuid() != 0:  # for others giving up nothing changes nothing
        assert on_host("no_capabilities")["chosen"] == "namespaces"
        return
    told = (TELLS_CAPABILITIES, "--cap-add SETFCAP")
    check(on_host("no_capabilities"), "landlock", {"namespaces": told, "bubblewrap": told})


# ------------------------------------------------------------------ as a person sees it


def told_on(host: str, *words: str, cwd: str = "/") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.confine.emulated", host, "--", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_doctor_prints_cause_and_remedy_of_what_is_missing() -> None:
    done = told_on("container", "doctor", "--no-daemon")
    assert done.returncode == 0, done.stderr  # landlock is a boundary of the kernel
    rung = done.stdout.split("namespaces: not here")[1].split("bubblewrap:")[0]
    assert "why:    a seccomp filter is on" in rung
    assert "remedy: start the container with a seccomp profile" in rung


def test_a_run_in_a_weaker_tier_says_so_and_why(ground: Ground) -> None:
    words = ["exec", "--no-daemon", "--approve", "all", "--workspace", ground.workspace, "--"]
    done = told_on("container", *words, "/bin/echo", "ran", cwd=ground.workspace)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "ran in the tier landlock: namespaces: a seccomp filter is on" in done.stderr


def test_a_tier_asked_for_and_missing_is_refused_with_its_remedy(ground: Ground) -> None:
    for wanted in (["--tier", "bubblewrap"], ["--min-tier", "namespaces"]):
        words = ["exec", "--no-daemon", "--json", "--workspace", ground.workspace, *wanted]
        done = told_on("no_user_namespaces", *words, "--", "/bin/true", cwd=ground.workspace)
        assert done.returncode == 125
        error = json.loads(done.stdout)["error"]
        assert error["code"] == "TIER_UNAVAILABLE"
        assert "sysctl -w user.max_user_namespaces" in error["message"]


# ------------------------------------------------------------------ a bwrap that is none

FALSE_BWRAPS = {
    "fails": "echo 'bwrap: No permissions to create new namespace' >&2; exit 1",
    "lies_about_its_version": '[ "$1" = --version ] && echo bubblewrap 0.11.0; exit 0',
    "confines_nothing": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    "sleeps": "sleep 60; exit 0",
    "leaves_a_child": "sleep 60 & exit 1",
}
HOST_WITHOUT_NAMESPACES = "masked_proc"


@pytest.mark.parametrize("kind", FALSE_BWRAPS)
def test_a_false_bwrap_is_found_out_by_running_it(kind: str, ground: Ground) -> None:
    found = on_host(HOST_WITHOUT_NAMESPACES, bwrap=script(ground, FALSE_BWRAPS[kind]))
    assert found["chosen"] == "landlock"
    assert found["probes"]["bubblewrap"]
    assert found["refused"]["bubblewrap"][0] == "TIER_UNAVAILABLE"
    # Once for the rung, not for each of its forms; the rest is start-up and killing.
    assert found["seconds"] < 2 * LIMIT_S + 1


def test_the_words_of_a_failing_bwrap_reach_the_person(ground: Ground) -> None:
    found = on_host(HOST_WITHOUT_NAMESPACES, bwrap=script(ground, FALSE_BWRAPS["fails"]))
    assert "No permissions to create new namespace" in found["probes"]["bubblewrap"]


def test_a_missing_bwrap_says_what_to_install() -> None:
    found = on_host(HOST_WITHOUT_NAMESPACES, bwrap="/nonexistent/bwrap")
    assert found["chosen"] == "landlock"
    assert "bubblewrap" in found["remedies"]["bubblewrap"]


def script(ground: Ground, body: str) -> str:
    path = ground.top + "/bwrap"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\n{body}\n")
    os.chmod(path, stat.S_IRWXU | 0o55)
    os.chmod(ground.top, 0o755)
    return path


# ------------------------------------------------------------------ Landlock of other kernels


def test_a_kernel_without_landlock_falls_to_containment_and_says_so() -> None:
    found = on_host("container", landlock_abi=0)
    # The filter of this host is the tests' own where they may not do without no_new_privs.
    assert found["chosen"] == ("containment" if os.getuid() == 0 else "inherited")
    assert found["refused"]["landlock"][0] == "TIER_UNAVAILABLE"
    assert any("no kernel boundary" in gap or "no boundary" in gap for gap in found["gaps"])


@pytest.mark.parametrize(
    ("abi", "gaps"), [(1, ("truncated", "signalled")), (3, ("signalled",)), (6, ())]
)
def test_an_older_landlock_is_taken_with_its_gaps_said(abi: int, gaps: tuple[str, ...]) -> None:
    found = on_host("container", landlock_abi=abi)
    assert found["chosen"] == "landlock"
    said = [word for word in ("truncated", "signalled") if any(word in g for g in found["gaps"])]
    assert said == [*gaps]
