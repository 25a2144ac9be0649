"""One reader and writer for each format. Each gives the text to show, or None for what it cannot read.

Comments are not shown: they hold old tokens as often as words. Sources: npmrc(5), pip's
configuration, git-config(1), RFC 8259, TOML 1.0, YAML 1.1, Maven's settings reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from sandboxd.errors import ProfileBroken
from sandboxd.redaction.secrets import LENIENT, STRICT, Judge

Plain = str | int | float | bool | None
Tree = Plain | list["Tree"] | dict[str, "Tree"]

_NPM_KEY = re.compile(r"[@A-Za-z0-9_./:\[\]${}-]+")


def redact(text: str, form: str, judge: Judge = STRICT) -> str | None:
    """The text of a file without its secrets; None when it cannot be read as that."""
    if "\0" in text:
        return None
    try:
        return FORMATS[form](text, judge)
    except (ValueError, RecursionError, ProfileBroken):
        return None


def is_clean(text: str, form: str) -> bool:
    """Whether a file holds no secret at all, in its comments neither."""
    shown = redact(text, form)
    if shown is None or shown != redact(text, form, LENIENT):
        return False
    comments = (line for line in text.splitlines() if re.search(r"[#;]|//|<!--", line))
    return all(STRICT.without_secrets(line) == line for line in comments)


def _npmrc(text: str, judge: Judge) -> str | None:
    lines = []
    for line in map(str.strip, text.splitlines()):
        if not line or line[0] in "#;":
            continue
        if re.fullmatch(r"\[[^\]]*\]", line):
            lines.append(line)
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if not _NPM_KEY.fullmatch(key):
            return None
        shown = judge.without_secrets(value)
        if not judge.is_secret_name(key) and shown is not None:
            lines.append(f"{key} = {shown}" if equals else key)
    return _joined(lines)


def _ini(text: str, judge: Judge) -> str | None:
    import configparser

    reader = configparser.RawConfigParser(strict=False, default_section="\0")
    reader.optionxform = str  # type: ignore[assignment,method-assign]  # names as they are
    try:
        reader.read_string(text)
    except configparser.Error:
        return None
    lines = []
    for section in reader.sections():
        lines.append(f"[{section}]")
        for key, value in reader.items(section):
            kept = [judge.without_secrets(each) for each in value.splitlines() or [""]]
            if not judge.is_secret_name(key) and (
                shown := [each for each in kept if each is not None]
            ):
                lines.append(f"{key} = " + "\n    ".join(shown))
    return _joined(lines)


def _gitconfig(text: str, judge: Judge) -> str | None:
    lines: list[str] = []
    is_shown = False
    for section, subsection, key, value in git_entries(text):
        if key is None:
            kept = judge.without_secrets(subsection or "")
            is_shown = kept is not None
            if kept is not None:
                behind = "" if subsection is None else f" {_quoted(kept)}"
                lines.append(f"[{section}{behind}]")
            continue
        shown = judge.without_secrets(value) if value is not None else ""
        if is_shown and not judge.is_secret_name(key) and shown is not None:
            lines.append(f"\t{key}" if value is None else f"\t{key} = {_quoted(shown)}")
    return _joined(lines)


def git_entries(text: str) -> Iterator[tuple[str, str | None, str | None, str | None]]:
    """(section, subsection, key, value) of a git configuration; a section itself has no key, a key
    without `=` no value. Raises ValueError for what git would not read."""
    section, subsection = "", None
    text = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n", r"\1", text.removeprefix("\ufeff"))
    for line in map(str.strip, text.splitlines()):
        while line.startswith("["):
            found = re.match(r'\[([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\]\s*', line)
            if found is None:
                raise ValueError(line)
            section = found[1]
            subsection = re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else None
            yield section, subsection, None, None
            line = line[found.end() :]
        if not line or line[0] in "#;":
            continue
        found = re.match(r"([A-Za-z][A-Za-z0-9-]*)\s*(=\s*(.*))?$", line)
        if found is None or not section:
            raise ValueError(line)
        yield section, subsection, found[1], _git_value(found[3]) if found[2] else None


def _git_value(text: str) -> str:
    """The value with quotes, escapes and a comment behind it read."""
    value, kept, is_quoted = "", 0, False
    characters = iter(text)
    for each in characters:
        if each == '"':
            is_quoted = not is_quoted
            kept = len(value)
            continue
        if each == "\\":
            escape = next(characters, "")
            if escape not in ("\\", '"', "n", "t", "b"):
                raise ValueError(text)
            each = {"n": "\n", "t": "\t", "b": "\b"}.get(escape, escape)
        elif each in "#;" and not is_quoted:
            break
        value += each
        if not each.isspace() or is_quoted:
            kept = len(value)
    if is_quoted:
        raise ValueError(text)
    return value[:kept]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\b", "\\b") + '"'


def _json(text: str, judge: Judge) -> str | None:
    tree = json.loads(text)
    return json.dumps(_cleaned(tree, judge), indent=2) + "\n" if isinstance(tree, dict) else None


def _toml(text: str, judge: Judge) -> str | None:
    import tomllib

    tree = tomllib.loads(text, parse_float=str)
    return _joined(_toml_lines(_cleaned(tree, judge), ()))


def _toml_lines(tree: Tree, place: tuple[str, ...]) -> list[str]:
    """A table: its plain values first, then the tables in it, each by its full name."""
    assert isinstance(tree, dict)
    plain = {key: value for key, value in tree.items() if not isinstance(value, dict)}
    lines = [f"[{'.'.join(map(json.dumps, place))}]"] if place else []
    lines += [f"{json.dumps(key)} = {_toml_value(value)}" for key, value in plain.items()]
    for key, value in tree.items():
        if isinstance(value, dict):
            lines += _toml_lines(value, (*place, key))
    return lines


def _toml_value(value: Tree) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, dict):
        inside = (f"{json.dumps(key)} = {_toml_value(each)}" for key, each in value.items())
        return "{" + ", ".join(inside) + "}"
    return json.dumps(value)


def _yaml(text: str, judge: Judge) -> str | None:
    from sandboxd.strict_yaml import Node, read_yaml

    def plain(node: Node) -> Tree:
        if node.items is not None:
            return [plain(item) for item in node.items]
        if node.text is not None:
            return node.text
        return {key: plain(value) for key, value in node.mapping.items()}

    node = read_yaml(text, "")
    return _yaml_flow(_cleaned(plain(node), judge)) + "\n" if node.is_mapping else None


def _yaml_flow(tree: Tree) -> str:
    """Flow style; a word stays a word, so that `true` is no text."""
    if isinstance(tree, dict):
        members = (f"{json.dumps(key)}: {_yaml_flow(value)}" for key, value in tree.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(_yaml_flow, tree)) + "]"
    text = str(tree)
    return text if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", text) else json.dumps(text)


def _maven(text: str, judge: Judge) -> str | None:
    import xml.etree.ElementTree as ElementTree

    if "<!" in re.sub(r"<!--.*?-->", "", text, flags=re.S):
        return None  # a document type: entities could be anything
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None
    for element in list(root.iter()):
        name = element.tag.rpartition("}")[2]
        if judge.is_secret_name(name) or name == "privateKey":
            element.text = None
        for child in list(element):
            if name == "server" and child.tag.rpartition("}")[2] == "configuration":
                element.remove(child)
        element.text = judge.without_secrets(element.text) if element.text else element.text
        element.attrib = {
            key: value
            for key, value in element.attrib.items()
            if judge.without_secrets(value) == value
        }
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _cleaned(tree: Tree, judge: Judge) -> Tree:
    """Without members of secret names, and without values that are secrets."""
    if isinstance(tree, dict):
        kept = {k: v for k, v in tree.items() if not judge.is_secret_name(k)}
        inner = {k: _cleaned(v, judge) for k, v in kept.items() if judge.without_secrets(k) == k}
        return {k: v for k, v in inner.items() if not (v is None and kept[k] is not None)}
    if isinstance(tree, list):
        return [each for each in (_cleaned(one, judge) for one in tree) if each is not None]
    if isinstance(tree, str):
        return judge.without_secrets(tree)
    return tree if isinstance(tree, int | float) or tree is None else str(tree)


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


FORMATS: dict[str, Callable[[str, Judge], str | None]] = {
    "npmrc": _npmrc,
    "ini": _ini,
    "gitconfig": _gitconfig,
    "json": _json,
    "toml": _toml,
    "yaml": _yaml,
    "maven": _maven,
}
