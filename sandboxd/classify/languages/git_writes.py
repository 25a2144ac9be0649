"""Which protected files of a repository a git command writes: its configuration, hooks, .gitmodules.

A protected name may be written by exactly the run whose approved verdict names it, so these checks
only ever add write paths; the class comes from the tables. A command that is not known here keeps
its protection and fails in the sandbox. A repository named by `--git-dir` is not followed.
Sources: git-config(1), git-branch(1) and git-checkout(1) "--track" and branch.autoSetupMerge,
git-submodule(1), gitrepository-layout(5); measured with git 2.39.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import NOTHING, Context, Finding, absolute
from sandboxd.classify.languages.git import CONFIG_GETTERS, folder_of
from sandboxd.model import Word

_UPSTREAM = ("-u", "--set-upstream")
_TRACKS = ("-t", "--track")
_CREATES = ("-b", "-B", "-c", "-C", "--create", "--force-create")
_RENAMES = (
    "-m",
    "-M",
    "-c",
    "-C",
    "-d",
    "-D",
    "--move",
    "--copy",
    "--delete",
    "--edit-description",
)
_SETS_UPSTREAM = ("-u", "--set-upstream-to", "--unset-upstream")
_HOOK_MANAGERS = frozenset(("husky", "lefthook", "simple-git-hooks", "pre-commit", "overcommit"))


def configures(arguments: Arguments, context: Context) -> Finding:
    """`git remote add`, `git submodule init`: writes the repository's configuration."""
    return _writes(arguments, context, "config")


def config(arguments: Arguments, context: Context) -> Finding:
    """`git config KEY VALUE`: the file that it names, or the repository's own."""
    words = [word.text for word in arguments.operands]
    is_getter = arguments.has(*CONFIG_GETTERS) or words[:1] in (["get"], ["list"])
    if is_getter or (len(words) == 1 and "." in words[0] and not arguments.given):
        return NOTHING
    if any(word.text in ("-f", "--file") or word.text[:7] == "--file=" for word in arguments.words):
        return _named_file(arguments.words, context)
    if arguments.has("--global"):
        return _home_config(context)
    if arguments.has("--system"):
        return NOTHING
    if arguments.has("--worktree"):
        return _writes(arguments, context, "config.worktree", "config")
    return _writes(arguments, context, "config")


def _named_file(words: Sequence[Word], context: Context) -> Finding:
    for word, following in zip(words, (*words[1:], None), strict=True):
        named = following.text if following and word.text in ("-f", "--file") else ""
        named = word.text[7:] if word.text[:7] == "--file=" else named
        path = context.path(named) if named and word.is_literal else None
        if path is not None:
            return Finding(write_paths=(path,))
    return NOTHING


def sets_upstream(arguments: Arguments, context: Context) -> Finding:
    """`git push -u`, `git pull --set-upstream`: the branch's upstream is written down."""
    names = _UPSTREAM if arguments.entry.rule == "git.push" else _UPSTREAM[1:]
    return _writes(arguments, context, "config") if arguments.has(*names) else NOTHING


def branch(arguments: Arguments, context: Context) -> Finding:
    """Renaming, deleting and tracking change the branch's section of the configuration."""
    if arguments.has(*_RENAMES, *_SETS_UPSTREAM, *_TRACKS) or len(arguments.operands) > 1:
        return _writes(arguments, context, "config")
    return NOTHING


def switches(arguments: Arguments, context: Context) -> Finding:
    """`git checkout -b x origin/x`, and a branch that only a remote has: it is tracked from now on."""
    operands = arguments.operands
    if arguments.has(*_TRACKS) or (arguments.has(*_CREATES) and operands):
        return _writes(arguments, context, "config")
    if len(operands) != 1 or arguments.has(*_CREATES, "--detach", "-d", "--orphan", "--no-guess"):
        return NOTHING
    return (
        _writes(arguments, context, "config")
        if _is_new(operands[0], arguments, context)
        else NOTHING
    )


def _is_new(name: Word, arguments: Arguments, context: Context) -> bool:
    """Whether no local branch of this name is seen, but a remote one is."""
    found = _repository(arguments, context)
    if found is None or not name.is_literal or name.text.startswith("-"):
        return False
    _, common = found
    heads, remote = (
        os.path.join(common, "refs", *kind) for kind in (("heads",), ("remotes", "origin"))
    )
    exists = context.facts.exists
    return not exists(os.path.join(heads, name.text)) and exists(os.path.join(remote, name.text))


def submodules(arguments: Arguments, context: Context) -> Finding:
    """`git submodule add` writes .gitmodules too."""
    found = _writes(arguments, context, "config")
    if not arguments.entry.rule.endswith((".add", ".set-url", ".set-branch")):
        return found
    folder = folder_of(arguments, context)
    if folder is None:
        return found
    return Finding(write_paths=(*found.write_paths, os.path.join(folder, ".gitmodules")))


def creates(arguments: Arguments, context: Context) -> Finding:
    """`git init [DIR]`: a repository, its configuration and sample hooks."""
    folder = folder_of(arguments, context)
    operands = arguments.operands
    if operands:
        folder = absolute(operands[-1].text, folder) if operands[-1].is_literal else None
    if folder is None:
        return NOTHING
    git = os.path.normpath(os.path.join(folder, ".git"))
    return Finding(write_paths=(f"{git}/config", f"{git}/hooks"))


def lfs(arguments: Arguments, context: Context) -> Finding:
    """`git lfs install`: hooks here, filters in the configuration of the user or of `--local`."""
    here = _writes(arguments, context, "hooks", "config")
    if any(word.text == "--local" for word in arguments.words):
        return here
    return Finding(write_paths=(*here.write_paths, *_home_config(context).write_paths))


def sparse(arguments: Arguments, context: Context) -> Finding:
    """`git sparse-checkout set`: settings of this working tree."""
    return _writes(arguments, context, "config", "config.worktree")


def hook_managers(arguments: Arguments, context: Context) -> Finding:
    """`pre-commit install`, `npx husky init`: hooks, or where git looks for them."""
    names = [arguments.entry.rule, *(word.text for word in arguments.words if word.is_literal)]
    manager = next((name for name in names if name in _HOOK_MANAGERS), None)
    if manager is None or (manager == "pre-commit" and not {"install", "uninstall"} & set(names)):
        return NOTHING
    return _writes(arguments, context, "hooks", "config")


def _home_config(context: Context) -> Finding:
    home = context.facts.home
    return Finding(write_paths=(f"{home}/.gitconfig",)) if home.startswith("/") else NOTHING


def _repository(arguments: Arguments, context: Context) -> tuple[str, str] | None:
    outer = arguments.parent
    while outer is not None:
        if outer.has("--git-dir", "--work-tree"):
            return None
        outer = outer.parent
    folder = folder_of(arguments, context)
    return context.facts.git_folders(folder) if folder is not None else None


def _writes(arguments: Arguments, context: Context, *names: str) -> Finding:
    """Write paths below the repository's own folder; a linked worktree shares all but one."""
    found = _repository(arguments, context)
    if found is None:
        return NOTHING
    own, common = found
    places = (own if name == "config.worktree" else common for name in names)
    return Finding(
        write_paths=tuple(f"{place}/{name}" for place, name in zip(places, names, strict=True))
    )
