"""sed scripts and awk programs: what is called a reader is run for real and must write nothing."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.classify.languages.awk import program_problem
from sandboxd.classify.languages.sed import script_problem
from sandboxd.model import CommandClass
from tests.classify.grading_support import class_of, quoted

READ_ONLY, MUTATING, DESTRUCTIVE = CommandClass

SED_PIECES = [
    "w o",
    "e touch o",
    "W o",
    "s/a/b/",
    "s/a/b/w o",
    "s/a/b/e",
    "p",
    "d",
    "1",
    "$",
    "/",
    "a",
    "b",
    ",",
    ";",
    "\n",
    "{",
    "}",
    "!",
    "\\",
    "[",
    "]",
    "^",
    "y/a/b/",
    "r i",
    "i\\",
    "a\\",
    "c\\",
    " ",
    ":l",
    "b l",
    "t",
    "n",
    "N",
    "G",
    "h",
    "#",
    "~",
    "+",
    "0",
    "I",
    "g",
    "|",
    "s|",
    "*",
    "[/]",
    "[^/]",
    "\\/",
    "=",
    "l",
    "q",
    "z",
    "F",
    "Q",
]
AWK_PIECES = [
    "print",
    "print ",
    '> "o"',
    '>"o"',
    '>> "o"',
    '| "touch o"',
    'system("touch o")',
    "getline",
    "getline x",
    '< "i"',
    '"touch o" | getline',
    "/",
    "/a/",
    "/[/]/",
    '"',
    '"a"',
    "\\",
    "$1",
    "(",
    ")",
    "{",
    "}",
    ";",
    "\n",
    "a",
    "b",
    " ",
    ">",
    "1",
    "if(1)",
    "if (x) ",
    "else ",
    "BEGIN",
    "END",
    "~",
    "!",
    "&&",
    "||",
    "?",
    ":",
    ",",
    "[",
    "]",
    "in",
    "++",
    "--",
    "#",
    "=",
    "/=",
    "return ",
    "function f(x)",
    "@",
    "exit ",
    "next",
    "$",
    "regex",
    "%",
    "/ 2",
    '/"/',
    "/#/",
]


def random_text(pieces: list[str], chance: random.Random) -> str:
    return "".join(chance.choice(pieces) for _ in range(chance.randint(1, 8)))


def assert_readers_write_nothing(
    folder: Path, argv: Callable[[str], list[str]], texts: list[str]
) -> None:
    file = folder / "i"
    content = 'a b\nab/a\n"x"\n'
    file.write_text(content)
    for text in texts:
        try:
            subprocess.run(
                argv(text), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=5
            )
        except subprocess.TimeoutExpired:
            continue
        assert os.listdir(folder) == ["i"], text
        assert file.read_text() == content, text


def test_no_random_sed_script_that_is_called_a_reader_writes_or_runs(tmp_path: Path) -> None:
    chance = random.Random(20)
    texts = [random_text(SED_PIECES, chance) for _ in range(800)]
    readers = [text for text in texts if script_problem(text) is None]
    assert len(readers) > 50
    assert_readers_write_nothing(tmp_path, lambda text: ["sed", "-n", text, "i"], readers)


@pytest.mark.parametrize("awk", ["awk", *filter(shutil.which, ("mawk", "gawk"))])
def test_no_random_awk_program_that_is_called_a_reader_writes_or_runs(
    tmp_path: Path, awk: str
) -> None:
    chance = random.Random(21)
    texts = [f"BEGIN{{{random_text(AWK_PIECES, chance)}}}" for _ in range(800)]
    readers = [text for text in texts if program_problem(text) is None]
    assert len(readers) > 50
    assert_readers_write_nothing(tmp_path, lambda text: [awk, text, "i"], readers)


@pytest.mark.parametrize(
    "script",
    [
        "1,5p",
        "10q",
        "$!N;P;D",
        "/a/I,+3d",
        "0~3p",
        "s/a/b/g;s|x|y|2p",
        "s/[[:alpha:]_-]*$//",
        r"s/\//x/",
        r"\,x,d",
        "/a/{n;s/b/c/}",
        ":top;N;$!b top;s/\\n/ /g",
        "1i\\\ntext w out",
        "a some text; w out",
        "y/abc/xyz/",
        "# only a comment w out",
        "r /etc/hosts",
        "s/a/w out/",
        "/w out/p",
    ],
)
def test_a_script_that_only_edits_the_stream_reads(script: str) -> None:
    assert class_of("sed", "-n", script, "f") is READ_ONLY


@pytest.mark.parametrize(
    "script",
    [
        "w out",
        "1w out",
        "p;w out",
        "/a/{p;w out\n}",
        "s/a/b/w out",
        "s/a/b/gpw out",
        "s/a/b/e",
        "e",
        "1e id",
        "W out",
        "a text\nw out",
        ":l}w out",
        "s/[/]/x/w out]/",
        "/[^/]x/w out",
        "M",
    ],
)
def test_a_script_that_writes_runs_or_puzzles_does_not(script: str) -> None:
    assert class_of("sed", "-n", script, "f") is MUTATING


def test_several_scripts_are_read_as_one() -> None:
    assert class_of("sed", "-e", "p", "-e", "d", "f") is READ_ONLY
    assert class_of("sed", "-e", "p", "-e", "w out", "f") is MUTATING
    assert class_of("sed", "--expression=p", quoted("--expression=$x"), "f") is MUTATING


@pytest.mark.parametrize(
    "program",
    [
        "{print $1}",
        "NR==1{next} {a[$1]+=$2} END{for(k in a) print k, a[k]}",
        "$3 > 5",
        "{if ($1 > 5) print}",
        "{print ($1 > 5)}",
        "{print f($1 > 5), 2}",
        "BEGIN{x = 1 > 0}",
        "/a\\/b/",
        "{n = split($0, p, /[,;]/)}",
        '{print > "/dev/stderr"}',
        'BEGIN{while ((getline line < "f") > 0) print line}',
        "{print $1/2/3}",
        "{print length / 2}",
        '{sub(/>/, "|")}',
        '# print > "f"\n{print}',
    ],
)
def test_a_program_that_only_prints_reads(program: str) -> None:
    assert class_of("awk", program, "f") is READ_ONLY


@pytest.mark.parametrize(
    "program",
    [
        '{print > "f"}',
        '{print>"f"}',
        '{print(1)>"f"}',
        '{print (1)(2) > "f"}',
        "{print $1 > $2}",
        '{printf "x" >> "f"}',
        '{print $1,\n$2 > "f"}',
        '{print a ? b :\nc > "f"}',
        'BEGIN{system("x")}',
        'BEGIN{1system("x")}',
        'BEGIN{"x" | getline}',
        '{print | "sh"}',
        '{print |& "sh"}',
        'BEGIN{while ((getline l < ARGV[1]) > 0) print > "g"}',
        'BEGIN{getline < "/inet/tcp/0/h/80"}',
        "BEGIN{getline x < file}",
        '@load "x"',
        '@include "x"',
        'BEGIN{f = "system"; @f("x")}',
        'BEGIN{if (1) /"/; system("x"); y ~ /"/}',
        'BEGIN{x = "a\\\nb"; y = "}"; print > "f"}',
        "BEGIN{awk::system(1)}",
        "BEGIN{PROCINFO[1] = 2}",
        "BEGIN{print /[/]/}",
        "BEGIN{`x`}",
    ],
)
def test_a_program_that_writes_runs_or_puzzles_does_not(program: str) -> None:
    assert class_of("awk", program, "f") is MUTATING


def test_behind_the_program_awk_knows_no_options() -> None:
    assert class_of("awk", "1", quoted("$f")) is READ_ONLY
    assert class_of("awk", quoted("$p"), "f") is MUTATING
