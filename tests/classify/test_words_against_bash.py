"""What we say a word is, against the argv that real bash makes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxd.classify.lexer import read_plain
from sandboxd.classify.reading import Reading, Unread
from sandboxd.classify.structure import StructureReader

HOME = "/home/user"
_LOOP = 'for text; do eval "$text"; printf "\\1"; done'

_PLAIN = st.text(alphabet="abXY019_./:,+@%^=-", min_size=1, max_size=5)
_PIECES = st.one_of(
    _PLAIN,
    st.text(alphabet='ab \t\n$`"\\*{},#~', max_size=5).map(lambda body: f"'{body}'"),
    st.text(alphabet="ab \t'*{},#~!", max_size=5).map(lambda body: f'"{body}"'),
    st.sampled_from(["\\$", '\\"', "\\`", "\\\\", "\\n"]).map(lambda escape: f'"a{escape}b"'),
    st.sampled_from(list("ab$`\"'\\*{},#~ ;&|<>()!")).map(lambda char: "\\" + char),
    st.sampled_from(["$'a'", "$'\\n'", "$'\\x41'", "$'\\055b'", "$'\\u00e9'", "$'\\''", "$'\\q'"]),
    st.sampled_from(
        ["{a,b}", "{a,{b,c}}", "{1..3}", "{03..1}", "{a..c}", "{}", "{a}", "{,x}", "{a,b"]
    ),
    st.sampled_from(["~", "#", "!", "]", "}", "a\\\nb", "\\\n", "é", "{a,'b c'}", "{a,b}{c,d}"]),
)
_WORDS = st.lists(st.lists(_PIECES, min_size=1, max_size=4).map("".join), min_size=1, max_size=4)
_SIMPLE_WORDS = st.lists(
    st.lists(
        st.one_of(
            _PLAIN,
            st.text(alphabet="ab \n$`\\*|;&<>", max_size=5).map(lambda body: f"'{body}'"),
            st.text(alphabet="ab \n'*|;&<>", max_size=5).map(lambda body: f'"{body}"'),
        ),
        min_size=1,
        max_size=3,
    ).map("".join),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


def argv_in_bash(texts: list[str], folder: Path) -> list[list[str]]:
    """The words bash makes of `: WORDS`, for each text, in one process."""
    commands = [f"printf '%s\\0' {text}" for text in texts]
    done = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", "-c", _LOOP, "bash", *commands],
        env={"HOME": HOME, "LC_ALL": "C.UTF-8", "PATH": "/nonexistent"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    outputs = done.stdout.decode().split("\1")[: len(texts)]
    return [output.split("\0")[:-1] for output in outputs]


def literal_words(reading: Reading) -> list[str] | None:
    """Our argv without the program, when every word is literal and there is one command."""
    if len(reading.units) != 1 or len(reading.units[0].commands) != 1:
        return None
    words = reading.units[0].commands[0].words
    return [word.text for word in words[1:]] if all(word.is_literal for word in words) else None


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(_WORDS.map(" ".join))
def test_literal_words_are_exactly_what_bash_passes(empty_folder: Path, text: str) -> None:
    try:
        ours = literal_words(StructureReader(f"printf {text}", HOME).read_units())
    except Unread:
        return
    if ours:
        assert argv_in_bash([text], empty_folder) == [ours]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(_SIMPLE_WORDS.map(" ".join))
def test_plain_lexer_agrees_with_bash_and_with_the_structure_reader(
    empty_folder: Path, text: str
) -> None:
    plain = read_plain(f"printf {text}")
    assert plain is not None
    words = literal_words(plain)
    assert words == literal_words(StructureReader(f"printf {text}", HOME).read_units())
    assert argv_in_bash([text], empty_folder) == [words]


@pytest.mark.parametrize(
    "text",
    [
        "$x",
        "$(pwd)",
        "*",
        "a?",
        "[ab]",
        "~root",
        "`pwd`",
        "$((1+1))",
        "{1..$x}",
        "$'\\xff'",
        "<(pwd)",
    ],
)
def test_words_that_bash_may_change_are_not_called_literal(text: str) -> None:
    reading = StructureReader(f"printf {text}", HOME).read_units()
    words = next(c.words for c in reading.units[0].commands if c.words[0].text == "printf")
    assert not any(word.is_literal for word in words[1:])


@pytest.mark.parametrize(
    ("text", "may_be_option"),
    [
        ("$x", True),
        ('"$x"', True),
        ("a$x", True),
        ('a"$x"', False),
        ("*.py", True),
        ("src/*.py", False),
        ("''$x", True),
        ("$?", False),
        ('"$@"', True),
        ("~/x*", False),
    ],
)
def test_a_word_that_could_become_an_option_says_so(text: str, may_be_option: bool) -> None:
    reading = StructureReader(f"printf {text}", HOME).read_units()
    assert reading.units[0].commands[0].words[1].may_be_option is may_be_option
