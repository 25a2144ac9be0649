"""Named checks for commands that talk to another machine: what is asked, sent or lost there.

Apart from the other predicates because their question is another one: not what happens to files
here, but whether state elsewhere is lost or data carried out.
"""

from __future__ import annotations

import re

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import NOTHING, Context, Finding, destructive, mutating
from sandboxd.model import CommandClass


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
