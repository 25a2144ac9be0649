"""Where a here-document ends, compared with bash, and what its body is."""

from __future__ import annotations

import subprocess

import pytest

from sandboxd.classify.reading import Unread
from sandboxd.classify.structure import StructureReader

TEXTS = [
    "cat <<EOF\nhi\nEOF",
    "cat <<'EOF'\n$x `y` \\\nEOF\n",
    "cat <<\\EOF\n$x\nEOF",
    'cat <<"E F"\nhi\nE F',
    "cat <<E'O'F\nhi\nEOF",
    "cat <<-EOF\n\t\thi\n\tEOF",
    "cat <<-'EOF'\n\ta\n b\n\tEOF",
    "cat <<EOF\nhi\n EOF\nEOF ",
    "cat <<EOF\nno end",
    "cat <<A; cat <<B\none\nA\ntwo\nB",
    "cat <<A <<B\none\nA\ntwo\nB",
    "cat <<EOF | cat\nhi\nEOF",
    "cat <<''\nhi\n\n",
    "cat <<EOF\na\\$b \\\\ \\x\nEOF",
    "cat <<EOF &&\nhi\nEOF\ntrue",
    "{ cat <<EOF\nhi\nEOF\n}",
    "if cat <<EOF\nhi\nEOF\nthen true; fi",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_last_body_is_what_bash_prints(text: str) -> None:
    reading = StructureReader(text, "/home/user").read_units()
    bodies = []
    for unit in reading.units:
        for command in unit.commands:
            documents = [one for one in command.redirects if one.body is not None]
            bodies.extend(document.body or "" for document in documents[-1:])
    assert all(r.is_literal_body for u in reading.units for c in u.commands for r in c.redirects)
    printed = subprocess.run(
        ["/bin/bash", "--norc", "-c", text],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert "".join(bodies).rstrip("\n") == printed.rstrip("\n")


def test_commands_after_a_body_are_commands() -> None:
    reading = StructureReader("cat <<'EOF'\nhi\nEOF\nrm x\n'EOF'", "/").read_units()
    names = [command.words[0].text for unit in reading.units for command in unit.commands]
    assert names == ["cat", "rm", "EOF"]


def test_an_expansion_makes_a_body_not_literal() -> None:
    unit = StructureReader("cat <<EOF\n$x\nEOF", "/").read_units().units[0]
    assert unit.commands[0].redirects[0].is_literal_body is False


def test_a_body_read_after_a_later_command_began_forbids_unit_approvals() -> None:
    assert StructureReader("cat <<EOF; make\n$(ls)\nEOF", "/").read_units().only_whole


@pytest.mark.parametrize(
    "text",
    ["cat <<EOF\nx\nEO\\\nF", "cat <<", "cat <<\n", "cat <<$(x)\n"],
)
def test_a_doubtful_end_is_not_read(text: str) -> None:
    with pytest.raises(Unread):
        StructureReader(text, "/").read_units()
