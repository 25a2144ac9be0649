"""Redirects and assignments of a command."""

from __future__ import annotations

import pytest

from sandboxd.classify.grading import grade
from sandboxd.model import Assignment, CommandClass, Redirect, SimpleCommand, Word
from tests.classify.grading_support import TABLES, command, facts, literal, quoted, redirect

READ_ONLY, MUTATING, DESTRUCTIVE = CommandClass


def class_with(*redirects: Redirect) -> CommandClass:
    return grade(command("cat", "f", redirects=redirects), facts()).class_


@pytest.mark.parametrize(
    ("operator", "target"),
    [
        (">", "/dev/null"),
        (">>", "/dev/null"),
        ("&>", "/dev/null"),
        (">", "/dev/stderr"),
        (">&", "2"),
        (">&", "-"),
        (">&", "1-"),
        ("<&", "0"),
        ("<&", "-"),
        ("<", "f"),
        ("<<<", "text"),
    ],
)
def test_sinks_copies_and_reads_are_harmless(operator: str, target: str) -> None:
    assert class_with(redirect(operator, target, 2)) is READ_ONLY


@pytest.mark.parametrize("operator", [">", ">>", ">|", "<>", "&>", "&>>", ">&"])
@pytest.mark.parametrize("target", ["f", "./f", "/tmp/f", "/dev/nullx", "/dev/tty", "-f"])
def test_every_other_target_is_written(operator: str, target: str) -> None:
    assert class_with(redirect(operator, target)) is MUTATING


def test_the_written_file_is_named() -> None:
    found = grade(command("echo", "x", redirects=(redirect(">", "a/b"),)), facts())
    assert (found.rule, found.write_paths) == ("redirect", ("/work/a/b",))


@pytest.mark.parametrize(
    "target", ["/dev/sda", "/dev/nvme0n1", "/proc/sys/vm/x", "/sys/power/state"]
)
def test_a_device_or_kernel_file_cannot_be_taken_back(target: str) -> None:
    assert class_with(redirect(">", target)) is DESTRUCTIVE


@pytest.mark.parametrize("target", ["/dev/tcp/h/80", "/dev/udp/h/53"])
@pytest.mark.parametrize("operator", ["<", ">", "<>"])
def test_bashs_own_network_files_open_connections(operator: str, target: str) -> None:
    assert class_with(redirect(operator, target)) is not READ_ONLY


@pytest.mark.parametrize("text", ["$f", "/dev/$x", "/dev/tcp/$h/80", "/$x", "$a/b", "`x`"])
def test_an_input_that_could_be_the_network_is_not_read_only(text: str) -> None:
    assert class_with(redirect("<", quoted(text))) is MUTATING


@pytest.mark.parametrize("text", ["./$f", "dir/$x", "/tmp/$x"])
def test_an_input_that_cannot_be_the_network_is(text: str) -> None:
    assert class_with(redirect("<", quoted(text))) is READ_ONLY


def test_a_process_substitution_as_input_is_harmless() -> None:
    word = Word(text="<(ls)", span=(0, 5), is_literal=False)
    assert class_with(redirect("<", word)) is READ_ONLY


def test_an_output_that_is_not_literal_is_mutating() -> None:
    assert class_with(redirect(">", quoted("$f"))) is MUTATING
    assert class_with(redirect(">&", quoted("$fd"))) is MUTATING


def test_a_redirect_raises_a_deletion_no_further_and_never_lowers_it() -> None:
    found = grade(command("rm", "x", redirects=(redirect(">", "/dev/null"),)), facts())
    assert found.class_ is DESTRUCTIVE


# ------------------------------------------------------------------------------ assignments


def prefixed(name: str, value: str = "x", **more: bool) -> CommandClass:
    assignment = Assignment(name=name, value=literal(value), **more)
    return grade(command("ls", assignments=(assignment,)), facts()).class_


def standing(name: str, value: str = "x", **more: bool) -> CommandClass:
    assignment = Assignment(name=name, value=literal(value), **more)
    return grade(SimpleCommand(assignments=(assignment,)), facts()).class_


@pytest.mark.parametrize("name", ["LC_ALL", "LANG", "TZ", "NO_COLOR", "COLUMNS", "TERM", "CI"])
def test_a_variable_that_only_changes_looks_may_stand_before_a_reader(name: str) -> None:
    assert prefixed(name) is READ_ONLY


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "LD_PRELOAD", "BASH_ENV", "GIT_DIR", "GIT_EXTERNAL_DIFF", "LESSOPEN", "PAGER"),
        *("RIPGREP_CONFIG_PATH", "GCONV_PATH", "TERMINFO", "HOME", "MANPAGER", "PYTHONPATH"),
        *("NODE_OPTIONS", "http_proxy", "KUBECONFIG", "unheard_of"),
    ],
)
def test_any_other_variable_before_a_reader_is_mutating(name: str) -> None:
    assert prefixed(name) is MUTATING


@pytest.mark.parametrize("name", ["x", "i", "FILES", "my_list", "RESULT", "dir"])
def test_a_variable_of_the_shell_may_be_set(name: str) -> None:
    assert standing(name) is READ_ONLY


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "IFS", "LD_LIBRARY_PATH", "BASH_ENV", "PROMPT_COMMAND", "PS4", "GIT_SSH", "HOME"),
        *("PAGER", "EDITOR", "BASH_CMDS", "BASH_ALIASES", "CDPATH", "SHELLOPTS", "GREP_OPTIONS"),
        *("PYTHONSTARTUP", "PERL5OPT", "NODE_OPTIONS", "KUBECONFIG", "CURL_HOME", "DYLD_INSERT"),
        *("RIPGREP_CONFIG_PATH", "TAR_OPTIONS", "HTTPS_PROXY", "https_proxy", "MAKEFLAGS"),
    ],
)
def test_a_variable_that_changes_later_commands_may_not(name: str) -> None:
    assert standing(name) is MUTATING


def test_a_subscript_is_evaluated() -> None:
    assert standing("a", has_subscript=True) is MUTATING
    assert prefixed("LANG", has_subscript=True) is MUTATING


def test_an_assignment_changes_what_later_text_means() -> None:
    command = SimpleCommand(assignments=(Assignment(name="x", value=literal("1")),))
    assert grade(command, facts()).changes_meaning


def test_switching_a_pager_off_is_harmless_and_choosing_one_is_not() -> None:
    assert prefixed("GIT_PAGER", "cat") is READ_ONLY
    assert prefixed("PAGER", "") is READ_ONLY
    assert prefixed("GIT_PAGER", "./x") is MUTATING
    assert standing("PAGER", "cat") is READ_ONLY
    assert prefixed("PAGER", "cat", is_append=True) is MUTATING


def test_a_separator_is_harmless_only_for_read() -> None:
    ifs = Assignment(name="IFS", value=literal(","))
    assert grade(command("read", "x", assignments=(ifs,)), facts()).class_ is READ_ONLY
    assert grade(command("ls", assignments=(ifs,)), facts()).class_ is MUTATING


def test_no_name_is_both_harmless_and_dangerous_by_exact_listing() -> None:
    both = TABLES.variables.harmless & TABLES.variables.dangerous
    assert both == frozenset()
