"""Names, words, operands, paths, hosts and everything else that is common to all entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.classify.grading import grade
from sandboxd.model import CommandClass, SimpleCommand, Word
from tests.classify.grading_support import (
    TABLES,
    class_of,
    command,
    facts,
    glob,
    graded,
    literal,
    quoted,
    redirect,
    unquoted,
    verdict,
)

READ_ONLY, MUTATING, DESTRUCTIVE = CommandClass


# ------------------------------------------------------------------------------ names


def test_an_unknown_command_is_mutating_and_named() -> None:
    found = graded("frobnicate", "--help")
    assert (found.class_, found.rule) == (MUTATING, "unknown-command")
    assert found.programs == ("frobnicate",)


@pytest.mark.parametrize("name", ["./cat", "/usr/bin/cat", "bin/ls", "/tmp/x/rg"])
def test_a_program_named_by_its_path_is_mutating(name: str) -> None:
    assert graded(name, "f").rule == "local-program"
    assert class_of(name, "f") is MUTATING


@pytest.mark.parametrize("name", ["/bin/rm", "./rm", "../x/rm"])
def test_a_path_does_not_hide_a_deletion(name: str) -> None:
    assert class_of(name, "x") is DESTRUCTIVE


@pytest.mark.parametrize("word", [quoted("$cmd"), unquoted("$cmd"), glob("l*"), quoted("l$x")])
def test_a_name_only_known_at_run_time_is_mutating(word: Word) -> None:
    assert graded(word, "f").rule == "name"


@pytest.mark.parametrize("name", ["", " ls", "git status", "ls\n"])
def test_a_name_that_is_no_plain_word_is_mutating(name: str) -> None:
    assert class_of(name) is MUTATING


def test_only_programs_that_are_looked_up_are_named() -> None:
    assert graded("echo", "x").programs == ()
    assert graded("cat", "x").programs == ("cat",)
    assert graded("xargs", "echo").programs == ("echo", "xargs")


# ------------------------------------------------------------------------------ words


@pytest.mark.parametrize("word", [quoted("$x"), unquoted("$x"), glob("*.txt")])
def test_a_harmless_reader_takes_any_word(word: Word) -> None:
    assert class_of("cat", word) is READ_ONLY
    assert class_of("grep", "x", word) is READ_ONLY


@pytest.mark.parametrize("word", [quoted("$x"), unquoted("$x"), unquoted("./$x"), glob("*.txt")])
def test_a_word_that_could_become_an_option_is_not_read_only(word: Word) -> None:
    assert class_of("sort", word) is MUTATING
    assert class_of("rg", "x", word) is MUTATING
    assert class_of("git", "log", word) is MUTATING


@pytest.mark.parametrize("word", [quoted("a$x"), glob("./*.txt"), glob("src/*")])
def test_a_word_that_cannot_become_an_option_is_fine(word: Word) -> None:
    assert class_of("sort", word) is READ_ONLY


def test_behind_a_double_dash_nothing_is_an_option() -> None:
    assert class_of("rg", "-n", "--", "x", quoted("$file")) is READ_ONLY
    assert class_of("sort", "--", glob("*.txt")) is READ_ONLY


def test_words_that_may_become_several_shift_no_operand_into_an_output() -> None:
    assert class_of("uniq", quoted("a$x")) is READ_ONLY
    assert class_of("uniq", "--", unquoted("$x")) is MUTATING
    assert class_of("uniq", glob("./*")) is MUTATING


def test_an_options_value_may_be_unknown_but_must_stay_one_word() -> None:
    assert class_of("sort", "-k", quoted("$x")) is READ_ONLY
    assert class_of("sort", "-k", unquoted("$x")) is MUTATING
    assert class_of("sort", quoted("-k$x")) is READ_ONLY
    assert class_of("sort", quoted("-$x")) is MUTATING
    assert class_of("sort", quoted("--$x")) is MUTATING


def test_an_unknown_value_of_a_closed_choice_is_not_read_only() -> None:
    assert class_of("rg", "--sort", "path", "x") is READ_ONLY
    assert class_of("rg", "--sort", quoted("$x"), "x") is MUTATING
    assert class_of("curl", "-X", "PATCH", "https://h/") is MUTATING


def test_what_follows_an_option_may_not_look_like_an_option() -> None:
    # git opens the file of --output before it complains about --format without a value.
    assert class_of("git", "log", "--format", "--output=f") is MUTATING
    assert class_of("head", "-n", "-5", "f") is READ_ONLY
    assert class_of("grep", "-e", "--output", "f") is READ_ONLY


@pytest.mark.parametrize(
    "words",
    [
        ("sort", "--outpu=f", "x"),
        ("git", "push", "--forc"),
        ("git", "ls-remote", "--upload-pa=./x", "https://h/x"),
        ("tar", "tf", "a", "--use-comp=./x"),
        ("date", "--se=now"),
    ],
)
def test_an_abbreviated_long_option_is_never_read_only(words: tuple[str, ...]) -> None:
    assert class_of(*words) is not READ_ONLY


def test_clusters_are_expanded() -> None:
    assert class_of("ls", "-lahtr") is READ_ONLY
    assert class_of("sort", "-rno", "out", "in") is MUTATING
    assert class_of("git", "push", "-qf") is DESTRUCTIVE
    assert class_of("git", "branch", "-vD", "x") is DESTRUCTIVE


# ------------------------------------------------------------------------------ paths and hosts


def test_what_is_read_is_named_by_absolute_paths() -> None:
    found = graded("cat", "a", "./b", "/c", "-")
    assert found.read_paths == ("/work/a", "/work/b", "/c")


def test_a_pattern_is_no_file() -> None:
    assert graded("grep", "x", "f").read_paths == ("/work/f",)
    assert graded("grep", "-e", "x", "f").read_paths == ("/work/f",)
    assert graded("sed", "-n", "1p", "f").read_paths == ("/work/f",)
    assert graded("awk", "1", "f").read_paths == ("/work/f",)
    assert graded("jq", "-r", "--arg", "a", "b", ".x", "f").read_paths == ("/work/f",)


@pytest.mark.parametrize(
    "words",
    [
        ("grep", quoted("$x"), "f"),
        ("grep", unquoted("$x"), "f"),
        ("cat", quoted("$x"), "f"),
        ("head", "-n", unquoted("$n"), "f"),
        ("find", ".", "-exec", "cat", "f", "{}", ";"),
        ("xargs", "cat", "f"),
        ("ls", "-l", "f"),
        ("stat", "f"),
    ],
)
def test_a_file_that_may_not_be_read_is_not_named(words: tuple[str | Word, ...]) -> None:
    found = graded(*words)
    assert (found.class_, found.read_paths) == (READ_ONLY, ())


def test_a_write_never_vouches_for_what_it_read() -> None:
    found = graded("sort", "-o", "out", "in")
    assert found.read_paths == ()
    assert found.write_paths == ("/work/out",)


def test_in_an_unknown_folder_nothing_relative_is_named() -> None:
    found = grade(command("cat", "a", "/b"), facts(cwd=None))
    assert found.read_paths == ("/b",)


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        (("cp", "a", "b", "dir"), ("/work/dir",)),
        (("cp", "-t", "dir", "a"), ("/work/dir",)),
        (("mv", "a", "b"), ("/work/a", "/work/b")),
        (("mkdir", "-p", "a/b"), ("/work/a/b",)),
        (("tee", "-a", "x"), ("/work/x",)),
        (("tee", "-"), ("/work/-",)),
        (("sed", "-i", "s/a/b/", "x", "y"), ("/work/x", "/work/y")),
        (("dd", "if=a", "of=b"), ("/work/b",)),
        (("tar", "czf", "x.tgz", "src"), ("/work/x.tgz",)),
        (("curl", "-o", "x", "https://h/"), ("/work/x",)),
        (("rm", "-rf", "x"), ("/work/x",)),
    ],
)
def test_what_is_written_is_named(words: tuple[str, ...], paths: tuple[str, ...]) -> None:
    assert graded(*words).write_paths == paths


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (("curl", "https://example.com/x"), ("example.com",)),
        (("curl", "-s", "http://Example.com:8080"), ("example.com:8080",)),
        (("curl", "localhost:3000/x"), ("localhost:3000",)),
        (("curl", "https://a/", "https://b/"), ("a", "b")),
        (("wget", "-qO-", "https://example.com/"), ("example.com",)),
        (("ping", "-c1", "example.com"), ("example.com",)),
        (("dig", "+short", "@1.1.1.1", "example.com"), ("1.1.1.1", "example.com")),
        (("gh", "pr", "list"), ("api.github.com",)),
        (("pip", "index", "versions", "x"), ("pip-index",)),
        (("psql", "-h", "db.example.com", "-c", "select 1"), ("db.example.com",)),
        (("psql", "postgresql://u:p@db.example.com/x", "-c", "select 1"), ("db.example.com",)),
    ],
)
def test_a_network_reader_names_its_hosts(words: tuple[str, ...], hosts: tuple[str, ...]) -> None:
    found = graded(*words)
    assert (found.class_, found.hosts) == (READ_ONLY, hosts)


@pytest.mark.parametrize(
    "word", [quoted("https://h/$x"), quoted("$url"), unquoted("https://$h/"), quoted("https://h$x")]
)
def test_an_address_that_is_not_literal_carries_data_out(word: Word) -> None:
    assert class_of("curl", word) is MUTATING
    assert class_of("curl", "-H", word, "https://h/") is MUTATING
    assert class_of("wget", "-qO-", word) is MUTATING
    assert class_of("dig", word) is MUTATING


def test_a_question_mark_in_an_address_is_only_a_glob() -> None:
    address = Word(
        text="https://h/?q=1", span=(0, 0), is_literal=False, may_split=True, has_glob=True
    )
    assert class_of("curl", address) is READ_ONLY


def test_exit_codes_that_are_answers_are_handed_on() -> None:
    assert graded("grep", "x", "f").exit_meaning == {"1": "no match"}
    assert graded("diff", "a", "b").exit_meaning == {"1": "the files differ"}
    assert graded("timeout", "5", "grep", "x").exit_meaning["1"] == "no match"


# ------------------------------------------------------------------------------ shell state


def test_cd_says_where_the_shell_is_now() -> None:
    assert graded("cd", "src").changes_directory_to == "/work/src"
    assert graded("cd", "/tmp").changes_directory_to == "/tmp"
    assert graded("cd").changes_directory_to == "/home/user"


@pytest.mark.parametrize("word", ["-", quoted("$x")])
def test_cd_to_an_unknown_folder_changes_meaning(word: str | Word) -> None:
    found = graded("cd", word)
    assert (found.changes_directory_to, found.changes_meaning) == (None, True)


@pytest.mark.parametrize(
    "words", [("set", "-e"), ("export", "LANG=C"), ("read", "x"), ("source", "f"), ("alias", "a=b")]
)
def test_what_changes_later_commands_says_so(words: tuple[str, ...]) -> None:
    assert graded(*words).changes_meaning


@pytest.mark.parametrize(
    "words",
    [
        ("declare", "x=1"),
        ("typeset", "-i", "x"),
        ("readonly", "x=1"),
        ("printf", "-v", "x", "a"),
        ("hash", "-p", "./x", "ls"),
        ("hash", "-r"),
        ("umask", "0"),
        ("ulimit", "-n", "5"),
    ],
)
def test_what_sets_state_of_this_shell_says_so(words: tuple[str, ...]) -> None:
    assert graded(*words).changes_meaning


@pytest.mark.parametrize(
    "words",
    [
        ("declare", "-p", "x"),
        ("printf", "a"),
        ("hash",),
        ("hash", "-l"),
        ("umask",),
        ("ulimit", "-a"),
    ],
)
def test_what_only_lists_that_state_does_not(words: tuple[str, ...]) -> None:
    assert not graded(*words).changes_meaning


# ------------------------------------------------------------------------------ git


def test_a_git_reader_is_marked_for_hardening() -> None:
    assert graded("git", "status").is_git_reader
    assert graded("git", "reflog").is_git_reader
    assert graded("git", "remote", "-v").is_git_reader
    assert not graded("git", "commit").is_git_reader
    assert not graded("cat", "f").is_git_reader


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (("git", "status"), "/work"),
        (("git", "-C", "sub", "diff"), "/work/sub"),
        (("git", "-C", "/a", "-C", "b", "log"), "/a/b"),
        (("git", "stash", "show", "-p"), "/work"),
    ],
)
def test_the_configuration_of_the_repository_that_is_read_counts(
    words: tuple[str, ...], folder: str
) -> None:
    asked: list[str] = []

    def defines(where: str) -> bool:
        asked.append(where)
        return True

    found = grade(command(*words), facts(defines=defines))
    assert (found.class_, found.rule) == (MUTATING, "git.repository")
    assert asked == [folder]


def test_git_in_an_unknown_folder_is_not_read_only() -> None:
    assert grade(command("git", "status"), facts(cwd=None)).class_ is MUTATING
    assert grade(command("git", "-C", "/a", "status"), facts(cwd=None)).class_ is MUTATING


def test_checkout_of_a_name_that_is_a_path_discards_changes() -> None:
    assert class_of("git", "checkout", "feature") is MUTATING
    known = facts(exists={"/work/feature"})
    assert grade(command("git", "checkout", "feature"), known).class_ is DESTRUCTIVE
    sub = facts(exists={"/work/sub/feature"})
    assert grade(command("git", "-C", "sub", "checkout", "feature"), sub).class_ is DESTRUCTIVE


def test_a_project_file_that_chooses_the_program_counts() -> None:
    metadata = command("cargo", "metadata")
    assert grade(metadata, facts()).class_ is READ_ONLY
    assert grade(metadata, facts(exists={"/work/rust-toolchain.toml"})).class_ is MUTATING
    assert (
        grade(metadata, facts(cwd="/work/a/b", exists={"/work/.cargo/config"})).class_ is MUTATING
    )
    version = command("cargo", "--version")
    assert grade(version, facts(exists={"/rust-toolchain"})).class_ is MUTATING


def test_json_tool_is_a_reader_only_where_nothing_shadows_it() -> None:
    words = command("python3", "-m", "json.tool", "f")
    assert grade(words, facts()).class_ is READ_ONLY
    assert grade(words, facts(exists={"/work/json.py"})).class_ is MUTATING
    assert grade(words, facts(exists={"/work/argparse"})).class_ is MUTATING
    isolated = command("python3", "-I", "-m", "json.tool", "f")
    assert grade(isolated, facts(exists={"/work/json.py"})).class_ is READ_ONLY


# ------------------------------------------------------------------------------ properties


NAMES = sorted(TABLES.names())


@given(
    name=st.sampled_from(NAMES),
    words=st.lists(st.text(alphabet="-=abcdefioruw/.@+:{}$", max_size=6), max_size=5),
)
def test_grading_never_raises_and_never_calls_a_redirect_harmless(
    name: str, words: list[str]
) -> None:
    plain = command(name, *words)
    writing = command(name, *words, redirects=(redirect(">", "f"),))
    assert grade(writing, facts()).class_ is not READ_ONLY
    assert grade(writing, facts()).class_.severity >= grade(plain, facts()).class_.severity


@given(name=st.sampled_from(NAMES))
def test_an_unknown_option_is_never_read_only_where_options_exist(name: str) -> None:
    entry = TABLES.entry(name)
    assert entry is not None
    if entry.style == "gnu" and not entry.subcommands:
        assert class_of(name, "--zzz-unknown=x") is not READ_ONLY


@given(words=st.lists(st.sampled_from(["rm", "-rf", "x", "/tmp"]), min_size=1, max_size=4))
def test_rm_is_destructive_in_every_form(words: list[str]) -> None:
    assert class_of("rm", *words) is DESTRUCTIVE


def test_a_destructive_command_is_never_remembered() -> None:
    assert not graded("rm", "x").is_cacheable
    assert graded("touch", "x").is_cacheable


def test_inner_text_hands_on_its_parts_and_programs() -> None:
    found = grade(command("bash", "-c", "x"), facts(text=lambda text: verdict(MUTATING)))
    assert [part.rule for part in found.parts] == ["inner"]
    assert "inner" in found.programs


def test_a_command_without_words_only_redirects() -> None:
    found = grade(SimpleCommand(redirects=(redirect(">", literal("f")),)), facts())
    assert (found.class_, found.write_paths) == (MUTATING, ("/work/f",))
