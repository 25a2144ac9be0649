"""Reading git's configuration without git: git itself is the judge of what it says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.confine.guardian.gitconfig import (
    Unreadable,
    program_entries,
    read_entries,
    set_back,
)

TEXTS = {
    "plain": "[user]\n\tname = me\n\temail = a@b # mine\n",
    "subsections": '[remote "o"]\n\turl = u\n[remote "A b\\"c"]\nurl=v\n[branch.old]\n x = 1\n',
    "quotes": '[a]\n b = " x ; y " z # no\n c = "d\\n\\t\\"e\\""\n',
    "continued": "[alias]\n\tx = !one \\\n  two\n\ty = z\n",
    "bare_key": "[core]\n\tbare\n\tfsmonitor\n",
    "one_line": "[core] fsmonitor = touch x\n[a]b=c\n",
    "case": '[CORE]\n\tFsMonitor = X\n[Filter "L"]\n\tClean = y\n',
    "comments": "# x\n; y\n[a] ; z\n\tb = c;d\n",
    "crlf": "[a]\r\n\tb = c\r\n",
    "empty_values": '[credential]\n\thelper =\n\thelper = ""\n\thelper = store\n',
    "include": '[include]\n\tpath = x\n[includeIf "gitdir:/"]\n\tpath = y\n',
    "inner_blanks": "[a]\n\tb = c   d\te  \n",
}


def by_git(text: str, folder: Path) -> list[tuple[str, str]] | None:
    """What git reads, in order; None when it refuses the file."""
    file = folder / "config"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = subprocess.run(
        ["git", "config", "--file", str(file), "--no-includes", "--list", "-z"],
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        check=False,
    )
    if done.returncode != 0:
        return None
    items = done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return [tuple(item.partition("\n")[::2]) for item in items]  # type: ignore[misc]


def by_us(text: str) -> list[tuple[str, str]] | None:
    try:
        return [(entry.key, entry.value) for entry in read_entries(text)]
    except Unreadable:
        return None


@pytest.mark.parametrize("name", TEXTS)
def test_every_form_is_read_as_git_reads_it(name: str, tmp_path: Path) -> None:
    expected = by_git(TEXTS[name], tmp_path)
    assert expected is not None
    found = by_us(TEXTS[name])
    assert found is not None
    assert [key for key, _ in found] == [key for key, _ in expected]
    for (_, ours), (_, gits) in zip(found, expected, strict=True):
        assert " ".join(ours.split()) == " ".join(gits.split()) or (ours, gits) == ("true", "")


LINES = st.sampled_from(
    [
        *("[core]", "[a.b]", '[a "x\\"y"]', '[alias "q"]', "[remote]", "junk", "[", '[a "'),
        *("fsmonitor = x", "hooksPath=y", "k = \\", "k", "= v", 'k = "a;b" c', 'k = "a', "# c"),
        *("\tx = !run", "  ; y", "", "[core] editor = z", "k = a # b", "k = a\\nb", "k = a\\qb"),
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES, max_size=7))
def test_no_key_that_git_would_obey_is_missed(lines: list[str]) -> None:
    import tempfile

    text = "\n".join(lines) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        expected = by_git(text, Path(folder))
    found = by_us(text)
    if expected is not None and found is not None:
        assert [key for key, _ in found] == [key for key, _ in expected]


PROGRAMS = [
    "core.fsmonitor=touch x",
    "core.hookspath=x",
    "core.sshcommand=x",
    "core.pager=x",
    "filter.lfs.clean=x",
    "filter.a.b.process=x",
    "diff.external=x",
    "diff.pdf.textconv=x",
    "diff.pdf.command=x",
    "merge.m.driver=x",
    "alias.st=!x",
    "include.path=x",
    "includeif.gitdir:/a.path=x",
    "credential.helper=x",
    "credential.https://h.helper=x",
    "gpg.ssh.program=x",
    "submodule.s.update=!x",
]
HARMLESS = [
    "core.fsmonitor=true",
    "core.bare=false",
    "user.name=x",
    "alias.st=status",
    "remote.o.url=x",
    "branch.b.remote=o",
    "filter.lfs.required=true",
    "submodule.s.update=merge",
]


def as_text(setting: str) -> str:
    key, _, value = setting.partition("=")
    section, _, name = key.rpartition(".")
    first, _, rest = section.partition(".")
    header = f'[{first} "{rest}"]' if rest else f"[{first}]"
    return f"{header}\n\t{name} = {value}\n"


@pytest.mark.parametrize("setting", PROGRAMS)
def test_keys_that_run_a_program_are_known(setting: str) -> None:
    (entry,) = program_entries(as_text(setting))
    assert entry.key == setting.partition("=")[0]


@pytest.mark.parametrize("setting", HARMLESS)
def test_harmless_keys_are_left_alone(setting: str) -> None:
    assert program_entries(as_text(setting)) == []


def test_setting_back_takes_out_what_is_new_and_puts_in_what_is_gone() -> None:
    before = "[core]\n\thooksPath = /dev/null\n\tbare = false\n"
    after = "[core]\n\thooksPath = evil\n\tbare = true ; said\n[a]\n\tb = c\n"
    text, keys = set_back(before, after)
    assert text == (
        "[core]\n\n\tbare = true ; said\n[a]\n\tb = c\n[core]\n\thooksPath = /dev/null\n"
    )
    assert keys == ["core.hookspath"]


def test_what_was_there_before_stays_as_it_is() -> None:
    text = "[alias]\n\tx = !mine\n"
    assert set_back(text, text + "[user]\n\tname = me\n") == (text + "[user]\n\tname = me\n", [])


def test_what_cannot_be_read_is_said_to_be_so() -> None:
    with pytest.raises(Unreadable):
        set_back("", '[core]\n\tx = "open\n')
