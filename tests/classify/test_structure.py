"""The structure reader: what agents write daily is read, and nothing that runs is lost."""

from __future__ import annotations

import pytest

from sandboxd.classify.reading import Reading, Unread
from sandboxd.classify.structure import StructureReader


def read(text: str) -> Reading:
    return StructureReader(text, "/home/user").read_units()


def names(text: str) -> list[str]:
    """Every command name of the text, in no particular order."""
    return sorted(
        command.words[0].text
        for unit in read(text).units
        for command in unit.commands
        if command.words
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat <<'EOF'\n$(rm x)\nEOF", ["cat"]),
        ("cat <<EOF\n$(rm x)\nEOF", ["cat", "rm"]),
        ("[[ -f x && $y == z* ]] && a", ["a"]),
        ("[[ $x =~ ^(b|c)$ ]] || a", ["a"]),
        ("[[ $x == @(b|c)* ]]", []),
        ("case $x in a|b) p ;; (c) q ;; *) r & esac", ["p", "q", "r"]),
        ("case x in\n  a)\n    p\n    ;;\nesac", ["p"]),
        ("for ((i = 0; i < 3; i++)); do a; done", ["a"]),
        ("for f in *.py; do a; done", ["a"]),
        ("for f; do a; done", ["a"]),
        ("for f in a b; { p; }", ["p"]),
        ("select f in a; do p; done", ["p"]),
        ("x=(1 2 $(a)); b", ["a", "b"]),
        ("declare -a x=(1 $(a))", ["a", "declare"]),
        ("time -p a", ["a"]),
        ("time a | b", ["a", "b"]),
        ("! a", ["a"]),
        ("echo $(a && b)", ["a", "b", "echo"]),
        ("(( x > 3 )) && a", ["a"]),
        ("((a); (b))", ["a", "b"]),
        ("echo $((1 + 2))", ["echo"]),
        ("echo $((a) | b)", ["a", "b", "echo"]),
        ("a & b", ["a", "b"]),
        ("a |& b 2>&1 &>/dev/null", ["a", "b"]),
        ("a # b\nc", ["a", "c"]),
        ("a \\\n  -b \\\n  c", ["a"]),
        ("a\r\nb\r\n", ["a\r", "b\r"]),
        ("{ a; b; } > f", ["a", "b"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done < f", ["a", "b"]),
        ("until a\ndo b\ndone", ["a", "b"]),
        ("f() { a; }; f", ["a", "f"]),
        ("function f { a; }", ["a"]),
        ("function f() ( a )", ["a"]),
        ("coproc X { a; }", ["a"]),
        ("a <(b) > >(c)", ["a", "b", "c"]),
        ('a "${x:-"$(b)"}" ${y#$(c)} ${z/`d`/e}', ["a", "b", "c", "d"]),
        ("a `b \\`c\\``", ["a", "b", "c"]),
        ("a `b``c`", ["a", "b", "c"]),
        ("{a,b} c", ["a"]),
        ("a\\\nb c", ["ab"]),
        ("a; { { b; } }", ["a", "b"]),
        ("A=1 B=$(b) a", ["a", "b"]),
        ("a <<< $(b)", ["a", "b"]),
        ("a 2>/dev/null 1>&2 {fd}>&1", ["a"]),
        ("echo $(case x in x) a;; esac)", ["a", "echo"]),
        ("echo $(a # )\nb)", ["a", "b", "echo"]),
        ('a "x.$$" $$.y', ["a"]),
        ("", []),
        ("# only a comment", []),
        ("\n\n", []),
    ],
)
def test_every_command_is_found(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "echo 'a", 'echo "a', "echo `a", "echo $(a", "echo ${a", "if a; then b", "for x in a", "case x in", "a |", "a &&", "&& a",
        "| a", "; a", "a ;; b", "(a", "a)", "{ a", "}", "then", "a b(c)", "a(", "ls !(x)", "echo ${ a; }", "[[ a",
        "echo $[1]", "cat <<$X\na\n$X", "f() a", "time -x a", "echo \0", "$((", "((", "a <", "a > ; b", "fi", "do", "done",
        "echo $(cat <<E\nx)", "cat <<E $(a\nb)\nE", "a\\\n(b)", "echo $\\\n(a)", 'echo "$$(a)"', "{ }", "( )", "if ; then a; fi",
    ],
)  # fmt: skip
def test_what_is_not_certain_is_not_read(text: str) -> None:
    with pytest.raises(Unread):
        read(text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("x='a[$(id)]'; echo $((x))", "arithmetic"),
        ("x=$y; (( x > 1 ))", "arithmetic"),
        ("read x; echo $((x))", "arithmetic"),
        ("for i in $(ls); do echo $((i)); done", "arithmetic"),
        ("echo $(( $(cat f) + 1 ))", "arithmetic"),
        ("echo $((  $1 ))", "arithmetic"),
        ("i=$(cat f); echo ${a[i]}", "arithmetic"),
        ("o=$x; echo ${y:o}", "arithmetic"),
        ("[[ 'a[$(id)]' -eq 0 ]]", "arithmetic"),
        ("[[ $(cat f) -gt 1 ]]", "arithmetic"),
        ("[[ $(grep -c x f g) -gt 1 ]]", "arithmetic"),
        ("[[ $(grep -c -r x) -gt 1 ]]", "arithmetic"),
        ("[[ $(wc -l f) -gt 1 ]]", "arithmetic"),
        ("echo $(( $(id -u; cat f) ))", "arithmetic"),
        ("echo $(( $(cat f; id -u) ))", "arithmetic"),
        ("[[ $(cat f && id -u) -gt 1 ]]", "arithmetic"),
        ("for i in $(cat f; seq 1 2); do echo $((i)); done", "arithmetic"),
        ("x=$(if cat f; then id -u; fi); echo $((x))", "arithmetic"),
        ("x=$(id -u 2>&1); echo $((x))", "arithmetic"),
        ("x=$(id -u)$v; echo $((x))", "arithmetic"),
        (": 'a[$(id)]'; echo $((_))", "arithmetic"),
        (": 'a[$(id)]'; echo ${y[_]}", "arithmetic"),
        ("[[ 'a[$(id)]' =~ (.*) ]]; echo $((BASH_REMATCH[1]))", "arithmetic"),
        ("read <<< 'a[$(id)]'; echo $((REPLY))", "arithmetic"),
        ("[[ $REPLY -eq 1 ]]", "arithmetic"),
        ("x=$((1))$v$((1)); echo $((x))", "arithmetic"),
        ("[[ $((0))$v$((0)) -eq 1 ]]", "arithmetic"),
        ("[[ $(id -u)$v -eq 1 ]]", "arithmetic"),
        ("for i in $(seq 1 2)$v; do echo $((i)); done", "arithmetic"),
        ("echo $(( $(id -u)$1 ))", "arithmetic"),
        ("x=$(cat f | { cat; id -u; }); echo $((x))", "arithmetic"),
        ("x=$(cat f & id -u); echo $((x))", "arithmetic"),
        ("seq() { cat f; }; for i in $(seq 1 2); do echo $((i)); done", "arithmetic"),
        ("[[ -v 'a[$(id)]' ]]", "subscript"),
        ("echo ${!x}", "indirection"),
        ("echo ${x@P}", "prompt-expansion"),
        ("x='$(id)'", "assignment"),
        ("echo\u00a0x", "control-character"),
        ("echo x\x0bz", "control-character"),
    ],
)
def test_code_hidden_in_values_is_noticed(text: str, rule: str) -> None:
    assert rule in {notice.rule for unit in read(text).units for notice in unit.notices}


