"""The closed command tables: shipped in profiles/commands/*.yaml, extended by user files.

A shipped file is only cut at its top-level keys when it loads; an entry is read when a command
of that name is first met (a few hundred microseconds once instead of a hundred milliseconds at
start). The tests read every entry. A user's file is read whole, and its examples are run, at
load time, so that a mistake is reported where it was made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sandboxd.classify.entries import Entry, extended, read_entry
from sandboxd.data import data_folder
from sandboxd.errors import ProfileBroken
from sandboxd.strict_yaml import Node, broken, read_yaml

_KEY = re.compile(r"(\"[^\"]+\"|'[^']+'|[^:\"']+):")
_NAMES_FILE = "_variables.yaml"


@dataclass(frozen=True)
class Slice:
    """The text of one top-level entry and where it starts."""

    file: str
    line: int
    names: tuple[str, ...]
    text: str

    def node(self) -> Node:
        """The entry's value, its key taken off."""
        document = read_yaml(self.text, self.file, self.line)
        members = document.entries()
        if len(members) != 1:
            raise broken(self.file, self.line, self.names[0], "one entry is expected here")
        return next(iter(members.values()))


@dataclass(frozen=True)
class Variables:
    """Which shell and environment variables a read-only command may set; see `_variables.yaml`."""

    harmless: frozenset[str]
    harmless_prefixes: tuple[str, ...]
    harmless_values: frozenset[str]
    dangerous: frozenset[str]
    dangerous_prefixes: tuple[str, ...]
    dangerous_suffixes: tuple[str, ...]

    def is_harmless(self, name: str) -> bool:
        """May be handed to a program: it only changes how an answer looks."""
        return name in self.harmless or name.startswith(self.harmless_prefixes)

    def is_harmless_value(self, name: str, value: str) -> bool:
        """Whether this value of an otherwise dangerous name is known (`PAGER=cat`)."""
        return f"{name}={value}" in self.harmless_values

    def is_dangerous(self, name: str) -> bool:
        """Changes which program runs or what it loads, so not even the shell may set it."""
        return (
            name in self.dangerous
            or name.startswith(self.dangerous_prefixes)
            or name.endswith(self.dangerous_suffixes)
        )


class Tables:
    """Frozen from outside: `entry(name)` always gives the same answer for the same name."""

    def __init__(
        self, slices: Mapping[str, Slice], own: Mapping[str, Entry], variables: Variables
    ) -> None:
        self._slices = MappingProxyType(dict(slices))
        self._read: dict[str, Entry] = dict(own)
        self.variables = variables

    def entry(self, name: str) -> Entry | None:
        """The entry of a command name, or None: an unknown command is never read-only."""
        found = self._read.get(name)
        if found is None and name in self._slices:
            found = read_entry(name, self._slices[name].node())
            self._read[name] = found
        return found

    def names(self) -> Iterator[str]:
        """Every command name that has an entry."""
        yield from sorted({*self._slices, *self._read})

    def is_network_reader(self, name: str) -> bool:
        """Whether what this command prints comes from the network."""
        entry = self.entry(name)
        return entry is not None and entry.is_network

    def own_slices(self) -> Iterator[Slice]:
        """Every shipped entry once, however many names it has."""
        yield from {id(piece): piece for piece in self._slices.values()}.values()

    def own_names(self) -> Iterator[str]:
        """The first name of every shipped entry."""
        for piece in self.own_slices():
            yield piece.names[0]


def load_tables(extra_files: Sequence[str] = ()) -> Tables:
    """The shipped tables with the user's `extra_files` over them.

    Raises ProfileBroken that names file, line and key when a file cannot be read as a table,
    or when an example of a user's entry is not graded as the entry promises.
    """
    folder = os.path.join(data_folder("profiles"), "commands")
    slices: dict[str, Slice] = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".yaml") and name != _NAMES_FILE:
            _add_slices(slices, os.path.join(folder, name))
    variables = _read_variables(os.path.join(folder, _NAMES_FILE))
    tables = Tables(slices, {}, variables)
    for file in extra_files:
        tables = _with_user_file(tables, slices, file, variables)
    return tables


def _read_file(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileBroken(
            f"{file}: cannot be read ({error}).",
            hint="Name a readable UTF-8 file.",
            path=file,
        ) from error


def _add_slices(slices: dict[str, Slice], file: str) -> None:
    for piece in cut(_read_file(file), file):
        for name in piece.names:
            if name in slices:
                raise broken(file, piece.line, name, f"also given in {slices[name].file}")
            slices[name] = piece


def cut(text: str, file: str) -> Iterator[Slice]:
    """The text cut before every line that starts a top-level key."""
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line[0] not in " \t\r\n#"]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        key = _KEY.match(lines[start])
        names = tuple(key[1].strip("\"'").split()) if key else ()
        if not names:
            raise broken(file, start + 1, "", "a command name is expected here")
        yield Slice(file, start + 1, names, "".join(lines[start:end]))


def _with_user_file(
    tables: Tables, slices: Mapping[str, Slice], file: str, variables: Variables
) -> Tables:
    own: dict[str, Entry] = dict(tables._read)
    changed: list[str] = []
    for names, node in read_yaml(_read_file(file), file).entries().items():
        for name in names.split():
            entry = read_entry(name, node)
            old = tables.entry(name)
            is_extension = "extend" in node.entries()
            own[name] = extended(old, entry) if old is not None and is_extension else entry
            changed.append(name)
    fresh = Tables(slices, own, variables)
    _verify(fresh, changed, file)
    return fresh


def _verify(tables: Tables, names: Sequence[str], file: str) -> None:
    # Grading needs the tables, so the tables can only know it at run time.
    from sandboxd.classify.examples import failing_examples

    for name in names:
        for failure in failing_examples(tables, name):
            raise ProfileBroken(
                f"{file}, key {name!r}: {failure}.",
                hint="Correct the entry or the example.",
                path=file,
            )


def _read_variables(file: str) -> Variables:
    members = read_yaml(_read_file(file), file).entries()

    def names(key: str) -> tuple[str, ...]:
        if key not in members:
            raise broken(file, 1, key, "this key is missing")
        return tuple(members[key].scalar().split())

    harmless, dangerous = names("harmless"), names("dangerous")
    return Variables(
        harmless=frozenset(harmless),
        harmless_values=frozenset(names("harmless_values")),
        harmless_prefixes=tuple(n[:-1] for n in harmless if n.endswith("*")),
        dangerous=frozenset(dangerous),
        dangerous_prefixes=tuple(n[:-1] for n in dangerous if n.endswith("*")),
        dangerous_suffixes=tuple(n[1:] for n in dangerous if n.startswith("*")),
    )
