"""The no of every file method as it is on the wire, and what was mended in its parameters."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.client import Client
from sandboxd.errors import InvalidRequest, NotFound, OutsideRoot, Refusal
from sandboxd.protocol.methods import BY_NAME, METHODS
from sandboxd.protocol.refusals import refusals_of


@pytest.fixture
def client(daemon: Any, workspace: Path) -> Iterator[Client]:
    with Client.connect(daemon.socket, workspace=str(workspace)) as connected:
        yield connected


PROVOKED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "fs.read": [
        ({"path": "missing"}, "NOT_FOUND"),
        ({"path": "/etc/passwd"}, "OUTSIDE_ROOT"),
        ({"path": "fifo"}, "SPECIAL_FILE"),
        ({"path": "binary"}, "NOT_TEXT"),
        ({"path": "a\0b"}, "INVALID_ARGUMENT"),
        ({"path": "seen", "offset": 99}, "INVALID_REQUEST"),
        ({"pth": "seen"}, "INVALID_REQUEST"),
    ],
    "fs.write": [
        ({"path": "unseen", "content": "x"}, "FS_NOT_OBSERVED"),
        ({"path": "stale", "content": "x"}, "FS_STALE_VERSION"),
        ({"path": "link-out/x", "content": "x"}, "OUTSIDE_ROOT"),
        ({"path": "new", "content": "x", "approve": "none"}, "APPROVAL_REQUIRED"),
    ],
    "fs.edit": [
        ({"path": "seen", "old_text": "zzz", "new_text": "x"}, "NO_MATCH"),
        ({"path": "seen", "old_text": "a", "new_text": "x"}, "AMBIGUOUS_MATCH"),
        ({"path": "seen", "old_text": "", "new_text": "x"}, "ALREADY_EXISTS"),
        ({"path": "seen", "old_text": "a", "new_text": "x", "edits": []}, "INVALID_REQUEST"),
        ({"path": "seen", "edits": [{"old_text": "a", "new_text": "b"}], "replace_all": True}, "INVALID_REQUEST"),
    ],
    "fs.copy": [
        ({"source_path": "seen", "path": "unseen"}, "ALREADY_EXISTS"),
        ({"source_path": "../x", "path": "new"}, "OUTSIDE_ROOT"),
    ],
    "fs.patch": [
        ({"patch": "nonsense"}, "PATCH_BROKEN"),
        ({"patch": "--- a/seen\n+++ b/seen\n@@ -1 +1 @@\n-zzz\n+x\n"}, "PATCH_MISMATCH"),
        ({"patch": "--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n"}, "OUTSIDE_ROOT"),
        ({"patch": "*** Begin Patch\n*** Delete File: unseen\n*** End Patch"}, "FS_NOT_OBSERVED"),
    ],
    "fs.undo": [({"change_id": "c-0"}, "CHANGE_UNKNOWN")],
    "fs.list": [({"path": "missing"}, "NOT_FOUND"), ({"path": "seen"}, "SPECIAL_FILE")],
    "fs.glob": [({"pattern": "*", "path": "/etc"}, "OUTSIDE_ROOT"), ({"pattern": "/"}, "INVALID_REQUEST")],
    "fs.grep": [({"pattern": "("}, "INVALID_REQUEST"), ({"pattern": "a", "path": "missing"}, "NOT_FOUND")],
    "fs.changes": [({"more": 1}, "INVALID_REQUEST")],
}  # fmt: skip


def test_every_file_method_answers_with_registered_refusals_in_a_whole_envelope(
    client: Client, workspace: Path
) -> None:
    for name in ("seen", "stale", "unseen"):
        (workspace / name).write_text("a\na\n")
    (workspace / "binary").write_bytes(b"\x7fELF\0")
    os.mkfifo(workspace / "fifo")
    (workspace / "link-out").symlink_to("/etc")
    for name in ("seen", "stale"):
        client.files.read(name)
    (workspace / "stale").write_text("b\n")
    assert set(PROVOKED) == {row.name for row in METHODS if row.name.startswith("fs.")}
    for method, cases in PROVOKED.items():
        allowed = {kind.code for kind in refusals_of(method)}
        for params, code in cases:
            if "approve" in BY_NAME[method].params.__struct_fields__:
                params = {"approve": "all", **params}
            error = raw_error(client, method, params)
            assert error["data"]["code"] == code, (method, params, error)
            assert code in allowed, f"{method}: {code} is not registered"
            assert error["message"] == error["data"]["message"]
            assert error["data"]["hint"]
            assert set(error["data"]) <= {
                "code", "origin", "message", "hint", "retryable", "path", "rule", "evidence", "data",
            }  # fmt: skip


def raw_error(client: Client, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The error object as it is on the wire."""
    line = json.dumps({"jsonrpc": "2.0", "id": 10**6, "method": method, "params": params})
    client._send(line.encode() + b"\n")
    answer = json.loads(client._next_line())
    assert "error" in answer, answer
    return dict(answer["error"])


def test_what_was_mended_is_named_in_the_result(client: Client, workspace: Path) -> None:
    (workspace / "a").write_text("x\ny\n")
    line = {
        "jsonrpc": "2.0",
        "id": 5,
        "method": "fs.read",
        "params": {"filePath": "a", "limit": "1"},
    }
    client._send(json.dumps(line).encode() + b"\n")
    result = json.loads(client._next_line())["result"]
    assert result["text"] == "     1\tx\n"
    assert result["coerced"] == ["filePath: taken as path", 'limit: "1" taken as 1']


def test_a_refusal_keeps_its_class_over_the_wire(client: Client) -> None:
    for wrong, kind in (("../x", OutsideRoot), ("missing", NotFound)):
        with pytest.raises(kind) as told:
            client.files.read(wrong)
        assert isinstance(told.value, Refusal)
    with pytest.raises(InvalidRequest):
        client.files.read("x", limit=-1)
