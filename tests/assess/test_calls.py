"""A call in the rules' words: roles said, roles from the table, roles guessed; contents never kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sandboxd.assess.calls import call_of_tool, verdict_of
from sandboxd.errors import InvalidRequest
from sandboxd.proposals import Role

UNIFIED = "--- a/one.txt\n+++ b/one.txt\n@@ -1 +1 @@\n-x\n+y\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+z\n"
CODEX = "*** Begin Patch\n*** Update File: ../a\n@@\n-x\n+y\n*** Delete File: b\n*** End Patch"


def roles_of(
    tool: str, parameters: dict[str, Any], roles: dict[str, Role] | None = None
) -> list[tuple[str, str, str]]:
    call, command = call_of_tool(tool, parameters, roles, "")
    found = [(one.name, one.role, one.value) for one in call.parameters]
    return found if command is None else [*found, ("", "command", command)]


@pytest.mark.parametrize(
    ("tool", "parameters", "expected"),
    [
        ("Read", {"file_path": "a"}, [("file_path", "source_path", "a")]),
        ("Bash", {"command": "ls | wc"}, [("", "command", "ls | wc")]),
        ("shell", {"command": ["ls", "a b"]}, [("", "command", "ls 'a b'")]),
        ("WebFetch", {"url": "https://u:p@X.org:8443/a?b"}, [("url", "host", "x.org:8443")]),
        ("fetch", {"url": "ftp://[::1]/x"}, [("url", "host", "[::1]")]),
        (
            "apply_patch",
            {"input": CODEX},
            [("input[0]", "manifest", "../a"), ("input[1]", "manifest", "b")],
        ),
        (
            "fs.patch",
            {"patch": UNIFIED},
            [("patch[0]", "manifest", "one.txt"), ("patch[1]", "manifest", "new.txt")],
        ),
        (
            "read_multiple_files",
            {"paths": ["a", "b"]},
            [("paths[0]", "source_path", "a"), ("paths[1]", "source_path", "b")],
        ),
    ],
)
def test_known_tool(tool: str, parameters: dict[str, Any], expected: list[Any]) -> None:
    assert roles_of(tool, parameters) == expected


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"filePath": "a"}, [("filePath", "path", "a")]),
        ({"src": "a", "dest": "b"}, [("src", "source_path", "a"), ("dest", "path", "b")]),
        ({"cmd": "rm x"}, [("", "command", "rm x")]),
        ({"x": {"y": ["/etc/shadow", 3, None]}}, [("x.y[0]", "path", "/etc/shadow")]),
        ({"x": "file:///etc/passwd"}, [("x", "path", "/etc/passwd")]),
        ({"x": "~/.ssh/id"}, [("x", "path", "~/.ssh/id")]),
        ({"x": ".."}, [("x", "path", "..")]),
        ({"x": "notes.txt"}, [("x", "path", "notes.txt")]),
        ({"x": "https://h.org/p"}, [("x", "host", "h.org")]),
        ({"files": {"/etc/x": "content"}}, [("files.key", "path", "/etc/x")]),
        ({"x": [{"/etc/x": 1}]}, [("x[0].key", "path", "/etc/x")]),
        (
            {"diff": UNIFIED},
            [("diff[0]", "manifest", "one.txt"), ("diff[1]", "manifest", "new.txt")],
        ),
        ({"x": "just some words, no path"}, []),
        ({"n": 4, "flag": True}, []),
    ],
)
def test_unknown_tool_is_read_by_names_and_values(
    parameters: dict[str, Any], expected: list[Any]
) -> None:
    assert roles_of("mystery", parameters) == expected


def test_roles_of_the_caller_go_before_the_table_and_the_rest_is_still_looked_at() -> None:
    found = roles_of("Read", {"file_path": "a", "other": "/etc/x"}, {"file_path": "path"})
    assert found == [("file_path", "path", "a"), ("other", "path", "/etc/x")]


@pytest.mark.parametrize(
    "value", [["a", "b"], [{"path": "a", "content": "x"}, {"path": "b"}], {"a": "x", "b": "y"}]
)
def test_manifest_of_any_shape(value: Any) -> None:
    found = roles_of("t", {"files": value}, {"files": "manifest"})
    assert [path for _, _, path in found] == ["a", "b"]


def test_contents_become_digests() -> None:
    call, _ = call_of_tool("Write", {"file_path": "a", "content": "the secret text"}, None, "")
    assert b"secret text" not in msgspec.json.encode(call)
    assert call.parameters[1].value.endswith("(15 bytes)")


@pytest.mark.parametrize(
    ("tool", "parameters"),
    [
        ("Bash", {"command": {"a": 1}}),
        ("apply_patch", {"input": "no patch"}),
        ("mystery", {"x": [["/a"] * 3000]}),
        ("mystery", {"x": __import__("functools").reduce(lambda v, _: [v], range(40), "/a")}),
    ],
)
def test_arguments_that_cannot_be_read_are_refused(tool: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        call_of_tool(tool, parameters, None, "")


@pytest.mark.parametrize(
    ("tool", "parameters", "kind"),
    [
        ("Read", {"file_path": "a"}, "read_only"),
        ("WebFetch", {"url": "https://h.org"}, "read_only"),
        ("Write", {"file_path": "a"}, "mutating"),
        ("mystery", {"x": "a b c"}, "mutating"),
        ("mystery", {}, "mutating"),
    ],
)
def test_class_of_a_tool_is_what_it_changes_and_opaque_is_strict(
    tool: str, parameters: dict[str, Any], kind: str
) -> None:
    call, _ = call_of_tool(tool, parameters, None, "")
    assert verdict_of(call, "/w", "/h").class_.value == kind


def test_paths_of_a_verdict_are_absolute() -> None:
    call, _ = call_of_tool("move_file", {"source": "~/a", "destination": "b/../c"}, None, "")
    assert verdict_of(call, "/w", "/h").write_paths == ("/h/a", "/w/c")
