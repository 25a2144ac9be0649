"""Named tricks that a table entry may ask for with `checks:`; each is a small question.

A table stays free of conditions: what needs one is named here, once, and documented by name.
"""

from __future__ import annotations

import re

from msgspec import structs

from sandboxd.classify.arguments import Arguments, could_be_option
from sandboxd.classify.findings import NOTHING, Context, Finding, destructive, mutating
from sandboxd.classify.redirects import is_device
from sandboxd.model import Word

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def date_format(arguments: Arguments, context: Context) -> Finding:
    """An operand that is not `+FORMAT` sets the clock."""
    for word in arguments.operands:
        if not word.text.startswith("+"):
            return mutating("date sets the clock", "date")
    return NOTHING


def change_directory(arguments: Arguments, context: Context) -> Finding:
    """`cd DIR`: changes where later commands run, which may be known only when it runs."""
    operands = arguments.operands
    if not operands:
        return Finding(changes_directory_to=context.facts.home)
    word = operands[0]
    if not word.is_literal or word.text == "-" or len(operands) > 1:
        return Finding(changes_meaning=True)
    path = context.path(word.text)
    return Finding(changes_directory_to=path) if path else Finding(changes_meaning=True)


def moves_directory(arguments: Arguments, context: Context) -> Finding:
    """`pushd`, `popd`: where later commands run is not followed."""
    return Finding(changes_meaning=True)


def sets_variables(arguments: Arguments, context: Context) -> Finding:
    """`read NAME`, `mapfile NAME`, `local NAME`: plain names that nothing obeys."""
    variables = context.facts.tables.variables
    names = [*arguments.operands, *arguments.values("-a")]
    for word in names:
        name = word.text.partition("=")[0].removesuffix("+")
        if not word.is_literal and "=" not in word.text:
            return mutating("the variable's name is only known when it runs")
        if not _IDENTIFIER.match(name) or variables.is_dangerous(name):
            return mutating(f"sets {word.text}, which may change what later commands mean")
    return Finding(changes_meaning=True)


def _is_harmless_setting(word: Word, context: Context) -> bool:
    name, _, value = word.text.partition("=")
    variables = context.facts.tables.variables
    if variables.is_harmless(name):
        return True
    return word.is_literal and variables.is_harmless_value(name, value)


def exports_variables(arguments: Arguments, context: Context) -> Finding:
    """`export NAME=VALUE`: only names that change nothing but an answer's looks."""
    if not arguments.operands or arguments.has("-p"):
        return NOTHING
    for word in arguments.operands:
        name = word.text.partition("=")[0]
        if not _is_harmless_setting(word, context):
            return structs.replace(
                mutating(f"exports {name} to every later command"), changes_meaning=True
            )
    return Finding(changes_meaning=True)


def set_options(arguments: Arguments, context: Context) -> Finding:
    """`set -euo pipefail` only makes the shell stricter; other options change its reading."""
    words = arguments.words
    if not words:
        return NOTHING
    index = 0
    while index < len(words):
        text = words[index].text
        if words[index].is_literal and re.fullmatch(r"[-+][eu]+", text):
            index += 1
        elif words[index].is_literal and re.fullmatch(r"[-+][eu]*o", text):
            value = words[index + 1].text if index + 1 < len(words) else ""
            if value not in ("pipefail", "errexit", "nounset"):
                return _changes("set changes how the shell reads commands")
            index += 2
        else:
            return _changes("set changes how the shell reads commands")
    return Finding(changes_meaning=True)


def _changes(reason: str) -> Finding:
    return structs.replace(mutating(reason), changes_meaning=True)


def shell_state(arguments: Arguments, context: Context) -> Finding:
    """The command changes what later commands in this shell mean."""
    return Finding(changes_meaning=True)


def state_when_given(arguments: Arguments, context: Context) -> Finding:
    """Operands, and options nobody knows, change this shell for the commands that follow;
    an entry's required options (`declare -p`) make it a listing."""
    is_unknown = any(item.flag is None for item in arguments.given)
    is_listing = bool(arguments.entry.requires) and arguments.has(*arguments.entry.requires)
    if is_unknown or (arguments.operands and not is_listing):
        return Finding(changes_meaning=True)
    return NOTHING


def listing_only(arguments: Arguments, context: Context) -> Finding:
    """Without operands it lists (`alias`, `mount`, `crontab -l`); with any it changes something."""
    if arguments.operands:
        return mutating(f"{arguments.entry.rule} with operands changes something")
    return NOTHING


def terminal_size_only(arguments: Arguments, context: Context) -> Finding:
    """`stty size` and `stty speed` print; every other word sets the terminal."""
    if all(word.text in ("size", "speed") for word in arguments.operands):
        return NOTHING
    return mutating("changes the terminal's settings")


