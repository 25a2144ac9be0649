"""The table is the protocol: every row has a handler, every document shows every row."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from sandboxd.daemon.service import Service
from sandboxd.protocol.methods import BY_NAME, METHODS, Direction, Method
from sandboxd.protocol.schema import markdown_text, schema, schema_text


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_row_that_comes_from_a_client_has_a_handler(method: Method) -> None:
    if method.direction in (Direction.REQUEST, Direction.NOTICE):
        handler = getattr(Service, str(method.handler))
        hints = inspect.get_annotations(handler)
        assert hints["params"].rpartition(".")[2] == method.params.__name__
        assert inspect.iscoroutinefunction(handler)
    else:
        assert method.handler is None


def test_every_public_handler_is_a_row() -> None:
    rows = {method.handler for method in METHODS if method.handler}
    public = {name for name in dir(Service) if not name.startswith("_")}
    assert public - {"ended"} == rows  # told by the connection, not by the client


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(METHODS)


def test_only_what_is_answered_has_a_result() -> None:
    for method in METHODS:
        is_answered = method.direction in (Direction.REQUEST, Direction.QUESTION)
        assert (method.result is not None) == is_answered, method.name


@pytest.mark.parametrize(
    ("name", "text"), [("protocol.schema.json", schema_text()), ("protocol.md", markdown_text())]
)
def test_the_checked_in_document_is_the_generated_one(
    repository: Path, name: str, text: str
) -> None:
    told = "stale: write it with `python -m sandboxd schema [--markdown] > docs/...`"
    assert (repository / "docs" / name).read_text(encoding="utf-8") == text, told


def test_the_schema_holds_every_method_and_resolves_every_reference() -> None:
    whole = schema()
    assert set(whole["methods"]) == set(BY_NAME)
    text = json.dumps(whole)
    references = {part.split('"', 1)[0] for part in text.split("#/$defs/")[1:]}
    assert references <= set(whole["$defs"])
    timeout = whole["$defs"]["ExecRequest"]["properties"]["timeout_s"]
    assert timeout["default"] is None
    assert "class" in whole["$defs"]["Verdict"]["properties"]
