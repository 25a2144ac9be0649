"""Commands that run other commands: what they run is graded by itself, to a fixed depth.

Only the wrappers whose own syntax needs code are here; `timeout 5 COMMAND` and its like are plain
table entries with `runs: command`. Sources: env(1), xargs(1), bash(1), POSIX sh.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from msgspec import structs

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import (
    NOTHING,
    Context,
    Finding,
    at_least,
    joined,
    mutating,
)
from sandboxd.model import CommandClass, Redirect, SimpleCommand, Word

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")


def unknown_words(span: tuple[int, int]) -> Word:
    """Stands for words that only the run will know: none, one or many, options among them."""
    return Word(text="$@", span=span, is_literal=False, may_split=True, may_be_option=True)


def run_words(words: Sequence[Word], context: Context, is_executed: bool = True) -> Finding:
    """The finding for `words` run as a command with this command's input."""
    if not words:
        return NOTHING
    command = SimpleCommand(
        words=tuple(words),
        span=context.command.span,
        piped_from=context.command.piped_from,
        is_piped_to=context.command.is_piped_to,
        redirects=here_documents(context.command),
    )
    return context.inner(command, is_executed)


def here_documents(command: SimpleCommand) -> tuple[Redirect, ...]:
    return tuple(item for item in command.redirects if item.operator.startswith("<<"))


def hidden_destruction(words: Sequence[Word], context: Context) -> Finding:
    """With options nobody knows, the command may start at any word: look for the worst start."""
    for start in range(len(words)):
        word = words[start]
        if word.is_literal and context.facts.tables.entry(word.text) is not None:
            found = run_words(words[start:], context)
            if found.class_ is CommandClass.DESTRUCTIVE:
                return found
    return NOTHING


def anywhere(arguments: Arguments, context: Context) -> Finding:
    """`docker run OPTIONS IMAGE COMMAND`: only a destructive command inside matters."""
    return hidden_destruction(arguments.words, context)


def env(arguments: Arguments, context: Context) -> Finding:
    """`env [-u NAME] [NAME=VALUE] COMMAND`; `-S TEXT` is split into words first."""
    variables = context.facts.tables.variables
    found: list[Finding] = []
    for name in arguments.values("-u", "--unset"):
        if not name.is_literal or variables.is_dangerous(name.text):
            found.append(mutating(f"takes {name.text} out of the environment"))
    words = list(arguments.rest)
    for text in arguments.values("-S", "--split-string"):
        pieces, finding = _split_string(text)
        words = [*pieces, *words]
        found.append(finding)
    while words and (_ASSIGNMENT.match(words[0].text) or words[0].text == "-"):
        match = _ASSIGNMENT.match(words[0].text)
        value = words[0].text.partition("=")[2] if words[0].is_literal else "$"
        if match and not (
            variables.is_harmless(match[1]) or variables.is_harmless_value(match[1], value)
        ):
            found.append(mutating(f"the variable {match[1]} may change what a program does"))
        words.pop(0)
    inner = _in_folder(context, arguments.value("-C", "--chdir"))
    return joined([*found, run_words(words, inner)])


def _in_folder(context: Context, folder: Word | None) -> Context:
    if folder is None:
        return context
    cwd = context.path(folder.text) if folder.is_literal else None
    return structs.replace(context, facts=structs.replace(context.facts, cwd=cwd))


def _split_string(text: Word) -> tuple[list[Word], Finding]:
    if not text.is_literal:
        return [], mutating("env -S is given a text that is not literal")
    try:
        pieces = shlex.split(text.text)
    except ValueError:
        return [], mutating("env -S is given a text that cannot be split")
    words = [Word(text=piece, span=text.span) for piece in pieces]
    is_plain = re.fullmatch(r"[\w ./,:=@%+-]*", text.text) is not None
    return words, NOTHING if is_plain else mutating("env -S expands escapes and variables")


def xargs(arguments: Arguments, context: Context) -> Finding:
    """The command, with words nobody knows yet behind it or in place of `{}`."""
    words = list(arguments.rest) or [Word(text="echo", span=context.command.span)]
    mark = arguments.value("-I", "-J", "--replace", "-i")
    if mark is None and not arguments.has("-i", "--replace"):
        words.append(unknown_words(context.command.span))
    else:
        text = mark.text if mark is not None else "{}"
        words = [replaced(word, text) for word in words]
    # Without input the command may not run: what it reads is not known to be read.
    return structs.replace(run_words(words, context), read_paths=())


def replaced(word: Word, mark: str, is_safe_start: bool = False, *, is_many: bool = False) -> Word:
    """`word` with `mark` in it standing for a text that only the run will know, or for many."""
    if not mark or mark not in word.text:
        return word
    return Word(
        text=word.text,
        span=word.span,
        is_literal=False,
        may_split=is_many,
        may_be_option=word.text.startswith(mark) and not is_safe_start,
    )


# ------------------------------------------------------------------------------ shells

_BASH_ONLY = re.compile(r"\[\[|\(\(|\$'|\$\"|&>|\|&|[<>]\(|<<<|[\^]|=\(|!|\{[^}\s]*(?:,|\.\.)|~")
"""Forms that another shell reads otherwise: in dash `[[ a > b ]]` writes the file b."""
_ZSH_ONLY = re.compile(r"[(*?#=]")


