"""What people run, through the whole gate: under `open` and under `allowlist` with the right hosts.

Servers are this test's own, except for the package registries, whose hosts are what the machine's own
tools are set to.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sandboxd.errors import InvalidRequest, TierUnavailable
from sandboxd.events.kinds import EgressDenied
from sandboxd.model import Denial, ExecRequest, Result
from tests.egress.gate import text, through_gate
from tests.egress.world import PUBLIC, World, http_server

CLI = [sys.executable, "-m", "sandboxd", "exec", "--no-daemon", "--approve", "all"]
MODES = ["open", "allowlist"]
HOST = "web.example"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def profiles(tmp_path: Path) -> dict[str, str]:
    """Names or files of the profiles under test."""
    file = tmp_path / "open.yaml"
    file.write_text("extends: default\nnetwork: open\n")  # without a fallback
    return {"open": str(file), "allowlist": "allowlist"}


@pytest.fixture
def served(world: World) -> Iterator[World]:
    world.hosts = {HOST: [PUBLIC]}
    with http_server() as port:
        world.servers = {(PUBLIC, 80): port}
        yield world


def request(
    profile: str, *argv: str, hosts: tuple[str, ...] = (HOST,), **more: object
) -> ExecRequest:
    return ExecRequest(argv=argv, profile=profile, approve="all", allow_hosts=hosts, **more)  # type: ignore[arg-type]


def clients(url: str) -> dict[str, tuple[str, ...]]:
    """One fetch with each client of this machine."""
    fetch = f"fetch('{url}').then(r => r.text()).then(t => console.log(t)).catch(e => {{console.error(String(e.cause)); process.exit(1)}})"
    urllib = (
        f"import urllib.request; print(urllib.request.urlopen('{url}', timeout=9).read().decode())"
    )
    found = {
        "curl": ("curl", "-sS", "-m", "9", url),
        "curl without a proxy": ("curl", "-sS", "-m", "9", "--noproxy", "*", url),
        "urllib": (sys.executable, "-c", urllib),
        "node": ("node", "-e", fetch),
    }
    return {name: argv for name, argv in found.items() if shutil.which(argv[0])}


@pytest.mark.parametrize("client", list(clients("")))
@pytest.mark.parametrize("mode", MODES)
def test_client_reaches_an_allowed_host(
    served: World, workspace: Path, profiles: dict[str, str], mode: str, client: str
) -> None:
    argv = clients(f"http://{HOST}/a")[client]
    [result] = through_gate(served, workspace, request(profiles[mode], *argv))
    assert (result.exit_code, f"{HOST} /a" in text(result), result.denial) == (0, True, None)


@pytest.mark.parametrize("client", list(clients("")))
def test_denied_host_fails_at_once_and_is_named(
    served: World, workspace: Path, client: str
) -> None:
    argv = clients("http://denied.example/a")[client]
    begun = time.monotonic()
    [result] = through_gate(served, workspace, request("allowlist", *argv))
    assert time.monotonic() - begun < 15  # start of the engine and the probe of the tier included
    assert result.duration_s < 5
    denial = result.denial
    assert isinstance(denial, Denial)
    assert denial.evidence == "proxy"
    assert denial.rule == "network.allow"
    assert (denial.host or "").split(":")[0] == "denied.example"
    assert "--allow-host denied.example" in (denial.hint or "")
    assert served.looked_up == []


def test_denied_host_is_an_event_and_one_line_on_the_terminal(workspace: Path) -> None:
    done = subprocess.run(
        [*CLI, "--profile", "allowlist", "--", "curl", "-sS", "http://denied.example/"],
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=60,
    )
    told = [line for line in done.stderr.splitlines() if line.startswith("sandboxd: ")]
    assert told == [
        "sandboxd: the sandbox refused denied.example:80 (network.allow)",
        "sandboxd: hint: name it with --allow-host denied.example, or under network.allow in the profile",
    ]
    assert "403" in done.stdout or done.returncode == 0


def test_a_clone_over_http_works(
    world: World, workspace: Path, profiles: dict[str, str], tmp_path: Path
) -> None:
    served = tmp_path / "served"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q", tmp_path / "source"], check=True)
    commit = [*git, "-C", tmp_path / "source", "commit", "-q", "--allow-empty", "-m", "hello"]
    subprocess.run(commit, check=True)
    subprocess.run(
        [*git, "clone", "-q", "--bare", tmp_path / "source", served / "r.git"], check=True
    )
    subprocess.run([*git, "-C", served / "r.git", "update-server-info"], check=True)

    class Files(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    world.hosts = {HOST: [PUBLIC]}
    with http_server(functools.partial(Files, directory=str(served))) as port:
        world.servers = {(PUBLIC, 80): port}
        for mode in MODES:
            clone = ("git", "clone", "-q", f"http://{HOST}/r.git", mode)
            log = ("git", "-C", mode, "log", "--format=%s")
            results = through_gate(
                world, workspace, request(profiles[mode], *clone), request(profiles[mode], *log)
            )
            assert [it.exit_code for it in results] == [0, 0], text(results[0])
            assert text(results[1]) == "hello\n"


def test_java_follows_the_proxy_or_is_carried(
    served: World, workspace: Path, profiles: dict[str, str]
) -> None:
    if shutil.which("java") is None:
        pytest.skip("this machine has no java")
    (workspace / "Get.java").write_text(
        "public class Get { public static void main(String[] a) throws Exception {"
        f' System.out.print(new String(new java.net.URL("http://{HOST}/a").openStream().readAllBytes())); }} }}'
    )
    for mode in MODES:
        [result] = through_gate(served, workspace, request(profiles[mode], "java", "Get.java"))
        assert f"{HOST} /a" in text(result), text(result)


def test_a_run_keeps_its_own_loopback(
    workspace: Path, world: World, profiles: dict[str, str]
) -> None:
    code = "import socket as s; l = s.create_server(('127.0.0.1', 8080)); c = s.create_connection(('localhost', 8080)); print('up')"
    for mode in MODES:
        [result] = through_gate(
            world, workspace, request(profiles[mode], sys.executable, "-c", code)
        )
        assert text(result) == "up\n"


@pytest.mark.parametrize("profile", ["offline", "default"])
def test_published_dev_server_is_reached_from_the_host(workspace: Path, profile: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (workspace / "page").write_text("served from inside")
    serve = [sys.executable, "-m", "http.server", "-b", "127.0.0.1", str(port)]
    with subprocess.Popen(
        [*CLI, "--profile", profile, "--publish", str(port), "--timeout", "30", "--", *serve],
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as run:
        try:
            assert _get(port, "/page") == "served from inside"
        finally:
            run.terminate()


def _get(port: int, path: str) -> str:
    import urllib.request

    deadline = time.monotonic() + 25
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ({"allow_hosts": ("a b",)}, InvalidRequest, "neither a host name"),
        ({"allow_hosts": ("x:99999",)}, InvalidRequest, "no port from 1"),
        ({"publish": (0,)}, InvalidRequest, "1 to 65535"),
        (
            {"profile": "offline", "allow_hosts": ("x.example",)},
            InvalidRequest,
            "turns the network off",
        ),
        (
            {"profile": "allowlist", "tier": "landlock"},
            TierUnavailable,
            "cannot enforce network allowlist",
        ),
        (
            {"profile": "allowlist", "tier": "containment"},
            TierUnavailable,
            "cannot enforce network allowlist",
        ),
        (
            {"profile": "offline", "tier": "landlock", "publish": (8080,)},
            TierUnavailable,
            "cannot publish",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(
    world: World, workspace: Path, more: dict[str, object], kind: type[Exception], words: str
) -> None:
    asked = ExecRequest(argv=("true",), approve="all", **more)  # type: ignore[arg-type]
    with pytest.raises(kind, match=words):
        through_gate(world, workspace, asked)


def test_port_that_is_taken_cannot_be_published(world: World, workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        asked = ExecRequest(argv=("true",), approve="all", profile="offline", publish=(port,))
        with pytest.raises(InvalidRequest, match=f"port {port} .* in use"):
            through_gate(world, workspace, asked)


# ------------------------------------------------------------------ the registries of this machine


def hosts_of(tool: str) -> tuple[str, ...]:
    """The hosts that a package manager of this machine fetches from; skips where it reaches none."""
    if tool == "npm":
        found = _output("npm", "config", "get", "registry")
    else:
        found = _output(sys.executable, "-m", "pip", "config", "get", "global.index-url")
        found = found or _output(
            sys.executable,
            "-c",
            "from pip._internal.models.index import PyPI; print(PyPI.simple_url)",
        )
    host = urlsplit(found).hostname or ""
    try:
        socket.create_connection((host, 443), 5).close()
    except OSError as error:
        pytest.skip(f"this machine does not reach its {tool} registry: {error}")
    if tool == "npm":
        return (host,)
    files = _output(
        sys.executable,
        "-c",
        "from pip._internal.models.index import PyPI; print(PyPI.file_storage_domain)",
    )
    return (host, files)


def _output(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else ""


def exec_json(workspace: Path, *words: str) -> dict[str, object]:
    done = subprocess.run(
        [*CLI, "--json", *words], cwd=workspace, capture_output=True, text=True, timeout=170
    )
    assert done.stdout, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


INSTALLS = {
    "pip": "python3 -m venv v && v/bin/python -m pip install -q --no-cache-dir --no-deps six && v/bin/python -c 'import six; print(six.__name__)'",
    "npm": "npm init -y >/dev/null && npm install --silent --no-audit --no-fund is-odd && node -e \"console.log(require('is-odd')(3) ? 'six' : '')\"",
}


@pytest.mark.parametrize(("tool", "profile"), [("pip", "allowlist"), ("npm", "default")])
def test_package_is_installed_from_the_registry(workspace: Path, tool: str, profile: str) -> None:
    named = [word for host in hosts_of(tool) for word in ("--allow-host", host)]
    named = named if profile == "allowlist" else []
    result = exec_json(
        workspace, "--profile", profile, *named, *_unset_local_sources(), "-c", INSTALLS[tool]
    )
    assert (result["exit_code"], result.get("denial")) == (0, None), result
    assert "six" in str(result["stdout"])


def _unset_local_sources() -> list[str]:
    """Options without which pip might find the package on this machine's disk."""
    found = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    return [word for name, value in found.items() for word in ("--env", f"{name}={value}")]


def test_denials_are_kept_as_events(world: World, workspace: Path) -> None:
    import asyncio

    from sandboxd.engine import Engine
    from sandboxd.pipeline import run_command
    from tests.egress.gate import Channel

    async def main() -> tuple[Result, list[EgressDenied]]:
        engine = await Engine.create()
        engine.outside = world
        try:
            session = engine.open_session(workspace=str(workspace), cwd=str(workspace))
            argv = (
                "curl",
                "-s",
                "http://denied.example/",
                "http://denied.example/",
                "http://other.example/",
            )
            result = await run_command(
                engine,
                session,
                ExecRequest(argv=argv, profile="allowlist", approve="all"),
                Channel(),
            )
            stored = engine.log.query(session_id=session.id)
            return result, [it.event for it in stored if isinstance(it.event, EgressDenied)]
        finally:
            await engine.close()

    result, events = asyncio.run(main())
    assert [(it.run_id, it.host, it.rule) for it in events] == [
        (result.run_id, "denied.example:80", "network.allow"),
        (result.run_id, "other.example:80", "network.allow"),
    ]
