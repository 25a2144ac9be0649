"""`network` in a profile: the short form, what layers add, and errors with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.errors import ProfileBroken
from sandboxd.model import EgressRules, NetworkMode
from sandboxd.profiles import load_profile


def loaded(folder: Path, text: str, base: str | None = None) -> object:
    if base is not None:
        (folder / "base.yaml").write_text(base)
        text = f"extends: ./base.yaml\n{text}"
    (folder / "p.yaml").write_text(text)
    found = load_profile(str(folder / "p.yaml"))
    return found.network, found.network_fallback, found.egress


def test_a_bare_word_is_the_mode(tmp_path: Path) -> None:
    assert loaded(tmp_path, "network: off") == (NetworkMode.OFF, None, EgressRules())
    assert loaded(tmp_path, "network: {mode: off}") == (NetworkMode.OFF, None, EgressRules())


def test_everything_can_be_said(tmp_path: Path) -> None:
    text = """
network:
  mode: allowlist
  allow: [example.com, "*.example.org:443", 10.0.0.0/8, "[2001:db8::1]:80", 2001:db8::/32]
  deny: [bad.example.org]
  allow_private: true
  publish: [3000, 8080]
"""
    assert loaded(tmp_path, text) == (
        NetworkMode.ALLOWLIST,
        None,
        EgressRules(
            allow=(
                "example.com",
                "*.example.org:443",
                "10.0.0.0/8",
                "[2001:db8::1]:80",
                "2001:db8::/32",
            ),
            deny=("bad.example.org",),
            allow_private=True,
            publish=(3000, 8080),
        ),
    )


def test_denied_hosts_only_grow_and_allowed_ones_are_replaced(tmp_path: Path) -> None:
    base = "network: {mode: open, fallback: host, allow: [a.example], deny: [b.example]}"
    over = "network: {allow: [c.example], deny: [d.example]}"
    assert loaded(tmp_path, over, base) == (
        NetworkMode.OPEN,
        NetworkMode.HOST,
        EgressRules(allow=("c.example",), deny=("b.example", "d.example")),
    )


def test_a_layer_that_names_a_mode_takes_the_fallback_away(tmp_path: Path) -> None:
    base = "network: {mode: open, fallback: host}"
    assert loaded(tmp_path, "network: off", base)[:2] == (NetworkMode.OFF, None)  # type: ignore[index]
    again = "network: {mode: allowlist, fallback: off}"
    assert loaded(tmp_path, again, base)[:2] == (NetworkMode.ALLOWLIST, NetworkMode.OFF)  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("network: sometimes", 1, "expected one of off, allowlist, open, host"),
        ("approval: ask-all\nnetwork: {mode: 1}", 2, "expected one of off, allowlist, open, host"),
        ("network: [off]", 1, "expected one of off"),
        ("network:\n  mode: off\n  hosts: [a]", 3, "there is no such key"),
        ("network:\n  allow: example.com", 2, "expected a list"),
        ("network:\n  allow:\n    - good.example\n    - http://bad", 4, "expected a host"),
        ("network:\n  allow: ['a b']", 2, "expected a host"),
        ("network:\n  allow: ['*x.example:']", 2, "expected a host"),
        ("network:\n  deny: ['']", 2, "expected a host"),
        ("network:\n  publish: [0]", 2, "a whole number from 1 to 65535"),
        ("network:\n  publish: [65536]", 2, "a whole number from 1 to 65535"),
        ("network:\n  publish: [http]", 2, "a whole number from 1 to 65535"),
        ("network:\n  allow_private: perhaps", 2, "expected true or false"),
        ("network:\n  fallback: nothing", 2, "expected one of off, allowlist, open, host"),
    ],
)
def test_broken_network_is_named_with_file_line_and_reason(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    with pytest.raises(ProfileBroken) as caught:
        loaded(tmp_path, text)
    assert f"p.yaml, line {line}" in caught.value.message
    assert words in caught.value.message
