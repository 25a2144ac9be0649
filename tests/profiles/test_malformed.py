"""Every malformed profile gets one line: file, line, key, and what was expected there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.errors import ProfileBroken
from sandboxd.profiles import check_file

# name: (the file, the line that is wrong, the key there ("" where there is none), words of the message)
MALFORMED: dict[str, tuple[str, int, str, str]] = {
    "a text": ("hello\n", 1, "", "expected keys such as"),
    "a list": ("- a\n- b\n", 1, "", "expected keys such as"),
    "unknown key": ("approvals: standard\n", 1, "approvals", "perhaps `approval`"),
    "unknown key inside": ("files:\n  denied: [/x]\n", 2, "files.denied", "perhaps `deny`"),
    "unknown key deeper": (
        "files:\n  deny:\n    - {path: /x, reason: y}\n",
        3,
        "files.deny.reason",
        "expected one of only, path, why",
    ),
    "a key twice": ("approval: never\napproval: never\n", 2, "approval", "given twice"),
    "a key twice inside": ("limits:\n  wall_s: 1\n  wall_s: 2\n", 3, "wall_s", "given twice"),
    "another approval": ("approval: sometimes\n", 1, "approval", "standard, trust-sandbox"),
    "no approval": ("approval:\n", 1, "approval", "found nothing, expected one of standard"),
    "a list for a word": ("approval: [never]\n", 1, "approval", "expected one of standard"),
    "another tier": ("min_tier: strong\n", 1, "min_tier", "expected one of seatbelt, namespaces"),
    "another network": ("network: sometimes\n", 1, "network", "off, allowlist, open, host"),
    "another network mode": ("network: {mode: 1}\n", 1, "network.mode", "off, allowlist"),
    "a url for a host": (
        "network:\n  mode: allowlist\n  allow:\n    - http://x\n",
        4,
        "network.allow",
        "expected a host",
    ),
    "a port that is none": ("network: {publish: [0]}\n", 1, "network.publish", "from 1 to 65535"),
    "a word for a port": ("network: {publish: [web]}\n", 1, "network.publish", "a whole number"),
    "yes for true": (
        "network:\n  allow_private: yes\n",
        2,
        "network.allow_private",
        "true or false",
    ),
    "another socket mode": ("unix_sockets: some\n", 1, "unix_sockets", "expected one of none"),
    "reading some": ("files: {read: some}\n", 1, "files.read", "expected all"),
    "a text for a list": ("files:\n  write: /x\n", 2, "files.write", "expected a list"),
    "a relative folder": ("files: {write: [src]}\n", 1, "files.write", "expected a path from `/`"),
    "a tilde": ("files:\n  deny:\n    - ~/.ssh\n", 3, "files.deny", "expected a path from `/`"),
    "the root": ("files: {write: [/]}\n", 1, "files.write", "expected a folder beneath it"),
    "the root in disguise": ("files: {write: [/a/..]}\n", 1, "files.write", "found the root"),
    "a variable that is none": ('files: {write: ["${HOEM}"]}\n', 1, "files.write", "${HOME}"),
    "a variable that does not end": ('files: {write: ["${HOME"]}\n', 1, "files.write", "`$` alone"),
    "another spelling of variables": (
        'files: {write: ["/x/$HOME"]}\n',
        1,
        "files.write",
        "`$` alone",
    ),
    "a denied place without a path": ("files: {deny: [{why: x}]}\n", 1, "files.deny", "`path`"),
    "another system": (
        "files:\n  deny:\n    - {path: /x, only: windows}\n",
        3,
        "files.deny.only",
        "expected one of linux, macos",
    ),
    "a copy without a format": ("files: {redact: [{path: /x}]}\n", 1, "files.redact", "`as`"),
    "a copy in another format": (
        "files: {redact: [{path: /x, as: xml}]}\n",
        1,
        "files.redact.as",
        "expected one of npmrc",
    ),
    "a protected name outside": ("files: {protect: [../x]}\n", 1, "files.protect", "a name in the"),
    "a protected path": ("files: {protect: [/etc]}\n", 1, "files.protect", "a name in the"),
    "another environment mode": ("environment: {mode: all}\n", 1, "environment.mode", "scrub"),
    "an assignment to pass": ("environment: {pass: [A=B]}\n", 1, "environment.pass", "a pattern"),
    "a number of a name": ("environment:\n  set: {1A: x}\n", 2, "environment.set.1A", "letters"),
    "a path of programs": (
        "environment:\n  set: {PATH: /x}\n",
        2,
        "environment.set.PATH",
        "cannot",
    ),
    "a start file": (
        "environment: {set: {BASH_ENV: x}}\n",
        1,
        "environment.set.BASH_ENV",
        "cannot",
    ),
    "a list for a text": (
        "environment: {set: {A: [x]}}\n",
        1,
        "environment.set.A",
        "expected a text",
    ),
    "time as a word": ("limits:\n  wall_s: soon\n", 2, "limits.wall_s", "a number above 0"),
    "no time": ("limits: {wall_s: 0}\n", 1, "limits.wall_s", "a number above 0"),
    "half a process": ("limits: {processes: 1.5}\n", 1, "limits.processes", "a whole number"),
    "less than nothing": ("limits: {memory_bytes: -1}\n", 1, "limits.memory_bytes", "above 0"),
    "extends nothing there": ("extends: nope\n", 1, "extends", "there is no profile 'nope'"),
    "extends a missing file": ("\nextends: ./nope.yaml\n", 2, "extends", "there is no profile"),
    "extends itself": ("extends: ./p.yaml\n", 1, "extends", "circle"),
    "an anchor": ("files: &x {}\n", 1, "x", "anchors"),
    "an alias": ("files:\n  write: &w [/x]\n  deny: *w\n", 2, "w", "anchors"),
    "a tag": ("approval: !!python/name:os.system x\n", 1, "approval", "tag"),
    "a key that is a list": ("? [a]\n: b\n", 1, "", "a key must be a text"),
    "two documents": ("approval: never\n---\napproval: never\n", 2, "", "not YAML"),
    "a tab": ("files:\n\twrite: [/x]\n", 2, "", "not YAML"),
    "a bracket that stays open": ("files: {write: [/x\n", 2, "", "not YAML"),
    "a character that is none": ("approval: never\nx: \x01\n", 2, "", "not YAML"),
    "too deep": ("- " * 5000 + "x\n", 1, "", "dep"),
    "brackets too deep": ("files: " + "[" * 5000 + "]" * 5000 + "\n", 1, "", "dep"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_profile_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    text, line, key, words = MALFORMED[case]
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(ProfileBroken) as caught:
        check_file(str(file))
    message = caught.value.message
    assert message.startswith(f"{file}, line {line}")
    assert not key or f"key '{key}" in message
    assert words in message
    assert "\n" not in message
    assert len(message) < 500


def test_what_is_no_text_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    for content, words in (
        (b"approval: never\nx: \xff\n", "line 2: not UTF-8"),
        (b"#" * 300_000, "over 262144 bytes"),
    ):
        file.write_bytes(content)
        with pytest.raises(ProfileBroken, match=words):
            check_file(str(file))


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in ((".", "cannot be read"), ("pipe", "not a file"), ("nope", "no such file")):
        with pytest.raises(ProfileBroken, match=words):
            check_file(str(tmp_path / name))


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("# nothing yet\n")
    assert check_file(str(tmp_path / "p.yaml")).deny == ()
