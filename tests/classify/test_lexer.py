"""The plain lexer: what it reads, and that it hands on everything else."""

from __future__ import annotations

import random

import pytest

from sandboxd.classify.lexer import read_plain
from sandboxd.classify.reading import Unit
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
    "echo $x",
    'echo "$x" "a$?b" "$1$2"',
    "ls *",
    "ls a?c -la",
    "ls ~ ~/x a~b",
    "ls > f",
    "ls >> f 2>err",
    "cat < f",
    "ls >/dev/nullx",
    "echo a\\ b",
    r"find . -name x -exec ls {} \;",
    r'grep "a\|b\"c" f',
    "$x y",
    "git diff HEAD~1",
    "echo $# $? $1x",
]
NOT_PLAIN = [
    "echo $(ls)", "echo `ls`", 'echo "$(ls)"', 'echo "`ls`"', "echo ${x}", 'echo "${x}"', "ls [a]", "a=1 ls", "a=1", "a=$x", "{ ls; }",
    "(ls)", "cat <<EOF\nx\nEOF", "cat <<<x", "ls # x", "ls \\\n -l", "if a; then b; fi", "for i in a; do b; done",
    "! ls", "time ls", "coproc ls", "echo {a,b}", "ls\r\n", "ls\u00a0x", "ls |& cat", "ls 2>&1x", "ls;;", "ls &&", "ls |", "| ls",
    "&& ls", "; ls", "echo 'a", 'echo "a', "echo $'a'", 'echo $"a"', "ls &>f", "case x in esac", "ls 3>&1", "ls >&f", "ls >|f", "ls <>f",
    "echo \x0b", "a & & b", "a ; ; b", "function f", "echo a(b)", "echo \0", "echo $$", "echo $@", "echo $*", "echo $!", "echo $-", "echo $[1]",
    "ls ~root", "ls ~+", "ls a=~", "ls > $x", "ls > *", "cat <(ls)", "ls >(cat)", 'echo "a\\\nb"', "echo a\\", "ls > f(x)",
]  # fmt: skip
PIECES = [
    *("a", "ls", " ", " ", "'", '"', '"', "$", "$x", "$?", "\\", "*", "?", "~", "~/", "/", "=", "-", "--x", ";", "&", "&&", "|", "||"),
    *("\n", ">", ">>", "<", "2>", "2>&1", "/dev/null", "{}", "{", "}", "(", ")", "#", "!", "[", "]", "$(", "`", "é", "\t", "0", "export "),
    *("x=", ":", ".", "$$", "$#", "$1", "${", "cd ", "if ", "\r", "&>", "<<", "|&", "$'", '$"'),
]  # fmt: skip


def described(unit: Unit) -> tuple[object, ...]:
    tokens = tuple(token for token in unit.tokens if token != "\n")
    shape = (unit.span, unit.connector, unit.is_background, unit.is_plain, unit.last)
    return (*shape, unit.commands, unit.notices, tokens)


@pytest.mark.parametrize("home", ["/home/user", "relative", ""])
@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_is_read_as_the_structure_reader_reads_it(text: str, home: str) -> None:
    plain = read_plain(text, home)
    full = StructureReader(text, home).read_units()
    assert plain is not None
    assert plain.is_plain
    assert list(map(described, plain.units)) == list(map(described, full.units))


def test_whatever_text_is_plain_reads_alike_in_both_readers() -> None:
    chance = random.Random(7)
    plain_ones = 0
    for _ in range(20_000):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 8)))
        plain = read_plain(text, "/home/user")
        if plain is None:
            continue
        plain_ones += 1
        full = StructureReader(text, "/home/user").read_units()
        assert list(map(described, plain.units)) == list(map(described, full.units)), text
    assert plain_ones > 2_000


@pytest.mark.parametrize(
    "text", ["ls -la", "a 'b' | c", "ls > f 2>&1", "ls $x", "ls *", "ls ~/x", r"ls a\ b"]
)
def test_only_what_every_shell_reads_alike_is_common(text: str) -> None:
    reading = read_plain(text, "/home/user")
    assert reading is not None
    assert reading.is_common == (not set(text) & set("$*~\\"))


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


@pytest.mark.parametrize(
    "text", ["bash -c 'rm -rf /x'", 'echo a "b" c', "ls -l > f 2>&1", "a b | c 'd' && e 'f' g"]
)
def test_reading_is_never_a_part_of_the_text(text: str) -> None:
    """Python 3.11.2 lost the word after bare words: `bash -c 'rm -rf /x'` was read as `bash -c`."""
    reading = read_plain(text)
    assert reading is not None
    commands = [command for unit in reading.units for command in unit.commands]
    assert max(command.span[1] for command in commands) == len(text)
