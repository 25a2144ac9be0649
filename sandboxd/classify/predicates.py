"""Named tricks that a table entry may ask for with `checks:`; each is a small question.

A table stays free of conditions: what needs one is named here, once, and documented by name.
"""

from __future__ import annotations

import re

from msgspec import structs

from sandboxd.classify.arguments import Arguments, could_be_option
from sandboxd.classify.findings import NOTHING, Context, Finding, destructive, mutating
from sandboxd.classify.redirects import is_device
from sandboxd.model import CommandClass, Word

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


def kubectl_kinds(arguments: Arguments, context: Context) -> Finding:
    """Secrets are not printed unasked."""
    for word in arguments.operands:
        kinds = word.text.lower().split("/")[0].split(",")
        if any(kind.split(".")[0] in ("secret", "secrets") for kind in kinds):
            return mutating("prints secrets of the cluster", "kubectl.secrets")
    return NOTHING


def kubectl_output(arguments: Arguments, context: Context) -> Finding:
    """`-o` with a template file or a plugin would read or run more than named."""
    value = arguments.value("-o", "--output")
    allowed = r"(?:json|yaml|wide|name|(?:jsonpath|custom-columns|go-template)=.*)"
    if value is None or (value.is_literal and re.fullmatch(allowed, value.text, re.DOTALL)):
        return NOTHING
    return mutating(f"kubectl -o {value.text} is not known to be harmless")


def zero_replicas(arguments: Arguments, context: Context) -> Finding:
    """Scaling to nothing stops the service."""
    value = arguments.value("--replicas")
    if value is not None and value.text == "0":
        return destructive("stops every replica")
    return NOTHING


def api_request(arguments: Arguments, context: Context) -> Finding:
    """`gh api PATH`: GET unless a method or a field says otherwise."""
    method = arguments.value("-X", "--method")
    if method is not None and method.text.upper() == "DELETE":
        return destructive("deletes remote state")
    if method is not None and method.text.upper() not in ("GET", "HEAD"):
        return mutating("changes remote state")
    has_fields = arguments.has("-f", "-F", "--field", "--raw-field", "--input")
    if has_fields and method is None:
        return mutating("fields without --method GET are a POST")
    path = arguments.operands[0].text if arguments.operands else ""
    if path == "graphql" or path.startswith("/graphql"):
        return mutating("a GraphQL request may change remote state")
    return NOTHING


def http_request(arguments: Arguments, context: Context) -> Finding:
    """curl: a DELETE loses remote state; an address must be named."""
    method = arguments.value("-X", "--request")
    if method is not None and method.text.upper() == "DELETE":
        return destructive("deletes remote state")
    if not arguments.operands and not arguments.values("--url"):
        return mutating("no address is named")
    header = http_header(arguments, context)
    if header is not NOTHING:
        return header
    for word in arguments.values("-w", "--write-out"):
        if word.text.startswith("@") or "%output{" in word.text or not word.is_literal:
            return mutating("the format of curl -w comes from or writes a file")
    return NOTHING


def wget_request(arguments: Arguments, context: Context) -> Finding:
    """wget writes a file unless it is told to print (`-O -`) or only to look (`--spider`)."""
    target = arguments.value("-O", "--output-document")
    if arguments.has("--spider") or (target is not None and target.text == "-"):
        return NOTHING
    return mutating("writes what it fetches to a file")


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


def remote_copy(arguments: Arguments, context: Context) -> Finding:
    """rsync onto another host changes remote state; a trial run (`-n`) of local paths reads."""
    remote = [w for w in arguments.operands if ":" in w.text.split("/")[0] or not w.is_literal]
    if any(word is arguments.operands[-1] for word in remote) and arguments.operands:
        return destructive("overwrites files on another host")
    if remote:
        return mutating("another host is reached by a program")
    if arguments.has("-n", "--dry-run"):
        return NOTHING
    paths = tuple(context.path(w.text) or w.text for w in arguments.operands[-1:])
    return Finding(CommandClass.MUTATING, "copies files", write_paths=paths)


def no_assignment_operand(arguments: Arguments, context: Context) -> Finding:
    """`make VAR=x`, `exiftool -Tag=x`: an operand with `=` sets something."""
    if any("=" in word.text for word in arguments.words):
        return mutating("an operand sets something")
    return NOTHING


def http_header(arguments: Arguments, context: Context) -> Finding:
    """A header `@FILE` sends the file."""
    for word in arguments.values("-H", "--header", "-A", "--user-agent"):
        if word.text.startswith("@") or not word.is_literal:
            return mutating("a header that is not literal may carry data out")
    for word in arguments.values("-f", "--raw-field", "-F", "--field"):
        if "=@" in word.text or not word.is_literal:
            return mutating("a field that is not literal may carry data out")
    return NOTHING


