"""find, xargs, env, shells and the other languages of commands inside commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandboxd.classify.findings import MAX_DEPTH
from sandboxd.classify.grading import grade
from sandboxd.model import CommandClass, Redirect, Verdict, Word
from tests.classify.grading_support import (
    class_of,
    command,
    facts,
    glob,
    graded,
    quoted,
    redirect,
    unquoted,
    verdict,
)

READ_ONLY, MUTATING, DESTRUCTIVE = CommandClass


def says(class_: CommandClass) -> Callable[[str], Verdict]:
    return lambda text: verdict(class_)


# ------------------------------------------------------------------------------ find


def test_a_file_found_below_a_literal_folder_is_no_option() -> None:
    assert class_of("find", ".", "-exec", "sed", "-n", "1p", "{}", ";") is READ_ONLY
    assert class_of("find", ".", "-exec", "sort", "{}", "+") is READ_ONLY
    assert class_of("find", "a$", "-exec", "sort", "{}", ";") is READ_ONLY
    assert class_of("find", quoted("$dir"), "-exec", "sort", "{}", ";") is MUTATING
    assert class_of("find", ".", "-execdir", "sort", "{}", ";") is MUTATING


@pytest.mark.parametrize("word", [quoted("$x"), unquoted("$x"), quoted("-$x"), glob("*")])
def test_a_word_that_could_become_an_action_is_mutating(word: Word) -> None:
    assert class_of("find", word) is MUTATING
    assert class_of("find", ".", word) is MUTATING


def test_a_tests_value_may_be_unknown() -> None:
    assert class_of("find", ".", "-name", quoted("$x")) is READ_ONLY
    assert class_of("find", ".", "-name", quoted("*.$x")) is READ_ONLY
    assert class_of("find", ".", "-name", unquoted("$x")) is MUTATING
    assert class_of("find", ".", "-name", glob("*.py")) is MUTATING


def test_what_looks_like_an_action_behind_a_test_is_its_value() -> None:
    assert class_of("find", ".", "-name", "-delete") is READ_ONLY
    assert class_of("find", ".", "-path", "x", "-delete") is DESTRUCTIVE


def test_every_command_of_an_expression_counts() -> None:
    assert class_of("find", ".", "-exec", "cat", "{}", ";", "-exec", "rm", "{}", ";") is DESTRUCTIVE
    assert class_of("find", ".", "-exec", "cat", "{}", ";", "-fprint", "f") is MUTATING
    assert class_of("find", ".", "-exec", "{}", ";") is MUTATING
    assert class_of("find", ".", "-exec", "cat", "{}") is MUTATING


def test_the_commands_of_an_expression_are_parts() -> None:
    found = graded("find", ".", "-exec", "grep", "x", "{}", ";")
    assert [part.command for part in found.parts] == ["grep x {}"]
    assert set(found.programs) == {"find", "grep"}


# ------------------------------------------------------------------------------ xargs


@pytest.mark.parametrize("reader", ["cat", "grep", "wc", "ls", "head", "basename", "stat"])
def test_words_that_xargs_adds_cannot_hurt_a_harmless_reader(reader: str) -> None:
    assert class_of("xargs", "-0", reader, "x") is READ_ONLY


@pytest.mark.parametrize("reader", ["sort", "sed", "rg", "find", "git", "uniq", "tee", "env", "sh"])
def test_words_that_xargs_adds_may_be_options_or_outputs(reader: str) -> None:
    assert class_of("xargs", reader) is MUTATING


def test_a_placeholder_is_one_word_of_unknown_text() -> None:
    assert class_of("xargs", "-I{}", "sort", "./{}") is READ_ONLY
    assert class_of("xargs", "-I{}", "sort", "{}") is MUTATING
    assert class_of("xargs", "-I", "%", "sort", "%") is MUTATING
    assert class_of("xargs", "-I{}", "{}", "x") is MUTATING
    assert class_of("xargs", "-I{}", "cp", "{}", "/tmp") is MUTATING


def test_text_for_a_shell_with_a_placeholder_in_it_is_not_known() -> None:
    known = command("xargs", "-I{}", "sh", "-c", "ls {}")
    assert grade(known, facts(text=says(READ_ONLY))).class_ is MUTATING
    assert grade(known, facts(text=says(DESTRUCTIVE))).class_ is DESTRUCTIVE


# ------------------------------------------------------------------------------ env and wrappers


@pytest.mark.parametrize(
    "words",
    [
        ("timeout", "5"),
        ("timeout", "-k", "1", "5s"),
        ("nice", "-n", "5"),
        ("stdbuf", "-oL"),
        ("env",),
        ("env", "-i", "LC_ALL=C"),
        ("command",),
        ("time",),
        ("setsid",),
        ("xargs", "-n1"),
        ("busybox",),
        ("taskset", "-c", "0"),
    ],
)
def test_a_wrapper_is_as_bad_as_what_it_runs(words: tuple[str, ...]) -> None:
    assert class_of(*words, "cat", "f") is READ_ONLY
    assert class_of(*words, "touch", "f") is MUTATING
    assert class_of(*words, "rm", "f") is DESTRUCTIVE
    assert class_of(*words, quoted("$x"), "f") is MUTATING


@pytest.mark.parametrize(
    "words",
    [
        ("sudo",),
        ("sudo", "-u", "bob", "-E"),
        ("doas",),
        ("strace", "-f"),
        ("docker", "exec", "-it", "web"),
        ("kubectl", "exec", "pod", "--"),
        ("npm", "exec", "--"),
        ("uv", "run"),
        ("chroot", "/mnt"),
        ("flock", "f"),
        ("git", "bisect", "run"),
    ],
)
def test_some_wrappers_are_mutating_themselves(words: tuple[str, ...]) -> None:
    assert class_of(*words, "cat", "f") is MUTATING
    assert class_of(*words, "rm", "f") is DESTRUCTIVE


def test_wrappers_nest_to_a_fixed_depth_and_are_opaque_below() -> None:
    nested = ["nice"] * MAX_DEPTH + ["cat", "f"]
    assert class_of(*nested) is READ_ONLY
    assert class_of("nice", *nested) is DESTRUCTIVE
    assert not graded("nice", *nested).is_cacheable


def test_env_hands_on_only_harmless_variables() -> None:
    assert class_of("env", "TZ=UTC", "date") is READ_ONLY
    assert class_of("env", "PATH=.", "date") is MUTATING
    assert class_of("env", quoted("$x"), "date") is MUTATING
    assert class_of("env", quoted("TZ=$x"), "date") is READ_ONLY
    assert class_of("env", "-u", "PATH", "date") is MUTATING


def test_env_changes_the_folder_of_what_it_runs() -> None:
    found = graded("env", "-C", "sub", "cat", "f")
    assert found.read_paths == ("/work/sub/f",)


# ------------------------------------------------------------------------------ shells


@pytest.mark.parametrize("words", [("-c",), ("-lc",), ("-l", "-c"), ("-euo", "pipefail", "-c")])
def test_a_shells_text_is_as_good_as_the_text(words: tuple[str, ...]) -> None:
    for class_ in CommandClass:
        found = grade(command("bash", *words, "text"), facts(text=says(class_)))
        assert found.class_ is class_


def test_a_shells_text_that_cannot_be_read_is_destructive() -> None:
    unread = facts(text=lambda text: verdict(READ_ONLY, parsed=False))
    found = grade(command("bash", "-c", "text"), unread)
    assert (found.class_, found.is_cacheable) == (DESTRUCTIVE, False)


@pytest.mark.parametrize(
    "text",
    ["[[ a > b ]]", "echo $'a'", "ls {a,-b}", "cat <(ls)", "cat <<<x", "((a))", "ls &>/dev/null"],
)
def test_another_shell_reads_bash_forms_otherwise(text: str) -> None:
    assert grade(command("sh", "-c", text), facts()).class_ is MUTATING
    assert grade(command("bash", "-c", text), facts()).class_ is READ_ONLY


def test_zsh_runs_code_in_globs() -> None:
    assert class_of("zsh", "-c", "ls *(e:id:)") is MUTATING
    assert class_of("zsh", "-c", "ls -la") is READ_ONLY


@pytest.mark.parametrize("shell", ["bash", "sh", "zsh", "python3", "node", "perl"])
def test_an_interpreter_fed_by_the_network_is_never_remembered(shell: str) -> None:
    fed = grade(command(shell, piped_from=("curl", "tee")), facts())
    assert (fed.class_, fed.is_cacheable) == (MUTATING, False)
    wrapped = grade(command("sudo", shell, piped_from=("curl",)), facts())
    assert not wrapped.is_cacheable
    local = grade(command(shell, piped_from=("cat",)), facts())
    assert (local.class_, local.is_cacheable) == (MUTATING, True)


def test_a_here_document_for_a_shell_is_read_for_destruction_only() -> None:
    body = Redirect(operator="<<", body="text", target=None)
    for class_, wanted in ((READ_ONLY, MUTATING), (DESTRUCTIVE, DESTRUCTIVE)):
        found = grade(command("bash", redirects=(body,)), facts(text=says(class_)))
        assert found.class_ is wanted


def test_a_syntax_check_runs_nothing() -> None:
    assert class_of("bash", "-n", "script.sh") is READ_ONLY
    assert class_of("bash", "script.sh") is MUTATING


# ------------------------------------------------------------------------------ conditions


@pytest.mark.parametrize(
    "words",
    [
        (quoted("$a"), "=", quoted("$b")),
        ("-n", quoted("$a")),
        ("!", quoted("$a")),
        (quoted("$a"), "-gt", "3", "-a", "-f", quoted("$b")),
        (unquoted("$?"), "-eq", "0"),
        (unquoted("$#"), "-gt", "1"),
        (unquoted("${#a[@]}"), "-gt", "1"),
    ],
)
def test_a_condition_whose_operators_are_literal_reads(words: tuple[str | Word, ...]) -> None:
    assert class_of("[", *words, "]") is READ_ONLY
    assert class_of("test", *words) is READ_ONLY


@pytest.mark.parametrize(
    "words",
    [
        (unquoted("$a"),),
        (unquoted("$a"), "=", "x"),
        (quoted("$a"), quoted("$b")),
        ("-v", "a[$(id)]"),
        ("-R", "x"),
        (quoted("$op"), "x"),
    ],
)
def test_a_condition_that_could_evaluate_a_subscript_does_not(
    words: tuple[str | Word, ...],
) -> None:
    assert class_of("[", *words, "]") is MUTATING


# ------------------------------------------------------------------------------ SQL


def sql(text: str) -> CommandClass:
    return class_of("psql", "-c", text)


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "SELECT count(*) FROM t WHERE a = 'drop table t'",
        "select a, b from t where c in (1, 2) order by 1 limit 5;",
        "with x as (select 1) select * from x",
        "show search_path",
        'select "update" from t',
        "explain select 1",
        "\\dt",
        "\\d+ public.t",
        "\\l",
    ],
)
def test_a_plain_query_reads(text: str) -> None:
    assert sql(text) is READ_ONLY


@pytest.mark.parametrize(
    "text",
    [
        "insert into t values (1)",
        "update t set a = 1 where b = 2",
        "select * into u from t",
        "select * from t for update",
        "select pg_read_file('/etc/passwd')",
        "select nextval('s')",
        "select my.lower('x')",
        "select 1 -- comment",
        "select $$x$$",
        "select E'\\''",
        "copy t to program 'x'",
        "do 'x'",
        "explain analyze select 1",
        "with x as (insert into t values (1) returning a) select * from x",
        "\\! id",
        "\\copy t to 'f'",
        "\\o f",
        "\\d `id`",
        "select 1\\gexec",
        "vacuum",
    ],
)
def test_a_statement_that_writes_runs_or_puzzles_does_not(text: str) -> None:
    assert sql(text) is MUTATING


@pytest.mark.parametrize(
    "text",
    [
        "drop table t",
        "DROP DATABASE d",
        "truncate t",
        "delete from t where a = 1",
        "update t set a = 1",
        "alter table t drop column c",
        "select 1; drop table t",
        "/* x */ drop table t",
        "with x as (delete from t returning a) select * from x",
    ],
)
def test_a_statement_that_loses_data_is_destructive(text: str) -> None:
    assert sql(text) is DESTRUCTIVE


def test_statements_that_are_fed_in_are_read_for_destruction() -> None:
    fed = command("psql", redirects=(redirect("<<<", "drop table t"),))
    assert grade(fed, facts()).class_ is DESTRUCTIVE
    assert class_of("psql") is MUTATING


def test_sqlite_creates_a_file_that_does_not_exist() -> None:
    words = command("sqlite3", "a.db", "select 1")
    assert grade(words, facts(exists={"/work/a.db"})).class_ is READ_ONLY
    assert grade(words, facts()).class_ is MUTATING


# ------------------------------------------------------------------------------ tar, rsync, dd


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("tf", "a.tar"), READ_ONLY),
        (("-tvzf", "a.tgz"), READ_ONLY),
        (("tfv", "a.tar"), READ_ONLY),
        (("tf", "a.tar", "--to-command=x"), MUTATING),
        (("tIf", "./x", "a.tar"), MUTATING),
        (("xtf", "a.tar"), MUTATING),
        (("tf", "host:a.tar"), MUTATING),
        (("-xf", "a.tar", "--remove-files"), DESTRUCTIVE),
    ],
)
def test_tar_only_reads_when_it_lists(words: tuple[str, ...], wanted: CommandClass) -> None:
    assert class_of("tar", *words) is wanted
