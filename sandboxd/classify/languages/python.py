"""python: only `-m json.tool` is a plain read, and only where nothing shadows what it imports.

`-m` puts the current folder first on the module path, so a file `json.py` there would run. `-I`
leaves the folder out. Source: Python documentation, "Command line and environment", `-m`, `-I`.
"""

from __future__ import annotations

import os

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import NOTHING, Context, Finding, joined, mutating
from sandboxd.model import Word

_IMPORTED = [
    "abc",
    "argparse",
    "ast",
    "base64",
    "bisect",
    "bz2",
    "codecs",
    "collections",
    "contextlib",
    "copyreg",
    "encodings",
    "enum",
    "errno",
    "fnmatch",
    "functools",
    "genericpath",
    "gettext",
    "glob",
    "grp",
    "importlib",
    "inspect",
    "io",
    "ipaddress",
    "itertools",
    "json",
    "keyword",
    "linecache",
    "locale",
    "lzma",
    "math",
    "ntpath",
    "operator",
    "os",
    "pathlib",
    "pkgutil",
    "posixpath",
    "pwd",
    "re",
    "reprlib",
    "runpy",
    "shutil",
    "site",
    "sitecustomize",
    "stat",
    "string",
    "struct",
    "sys",
    "tarfile",
    "textwrap",
    "threading",
    "time",
    "token",
    "tokenize",
    "traceback",
    "types",
    "typing",
    "urllib",
    "usercustomize",
    "warnings",
    "weakref",
    "zipfile",
    "zlib",
    "_colorize",
    "_compression",
    "dataclasses",
    "__future__",
    "tempfile",
    "random",
    "signal",
    "subprocess",
    "select",
    "selectors",
    "copy",
    "dis",
    "opcode",
    "compression",
    "annotationlib",
]
_FLAGS = frozenset(
    ("--sort-keys", "--no-ensure-ascii", "--json-lines", "--tab", "--no-indent", "--compact")
)


def python(arguments: Arguments, context: Context) -> Finding:
    """Everything but `[-I] -m json.tool [options] [FILE]` runs code that nobody has read."""
    words = list(arguments.words)
    is_isolated = bool(words) and words[0].text == "-I"
    if is_isolated:
        words.pop(0)
    if [word.text for word in words[:2]] != ["-m", "json.tool"]:
        return mutating("runs Python code", "python")
    found = [_json_tool(words[2:], context)]
    if not is_isolated and _is_shadowed(context):
        found.append(
            mutating("a file in this folder may stand in for a module of Python", "python")
        )
    return joined(found)


def _json_tool(words: list[Word], context: Context) -> Finding:
    files = []
    while words:
        word = words.pop(0)
        if word.may_split or word.may_be_option:
            return mutating("json.tool writes its second operand", "python")
        if word.text == "--indent":
            del words[:1]
        elif word.text.startswith("--indent=") or word.text in _FLAGS:
            continue
        elif word.text.startswith("-") and word.text != "-":
            return mutating(f"json.tool: {word.text} is not known to be harmless", "python")
        else:
            files.append(word)
    if len(files) > 1:
        return mutating("json.tool writes its second operand", "python")
    paths = [context.path(word.text) for word in files if word.is_literal]
    return Finding(read_paths=tuple(path for path in paths if path)) if paths else NOTHING


def _is_shadowed(context: Context) -> bool:
    folder = context.facts.cwd
    if folder is None:
        return True
    exists = context.facts.exists
    return any(
        exists(os.path.join(folder, name + ".py")) or exists(os.path.join(folder, name))
        for name in _IMPORTED
    )