def dns_names(arguments: Arguments, context: Context) -> Finding:
    """The names that are looked up are the hosts that learn of it."""
    names = [word.text.lstrip("@") for word in arguments.operands if "." in word.text]
    hosts = [name.rstrip(".").lower() for name in names if not name.startswith("+")]
    return Finding(hosts=tuple(hosts))


def publishes(arguments: Arguments, context: Context) -> Finding:
    """A word `publish` or `push` in a package manager's line makes it public for good."""
    for word in arguments.words[:3]:
        if word.text in ("publish", "hex.publish", "unpublish", "yank"):
            return destructive("publishes to a registry")
    if [word.text for word in arguments.words[:2]] in (["nuget", "push"], ["nuget", "delete"]):
        return destructive("publishes to a registry")
    return NOTHING


def no_fix(arguments: Arguments, context: Context) -> Finding:
    """`npm audit fix` installs."""
    if any(word.text in ("fix", "signatures") for word in arguments.operands):
        return mutating("npm audit fix changes the project")
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


_DELETING_WORDS = frozenset(
    (
        *("delete", "destroy", "remove", "rm", "rmdir", "rb", "del", "purge", "prune"),
        *("terminate", "drop", "wipe", "undeploy", "deletefile", "cleanup"),
    )
)


def deletes(arguments: Arguments, context: Context) -> Finding:
    """A service's command line whose first words say delete: remote or secret state is lost."""
    for word in arguments.words[:4]:
        text = word.text.lower()
        head = re.split(r"[-:]", text)[0]
        if text in _DELETING_WORDS or (head in _DELETING_WORDS and not text.startswith("-")):
            return destructive(f"{arguments.entry.rule} {word.text} deletes state for good")
    return NOTHING


_DEPLOYING = re.compile(r"deploy|publish|release|promote|submit|rollback")


def deploys(arguments: Arguments, context: Context) -> Finding:
    """Putting something live for everybody cannot be taken back."""
    for word in arguments.words:
        if word.text in ("--prod", "--production") or _DEPLOYING.match(word.text):
            return destructive("deploys to where everybody sees it")
        if re.search(r":(?:destroy|reset|delete|remove|unset)\Z", word.text):
            return destructive(f"{arguments.entry.rule} {word.text} deletes remote state")
    return NOTHING


_STATEMENT_DESTROYS = re.compile(
    r"\b(?:drop\w*|truncate|delete|deleteMany|deleteOne|remove)\b", re.IGNORECASE
)


def mentions_drop(arguments: Arguments, context: Context) -> Finding:
    """A statement in a language that is not read: its plainest destroying words count."""
    for word in arguments.words:
        is_statement = " " in word.text or "(" in word.text
        if is_statement and _STATEMENT_DESTROYS.search(word.text):
            return destructive("the statement drops, empties or deletes")
    texts = [word.text for word in arguments.words[:3]]
    if "reset" in texts or "down" in texts:
        return destructive("takes the database back, with its data")
    return NOTHING


def no_dump(arguments: Arguments, context: Context) -> Finding:
    """`kubectl cluster-info dump` may write a folder of files."""
    if any(word.text == "dump" for word in arguments.operands):
        return mutating("a dump may write files")
    return NOTHING


_REDIS_READS = frozenset(
    [
        "get",
        "mget",
        "exists",
        "ttl",
        "pttl",
        "type",
        "keys",
        "scan",
        "dbsize",
        "info",
        "ping",
        "echo",
        "time",
        "strlen",
        "getrange",
        "llen",
        "lrange",
        "lindex",
        "scard",
        "smembers",
        "sismember",
        "srandmember",
        "hget",
        "hgetall",
        "hkeys",
        "hvals",
        "hlen",
        "hmget",
        "hexists",
        "zrange",
        "zcard",
        "zscore",
        "zrank",
        "zcount",
        "zrangebyscore",
        "xlen",
        "xrange",
        "xinfo",
        "object",
        "memory",
        "randomkey",
        "lastsave",
        "command",
        "slowlog",
        "latency",
        "bitcount",
        "getbit",
        "pfcount",
        "geopos",
        "geodist",
        "hscan",
        "sscan",
        "zscan",
        "lpos",
        "smismember",
        "dump",
    ]
)
_REDIS_DESTROYS = frozenset(("flushall", "flushdb", "del", "unlink", "shutdown"))


def redis_command(arguments: Arguments, context: Context) -> Finding:
    """redis-cli's commands are the operands, in any case of letters."""
    if not arguments.operands or not arguments.operands[0].is_literal:
        return mutating("which redis command runs is only known when it runs")
    name = arguments.operands[0].text.lower()
    second = arguments.operands[1].text.lower() if len(arguments.operands) > 1 else ""
    if name in _REDIS_DESTROYS:
        return destructive(f"redis {name} deletes data")
    if name in ("slowlog", "latency", "memory") and second in ("reset", "purge"):
        return mutating(f"redis {name} {second} changes state")
    if name in _REDIS_READS or (name == "config" and second == "get"):
        return NOTHING
    return mutating(f"redis {name} is not known to only read")
