"""What people run, in every kernel tier: tools that must work, and how processes end.

One engine and one session serve all commands of a tier, as they do for a person.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.engine import Engine
from sandboxd.errors import CwdMissing, InvalidArgument, Refusal
from sandboxd.model import ExecRequest, NetworkMode, Result
from sandboxd.pipeline import run_command
from sandboxd.sessions import Session
from tests.confined import REQUIRED_TIERS, Ground, make_ground, write
from tests.guarded import HOST_GIT, Channel, committed, git, hidden

KERNEL = [name for name in REQUIRED_TIERS if name != "containment"]
VIEWED = [name for name in KERNEL if name != "landlock"]


class Desk:
    """Somebody at work in one tier."""

    def __init__(self, tier: str, ground: Ground) -> None:
        self.tier = tier
        self.ground = ground
        self._runner = asyncio.Runner()
        self.engine: Engine = self._runner.run(Engine.create())

    def close(self) -> None:
        self._runner.run(self.engine.close())
        self._runner.close()

    def session(self, workspace: str) -> Session:
        home = {**HOST_GIT, "HOME": self.ground.home, "LANG": "C.UTF-8"}
        return self.engine.open_session(workspace=workspace, cwd=workspace, environment=home)

    def run(self, command: str | list[str], workspace: str | None = None, **more: Any) -> Result:
        named = {"command": command} if isinstance(command, str) else {"argv": tuple(command)}
        request = ExecRequest(tier=self.tier, approve="all", **{**named, **more})  # type: ignore[arg-type]
        session = self.session(workspace or self.ground.workspace)
        return self._runner.run(run_command(self.engine, session, request, Channel()))

    def python(self, code: str, **more: Any) -> Result:
        return self.run([sys.executable, "-c", code], **more)


@pytest.fixture(scope="module", params=KERNEL)
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    for ground in make_ground():
        made = Desk(request.param, ground)
        yield made
        made.close()


def text(result: Result) -> str:
    return "".join(part.text for part in (result.stdout, result.stderr) if part is not None)


def out(result: Result) -> str:
    assert result.exit_code == 0, text(result)
    assert result.stdout is not None
    return result.stdout.text.strip()


PYTHON = {
    "pool": (
        "from multiprocessing import Pool; print(Pool(2).map(abs, [-1, -2]))",
        "[1, 2]",
    ),
    "shared_memory": (
        """from multiprocessing import Semaphore, shared_memory as s
