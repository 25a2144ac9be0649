"""classify, explain, status, doctor, schema: words for people, JSON for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandboxd import __version__


def test_classify_says_the_class_and_why(cli: Any) -> None:
    done = cli("classify", "-c", "rm -rf build")
    assert done.returncode == 0
    assert done.stdout.split(b":")[0] in (b"mutating", b"destructive")


def test_classify_takes_text_vector_and_input(cli: Any) -> None:
    by_text = json.loads(cli("classify", "--json", "-c", "ls -l").stdout)
    by_vector = json.loads(cli("classify", "--json", "--", "ls", "-l").stdout)
    by_input = json.loads(cli("classify", "--json", input=b"ls -l").stdout)
    by_word = json.loads(cli("classify", "--json", "ls -l").stdout)
    assert {it["class"] for it in (by_text, by_vector, by_input, by_word)} == {"read_only"}
    assert {"class", "parsed", "cacheable", "reasons", "parts"} <= set(by_text)


def test_a_batch_has_a_verdict_for_every_line_even_a_bad_one(cli: Any) -> None:
    lines = [b'"ls"', b'"rm -rf x"', b"not json", b"17", b'"\\ud800"', b'"a\\u0000b"', b'"ls"']
    done = cli("classify", "--batch", input=b"\n".join(lines) + b"\n")
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert len(verdicts) == len(lines)
    assert verdicts[0]["class"] == verdicts[6]["class"] == "read_only"
    for verdict in verdicts[2:6]:
        assert (verdict["class"], verdict["parsed"]) == ("destructive", False)
        assert verdict["cacheable"] is False
        assert verdict["reasons"]


def test_explain_names_parts_and_what_is_touched(cli: Any) -> None:
    told = cli("explain", "-c", "cat a.txt | sort > b.txt").stdout.decode()
    assert "parts:" in told
    assert "cat a.txt" in told
    assert "b.txt" in told


def test_doctor_tries_every_tier_and_says_how_long(cli: Any) -> None:
    done = cli("doctor", "--json")
    tiers = {rung["tier"]["name"]: rung for rung in json.loads(done.stdout)["tiers"]}
    assert done.returncode == 0
    assert tiers["namespaces"]["available"]
    assert tiers["namespaces"]["seconds"] > 0
    assert tiers["containment"]["tier"]["kernel"] is False
    assert any("network open" in held for held in tiers["namespaces"]["tier"]["enforces"])
    assert any("the fallback" in gap for gap in tiers["landlock"]["tier"]["gaps"])
    for rung in tiers.values():
        assert rung["available"] or (rung["cause"] and rung["remedy"])
    told = cli("doctor").stdout.decode()
    assert "namespaces: works" in told
    assert "\x1b" not in told


def test_status_speaks_of_the_daemon(daemon_cli: Any, daemon: Any) -> None:
    status = json.loads(daemon_cli("status", "--json").stdout)
    assert (status["pid"], status["socket"]) == (daemon.pid, daemon.socket)
    assert str(daemon.pid) in daemon_cli("status").stdout.decode()


def test_status_without_a_daemon_is_a_refusal_with_a_remedy(workspace: Path) -> None:
    done = run("status", "--socket", str(workspace / "none"))
    assert done.returncode == 125
    assert "sandboxd serve" in done.stderr


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandboxd", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )


def test_schema_prints_what_is_checked_in(repository: Path) -> None:
    assert run("schema").stdout == (repository / "docs/protocol.schema.json").read_text()
    assert run("schema", "--markdown").stdout == (repository / "docs/protocol.md").read_text()


def test_help_and_version(repository: Path) -> None:
    for words in ([], ["--help"], ["exec", "--help"], ["exec", "-h"], ["classify", "--help"]):
        done = run(*words)
        assert "Usage: " in done.stdout
        assert done.returncode == (0 if words else 2)
    for command in ("exec", "classify", "serve", "doctor"):
        assert command in run("--help").stdout
    assert __version__ in run("--version").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["frobnicate"],
        ["--frobnicate"],
        ["classify", "--frobnicate"],
        ["classify", "-c", "ls", "--", "ls"],
        ["classify", "--batch", "-c", "ls"],
        ["serve", "--stdio", "--detach"],
        ["status", "extra"],
    ],
)
def test_misuse_is_a_sentence_a_hint_and_exit_2(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("sandboxd: ") for line in lines)
    assert lines[-1].startswith("sandboxd: hint: ")


def test_a_broken_profile_file_names_file_and_line(cli: Any) -> None:
    (cli.workspace / "bad.yaml").write_text("extends: default\napproval: perhaps\n")
    for words in (
        ["exec", "--profile", "./bad.yaml", "--", "ls"],
        ["classify", "--profile", "./bad.yaml", "-c", "ls"],
    ):
        done = cli(*words)
        assert done.returncode == 2
        assert b"bad.yaml" in done.stderr
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("where", "told"),
    [(">/dev/full", b"No space left on device"), (">&-", b"it is closed")],
)
def test_output_that_cannot_be_written_is_a_sentence(cli: Any, where: str, told: bytes) -> None:
    words = cli.words("classify", "-c", "ls")
    done = subprocess.run(
        ["sh", "-c", f'unset PYTHONUNBUFFERED; "$@" {where}', "sh", *words],
        cwd=cli.workspace,
        env=cli.environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 125
    assert done.stderr == b"sandboxd: cannot write the output: " + told + b"\n"


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_output_that_goes_nowhere_is_no_success(cli: Any, json_option: list[str]) -> None:
    words = cli.words("exec", *json_option, "--", "echo", "out")
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *words],
        cwd=cli.workspace,
        env=cli.environment,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        125,
        b"sandboxd: cannot write the output: it is closed\n",
    )
    silent = cli.words("exec", "--", "true")
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *silent], cwd=cli.workspace, check=False)
    assert done.returncode == 0
