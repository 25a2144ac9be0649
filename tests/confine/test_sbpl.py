"""The evaluator of Seatbelt's profile language: what it decides, and what it refuses to answer for."""

from __future__ import annotations

import pytest

from sandboxd.confine.sbpl import Evaluator, ProfileError, Subject

HEAD = "(version 1)\n(deny default)\n"


def evaluator(rules: str, **parameters: str) -> Evaluator:
    return Evaluator(HEAD + rules, parameters)


def test_what_no_rule_names_is_the_default() -> None:
    assert not evaluator("").allows("file-read-data", "/a")
    assert Evaluator("(version 1)(allow default)", {}).allows("file-read-data", "/a")


def test_the_last_matching_rule_counts() -> None:
    rules = '(allow file-read* (subpath "/a"))(deny file-read* (subpath "/a/b"))(allow file-read-data (literal "/a/b/c"))'
    found = evaluator(rules)
    assert [
        found.allows("file-read-data", path) for path in ("/a/x", "/a/b/x", "/a/b/c", "/b")
    ] == [
        True,
        False,
        True,
        False,
    ]
    assert not found.allows("file-read-metadata", "/a/b/c")


def test_the_answer_names_the_line() -> None:
    found = evaluator('(allow file-read* (subpath "/a"))\n(deny file-read* (literal "/a"))')
    assert found.decide("file-read-data", Subject(path="/a")).line == 4


@pytest.mark.parametrize(
    ("filters", "inside", "outside"),
    [
        ('(literal "/a/b")', "/a/b", "/a/b/c"),
        ('(path "/a/b")', "/a/b", "/a"),
        ('(subpath "/a/b")', "/a/b/c", "/a/bc"),
        ('(subpath "/a/b/")', "/a/b", "/a"),
        ('(prefix "/a/b")', "/a/bc", "/a"),
        ('(regex #"^/a/[0-9]+$")', "/a/12", "/a/12x"),
        ('(regex #"b")', "/abc", "/ac"),
        ('(path-ancestors "/a/b/c")', "/a/b", "/a/b/c"),
        ('(literal "/a") (literal "/b")', "/b", "/c"),
        ('(require-all (subpath "/a") (require-not (literal "/a/b")))', "/a/c", "/a/b"),
        ('(require-any (literal "/a") (literal "/b"))', "/a", "/c"),
        ('(subpath (param "ROOT"))', "/r (x)/y", "/r"),
        ('(literal (string-append (param "ROOT") "/x"))', "/r (x)/x", "/r (x)/y"),
        (r'(literal "/a\"b")', '/a"b', "/a"),
        ("(literal \"/a\nb\")", "/a\nb", "/a"),
    ],
)  # fmt: skip
def test_filters_of_paths(filters: str, inside: str, outside: str) -> None:
    found = evaluator(f"(allow file-write* {filters})", ROOT="/r (x)")
    assert found.allows("file-write-create", inside)
    assert not found.allows("file-write-create", outside)


def test_kinds_of_files_and_extensions() -> None:
    found = evaluator(
        '(allow file-write-data (require-all (path "/dev/null") (vnode-type CHARACTER-DEVICE)))'
        '(allow file-read* (require-all (regex #"^/dev/ttys[0-9]+") (extension "com.apple.sandbox.pty")))'
    )
    null = Subject(path="/dev/null", vnode_type="CHARACTER-DEVICE")
    assert found.decide("file-write-data", null).allowed
    assert not found.allows("file-write-data", "/dev/null")
    mine = Subject(path="/dev/ttys001", extensions=("com.apple.sandbox.pty",))
    assert found.decide("file-read-data", mine).allowed
    assert not found.allows("file-read-data", "/dev/ttys001")


def test_network_filters() -> None:
    found = evaluator(
        '(allow network-outbound (remote ip "localhost:3128"))(allow network-bind (local ip "*:*"))'
        '(allow network-outbound (remote unix-socket (subpath "/w")))'
    )

    def outbound(subject: Subject) -> bool:
        return found.decide("network-outbound", subject).allowed

    assert outbound(Subject(address="localhost:3128"))
    assert not outbound(Subject(address="localhost:3129"))
    assert not outbound(Subject(address="example.com:3128"))
    assert outbound(Subject(path="/w/s"))
    assert not outbound(Subject(path="/var/run/docker.sock"))
    assert found.decide("network-bind", Subject(address="0.0.0.0:80")).allowed


def test_names_and_targets() -> None:
    found = evaluator(
        '(allow mach-lookup (global-name "com.apple.a"))(allow sysctl-read (sysctl-name-prefix "hw."))'
        '(allow signal (target same-sandbox))(allow ipc-posix-shm-read* (ipc-posix-name-regex #"^/x[0-9]$"))'
    )
    assert found.decide("mach-lookup", Subject(name="com.apple.a")).allowed
    assert not found.decide("mach-lookup", Subject(name="com.apple.ab")).allowed
    assert found.decide("sysctl-read", Subject(name="hw.ncpu")).allowed
    assert not found.decide("signal", Subject(target="others")).allowed
    assert found.decide("signal").allowed
    assert found.decide("ipc-posix-shm-read-data", Subject(name="/x1")).allowed


def test_a_rule_without_a_filter_always_matches() -> None:
    assert evaluator("(allow network-outbound)").decide("network-outbound").allowed


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ('(allow file-read* (subpath (param "NOPE")))', "no value"),
        ("(allow file-reed*)", "operation"),
        ("(allow frobnicate)", "operation"),
        ("(grant file-read*)", "form"),
        ('(import "system.sb")', "form"),
        ('(allow file-read* (subpoth "/a"))', "filter"),
        ('(allow process-exec (path "/bin/ps") (with no-sandbox))', "no-sandbox"),
        ('(allow file-read* (regex "^/a"))', "pattern"),
        ('(allow file-read* (regex #"[") )', "cannot be read"),
        ('(allow file-read* (vnode-type TOAST))', "kind of file"),
        ('(allow network-outbound (remote ip "example.com:80"))', "address"),
        ("(allow network-outbound (remote carrier-pigeon))", "not known"),
        ("(allow signal (target everybody))", "target"),
        ('(allow file-read* (require-not (literal "/a") (literal "/b")))', "takes filters"),
        ("(allow file-read*", "not closed"),
        ("(allow file-read*))", "too many"),
        ("allow", "outside any form"),
        ("(allow)", "without an operation"),
        ("(allow file-read* (literal))", "cannot be read"),
        ('(allow file-read* (subpath (getenv "HOME")))', "gives no value"),
    ],
)  # fmt: skip
def test_what_it_does_not_know_it_refuses(rules: str, why: str) -> None:
    with pytest.raises(ProfileError, match=why):
        evaluator(rules)


def test_a_profile_says_its_version_and_a_default() -> None:
    with pytest.raises(ProfileError, match="version"):
        Evaluator("(deny default)", {})
    with pytest.raises(ProfileError, match="default"):
        Evaluator("(version 1)(allow file-read*)", {})


def test_only_real_operations_are_answered() -> None:
    with pytest.raises(ProfileError, match="operation"):
        evaluator("").allows("file-read*", "/a")
