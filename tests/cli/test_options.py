"""The options of exec: what they mean, and a sentence for what cannot be meant."""

from __future__ import annotations

import pytest

from sandboxd.cli.options import Options, UsageError, help_text, parse


def test_everything_is_read_into_its_place() -> None:
    line = (
        "--workspace W --session S --profile P --tier T --min-tier M --timeout 2.5 --approve all "
        "--env A=1 --env B=x=y --env-pass C --env-pass D --allow-host h:1 --allow-host i "
        "--publish 80 --publish 81 --learn L --cwd F --socket K --json --no-daemon "
        "-- cmd -a --json"
    )
    options = parse(line.split(" "))
    assert vars(options) == {
        "text": None,
        "argv": ["cmd", "-a", "--json"],
        "workspace": "W",
        "session": "S",
        "profile": "P",
        "tier": "T",
        "min_tier": "M",
        "timeout_s": 2.5,
        "approve": "all",
        "env": {"A": "1", "B": "x=y"},
        "env_pass": ["C", "D"],
        "allow_hosts": ["h:1", "i"],
        "publish": [80, 81],
        "escalation": None,
        "learn": "L",
        "cwd": "F",
        "socket": "K",
        "is_json": True,
        "is_raw": False,
        "no_daemon": True,
        "wants_help": False,
    }


def test_nothing_said_is_the_default() -> None:
    assert vars(parse(["ls"])) == {**vars(Options()), "argv": ["ls"]}


@pytest.mark.parametrize(
    ("words", "argv", "text"),
    [
        (["--", "ls", "--raw"], ["ls", "--raw"], None),
        (["ls", "--raw", "--"], ["ls", "--raw", "--"], None),
        (["--json", "ls"], ["ls"], None),
        (["--", "--help"], ["--help"], None),
        (["--", "-"], ["-"], None),
        (["-c", "ls | wc"], [], "ls | wc"),
        (["-c", ""], [], ""),
        (["-c", "--json"], [], "--json"),
        (["--timeout=3", "ls"], ["ls"], None),
    ],
)
def test_the_command_begins_at_the_first_word_that_is_no_option(
    words: list[str], argv: list[str], text: str | None
) -> None:
    options = parse(words)
    assert (options.argv, options.text) == (argv, text)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "no command"),
        (["--"], "no command"),
        (["--", ""], "empty"),
        (["-c"], "-c needs TEXT"),
        (["--timeout"], "--timeout needs S"),
        (["--timeout", "0", "ls"], "above 0"),
        (["--timeout", "-1", "ls"], "above 0"),
        (["--timeout", "nan", "ls"], "above 0"),
        (["--timeout", "inf", "ls"], "above 0"),
        (["--approve", "yes", "ls"], "none, mutating or all"),
        (["--env", "A", "ls"], "NAME=VALUE"),
        (["--env", "=1", "ls"], "NAME=VALUE"),
        (["--env-pass", "A=1", "ls"], "name of a variable"),
        (["--allow-host", "", "ls"], "takes a host"),
        (["--publish", "0", "ls"], "1 to 65535"),
        (["--publish", "70000", "ls"], "1 to 65535"),
        (["--publish", "web", "ls"], "1 to 65535"),
        (["--json=1", "ls"], "takes no value"),
        (["--jsn", "ls"], "no option '--jsn'"),
        (["-x", "ls"], "no option '-x'"),
        (["-c", "ls", "ls"], "both"),
        (["--json", "--raw", "ls"], "exclude"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(words: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse(words)


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--json", "--help"]])
def test_help_needs_no_command(words: list[str]) -> None:
    assert parse(words).wants_help


def test_help_names_every_option() -> None:
    told = help_text()
    for name in vars(Options()):
        if name.startswith("is_"):
            assert f"--{name[3:]}" in told
    for name in ("-c TEXT", "--min-tier T", "--env K=V", "--env-pass NAME", "--no-daemon"):
        assert name in told
