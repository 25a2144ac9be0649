"""What git's tables cannot say: configuration given by `-c`, refspecs, names that are paths.

Sources: git-config(1), git-push(1), git-checkout(1); which readers run configured programs was
measured with git 2.39 (filters on status and diff, textconv on log -p and show).
"""

from __future__ import annotations

import os

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import NOTHING, Context, Finding, destructive, joined, mutating
from sandboxd.model import Word

_HARMLESS_KEYS = frozenset(
    [
        "core.quotepath",
        "core.abbrev",
        "core.precomposeunicode",
        "log.date",
        "log.decorate",
        "log.abbrevcommit",
        "log.showsignature=false",
        "diff.renames",
        "diff.algorithm",
        "diff.context",
        "diff.noprefix",
        "diff.mnemonicprefix",
        "diff.colormoved",
        "status.short",
        "status.branch",
        "status.showuntrackedfiles",
        "status.relativepaths",
        "column.ui",
        "advice.detachedhead",
        "core.fsmonitor=false",
        "core.pager=cat",
        "pager.log=false",
        "pager.diff=false",
        "pager.show=false",
        "pager.branch=false",
        "safe.directory=*",
        "core.hookspath=/dev/null",
        "diff.external=",
        "log.follow",
        "blame.date",
        "tag.sort",
        "branch.sort",
        "color.ui",
    ]
)


def options(arguments: Arguments, context: Context) -> Finding:
    """`git -c KEY=VALUE`: only keys that change how an answer looks; `-C` must be literal."""
    found = []
    for word in arguments.values("-c"):
        if not _is_harmless_setting(word):
            found.append(mutating(f"git -c {word.text} may make git run a program", "git.-c"))
    if any(not word.is_literal for word in arguments.values("-C")):
        found.append(mutating("the repository's folder is only known when it runs", "git.-C"))
    return joined(found)


def _is_harmless_setting(word: Word) -> bool:
    key, _, value = word.text.partition("=")
    key = key.lower()
    if not word.is_literal:
        return False
    return key in _HARMLESS_KEYS or f"{key}={value}" in _HARMLESS_KEYS or key.startswith("color.")


def folder_of(arguments: Arguments, context: Context) -> str | None:
    """The folder that this git runs in, `-C` options applied in order."""
    folder = context.facts.cwd
    outer = arguments.parent
    while outer is not None:
        for word in outer.values("-C"):
            if not word.is_literal or folder is None:
                return None
            folder = os.path.join(folder, word.text)
        outer = outer.parent
    return folder


def drivers(arguments: Arguments, context: Context) -> Finding:
    """A repository that configures filters, diff drivers or helpers has git run them."""
    folder = folder_of(arguments, context)
    if folder is None:
        return mutating("which repository git reads is only known when it runs", "git.repository")
    if context.facts.git_defines_programs(folder):
        return mutating("this repository's configuration makes git run programs", "git.repository")
    return NOTHING


def _exists(word: Word, arguments: Arguments, context: Context) -> bool:
    folder = folder_of(arguments, context)
    if not word.is_literal or folder is None:
        return True
    return context.facts.exists(os.path.normpath(os.path.join(folder, word.text)))


_DISCARDS = "discards changes in the working tree that exist nowhere else"


def checkout(arguments: Arguments, context: Context) -> Finding:
    """Switching a branch is mutating; naming a path throws its changes away."""
    words = [word.text for word in arguments.words]
    if "--" in words and words[-1] != "--":
        return destructive(_DISCARDS, "git.checkout")
    if arguments.has("-b", "-B", "--orphan", "-t", "--track", "--detach", "-d"):
        return NOTHING
    operands = arguments.operands
    if len(operands) > 1 or any(word.has_glob for word in operands):
        return destructive(_DISCARDS, "git.checkout")
    if operands and operands[0].text != "-" and _looks_like_path(operands[0], arguments, context):
        return destructive(_DISCARDS, "git.checkout")
    return NOTHING


