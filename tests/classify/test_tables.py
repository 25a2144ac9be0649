"""The shipped command tables, each of their examples, and what a user's file may do to them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.classify.examples import examples_of, grade_example
from sandboxd.classify.tables import cut, load_tables
from sandboxd.errors import ProfileBroken
from sandboxd.model import CommandClass

TABLES = load_tables()


def all_examples() -> Iterator[tuple[str, CommandClass]]:
    found: dict[tuple[str, CommandClass], None] = {}
    for name in TABLES.names():
        entry = TABLES.entry(name)
        assert entry is not None
        found.update(dict.fromkeys(examples_of(entry)))
    yield from found


@pytest.mark.parametrize(
    ("text", "wanted"), [pytest.param(t, w, id=f"{w.value}: {t}") for t, w in all_examples()]
)
def test_example_is_graded_as_its_entry_says(text: str, wanted: CommandClass) -> None:
    found = grade_example(text, TABLES)
    assert found.class_ is wanted, f"{found.rule}: {found.reason}"


def test_every_entry_has_an_example_and_a_reader_also_a_counterexample() -> None:
    for name in TABLES.own_names():
        entry = TABLES.entry(name)
        assert entry is not None
        kinds = {kind for _, kind in examples_of(entry)}
        assert kinds, name
        takes_options = bool(entry.flags) or bool(entry.checks)
        if CommandClass.READ_ONLY in kinds and takes_options:
            assert kinds & {CommandClass.MUTATING, CommandClass.DESTRUCTIVE}, name


def test_at_least_150_commands_are_known() -> None:
    assert sum(1 for _ in TABLES.own_names()) >= 150


def test_no_entry_lists_a_script_flag_that_it_does_not_know() -> None:
    for name in TABLES.own_names():
        entry = TABLES.entry(name)
        assert entry is not None
        assert entry.script_flags <= set(entry.flags), name
        assert not entry.flags or entry.requires <= set(entry.flags), name


def test_loading_takes_less_than_thirty_milliseconds() -> None:
    seconds = []
    for _ in range(5):
        start = time.process_time()
        load_tables()
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.03


# ------------------------------------------------------------------------------ user files


def write(folder: Path, text: str) -> str:
    file = folder / "mine.yaml"
    file.write_text(text)
    return str(file)


def grade_with(file: str, text: str) -> CommandClass:
    return grade_example(text, load_tables([file])).class_


def test_a_user_file_adds_a_command(tmp_path: Path) -> None:
    file = write(
        tmp_path, "mytool:\n  flags: -q\n  read_only: [mytool -q]\n  mutating: [mytool -x]\n"
    )
    assert grade_with(file, "mytool -q") is CommandClass.READ_ONLY
    assert grade_with(file, "mytool -w") is CommandClass.MUTATING


def test_a_user_file_extends_an_entry_without_losing_the_rest(tmp_path: Path) -> None:
    file = write(
        tmp_path, "grep:\n  extend: yes\n  flags: --mine\n  read_only: [grep --mine x f]\n"
    )
    assert grade_with(file, "grep --mine -n x f") is CommandClass.READ_ONLY
    assert grade_with(file, "grep --other x f") is CommandClass.MUTATING


def test_an_extension_of_a_subcommand_keeps_its_neighbours(tmp_path: Path) -> None:
    text = "git:\n  extend: yes\n  subcommands:\n    town:\n      class: mutating\n"
    file = write(tmp_path, text)
    assert grade_with(file, "git status") is CommandClass.READ_ONLY
    assert grade_with(file, "git push --force") is CommandClass.DESTRUCTIVE


def test_a_user_file_may_make_a_command_stricter(tmp_path: Path) -> None:
    file = write(tmp_path, "cat:\n  class: destructive\n  operands: file*\n")
    assert grade_with(file, "cat f") is CommandClass.DESTRUCTIVE


def test_yes_no_on_and_numbers_stay_names(tmp_path: Path) -> None:
    file = write(tmp_path, "no on 1e3:\n  operands: text*\n  read_only: [no x, on x, 1e3 x]\n")
    assert grade_with(file, "on x") is CommandClass.READ_ONLY


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("a:\n  flags: -x\n  colour: red\n", 3, "a.colour"),
        ("a:\n  class: readonly\n", 2, "a.class"),
        ("a:\n  flags: -x\n  flags: -y\n", 3, "flags"),
        ("a:\n  flags: x\n", 2, "a.flags"),
        ("a:\n  flags: -x=colour\n", 2, "a.flags"),
        ("a:\n  operands: things*\n", 2, "a.operands"),
        ("a:\n  read_only: a\n", 2, "a.read_only"),
        ("a:\n  uses: nothing\n", 2, "a.uses"),
        ("a:\n  checks: no_such_check\n", 2, "a.checks"),
        ("a:\n  subcommands:\n    b:\n      flag: -x\n", 4, "a.subcommands.b.flag"),
        ("a:\n  harmless: true\n", 2, "a.harmless"),
        ("a: [\n", 2, ""),
        ("a: &x\n  flags: -x\nb: *x\n", 1, "x"),
    ],
)
def test_a_broken_file_is_refused_with_file_line_and_key(
    tmp_path: Path, text: str, line: int, key: str
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ProfileBroken) as caught:
        load_tables([file])
    assert caught.value.message.startswith(f"{file}, line {line}")
    assert key in caught.value.message
    assert caught.value.path == file


def test_an_example_that_does_not_hold_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "mytool:\n  flags: -q\n  read_only: [mytool -q, mytool -w]\n")
    with pytest.raises(ProfileBroken, match="mytool -w"):
        load_tables([file])


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ProfileBroken, match="absent"):
        load_tables([str(tmp_path / "absent.yaml")])


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileBroken):
        load_tables([str(file)])


def test_cutting_finds_quoted_and_several_names() -> None:
    text = '# note\na b:\n  flags: -x\n\n"true :":\n  builtin: yes\n'
    assert [piece.names for piece in cut(text, "f")] == [("a", "b"), ("true", ":")]