def needs_operand(arguments: Arguments, context: Context) -> Finding:
    """Without an operand the command does something else than reading."""
    if arguments.operands:
        return NOTHING
    return mutating(f"{arguments.entry.rule} without an operand is not a plain read")


def kill_everything(arguments: Arguments, context: Context) -> Finding:
    """`kill -9 -1` and pid 1 end the whole machine or session."""
    texts = [word.text for word in arguments.words]
    if texts and (texts[-1] == "1" or "-1" in texts[1:]):
        return destructive("ends every process")
    if texts and texts[0] in ("-l", "-L", "--list", "--table"):
        return NOTHING
    return mutating("sends a signal to a process")


def move_into_void(arguments: Arguments, context: Context) -> Finding:
    """`mv FILE /dev/null` deletes; writing onto a device cannot be undone."""
    targets = [*arguments.operands[-1:], *arguments.values("-t", "--target-directory")]
    for word in targets:
        if word.text == "/dev/null" or is_device(word.text):
            return destructive(f"writes onto {word.text}")
    return NOTHING


_BROAD = frozenset(
    ("/", "~", "/*", "$HOME", "/etc", "/usr", "/var", "/bin", "/lib", "/home", "/root", "/boot")
)


def recursive_on_root(arguments: Arguments, context: Context) -> Finding:
    """Changing owners or modes of a whole system or home cannot be undone."""
    if not arguments.has("-R", "--recursive"):
        return NOTHING
    for word in arguments.operands[1:]:
        text = word.text.rstrip("/") or "/"
        if text in _BROAD or text == context.facts.home:
            return destructive("changes everything below a system or home folder")
    return NOTHING


def pager_needs_pipe(arguments: Arguments, context: Context) -> Finding:
    """A pager on a terminal runs commands for its user; into a pipe it only copies."""
    into_file = any(item.operator in (">", ">>", "&>") for item in context.command.redirects)
    if context.command.is_piped_to or into_file:
        return NOTHING
    return mutating("on a terminal this pager can run commands")


def output_not_terminal(arguments: Arguments, context: Context) -> Finding:
    """nohup writes the file nohup.out when its output is a terminal."""
    if pager_needs_pipe(arguments, context) is NOTHING:
        return NOTHING
    return mutating("on a terminal nohup writes the file nohup.out")


def decompresses_to_stdout(arguments: Arguments, context: Context) -> Finding:
    """The last of `-l`, `-t` and `-d` decides, so `-d` only reads together with `-c`."""
    if arguments.has("-d", "--decompress") and not arguments.has("-c", "--stdout", "--to-stdout"):
        return mutating("decompresses into a file")
    return NOTHING


def option_first(arguments: Arguments, context: Context) -> Finding:
    """printf: only the first word can be an option, so only it must be known."""
    if arguments.rest and could_be_option(arguments.rest[0]):
        return mutating("the format could become the option -v, which evaluates a subscript")
    return NOTHING


def old_style_cluster(arguments: Arguments, context: Context) -> Finding:
    """`ar t FILE`, `7z l FILE`: the first word is the operation."""
    operation = arguments.operands[0].text if arguments.operands else ""
    if re.fullmatch(r"[tp]v?", operation):
        return NOTHING
    return mutating(f"{arguments.entry.rule} {operation} changes the archive or files")


def signal_free(arguments: Arguments, context: Context) -> Finding:
    """A format with `#(` runs a command (tmux)."""
    if all(word.is_literal and "#(" not in word.text for word in arguments.words):
        return NOTHING
    return mutating("a tmux format may run a command")


def sysctl_names(arguments: Arguments, context: Context) -> Finding:
    """`sysctl NAME=VALUE` sets."""
    if any("=" in word.text or not word.is_literal for word in arguments.operands):
        return mutating("sets a kernel setting")
    return NOTHING


def no_assignment_operand(arguments: Arguments, context: Context) -> Finding:
    """`make VAR=x`, `exiftool -Tag=x`: an operand with `=` sets something."""
    if any("=" in word.text for word in arguments.words):
        return mutating("an operand sets something")
    return NOTHING


def no_response_file(arguments: Arguments, context: Context) -> Finding:
    """binutils read more options from an operand `@FILE`."""
    if any(word.text.startswith("@") or not word.is_literal for word in arguments.operands):
        return mutating("an operand @FILE holds options that were not read")
    return NOTHING


def text_to_stdout(arguments: Arguments, context: Context) -> Finding:
    """`pdftotext FILE -` prints; without the `-` it writes a file."""
    if arguments.entry.rule != "pdftotext":
        return NOTHING
    if len(arguments.operands) == 2 and arguments.operands[1].text == "-":
        return NOTHING
    return mutating("writes the text to a file")
