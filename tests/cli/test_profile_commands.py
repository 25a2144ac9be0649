"""`profile show`, `check` and `explain`, as a person types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(cwd: Path, *words: str, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "sandboxd", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.getcwd(), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".sandboxd.yaml").write_text("# ours\nlimits:\n  wall_s: 60\n")
    return tmp_path


def test_show_names_the_line_of_each_value(project: Path) -> None:
    code, out, _ = run(project, "profile", "show", "--no-daemon", "--json")
    shown = json.loads(out)
    by_key = {value["key"]: value for value in shown["values"]}
    assert code == 0
    assert by_key["limits.wall_s"] == {
        "key": "limits.wall_s",
        "value": "60.0",
        "why": "",
        "file": str(project / ".sandboxd.yaml"),
        "line": 3,
    }
    assert by_key["approval"]["file"].endswith("profiles/default.yaml")
    assert shown["layers"][-1] == str(project / ".sandboxd.yaml")
    assert shown["plan"] is None


def test_show_with_a_tier_prints_its_launch_plan(project: Path) -> None:
    secret = "AWS_SECRET_ACCESS_KEY"
    words = ("profile", "show", "--no-daemon", "--tier", "containment", "--json")
    _, out, _ = run(project, *words, **{secret: "canary"})
    plan = json.loads(out)["plan"]
    assert plan["tier"]["name"] == "containment"
    assert plan["cwd"] == str(project)
    assert "canary" not in out


@pytest.mark.parametrize(
    ("words", "answer", "line", "change"),
    [
        (("--read", "~/.ssh/id_rsa"), "no", "${HOME}/.ssh", "reveal"),
        (("--read", "/etc/hostname"), "yes", None, None),
        (("--write", "./x"), "yes", "${WORKSPACE}", None),
        (("--write", "/etc/x"), "no", "write:", "files.write"),
        (("--write", ".git/hooks/x"), "no", ".git/hooks", "approved"),
        (("--host", "169.254.169.254"), "no", "mode: open", "--allow-host"),
        (("--host", "example.com", "--profile", "offline"), "no", "network: off", "allowlist"),
        (("--command", "rm -rf x"), "no", "approval:", "--approve all"),
        (("--command", "ls"), "yes", "approval:", None),
    ],
)
def test_explain_names_the_line_that_decides_and_what_to_change(
    words: tuple[str, ...], answer: str, line: str | None, change: str | None, project: Path
) -> None:
    home = project / "home"
    home.mkdir()
    code, out, err = run(project, "profile", "explain", "--no-daemon", *words, HOME=str(home))
    assert (code, err) == (0, "")
    assert out.startswith(f"{answer}: ")
    if line is not None:
        decided = next(each for each in out.splitlines() if each.startswith("decided by "))
        file, _, rest = decided.removeprefix("decided by ").partition(", line ")
        assert line in Path(file).read_text().splitlines()[int(rest.split()[0]) - 1]
    assert ("to change: " in out) == (change is not None)
    assert change is None or change in out


def test_explain_wants_exactly_one_question(project: Path) -> None:
    for words in ((), ("--read", "/x", "--write", "/y"), ("--read", "")):
        code, _, err = run(project, "profile", "explain", *words)
        assert code == 2
        assert "name one of" in err


def test_check_says_what_is_wrong_and_exits_2(project: Path) -> None:
    assert run(project, "profile", "check", ".sandboxd.yaml")[0] == 0
    for text, words in (
        ("approvals: x\n", "perhaps `approval`"),
        ("network: {allow: ['*x.example']}\n", "key 'network.allow'"),
        ('files: {write: ["${HOME}/.ssh"]}\n', "a project file can only tighten"),
    ):
        (project / ".sandboxd.yaml").write_text(text)
        code, _, err = run(project, "profile", "check", ".sandboxd.yaml")
        assert code == 2
        assert f"{project}/.sandboxd.yaml, line 1" in err
        assert words in err


def test_the_environment_names_a_profile_and_a_flag_wins(project: Path) -> None:
    for words, env, name in (
        ((), {"SANDBOXD_PROFILE": "offline"}, "offline"),
        (("read-only",), {"SANDBOXD_PROFILE": "offline"}, "read-only"),
    ):
        _, out, _ = run(project, "profile", "show", "--no-daemon", "--json", *words, **env)
        assert json.loads(out)["profile"] == name