def _looks_like_path(word: Word, arguments: Arguments, context: Context) -> bool:
    if word.text in (".", "..", "*") or word.text.startswith((":", "./", "../", "/")):
        return True
    return word.is_literal and _exists(word, arguments, context)


def restore(arguments: Arguments, context: Context) -> Finding:
    """`--staged` alone only changes the index; the working tree's changes are lost otherwise."""
    if arguments.has("-S", "--staged") and not arguments.has("-W", "--worktree"):
        return mutating("unstages changes", "git.restore")
    return destructive(_DISCARDS, "git.restore")


def push(arguments: Arguments, context: Context) -> Finding:
    """`+ref` forces, `:ref` deletes."""
    for word in arguments.operands[1:]:
        if word.text.startswith((":", "+")):
            return destructive("deletes or rewrites a branch of the remote", "git.push")
    return NOTHING


def clean(arguments: Arguments, context: Context) -> Finding:
    """`-n` only tells; otherwise untracked files are deleted."""
    if arguments.has("-n", "--dry-run"):
        return NOTHING
    return destructive("deletes files that are in no commit", "git.clean")


def rm(arguments: Arguments, context: Context) -> Finding:
    """`--cached` leaves the files; otherwise they are deleted."""
    if arguments.has("--cached") or arguments.has("-n", "--dry-run"):
        return mutating("takes files out of the index", "git.rm")
    return destructive("deletes files", "git.rm")


def branch(arguments: Arguments, context: Context) -> Finding:
    """Listing, unless a name is given without `--list`; forced deletion loses commits."""
    has_delete = arguments.has("-d", "--delete")
    if has_delete and (arguments.has("-f", "--force") or arguments.has("-D")):
        return destructive("deletes a branch even if it is not merged", "git.branch")
    lists = arguments.has(
        *("-l", "--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at")
    )
    if arguments.operands and not lists:
        return mutating("creates a branch", "git.branch")
    return NOTHING


def tag(arguments: Arguments, context: Context) -> Finding:
    """Listing, unless a name is given without a listing option."""
    lists = arguments.has(
        *("-l", "--list", "-n", "--contains", "--no-contains", "--merged", "--no-merged"),
        "--points-at",
    )
    if arguments.operands and not lists:
        return mutating("creates a tag", "git.tag")
    return NOTHING


CONFIG_GETTERS = (
    *("--get", "--get-all", "--get-regexp", "--get-urlmatch", "-l", "--list", "--get-color"),
    *("--get-colorbool",),
)


def config(arguments: Arguments, context: Context) -> Finding:
    """Reading: a getter, `get NAME`, `list`, or a single name."""
    if arguments.has(*CONFIG_GETTERS):
        return NOTHING
    operands = [word.text for word in arguments.operands]
    if operands and operands[0] in ("get", "list"):
        return NOTHING
    if len(operands) == 1 and "." in operands[0]:
        return NOTHING
    return mutating("changes git's configuration", "git.config")


def symbolic_ref(arguments: Arguments, context: Context) -> Finding:
    """One name reads, two write."""
    return NOTHING if len(arguments.operands) == 1 else mutating("moves a reference")


def ls_remote(arguments: Arguments, context: Context) -> Finding:
    """Only a literal http(s) address or nothing that git would hand to another program."""
    operands = arguments.operands
    if not operands or not operands[0].text.startswith(("https://", "http://")):
        return mutating("which program reaches this remote is a matter of configuration")
    return drivers(arguments, context)


def log_format(arguments: Arguments, context: Context) -> Finding:
    """`%G..` and `%(signature)` in a format make git run gpg."""
    for word in arguments.words:
        if "%G" in word.text or "%(signature" in word.text:
            return mutating("the format makes git run gpg", "git.format")
        if not word.is_literal and word.text.startswith(("--format", "--pretty")):
            return mutating("the format is only known when it runs", "git.format")
    return NOTHING
