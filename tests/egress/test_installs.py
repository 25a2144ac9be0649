"""Package managers and git over ssh, through the whole gate, against servers of the test's own."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.model import Denial, ExecRequest, Result
from tests.egress.gate import text, through_gate
from tests.egress.registries import PACKAGE, Registry
from tests.egress.world import OTHER, PUBLIC, World, http_server, tcp_server

INDEX, SSH_HOST = "index.example", "git.example"
MODES = {"open": "default", "allowlist": "allowlist"}
ALONE = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_FIND_LINKS": "",
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_CONSTRAINT": "",
    "PIP_INDEX_URL": f"http://{INDEX}/simple",
    "PIP_TRUSTED_HOST": INDEX,
    "npm_config_registry": f"http://{INDEX}/",
    "npm_config_userconfig": os.devnull,
}
"""What the tools of this machine are set to must not help."""
INSTALLS = {
    "pip": f"{sys.executable} -m venv --without-pip v && {sys.executable} -m pip --python v/bin/python install -q {PACKAGE} && v/bin/python -c 'import tiny_thing; print(tiny_thing.word)'",
    "npm": f"npm init -y >/dev/null && npm install --silent --no-audit --no-fund {PACKAGE} && node -p \"require('{PACKAGE}')\"",
}
FETCHES = {
    "pip": f"{sys.executable} -m pip download -q --no-deps -d d {PACKAGE}",
    "npm": f"npm view {PACKAGE} version",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def index(world: World) -> Iterator[World]:
    world.hosts = {INDEX: [PUBLIC]}
    with http_server(Registry) as port:
        world.servers = {(PUBLIC, 80): port}
        yield world


def run(world: World, workspace: Path, mode: str, command: str, *hosts: str, **env: str) -> Result:
    asked = ExecRequest(
        command=command, profile=MODES[mode], approve="all", allow_hosts=hosts, env={**ALONE, **env}
    )
    [result] = through_gate(world, workspace, asked)
    return result


@pytest.mark.parametrize("tool", list(INSTALLS))
@pytest.mark.parametrize("mode", list(MODES))
def test_package_is_installed(index: World, workspace: Path, mode: str, tool: str) -> None:
    hosts = (INDEX,) if mode == "allowlist" else ()
    result = run(index, workspace, mode, INSTALLS[tool], *hosts)
    assert (result.exit_code, result.denial) == (0, None), text(result)
    assert result.stdout is not None
    assert result.stdout.text == "installed\n"


@pytest.mark.parametrize("tool", list(FETCHES))
def test_an_index_that_was_not_named_is_denied_soon_and_said(
    index: World, workspace: Path, tool: str
) -> None:
    result = run(index, workspace, "allowlist", FETCHES[tool])
    assert result.exit_code != 0
    assert result.duration_s < 5
    denial = result.denial
    assert isinstance(denial, Denial)
    assert (denial.host, denial.rule) == (f"{INDEX}:80", "network.allow")
    assert f"--allow-host {INDEX}" in (denial.hint or "")
    assert index.dialled == []


def test_an_index_at_a_private_address_needs_its_address_named(
    index: World, workspace: Path
) -> None:
    index.hosts[INDEX] = ["10.1.2.3"]
    index.servers[("10.1.2.3", 80)] = index.servers[(PUBLIC, 80)]
    fetch = f"curl -sS http://{INDEX}/simple/{PACKAGE}/"
    refused = run(index, workspace, "open", fetch)
    assert refused.exit_code != 0
    assert isinstance(refused.denial, Denial)
    assert "--allow-host 10.1.2.3" in (refused.denial.hint or "")
    named = run(index, workspace, "open", fetch, "10.1.2.3")
    assert (named.exit_code, named.denial) == (0, None)
    assert "sha256=" in text(named)


# ------------------------------------------------------------------ git over ssh


def sshd() -> str:
    """A server that can let this user in; skips where there is none."""
    found = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip("this machine has no sshd")
    if not os.path.basename(pwd.getpwuid(os.getuid()).pw_shell).endswith("sh"):
        pytest.skip("this user may not log in")
    if os.getuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    return found


@contextlib.contextmanager
def ssh_server(folder: Path) -> Iterator[int]:
    """One sshd for each connection, for this user and one key; its files lie in `folder`."""
    server, git = sshd(), shutil.which("git")
    for name in ("host", "client"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", folder / name]
        subprocess.run(words, check=True)
    shutil.copy(folder / "client.pub", folder / "authorized")
    (folder / "config").write_text(
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\n"
        f"PasswordAuthentication no\nPidFile none\nSetEnv PATH={os.path.dirname(str(git))}:/usr/bin:/bin\n"
    )

    def serve(connection: socket.socket) -> None:
        words = [server, "-i", "-e", "-f", str(folder / "config")]
        subprocess.run(words, stdin=connection, stdout=connection, stderr=subprocess.DEVNULL)

    with tcp_server(serve) as port:
        yield port


@pytest.mark.parametrize("mode", list(MODES))
def test_a_clone_over_ssh_works(world: World, workspace: Path, tmp_path: Path, mode: str) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    source = tmp_path / "source"
    subprocess.run([*git, "init", "-q", source], check=True)
    subprocess.run([*git, "-C", source, "commit", "-q", "--allow-empty", "-m", "hello"], check=True)
    keys = tmp_path / "keys"
    keys.mkdir()
    with ssh_server(keys) as port:
        world.hosts, world.servers = {SSH_HOST: [OTHER]}, {(OTHER, 22): port}
        for name in ("client", "host.pub"):
            shutil.copy(keys / name, workspace / name)
        host_key = (workspace / "host.pub").read_text()
        (workspace / "known").write_text(f"{SSH_HOST} {host_key}")
        user = pwd.getpwuid(os.getuid()).pw_name
        command = (
            f"git clone -q ssh://{user}@{SSH_HOST}{source} copy && git -C copy log --format=%s"
        )
        ssh = f"ssh -F none -i {workspace}/client -o UserKnownHostsFile={workspace}/known"
        hosts = (SSH_HOST,) if mode == "allowlist" else ()
        result = run(world, workspace, mode, command, *hosts, GIT_SSH_COMMAND=ssh)
    assert (result.exit_code, text(result)) == (0, "hello\n"), text(result)
    assert world.dialled == [(OTHER, 22)]


def test_ssh_to_a_host_that_was_not_named_is_denied(world: World, workspace: Path) -> None:
    world.hosts = {SSH_HOST: [OTHER]}
    result = run(world, workspace, "allowlist", f"ssh -F none -o BatchMode=yes me@{SSH_HOST} true")
    assert result.exit_code == 255
    assert isinstance(result.denial, Denial)
    assert (result.denial.host, result.denial.rule) == (SSH_HOST, "network.allow")
    assert world.dialled == []


# ------------------------------------------------------------------ programs in other languages

GO = """package main

import ("fmt"; "io"; "net"; "net/http"; "os")

func main() {
	answer, err := http.Get("http://%s/tiny-thing")
	if err != nil { fmt.Println(err); os.Exit(1) }
	body, _ := io.ReadAll(answer.Body)
	plain, err := net.Dial("tcp", "%s:80")
	fmt.Println(len(body) > 100, plain != nil, err)
}
"""


@pytest.mark.parametrize("mode", list(MODES))
def test_go_follows_the_proxy_or_is_carried(index: World, workspace: Path, mode: str) -> None:
    if shutil.which("go") is None:
        pytest.skip("this machine has no go")
    (workspace / "get.go").write_text(GO % (INDEX, INDEX))
    hosts = (INDEX,) if mode == "allowlist" else ()
    result = run(
        index, workspace, mode, "go run get.go", *hosts, GOFLAGS="-mod=mod", GO111MODULE="off"
    )
    assert text(result) == "true true <nil>\n"
