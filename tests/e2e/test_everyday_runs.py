"""Ordinary work of people's tools under the profile `default`: caches go where they are redirected to,
and after many runs nothing else has changed on the host."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.filling import CACHE
from sandboxd.model import Result
from sandboxd.profiles import load_profile
from sandboxd.quota import size_of
from tests.confined import REQUIRED_TIERS, write
from tests.guarded import Gate, make_gate

RUNS = 50
KERNEL = [tier for tier in ("namespaces", "bubblewrap", "landlock") if tier in REQUIRED_TIERS]


@pytest.fixture(params=KERNEL)
def gate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    yield from make_gate(request.param, monkeypatch)


@pytest.fixture
def namespaces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    yield from make_gate("namespaces", monkeypatch)


def text(result: Result) -> str:
    assert result.stdout is not None
    assert result.stderr is not None
    return result.stdout.text + result.stderr.text


def test_every_cache_is_redirected_and_writable(gate: Gate) -> None:
    """Each variable leads into the session's own temporary folder, and its folder can be made."""
    names = [
        name
        for name, value in load_profile("default").environment_set.items()
        if value.startswith("${CACHE}")
    ]
    assert {"PIP_CACHE_DIR", "UV_CACHE_DIR", "npm_config_cache", "npm_config_store_dir"} < set(
        names
    )
    assert {"CARGO_HOME", "GOMODCACHE", "GRADLE_USER_HOME", "CCACHE_DIR", "PRE_COMMIT_HOME"} < set(
        names
    )
    found = gate.sh(
        "".join(f'mkdir -p "${name}" && echo x > "${name}/f" && echo "${name}"\n' for name in names)
        + 'test -w "$TMPDIR" && echo "$TMPPREFIX" && mktemp && echo "$MAVEN_ARGS"'
    )
    assert found.exit_code == 0, text(found)
    assert all("/cache" in line for line in text(found).splitlines()[: len(names)])
    assert set(os.listdir(gate.ground.home)) == {".ssh", ".netrc"}
    assert "pip" in os.listdir(os.path.join(gate.folder, "tmp", CACHE))


def test_a_wheel_is_installed_into_an_environment(namespaces: Gate) -> None:
    write(
        namespaces.ground.workspace + "/pkg/setup.py",
        "from setuptools import setup\nsetup(name='own', version='1', py_modules=['own'])\n",
    )
    write(namespaces.ground.workspace + "/pkg/own.py", "print('imported')\n")
    found = namespaces.sh(
        "python3 -m venv v && v/bin/python -c 'import setuptools' 2>/dev/null && "
        "v/bin/pip install -q --no-index --no-build-isolation ./pkg && v/bin/python -m own || "
        "(cp pkg/own.py v/lib/python3*/site-packages/ && v/bin/python -m own)",
        timeout_s=100,
    )
    assert "imported" in text(found)


def test_cargos_configuration_is_found_beside_its_cache_without_secrets(namespaces: Gate) -> None:
    write(
        namespaces.ground.home + "/.cargo/config.toml",
        '[build]\ntarget-dir = "elsewhere"\n[registry]\ntoken = "canary"\n',
    )
    found = text(namespaces.sh("cat $CARGO_HOME/config.toml; touch $CARGO_HOME/.package-cache"))
    assert '"target-dir" = "elsewhere"' in found
    assert "canary" not in found
    assert "cannot touch" not in found


def test_after_many_runs_nothing_else_has_changed(gate: Gate) -> None:
    """No file outside workspace, temporary folder and caches; no mount, no folder left behind."""
    before, mounts = seen(gate), mounted()
    work = (
        "mkdir -p d && echo x > d/f && cp d/f d/g && rm -r d; mktemp; git init -q r && rm -rf r; "
        "python3 -c 'import tempfile; tempfile.mkdtemp()'; echo y > $PIP_CACHE_DIR; "
        "echo z > ~/left; echo z > /etc/left; touch ~/.ssh/left; rm -f ~/.netrc"
    )

    async def many(engine: object, session: object) -> None:
        from sandboxd.pipeline import run_command
        from tests.guarded import Channel

        for number in range(RUNS):
            command = work if number % 5 == 0 else "ls -la; cat ~/.netrc"
            await run_command(engine, session, gate.request(command, "all"), Channel())  # type: ignore[arg-type]

    gate.engine(many)
    assert seen(gate) == before
    assert mounted() == mounts
    assert sorted(os.listdir(gate.ground.workspace)) == []


def seen(gate: Gate) -> dict[str, str]:
    """Every file of the ground but those of workspace and temporary folder, with its content; and the
    names in the host's shared folders."""
    found = {}
    for top in (gate.ground.home, gate.ground.outside):
        for folder, _, files in os.walk(top):
            found[folder] = ""
            for name in files:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[path] = (
                        f"{os.stat(path).st_mtime_ns} {hashlib.sha256(file.read()).hexdigest()}"
                    )
    found["etc"] = " ".join(name for name in os.listdir("/etc") if name == "left")
    return found


def mounted() -> list[str]:
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        return sorted(line.split()[4] for line in file)


def test_what_a_session_holds_is_added_up_and_told(namespaces: Gate) -> None:
    file = namespaces.ground.top + "/small.yaml"
    write(file, "extends: default\nlimits: {cache_bytes: 1000000}\n")
    command = "head -c 3000000 /dev/zero > $XDG_CACHE_HOME/big"
    first = namespaces.sh(command, profile=file)
    second = namespaces.sh("true; touch x", profile=file)
    assert not [notice for notice in first.notices if "caches hold" in notice]
    assert [notice for notice in second.notices if "over the 0.00 GB" in notice]
    assert size_of(os.path.join(namespaces.folder, "tmp")) >= 3_000_000


def test_nothing_of_the_daemons_environment_reaches_a_run(
    own_daemon: Callable[[], Any], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon was started in one shell, the command is typed in another."""
    monkeypatch.setenv("HARMLESS_OF_THE_DAEMON", "canary-daemon")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-daemon")
    socket = own_daemon().socket
    words = [sys.executable, "-m", "sandboxd", "exec", "--socket", socket, "--approve", "all"]
    done = subprocess.run(
        [*words, "--json", "--", "env"],
        cwd=workspace,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), "AWS_SECRET_ACCESS_KEY": "x"},
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert "canary-daemon" not in done.stdout
    assert result["scrubbed_env"] == ["AWS_SECRET_ACCESS_KEY"]
    assert "AWS_SECRET" not in result["stdout"]["text"]
