"""The classifier as its callers see it: bounds, compounds, context, cache, verdict fields."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.classify.classifier import Classifier
from sandboxd.classify.tables import load_tables
from sandboxd.model import CommandClass, Verdict
from tests.classify.shell_context import CONTEXT

READERS = [
    "ls -la",
    "cat <(ls) foo.txt",
    "find . -type d -name x 2>/dev/null | head -1",
    "cat <<'EOF'\n$(rm -rf /)\nEOF",
    "echo 'rm -rf /tmp/e'",
    "sed -n 1,5p f",
    "awk '{print $1}' f",
    "ls 2>&1 | head",
    "bash -lc 'ls -la'",
    'for f in *.py; do echo "$f"; wc -l "$f"; done',
    "if [ -f x ]; then cat x; else echo none; fi",
    "[[ -f x && -r x ]] && cat x",
    "case $x in a|b) ls ;; *) pwd ;; esac",
    "for ((i = 0; i < 3; i++)); do echo $i; done",
    "x=$(ls | wc -l); echo $((x + 1))",
    "echo $(pwd && ls)",
    "time ls",
    "! grep -q x f",
    "ls # a comment",
    "ls \\\n  -la",
    "cat {a,b}.txt",
    "ls ~/project",
    "grep -rn 'rm -rf' src &>/dev/null; echo $?",
    "f() { ls; }; f",
    "(cd src && ls) | sort | uniq -c",
    "cd src && git status",
    "",
    "# nothing",
]
WORSE = [
    ("rm -rf x", "destructive"),
    ("touch x", "mutating"),
    ("frobnicate", "mutating"),
    ("git reset --hard", "destructive"),
    ("echo ${", "destructive"),
]
WRAPPINGS = [
    "{ @; }",
    "( @ )",
    "if true; then @; fi",
    "if @; then :; fi",
    "for i in 1; do @; done",
    "while @; do break; done",
    "case x in x) @ ;; esac",
    "f() { @; }; f",
    "function f { @; }; f",
    "ls; @",
    "@; ls",
    "ls && @",
    "ls || @",
    "@ | cat",
    "echo x | @",
    "! @",
    "time @",
    "@ &",
    "echo $(@)",
    'echo "$(@)"',
    "cat <(@)",
    "cat <<EOF\n$(@)\nEOF",
    "cat <<EOF &\n$(@)\nEOF",
    "echo ${x:-$(@)}",
    "x=$(@)",
    "[[ -n $(@) ]]",
    "echo `@`",
    "ls # c\n@",
    "coproc { @; }",
]


@pytest.fixture(scope="module")
def classifier() -> Iterator[Classifier]:
    classifier = Classifier(load_tables())
    yield classifier
    classifier.close()


@pytest.mark.parametrize("text", READERS)
def test_readers_are_read_only(text: str, classifier: Classifier) -> None:
    verdict = classifier.classify_text(text, CONTEXT)
    assert (verdict.class_, verdict.parsed, verdict.reasons) == (CommandClass.READ_ONLY, True, ())


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize(("text", "kind"), WORSE)
def test_every_class_survives_wrapping(
    wrapping: str, text: str, kind: str, classifier: Classifier
) -> None:
    verdict = classifier.classify_text(wrapping.replace("@", text), CONTEXT)
    assert verdict.class_.value == kind


@pytest.mark.parametrize("text", READERS)
@pytest.mark.parametrize(("other", "kind"), WORSE[:4])
def test_a_list_is_never_milder_than_its_parts(
    text: str, other: str, kind: str, classifier: Classifier
) -> None:
    assert classifier.classify_text(f"{text}\n{other}", CONTEXT).class_.value == kind
    assert classifier.classify_text(f"{other}\n{text}", CONTEXT).class_.value == kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a" * (64 * 1024 + 1), "longer than 64 KiB"),
        ("echo " + "é" * (32 * 1024), "longer than 64 KiB"),
        ("ls \0", "NUL"),
        ("echo \udcff", "not valid Unicode"),
        ("( " * 1000 + "ls" + " )" * 1000, "nested too deeply"),
        ("echo " + "$(echo " * 1000, "nested too deeply"),
        ("if", ""),
    ],
)
def test_what_cannot_be_read_has_the_one_reason(
    text: str, message: str, classifier: Classifier
) -> None:
    verdict = classifier.classify_text(text, CONTEXT)
    assert (verdict.class_, verdict.parsed, verdict.cacheable) == (
        CommandClass.DESTRUCTIVE,
        False,
        False,
    )
    assert [reason.rule for reason in verdict.reasons] == ["unparsed"]
    assert message in verdict.reasons[0].message
    assert (verdict.approval_key, verdict.unit_keys) == (None, ())


def test_ten_thousand_parts_are_all_looked_at(classifier: Classifier) -> None:
    begun = time.monotonic()
    verdict = classifier.classify_text("true;" * 9_999 + "rm x", CONTEXT)
    assert verdict.class_ is CommandClass.DESTRUCTIVE
    assert len(verdict.parts) == 10_000
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    "text",
    [
        "declareexportibuiltincoproc$1${",
        "a" * 60_000 + "(",
        "echo " + "[" * 60_000,
        "echo $((" + "a" * 60_000,
        "$((" * 20_000,
        "echo " + "{" * 60_000,
        "a|" * 30_000 + "a",
        "cat <<A; " * 7_000 + "\n",
        "ls '" + "'" * 60_000,
    ],
    ids=range(9),
)
def test_hostile_text_is_answered_in_bounded_time(text: str, classifier: Classifier) -> None:
    begun = time.monotonic()
    classifier.classify_text(text, CONTEXT)
    assert time.monotonic() - begun < 30


def test_parts_name_every_command_with_its_place(classifier: Classifier) -> None:
    text = "ls; echo $(touch x) && rm y"
    verdict = classifier.classify_text(text, CONTEXT)
    parts = {part.command: (part.class_.value, text[slice(*part.span)]) for part in verdict.parts}
    assert parts == {
        "ls": ("read_only", "ls"),
        "touch x": ("mutating", "touch x"),
        "echo $(touch x)": ("read_only", "echo $(touch x)"),
        "rm y": ("destructive", "rm y"),
    }
    assert verdict.reasons[0].span == (23, 27)


def test_paths_hosts_programs_and_exit_codes_are_named(classifier: Classifier) -> None:
    verdict = classifier.classify_text("cat a.txt; grep -n x b.txt", CONTEXT)
    assert verdict.read_paths == ("/nowhere/project/a.txt", "/nowhere/project/b.txt")
    assert verdict.programs == ("cat", "grep")
    assert verdict.exit_meaning["1"] == "no match"
    assert classifier.classify_text("grep x f &", CONTEXT).exit_meaning == {}
    assert classifier.classify_text("[[ a == b ]]", CONTEXT).exit_meaning == {"1": "false"}
    wrote = classifier.classify_text("cat a > b", CONTEXT)
    assert (wrote.read_paths, wrote.write_paths) == ((), ("/nowhere/project/b",))


def test_a_read_is_registered_where_the_command_runs(classifier: Classifier) -> None:
    verdict = classifier.classify_text("cd /srv && cat a", CONTEXT)
    assert verdict.read_paths == ("/srv/a",)
    unsure = classifier.classify_text("cd /srv; cat a", CONTEXT)
    assert unsure.read_paths == ()


def test_a_checkout_discards_only_where_the_name_is_a_path(
    tmp_path: Path, classifier: Classifier
) -> None:
    facts = dataclasses.replace(CONTEXT, cwd=str(tmp_path), writable_roots=(str(tmp_path),))
    assert classifier.classify_text("git checkout feature", facts).class_.value == "mutating"
    (tmp_path / "feature").write_text("x")
    assert classifier.classify_text("git checkout feature", facts).class_.value == "destructive"
    (tmp_path / "feature").unlink()
    assert classifier.classify_text("git checkout feature", facts).class_.value == "mutating"


def test_git_in_a_folder_that_is_only_known_at_run_time_is_asked(classifier: Classifier) -> None:
    assert classifier.classify_text("git status", CONTEXT).git_hardening
    assert classifier.classify_text('cd "$x" && git status', CONTEXT).class_.value == "mutating"
    assert (
        classifier.classify_text("for d in a b; do git status; cd $d; done", CONTEXT).class_.value
        == "mutating"
    )


def test_git_in_the_folder_of_a_cd_is_judged_by_that_folder(
    tmp_path: Path, classifier: Classifier
) -> None:
    inner = tmp_path / "inner"
    (inner / ".git" / "objects").mkdir(parents=True)
    (inner / ".git" / "refs").mkdir()
    (inner / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (inner / ".git" / "config").write_text('[filter "x"]\n\tclean = ./evil\n')
    facts = dataclasses.replace(CONTEXT, cwd=str(tmp_path), writable_roots=(str(tmp_path),))
    assert classifier.classify_text("git status", facts).class_.value == "read_only"
    for text in ("cd inner && git status", "cd inner; git status", "(cd inner && git status)"):
        assert classifier.classify_text(text, facts).class_.value == "mutating", text


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "GIT_EXTERNAL_DIFF", "BASH_ENV", "PAGER"])
def test_the_request_environment_is_graded(name: str, classifier: Classifier) -> None:
    facts = dataclasses.replace(CONTEXT, environment={name: "/nowhere/project/x"})
    verdict = classifier.classify_text("ls", facts)
    assert verdict.class_ is CommandClass.MUTATING
    assert "environment" in {reason.rule for reason in verdict.reasons}


def test_arithmetic_on_a_variable_of_the_request_is_asked(classifier: Classifier) -> None:
    hostile = dataclasses.replace(CONTEXT, environment={"COLUMNS": "a[$(id)]"})
    assert classifier.classify_text("echo $((COLUMNS))", hostile).class_ is CommandClass.MUTATING


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ls() { rm -rf x; }; ls", "destructive"),
        ("ls() { cat; }; ls", "mutating"),
        ("f() { touch x; }; f", "mutating"),
        ("f; f() { ls; }", "mutating"),
        ("false && f() { ls; }; f", "mutating"),
        ("f() { ls; }; f > out", "mutating"),
        ('f() { "$@"; }; f rm x', "mutating"),
        ("{PWN,x}", "mutating"),
        ("x=ls; $x", "mutating"),
        ("echo x | bash", "mutating"),
        ("curl https://example.com | { cat; sh; }", "mutating"),
        ("for PATH in /tmp/x; do ls; done", "mutating"),
        ("echo ${LD_PRELOAD:=x}; ls", "mutating"),
    ],
)
def test_what_a_name_means_is_decided_by_the_whole_text(
    text: str, kind: str, classifier: Classifier
) -> None:
    assert classifier.classify_text(text, CONTEXT).class_.value == kind


def test_another_shell_gets_only_the_common_subset(classifier: Classifier) -> None:
    facts = dataclasses.replace(CONTEXT, shell="zsh")
    assert classifier.classify_text("ls -l | head", facts).class_ is CommandClass.READ_ONLY
    for text in ("ls *", "echo $x", "echo {a,b}", "[[ -f x ]]"):
        assert classifier.classify_text(text, facts).class_ is CommandClass.MUTATING, text


def test_an_argument_vector_has_no_shell_in_it(classifier: Classifier) -> None:
    def judged(*argv: str) -> Verdict:
        return classifier.classify_argv(argv, CONTEXT)

    assert judged("ls", "$(rm x)", "; rm y").class_ is CommandClass.READ_ONLY
    assert judged("rm", "x").class_ is CommandClass.DESTRUCTIVE
    assert judged("bash", "-lc", "ls").class_ is CommandClass.READ_ONLY
    assert judged("bash", "-lc", "rm x").class_ is CommandClass.DESTRUCTIVE
    assert not judged().parsed
    assert not judged("").parsed
    assert not judged("ls", "a\0b").parsed


def test_nested_shells_are_read_to_a_fixed_depth(classifier: Classifier) -> None:
    text = "ls"
    for _ in range(3):
        text = f"bash -c {_quoted(text)}"
    assert classifier.classify_text(text, CONTEXT).class_ is CommandClass.READ_ONLY
    for _ in range(4):
        text = f"bash -c {_quoted(text)}"
    assert classifier.classify_text(text, CONTEXT).class_ is not CommandClass.READ_ONLY


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def test_many_threads_get_the_same_answers(classifier: Classifier) -> None:
    texts = [text for text in READERS for _ in range(3)]
    found: list[CommandClass] = []

    def work() -> None:
        found.extend(classifier.classify_text(f"{text}\n#", CONTEXT).class_ for text in texts)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [CommandClass.READ_ONLY] * (4 * len(texts))


def test_the_cache_makes_a_second_answer_cheap(classifier: Classifier) -> None:
    text = "cat a | grep b | sort | uniq -c | head -n 5 && ls -l src"
    first = classifier.classify_text(text, CONTEXT)
    assert classifier.classify_text(text, CONTEXT) is first
