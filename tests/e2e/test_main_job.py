"""The main job on real programs, through the command line, with a daemon and without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.confined import Ground, make_ground, read, write

Sandboxd = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


@pytest.fixture(params=["daemon", "embedded"])
def way(request: pytest.FixtureRequest, ground: Ground) -> Iterator[dict[str, str]]:
    """The environment of a caller whose commands go through a daemon, or run in process."""
    environment = {**os.environ, "HOME": ground.home}
    if request.param == "embedded":
        yield environment
        return
    path = ground.top + "/d.sock"
    serve = [sys.executable, "-m", "sandboxd", "serve", "--socket", path]
    daemon = subprocess.Popen(serve, env=environment, stdout=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists(path))
    yield {**environment, "SANDBOXD_SOCKET": path}
    daemon.terminate()
    assert daemon.wait(15) == 0
    assert not os.path.exists(path)


@pytest.fixture
def sandboxd(ground: Ground, way: dict[str, str]) -> Sandboxd:
    """`sandboxd exec` in the workspace; everything is approved beforehand unless said otherwise."""

    def run(*words: str, approve: str = "all", stdin: str | None = None, **environment: str) -> Any:
        command = [sys.executable, "-m", "sandboxd", "exec", "--approve", approve, *words]
        return subprocess.run(
            command,
            cwd=ground.workspace,
            env={**way, **environment},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return run


def wait_for(is_true: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_git_clones_commits_and_logs(sandboxd: Sandboxd, ground: Ground) -> None:
    source = ground.outside + "/source"
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", source], check=True)
    write(source + "/file", "content\n")
    subprocess.run(["git", "-C", source, "add", "-A"], check=True)
    subprocess.run(["git", "-C", source, *identity, "commit", "-qm", "first"], check=True)

    cloned = sandboxd("--", "git", "clone", "-q", source, "copy")
    assert cloned.returncode == 0, cloned.stderr
    committed = sandboxd(
        "-c",
        "cd copy && echo more >> file && git add -A && "
        "git -c user.name=a -c user.email=a@b commit -qm second",
    )
    assert committed.returncode == 0, committed.stderr
    logged = sandboxd("-c", "cd copy && git log --format=%s", approve="none")
    assert (logged.returncode, logged.stdout) == (0, "second\nfirst\n"), logged.stderr


def test_a_pool_of_processes_works(sandboxd: Sandboxd) -> None:
    code = "from multiprocessing import Pool; print(Pool(2).map(abs, [-1, -2]))"
    done = sandboxd("--", sys.executable, "-c", code)
    assert (done.returncode, done.stdout) == (0, "[1, 2]\n"), done.stderr


def test_a_c_program_is_compiled_and_run(sandboxd: Sandboxd, ground: Ground) -> None:
    write(
        ground.workspace + "/hello.c",
        '#include <stdio.h>\nint main(void) { puts("hello"); return 3; }\n',
    )
    done = sandboxd("-c", "cc -O1 -o hello hello.c && ./hello")
    assert (done.returncode, done.stdout) == (3, "hello\n"), done.stderr


def test_the_last_lines_of_a_failing_test_run_are_seen(sandboxd: Sandboxd, ground: Ground) -> None:
    lines = "\n".join(
        f"def test_{n}():\n    print('noise ' * 50)\n    assert {n} != 250" for n in range(400)
    )
    write(ground.workspace + "/test_many.py", lines)
    done = sandboxd(
        "--", sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "test_many.py"
    )
    assert done.returncode == 1
    assert "1 failed, 399 passed" in done.stdout.splitlines()[-1], done.stdout[-2000:]
    assert "assert 250 != 250" in done.stdout


def test_a_package_is_installed_into_a_virtual_environment(sandboxd: Sandboxd) -> None:
    done = sandboxd(
        "-c",
        f"{sys.executable} -m venv v && v/bin/pip install -q six && v/bin/python -c 'import six; print(six.__name__)'",
    )
    assert (done.returncode, done.stdout) == (0, "six\n"), done.stderr


def test_a_small_package_is_installed_by_npm(sandboxd: Sandboxd, ground: Ground) -> None:
    done = sandboxd(
        "-c",
        "npm install --no-audit --no-fund is-number && node -e 'console.log(require(\"is-number\")(5))'",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "true"
    assert os.path.isdir(ground.workspace + "/node_modules/is-number")


def test_a_background_child_neither_hangs_the_call_nor_stays(sandboxd: Sandboxd) -> None:
    begun = time.monotonic()
    done = sandboxd("--json", "-c", "sleep 300 & echo done")
    assert time.monotonic() - begun < 10
    result = json.loads(done.stdout)
    assert (result["exit_code"], result["stdout"]["text"], result["survivors"]) == (0, "done\n", 1)


def test_a_timeout_ends_what_ignores_sigterm_and_keeps_the_output(sandboxd: Sandboxd) -> None:
    done = sandboxd("--json", "--timeout", "1", "-c", "trap '' TERM; echo before; sleep 60")
    result = json.loads(done.stdout)
    assert done.returncode == 124
    assert (result["exit_code"], result["timed_out"], result["limit"]) == (124, True, "wall")
    assert result["stdout"]["text"] == "before\n"
    assert result["duration_s"] < 10


def test_a_long_output_is_bounded_and_counted_exactly(sandboxd: Sandboxd) -> None:
    done = sandboxd("--json", "-c", "seq 1 2000000; echo END >&2; exit 3")
    result = json.loads(done.stdout)
    out = result["stdout"]
    expected = sum(len(str(n)) + 1 for n in range(1, 2_000_001))
    assert (result["exit_code"], out["total_bytes"], out["total_lines"]) == (3, expected, 2_000_000)
    assert result["stderr"]["text"] == "END\n"
    shown = [line for line in out["text"].splitlines() if line.isdigit()]
    assert (shown[0], shown[-1]) == ("1", "2000000")
    assert out["omitted_lines"] == 2_000_000 - len(shown)
    assert out["omitted_bytes"] == expected - sum(len(line) + 1 for line in shown)
    assert len(out["text"]) < 80_000
    assert any(
        str(out["omitted_lines"]) in line.replace(",", "")
        for line in out["text"].splitlines()
        if not line.isdigit()
    )


@pytest.mark.parametrize(
    ("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("true", 0)]
)
def test_the_exit_code_is_the_programs_own(sandboxd: Sandboxd, script: str, code: int) -> None:
    assert sandboxd("-c", script).returncode == code


def test_input_passes_through_byte_for_byte(sandboxd: Sandboxd) -> None:
    text = "".join(f"line {n}\n" for n in range(200_000))
    done = sandboxd("--raw", "--", "cat", stdin=text)
    assert done.returncode == 0
    assert done.stdout == text


def test_a_planted_ls_first_on_path_is_not_read_only(sandboxd: Sandboxd, ground: Ground) -> None:
    planted = ground.workspace + "/venv/bin/ls"
    write(planted, "#!/bin/sh\ntouch planted-ran\n")
    os.chmod(planted, 0o755)
    path = f"{ground.workspace}/venv/bin:{os.environ['PATH']}"
    assert sandboxd("--", "ls", approve="none", PATH=path).returncode == 125
    assert sandboxd("--", "ls", approve="none").returncode == 0
    assert not os.path.exists(ground.workspace + "/planted-ran")


def test_an_exported_function_never_reaches_the_run(sandboxd: Sandboxd, ground: Ground) -> None:
    function = {"BASH_FUNC_ls%%": "() { touch shadow-ran; }", "BASH_ENV": ground.workspace + "/env"}
    write(ground.workspace + "/env", "touch env-ran\n")
    done = sandboxd("-c", "ls; echo ${BASH_ENV-unset}", approve="none", **function)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["env", "unset"]


def test_a_secret_of_the_caller_is_taken_out_and_named(sandboxd: Sandboxd) -> None:
    done = sandboxd("--json", "--", "env", AWS_SECRET_ACCESS_KEY="canary-1", HARMLESS="canary-2")
    result = json.loads(done.stdout)
    assert "canary-1" not in done.stdout
    assert "HARMLESS=canary-2" in result["stdout"]["text"]
    assert "AWS_SECRET_ACCESS_KEY" in result["scrubbed_env"]
    passed = sandboxd(
        "--env-pass", "AWS_SECRET_ACCESS_KEY", "--", "env", AWS_SECRET_ACCESS_KEY="canary-1"
    )
    assert "AWS_SECRET_ACCESS_KEY=canary-1" in passed.stdout


def test_the_temporary_folder_lives_from_call_to_call(sandboxd: Sandboxd) -> None:
    assert sandboxd("-c", "echo kept > /tmp/note").returncode == 0
    assert sandboxd("--", "cat", "/tmp/note").stdout == "kept\n"


def test_what_must_be_asked_is_refused_with_a_way_forward(
    sandboxd: Sandboxd, ground: Ground
) -> None:
    done = sandboxd("--json", "--", "rm", "-rf", "x", approve="none")
    refusal = json.loads(done.stdout)["error"]
    assert done.returncode == 125
    assert (refusal["code"], refusal["origin"]) == ("APPROVAL_REQUIRED", "gate")
    assert "--approve all" in refusal["hint"]
    assert sandboxd("--", "rm", "-rf", "x", approve="mutating").returncode == 125
    assert sandboxd("--", "touch", "made", approve="mutating").returncode == 0
    assert os.path.exists(ground.workspace + "/made")


def test_the_home_of_the_person_is_closed(sandboxd: Sandboxd, ground: Ground) -> None:
    done = sandboxd("-c", "cat ~/.ssh/id_rsa; echo x >> ~/.bashrc; ls ~")
    assert "canary" not in done.stdout + done.stderr
    assert not os.path.exists(ground.home + "/.bashrc")
    assert read(ground.home + "/.ssh/id_rsa") == "canary-key\n"


@pytest.mark.parametrize(
    "name", ["a b", "q\"u'o", "new\nline", "ünï", "-rf", "x" * 200, "$(touch pwn)"]
)
def test_a_workspace_may_have_any_name(ground: Ground, way: dict[str, str], name: str) -> None:
    folder = os.path.join(ground.top, name)
    os.mkdir(folder)
    command = [
        sys.executable,
        "-m",
        "sandboxd",
        "exec",
        "--approve",
        "all",
        "-c",
        "echo x > made && pwd",
    ]
    done = subprocess.run(command, cwd=folder, env=way, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, folder + "\n"), done.stderr
    assert os.listdir(folder) == ["made"]
