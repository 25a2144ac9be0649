"""The second reading agrees with what is right, and contradicts what is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from sandboxd.classify.crosscheck import SecondReader
from sandboxd.classify.second_opinion import SecondOpinion
from sandboxd.classify.structure import StructureReader
from sandboxd.model import SimpleCommand

AGREED = [
    "ls -la *.py | head -1 2>&1",
    "cat <<'EOF'\n$(x)\nEOF",
    "for i in {1..3}; do echo $((i * 2)); done",
    "[[ -f x && $y == z* ]] && echo ok",
    "[ -f x ] && test -d y",
    "case $x in a|b) ls ;; *) cat x ;; esac",
    "x=(1 2 3); echo ${x[0]}",
    "time -p ls a",
    "time ls",
    "! ls",
    "diff <(ls a) <(ls b)",
    "ls 2>/dev/null a >&2 b",
    "export A=1; unset B",
    'echo `id` "`id`"',
    "while read -r l; do echo $l; done < f",
    "echo é; ls x",
    "cat <<< 'a b'",
    "ls # hi\npwd",
    "ls \\\n  -la",
]


def commands_of(text: str) -> list[SimpleCommand]:
    units = StructureReader(text, "/home/user").read_units().units
    return [command for unit in units for command in unit.commands]


@pytest.fixture(scope="module")
def second() -> Iterator[SecondOpinion]:
    second = SecondOpinion()
    second.warm_up()
    yield second
    second.close()


@pytest.mark.parametrize("text", AGREED)
def test_both_readings_agree_on_what_agents_write(text: str) -> None:
    assert SecondReader().opinion(text, commands_of(text)) == "agrees"


@pytest.mark.parametrize("text", AGREED)
def test_a_reading_that_lost_a_command_is_contradicted(text: str) -> None:
    commands = commands_of(text)
    with_words = [command for command in commands if command.words]
    for lost in with_words:
        if text[lost.span[0]] == "`":
            continue
        left = [command for command in commands if command is not lost]
        assert SecondReader().opinion(text, left) == "differs"


def test_a_reading_with_other_words_is_contradicted() -> None:
    command = commands_of("ls a b")[0]
    joined = replace(command, words=command.words[:2])
    assert SecondReader().opinion("ls a b", [joined]) == "differs"


def test_a_reading_with_a_command_too_many_is_contradicted() -> None:
    commands = commands_of("ls a; pwd")
    assert SecondReader().opinion("ls a # pwd", commands) == "differs"


def test_where_tree_sitter_cannot_read_bashlex_is_asked(second: SecondOpinion) -> None:
    text = "ls#x;pwd"
    commands = commands_of(text)
    assert SecondReader().opinion(text, commands) == "cannot read"
    assert second.agrees(text, commands, [])
    assert not second.agrees(text, commands[:1], [])


def test_where_neither_can_read_nothing_is_agreed(second: SecondOpinion) -> None:
    text = "cat <<EOF; ls\nhi\nEOF"
    assert not second.agrees(text, commands_of(text), [])
