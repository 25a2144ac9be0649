"""The plain lexer: what it reads, and that it hands on everything else."""

from __future__ import annotations

import pytest

from sandboxd.classify.lexer import read_plain
from sandboxd.classify.structure import StructureReader

PLAIN = [
    "ls",
    "ls -la src/main.py",
    "grep -rn 'def main' src | head -20",
    'git log --oneline -5 && git status; echo "done"',
    "a || b\nc & d",
    "ls 2>&1 | head",
    "ls >/dev/null 2>&1",
    "find . -name x 2>/dev/null",
    "cat < /dev/null".replace("< ", "<"),
    "make &>/dev/null &",
    "find . -exec grep x {} +",
    "\nls\n\npwd\n",
    "a |\n b",
    "a &&\n b",
    "",
    "   ",
]
NOT_PLAIN = [
    "echo $x", "echo $(ls)", "echo `ls`", 'echo "$x"', "ls *", "ls ?", "ls [a]", "ls ~", "a=1 ls", "a=1", "{ ls; }", "(ls)",
    "ls > f", "ls >> f", "cat < f", "cat <<EOF\nx\nEOF", "ls # x", "ls \\\n -l", "if a; then b; fi", "for i in a; do b; done",
    "! ls", "time ls", "coproc ls", "echo {a,b}", "ls\r\n", "ls\u00a0x", "ls |& cat", "ls 2>&1x", "ls;;", "ls &&", "ls |", "| ls",
    "&& ls", "; ls", "echo 'a", 'echo "a', "echo a\\ b", "echo $'a'", "ls >/dev/nullx", "ls &>f", "case x in esac", "ls 3>&1",
    "echo \x0b", "a & & b", "a ; ; b", "function f", "echo a(b)", "echo \0",
]  # fmt: skip


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_is_read_as_the_structure_reader_reads_it(text: str) -> None:
    plain = read_plain(text)
    full = StructureReader(text, "/home/user").read_units()
    assert plain is not None
    assert plain.is_plain
    assert [unit.commands for unit in plain.units] == [unit.commands for unit in full.units]
    for own, other in zip(plain.units, full.units, strict=True):
        assert (own.span, own.connector, own.is_background, own.is_plain, own.last) == (
            other.span,
            other.connector,
            other.is_background,
            other.is_plain,
            other.last,
        )


@pytest.mark.parametrize("text", NOT_PLAIN)
def test_everything_else_is_handed_on(text: str) -> None:
    assert read_plain(text) is None


def test_quotes_are_removed_and_places_are_kept() -> None:
    reading = read_plain("grep 'a b'\"c\"d f")
    assert reading is not None
    words = reading.units[0].commands[0].words
    assert [(word.text, word.span) for word in words] == [
        ("grep", (0, 4)),
        ("a bcd", (5, 14)),
        ("f", (15, 16)),
    ]


def test_a_quoted_reserved_word_is_a_command_name() -> None:
    reading = read_plain("'if' x")
    assert reading is not None
    assert reading.units[0].commands[0].words[0].text == "if"


def test_pipes_name_what_feeds_a_command() -> None:
    reading = read_plain("a | b | c")
    assert reading is not None
    commands = reading.units[0].commands
    assert [command.piped_from for command in commands] == [(), ("a",), ("a", "b")]
    assert [command.is_piped_to for command in commands] == [True, True, False]