def bash(arguments: Arguments, context: Context) -> Finding:
    """`bash -c TEXT` and `bash -lc TEXT` are as good as TEXT; `bash -n FILE` only checks."""
    if arguments.has("-c"):
        return _shell_text(arguments, context)
    if _only_checks(context.command.words):
        return Finding(reason="only checks the syntax")
    return _script(arguments, context)


def _only_checks(words: Sequence[Word]) -> bool:
    """`bash -n FILE` to the letter: a later `+n` or `-o` would switch the running on again."""
    texts = [word.text for word in words]
    plain = all(word.is_literal and not word.text.startswith(("-", "+")) for word in words[2:])
    return len(texts) > 2 and texts[1] == "-n" and plain


def posix_shell(arguments: Arguments, context: Context) -> Finding:
    """Another shell: TEXT is graded for bash, so only what all shells read alike is milder."""
    found = bash(arguments, context)
    if arguments.has("-c") and arguments.rest and _BASH_ONLY.search(arguments.rest[0].text):
        return at_least(found, CommandClass.MUTATING, "this shell may read the text otherwise")
    return found


def zsh(arguments: Arguments, context: Context) -> Finding:
    """zsh runs code in glob qualifiers and expands `=name`."""
    found = posix_shell(arguments, context)
    if arguments.has("-c") and arguments.rest and _ZSH_ONLY.search(arguments.rest[0].text):
        return at_least(found, CommandClass.MUTATING, "zsh may read the text otherwise")
    return found


def _shell_text(arguments: Arguments, context: Context) -> Finding:
    if not arguments.rest:
        return mutating("the text that the shell runs is missing")
    return run_text(arguments.rest[0], context)


def run_text(word: Word, context: Context) -> Finding:
    """Shell text in one word; with expansions in it only its plain destruction is believed."""
    found = context.text(word.text)
    if word.is_literal:
        return found
    if found.class_ is CommandClass.DESTRUCTIVE and found.rule != "unparsed":
        return structs.replace(found, is_cacheable=False)
    return mutating("the text that the shell runs is only known when it runs")


def _script(arguments: Arguments, context: Context) -> Finding:
    """A script file or standard input: nobody has read it, except a literal here-document."""
    own = structs.replace(
        mutating("runs a script that was not read", "script"),
        is_cacheable=not fed_by_network(context),
    )
    if arguments.rest and not arguments.has("-s"):
        return own
    bodies = [context.text(body) for body in literal_bodies(context.command)]
    return joined([own, *bodies])


def literal_bodies(command: SimpleCommand) -> list[str]:
    """What here-documents and here-strings feed to the command, as far as it is literal."""
    found = []
    for item in command.redirects:
        if item.body is not None and item.operator in ("<<", "<<-"):
            found.append(item.body)
        elif item.operator == "<<<" and item.target is not None and item.target.is_literal:
            found.append(item.target.text)
    return found


def fed_by_network(context: Context) -> bool:
    """Whether something before this in the pipe prints what it got from the network."""
    tables = context.facts.tables
    return any(tables.is_network_reader(name) for name in context.command.piped_from)


def interpreter(arguments: Arguments, context: Context) -> Finding:
    """A program fed by the network is never remembered."""
    if fed_by_network(context):
        return structs.replace(
            mutating("runs what came from the network", "script"), is_cacheable=False
        )
    return NOTHING


def joined_text(arguments: Arguments, context: Context) -> Finding:
    """`eval A B`, `watch A B`, `ssh HOST A B`: the words behind the slots make one shell text."""
    words = arguments.rest[len(arguments.entry.operands) :]
    if not words:
        return NOTHING
    whole = Word(
        text=" ".join(word.text for word in words),
        span=words[0].span,
        is_literal=all(word.is_literal for word in words),
    )
    return run_text(whole, context)


def option_text(arguments: Arguments, context: Context) -> Finding:
    """`su -c TEXT`, `script -c TEXT`, `flock FILE -c TEXT`."""
    return joined(run_text(word, context) for word in arguments.values("-c", "--command"))


def trap(arguments: Arguments, context: Context) -> Finding:
    """`trap TEXT SIGNAL...`: TEXT runs later in this shell."""
    words = arguments.rest
    if not words or arguments.has("-p", "-l"):
        return NOTHING
    own = structs.replace(mutating("runs a command later", "trap"), changes_meaning=True)
    if len(words) > 1 and words[0].text not in ("", "-"):
        return joined([own, run_text(words[0], context)])
    return own


def command(arguments: Arguments, context: Context) -> Finding:
    """`command -v NAME` looks a name up; otherwise the name is run, functions passed over."""
    if arguments.has("-v", "-V"):
        return Finding(exit_meaning={"1": "not found"})
    return run_words(arguments.rest, context, is_executed=False)


def execute(arguments: Arguments, context: Context) -> Finding:
    """`exec COMMAND` replaces the shell; alone it only applies its redirects for good."""
    if not arguments.rest:
        return Finding(changes_meaning=True)
    return run_words(arguments.rest, context)
