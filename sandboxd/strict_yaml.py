"""YAML as plain text: every scalar is a string, duplicate keys are refused with file and line.

A module of its own because a command table needs `yes`, `no` and `on` as names, which YAML 1.1
turns into booleans. The pure data model is `Node`; nothing of PyYAML leaves this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from sandboxd.errors import ProfileBroken

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
MAX_DEPTH = 32
_PLAIN_TAGS = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))


@dataclass(frozen=True)
class Node:
    """One value with the place it was written at. Exactly one of the three is meaningful."""

    file: str
    line: int
    key: str
    text: str | None = None
    items: tuple[Node, ...] | None = None
    mapping: dict[str, Node] = field(default_factory=dict)

    @property
    def is_mapping(self) -> bool:
        return self.text is None and self.items is None

    def broken(self, why: str) -> ProfileBroken:
        """The refusal that names file, line and key."""
        return broken(self.file, self.line, self.key, why)

    def scalar(self) -> str:
        """The text of a scalar; refuses lists and mappings."""
        if self.text is None:
            raise self.broken("a single text is expected here")
        return self.text

    def strings(self) -> tuple[str, ...]:
        """The texts of a list of scalars."""
        if self.items is None:
            raise self.broken("a list of texts is expected here")
        return tuple(item.scalar() for item in self.items)

    def entries(self) -> dict[str, Node]:
        """The members of a mapping; an empty value stands for an empty mapping."""
        if self.text == "":
            return {}
        if not self.is_mapping:
            raise self.broken("a mapping is expected here")
        return self.mapping


def broken(file: str, line: int, key: str, why: str) -> ProfileBroken:
    where = f"{file}, line {line}" + (f", key {key!r}" if key else "")
    return ProfileBroken(
        f"{where}: {why}.",
        hint="Correct that line.",
        path=file,
    )


def read_yaml(text: str, file: str, first_line: int = 1) -> Node:
    """The document in `text`, which starts at line `first_line` of `file`.

    Raises ProfileBroken for a syntax error, a duplicate key, an anchor or a key that is no text.
    """
    try:
        _refuse_anchors(text, file, first_line)
        root = yaml.compose(text, Loader=_LOADER)
        if root is None:
            return Node(file, first_line, "")
        return _convert(root, file, first_line, "")
    except RecursionError as error:
        raise broken(file, first_line, "", f"deeper than {MAX_DEPTH} levels") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = first_line + (mark.line if mark is not None else _bad_line(text))
        problem = getattr(error, "problem", None) or "a character that YAML does not allow"
        raise broken(file, line, "", f"not YAML: {problem}") from error


def _bad_line(text: str) -> int:
    """Where the reader stopped at a character that no YAML may hold."""
    bad = next((at for at, each in enumerate(text) if each < " " and each not in "\t\n\r"), 0)
    return text.count("\n", 0, bad)


def _refuse_anchors(text: str, file: str, first_line: int) -> None:
    if "&" not in text:
        return  # an alias needs an anchor; without one YAML itself refuses it
    for event in _events(text):
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            mark = event.start_mark
            line = first_line + (mark.line if mark is not None else 0)
            raise broken(file, line, str(anchor), "anchors and aliases are not used here")


def _events(text: str) -> Iterator[yaml.Event]:
    yield from yaml.parse(text, Loader=_LOADER)


def _convert(node: yaml.Node, file: str, first_line: int, key: str, depth: int = 0) -> Node:
    line = first_line + node.start_mark.line
    if depth > MAX_DEPTH:
        raise broken(file, line, key, f"deeper than {MAX_DEPTH} levels")
    if node.tag not in _PLAIN_TAGS and node.tag is not None:
        raise broken(file, line, key, f"found the tag {node.tag!r}, expected a plain value")
    if isinstance(node, yaml.ScalarNode):
        return Node(file, line, key, text=str(node.value))
    if isinstance(node, yaml.SequenceNode):
        items = tuple(_convert(child, file, first_line, key, depth + 1) for child in node.value)
        return Node(file, line, key, items=items)
    return Node(file, line, key, mapping=_convert_members(node, file, first_line, key, depth))


def _convert_members(
    node: yaml.Node, file: str, first_line: int, path: str, depth: int
) -> dict[str, Node]:
    members: dict[str, Node] = {}
    for name_node, value in node.value:
        line = first_line + name_node.start_mark.line
        if not isinstance(name_node, yaml.ScalarNode):
            raise broken(file, line, path, "a key must be a text")
        name = str(name_node.value)
        if name in members:
            raise broken(file, line, name, "this key is given twice")
        inner = f"{path}.{name}" if path else name
        members[name] = _convert(value, file, first_line, inner, depth + 1)
    return members
