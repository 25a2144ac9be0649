"""What a policy says of a path, without looking at anything."""

from __future__ import annotations

import pytest

from sandboxd.answers import PathAnswer, allows
from sandboxd.model import Policy, ShownCopy

POLICY = Policy(
    profile="p",
    workspace="/w",
    writable=("/w", "/h/.cache/inner", "/tmp-private"),
    denied=("/h/.ssh", "/h/.cache", "/w/keys", "/tmp/secret"),
    shown=(ShownCopy(path="/h/.npmrc", text=""),),
    protected=("/w/.git/hooks", "/w/own"),
    own=("/w/own",),
    private_tmp="/tmp-private",
    visible=("/tmp/tools",),
)


@pytest.mark.parametrize(
    ("operation", "path", "answer"),
    [
        ("read", "/etc/passwd", PathAnswer(True, "readable")),
        ("write", "/etc/passwd", PathAnswer(False, "outside")),
        ("read", "/h/.ssh", PathAnswer(False, "denied", "/h/.ssh")),
        ("read", "/h/.ssh/id", PathAnswer(False, "denied", "/h/.ssh")),
        ("read", "/h/.sshx", PathAnswer(True, "readable")),
        ("write", "/h/.ssh/id", PathAnswer(False, "denied", "/h/.ssh")),
        ("write", "/w", PathAnswer(True, "writable", "/w")),
        ("write", "/w/a/../b", PathAnswer(True, "writable", "/w")),
        ("write", "/w/../etc/x", PathAnswer(False, "outside")),
        ("read", "/w/keys/k", PathAnswer(False, "denied", "/w/keys")),
        ("write", "/w/keys", PathAnswer(False, "denied", "/w/keys")),
        ("write", "/h/.cache/inner/x", PathAnswer(True, "writable", "/h/.cache/inner")),
        ("write", "/h/.cache/x", PathAnswer(False, "denied", "/h/.cache")),
        ("read", "/h/.npmrc", PathAnswer(True, "redacted", "/h/.npmrc")),
        ("write", "/h/.npmrc", PathAnswer(False, "redacted", "/h/.npmrc")),
        ("write", "/w/.git/hooks/pre-commit", PathAnswer(False, "protected", "/w/.git/hooks")),
        ("read", "/w/.git/hooks/pre-commit", PathAnswer(True, "readable")),
        ("write", "/w/own/x", PathAnswer(False, "own", "/w/own")),
        ("write", "/tmp/x", PathAnswer(True, "temporary", "/tmp-private")),
        ("write", "/tmp/tools/x", PathAnswer(False, "outside")),
        ("write", "/tmp-private/x", PathAnswer(True, "temporary", "/tmp-private")),
        ("write", "/dev/null", PathAnswer(True, "device")),
        ("write", "/dev/sda", PathAnswer(False, "outside")),
    ],
)
def test_the_nearest_entry_decides(operation: str, path: str, answer: PathAnswer) -> None:
    assert allows(POLICY, operation, path) == answer  # type: ignore[arg-type]


def test_without_a_private_tmp_the_hosts_own_is_judged() -> None:
    assert allows(POLICY, "write", "/tmp/x", has_private_tmp=False).kind == "outside"
    assert allows(POLICY, "read", "/tmp/secret", has_private_tmp=False).kind == "denied"