Semaphore(); m = s.SharedMemory(create=True, size=9); m.close(); m.unlink(); print('ok')""",
        "ok",
    ),
    "manager": (
        "from multiprocessing import Manager\nwith Manager() as m: print(m.list([1]))",
        "[1]",
    ),
    "pty": ("import os; m, s = os.openpty(); print(os.isatty(s))", "True"),
    "certificates": (
        "import ssl; print(ssl.create_default_context().verify_mode.name)",
        "CERT_REQUIRED",
    ),
    "localhost": ("import socket; print(socket.gethostbyname('localhost'))", "127.0.0.1"),
}


@pytest.mark.parametrize("work", PYTHON)
def test_python_at_work(work: str, desk: Desk) -> None:
    code, expected = PYTHON[work]
    assert out(desk.python(code)).splitlines()[-1] == expected


SHELL = {
    "mktemp": ('T=$(mktemp -d) && test -n "$T" && rm -rf "$T" && echo gone', "gone"),
    "script": ("script -qc 'echo tty' /dev/null", "tty"),
    "getent": ("getent hosts localhost | grep -c localhost", "1"),
    "here_document": ("cat <<'E'\n$HOME\nE", "$HOME"),
    "process_substitution": ("diff <(echo a) <(echo a) && echo same", "same"),
}


@pytest.mark.parametrize("work", SHELL)
def test_a_shell_at_work(work: str, desk: Desk) -> None:
    command, expected = SHELL[work]
    assert out(desk.run(command)).splitlines()[-1] == expected


def test_a_run_without_network_has_its_loopback_and_fails_at_once_elsewhere(desk: Desk) -> None:
    code = (
        "import socket, time\n"
        "try:\n"
        "    with socket.create_server(('127.0.0.1', 0)) as s:\n"
        "        socket.create_connection(s.getsockname()).close(); print('loopback')\n"
        "except PermissionError: print('no sockets')\n"
        "begun = time.monotonic()\n"
        "try: socket.create_connection(('192.0.2.1', 80), 5)\n"
        "except OSError: print(time.monotonic() - begun < 1)"
    )
    found = out(desk.python(code, profile="offline")).split("\n")
    assert found == ["no sockets" if desk.tier == "landlock" else "loopback", "True"]


def test_node_at_work(desk: Desk) -> None:
    if shutil.which("node") is None:
        pytest.fail("node is among the tools that .ci/run installs")
    code = (
        "const net = require('net'), os = require('os'); os.networkInterfaces();"
        "const s = net.createServer(c => c.end('hi')).listen('own.sock', () =>"
        "net.connect('own.sock').on('data', d => { console.log(String(d)); s.close(); }))"
    )
    assert out(desk.run(["node", "-e", code])) == "hi"


def test_uv_works_beside_a_cache_that_cannot_be_written(desk: Desk) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed here")
    result = desk.run("uv venv -q fresh && fresh/bin/python -c 'print(1)'")
    assert out(result) == "1"


# ------------------------------------------------------------------ git


def test_a_checkout_commits_and_its_hooks_stay_as_they_are(desk: Desk) -> None:
    workspace = desk.ground.top + "/checkout"
    committed(workspace)
    assert out(desk.run("git commit -q --allow-empty -m x && echo done", workspace)) == "done"
    result = desk.run(hidden(".git/hooks/pre-commit"), workspace)  # named, it would be approved
    if desk.tier != "landlock":
        assert result.exit_code != 0
        assert result.denial is not None
        assert result.denial.hint
    assert not os.path.exists(workspace + "/.git/hooks/pre-commit")


def test_a_linked_worktree_commits_and_the_common_folder_keeps_what_runs(desk: Desk) -> None:
    main, linked = desk.ground.top + "/main", desk.ground.top + "/linked"
    committed(main)
    git("-C", main, "worktree", "add", "-q", linked)
    before = Path(main + "/.git/config").read_text()
    assert (
        out(desk.run("echo 1 > n && git add -A && git commit -qm x && echo done", linked)) == "done"
    )
    for name in ("config", "hooks/post-commit"):
        desk.run(f'echo x >> "$(git rev-parse --git-common-dir)/{name}"', linked)
    assert Path(main + "/.git/config").read_text() == before
    assert not os.path.exists(main + "/.git/hooks/post-commit")


def test_a_submodule_is_seen(desk: Desk) -> None:
    inner, outer = desk.ground.top + "/inner", desk.ground.top + "/outer"
    for folder in (inner, outer):
        committed(folder)
    git("-C", outer, "-c", "protocol.file.allow=always", "submodule", "-q", "add", inner, "sub")
    git("-C", outer, "commit", "-qm", "sub")
    assert "sub" in out(desk.run("git submodule status", outer))


def test_a_repository_of_somebody_else_is_gits_own_refusal(desk: Desk) -> None:
    workspace = desk.ground.top + "/foreign"
    committed(workspace)
    result = desk.run(
        "git commit --allow-empty -m x", workspace, env={"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    )
    assert result.exit_code == 128
    assert "dubious ownership" in text(result)
    assert result.attribution is not None
    assert result.attribution.origin != "sandbox"


# ------------------------------------------------------------------ names and folders

NAMES = ["a b", "q\"u'o", "new\nline", "\u00fcn\u00ef", "-rf", "n" * 200]


@pytest.mark.parametrize("name", NAMES)
def test_a_workspace_may_be_called_anything(name: str, desk: Desk) -> None:
    workspace = os.path.join(desk.ground.top, name)
    os.makedirs(workspace, exist_ok=True)
    result = desk.run('echo mine > f && cat f && basename -- "$PWD"', workspace)
    assert out(result) == "mine\n" + name
    assert Path(workspace, "f").read_text() == "mine\n"


def test_a_folder_that_is_gone_before_the_call_is_typed(desk: Desk) -> None:
    with pytest.raises(CwdMissing):
        desk.run("true", cwd=desk.ground.workspace + "/gone")


def test_a_folder_that_goes_during_the_call_ends_nobody_else(desk: Desk) -> None:
    workspace = desk.ground.workspace
    result = desk.run("mkdir -p d && cd d && rmdir ../d && ls x.txt")
    assert result.exit_code != 0
    assert out(desk.run("echo fine", workspace)) == "fine"


def test_a_link_out_of_the_workspace_is_not_written_through(desk: Desk) -> None:
    target = desk.ground.outside + "/file"
    os.symlink(target, desk.ground.workspace + "/way")
    result = desk.run("echo evil >> way")
    assert result.exit_code != 0
    assert Path(target).read_text() == "outside\n"


def test_arguments_are_passed_byte_by_byte_or_refused(desk: Desk) -> None:
    odd = os.fsdecode(b"odd-\xff-name")
    assert out(desk.run(["/bin/sh", "-c", 'printf %s "$1" | od -An -tx1', "sh", odd])).split() == [
        f"{byte:02x}" for byte in b"odd-\xff-name"
    ]
    with pytest.raises(InvalidArgument):
        desk.run(["/bin/echo", "a\0b"])


# ------------------------------------------------------------------ processes


@pytest.mark.parametrize("how", ["sleep 300 &", "setsid sleep 300 & disown;"])
def test_what_stays_behind_neither_delays_nor_survives(how: str, desk: Desk) -> None:
    begun = time.monotonic()
    result = desk.run(f"{how} echo done")
    assert out(result) == "done"
    assert result.survivors == 1
    assert time.monotonic() - begun < 5  # a second when nothing else runs here


def test_time_that_is_over_ends_what_ignores_it_and_keeps_the_output(desk: Desk) -> None:
    result = desk.run("trap '' TERM; echo begun; sleep 60", timeout_s=0.5)
    assert (result.exit_code, result.timed_out, result.limit) == (124, True, "wall")
    assert result.stdout is not None
    assert result.stdout.text == "begun\n"
    assert result.duration_s < 10


CODES = {"exit 7": 7, "kill -9 $$": 137, "kill -TERM $$": 143, "no-such-program": 127}


@pytest.mark.parametrize("command", CODES)
def test_exit_codes_are_the_shells(command: str, desk: Desk) -> None:
    assert desk.run(command).exit_code == CODES[command]


@pytest.mark.parametrize(
    ("name", "code"), [("missing", "PROGRAM_MISSING"), ("plain", "NOT_EXECUTABLE")]
)
def test_a_program_that_cannot_start_is_typed(name: str, code: str, desk: Desk) -> None:
    write(desk.ground.workspace + "/plain", "no program\n")
    with pytest.raises(Refusal) as caught:
        desk.run([desk.ground.workspace + "/" + name])
    assert caught.value.code == code


def test_input_of_any_size_arrives_whole(desk: Desk) -> None:
    assert out(desk.run(["/usr/bin/wc", "-c"], stdin="x" * 5_000_000)) == "5000000"
    assert out(desk.run(["/usr/bin/wc", "-c"])) == "0"


def test_the_mode_of_the_network_is_the_one_that_was_asked_for(desk: Desk) -> None:
    result = desk.run("true", profile="offline")
    assert any("network off" in held for held in result.tier.enforces), NetworkMode.OFF