@pytest.mark.parametrize(
    "text",
    [
        "for i in 1 2 3; do echo $((i * 2)); done",
        "for i in {1..5}; do echo $((i)); done",
        "for i in $(seq 1 5); do echo $((i)); done",
        "n=$(wc -l < f); echo $((n + 1))",
        "n=$(ls | wc -l); [[ $n -gt 3 ]]",
        "n=3; n=$((n + 1)); (( n > 2 ))",
        "i=0; while (( i < 3 )); do (( i++ )); done",
        "start=$(date +%s); echo $(( $(date +%s) - start ))",
        "[[ $# -eq 0 ]]",
        "[[ $(id -u) -eq 0 ]]",
        "(( $(grep -c x f) > 2 ))",
        "echo $(( $(stat -c %s f) / 1024 ))",
        "[[ ${#x} -gt 3 ]]",
        "a=(1 2 3); echo ${a[0]} ${a[@]:1:2} ${#a[@]}",
        "[[ -v HOME ]]",
        "echo ${!a[@]} ${!x*}",
        "echo ${x@Q} ${x^^} ${x:-y} ${x%%.*} ${x//a/b}",
    ],
)
def test_numbers_and_plain_expansions_raise_nothing(text: str) -> None:
    assert [notice for unit in read(text).units for notice in unit.notices] == []


def test_assignments_that_are_not_written_as_such_are_commands() -> None:
    for text in ("echo ${PATH:=x}", "for PATH in x; do :; done", "(( PATH = 1 ))", "{PATH}>&1 ls"):
        assigned = {
            assignment.name
            for unit in read(text).units
            for command in unit.commands
            for assignment in command.assignments
        }
        assert assigned == {"PATH"}, text


def test_a_pipe_into_a_compound_feeds_every_command_in_it() -> None:
    unit = read("{ a; b; } | { c | d; }").units[0]
    fed = {command.words[0].text: command.piped_from for command in unit.commands}
    assert fed == {"a": (), "b": (), "c": ("a", "b"), "d": ("a", "b", "c")}


def test_units_know_how_they_are_joined() -> None:
    units = read("a && b || c; d & e\nf").units
    assert [unit.connector for unit in units] == [";", "&&", "||", ";", "&", ";"]
    assert [unit.is_background for unit in units] == [False, False, False, True, False, False]


def test_tokens_do_not_depend_on_blanks_comments_or_neighbours() -> None:
    alone = read("make  test").units[0].tokens
    among = read("ls && make test # now\npwd").units[1].tokens
    assert alone == among == ("make", "test")


def test_spans_point_at_the_text() -> None:
    text = "cd x && (git status; ls -l) # end"
    units = read(text).units
    assert [text[slice(*unit.span)] for unit in units] == ["cd x", "(git status; ls -l)"]
    assert [text[slice(*command.span)] for command in units[1].commands] == ["git status", "ls -l"]


def test_a_substitution_that_our_reader_would_miss_is_caught_by_the_count() -> None:
    reader = StructureReader("echo 'x' a", "/")
    reader.inert = []
    reader.openers = set()
    reader.text = "echo 'x' $(a)"
    with pytest.raises(Unread, match="not read as one"):
        reader.check_openers()


def test_a_bare_time_is_a_command_and_what_follows_is_another() -> None:
    for text in ("time", "time;", "time\n", "time; ls", "time\nls"):
        commands = [one.words[0].text for unit in read(text).units for one in unit.commands]
        assert commands == ["ls"] * ("ls" in text)
    for text in ("time | cat", "(time)", "time && ls"):
        with pytest.raises(Unread):
            read(text)


def test_single_quotes_in_a_quoted_expansion_are_read_where_they_change_nothing() -> None:
    assert len(read("echo \"${x:-'a b'}\"").units) == 1
    for inner in ("'$(a)'", "'}'", "'`a`'", "'a\"b'", "'\\'", "'${y}'"):
        with pytest.raises(Unread):
            read(f'echo "${{x:-{inner}}}"')


def test_deep_nesting_is_an_answer_and_not_a_crash() -> None:
    for opener, closer in (("( ", ")"), ("$(", ")"), ("{ ", "; }"), ("$((", "))"), ("${x:-", "}")):
        with pytest.raises((Unread, RecursionError)):
            read("echo " * (opener[0] == "$") + opener * 1000 + "a" + closer * 1000)
