"""The options of `exec`, parsed by hand: an argument parser would double its start-up.

One table gives parser and help text. The first word that is not an option, or everything after
`--`, is the argument vector; `-c TEXT` is shell text.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class UsageError(Exception):
    """The command line cannot be meant as it stands: exit 2."""


class Options:
    """What `sandboxd exec` was asked to do."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.argv: list[str] = []
        self.workspace: str | None = None
        self.session: str | None = None
        self.profile: str | None = None
        self.tier: str | None = None
        self.min_tier: str | None = None
        self.timeout_s: float | None = None
        self.approve = "none"
        self.env: dict[str, str] = {}
        self.env_pass: list[str] = []
        self.allow_hosts: list[str] = []
        self.publish: list[int] = []
        self.learn: str | None = None
        self.cwd: str | None = None
        self.escalation: str | None = None
        self.socket: str | None = None
        self.is_json = False
        self.is_raw = False
        self.no_daemon = False
        self.wants_help = False


def _set(name: str) -> Callable[[Options, str], None]:
    def setter(options: Options, value: str) -> None:
        setattr(options, name, value)

    return setter


def _set_timeout(options: Options, value: str) -> None:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"--timeout takes a number of seconds above 0, not {value!r}")
    options.timeout_s = seconds


def _set_approve(options: Options, value: str) -> None:
    if value not in ("none", "mutating", "all"):
        raise UsageError(f"--approve takes none, mutating or all, not {value!r}")
    options.approve = value


def _add_env(options: Options, value: str) -> None:
    name, separator, content = value.partition("=")
    if not name or not separator:
        raise UsageError(f"--env takes NAME=VALUE, not {value!r}")
    options.env[name] = content


def _add_env_pass(options: Options, value: str) -> None:
    if not value or "=" in value:
        raise UsageError(f"--env-pass takes the name of a variable, not {value!r}")
    options.env_pass.append(value)


def _add_host(options: Options, value: str) -> None:
    if not value:
        raise UsageError("--allow-host takes a host, *.domain or an address, with :port or without")
    options.allow_hosts.append(value)


def _add_port(options: Options, value: str) -> None:
    if not (value.isascii() and value.isdigit() and 0 < int(value) < 65536):
        raise UsageError(f"--publish takes a port from 1 to 65535, not {value!r}")
    options.publish.append(int(value))


_WITH_VALUE: dict[str, tuple[str, Callable[[Options, str], None], str]] = {
    "-c": ("TEXT", _set("text"), "shell text, run by bash"),
    "--workspace": (
        "DIR",
        _set("workspace"),
        "folder that may be written (SANDBOXD_WORKSPACE; default: the checkout, else the cwd)",
    ),
    "--session": ("ID", _set("session"), "session to join (SANDBOXD_SESSION)"),
    "--profile": ("P", _set("profile"), "policy profile: a name or a file (SANDBOXD_PROFILE)"),
    "--tier": ("T", _set("tier"), "exactly this tier, or refuse"),
    "--min-tier": ("T", _set("min_tier"), "this tier or a stronger one, or refuse"),
    "--timeout": ("S", _set_timeout, "end the command after S seconds (exit 124)"),
    "--approve": ("WHAT", _set_approve, "your word in advance: none, mutating or all"),
    "--env": ("K=V", _add_env, "set a variable for this run (again for more)"),
    "--env-pass": ("NAME", _add_env_pass, "pass a variable that would be scrubbed"),
    "--allow-host": ("H", _add_host, "let this run reach a host too (again for more)"),
    "--publish": ("PORT", _add_port, "make a port of the run reachable on 127.0.0.1"),
    "--escalate": (
        "TOKEN",
        _set("escalation"),
        "ask to run a stopped command again without a sandbox",
    ),
    "--learn": ("FILE", _set("learn"), "write the smallest profile that this run needed"),
    "--cwd": ("DIR", _set("cwd"), "run in this folder"),
    "--socket": ("PATH", _set("socket"), "the daemon's socket (SANDBOXD_SOCKET)"),
}

_FLAGS: dict[str, tuple[str, str]] = {
    "--json": ("is_json", 'print one result object, or {"error": ..}'),
    "--raw": ("is_raw", "pass output bytes through as they are"),
    "--no-daemon": ("no_daemon", "run the engine in this process"),
    "--help": ("wants_help", "this text"),
}


def parse(words: list[str]) -> Options:
    """The options in `words`; raises UsageError with a sentence."""
    options = Options()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            options.argv = rest
            break
        if not word.startswith("-") or word == "-":
            options.argv = [word, *rest]
            break
        _take(options, word, rest)
    if not options.wants_help:
        _check(options)
    return options


def _take(options: Options, word: str, rest: list[str]) -> None:
    name, separator, value = word.partition("=") if word.startswith("--") else (word, "", "")
    if name in _FLAGS or word == "-h":
        if separator:
            raise UsageError(f"{name} takes no value")
        setattr(options, _FLAGS[name][0] if name in _FLAGS else "wants_help", True)
        return
    if name not in _WITH_VALUE:
        raise UsageError(f"there is no option {name!r}")
    placeholder, setter, _ = _WITH_VALUE[name]
    if not separator:
        if not rest:
            raise UsageError(f"{name} needs {placeholder}")
        value = rest.pop(0)
    setter(options, value)


def _check(options: Options) -> None:
    if options.text is not None and options.argv:
        raise UsageError("both -c TEXT and a command after it; use one of them")
    if options.text is None and not options.argv:
        raise UsageError("no command; write `-- CMD ARGS...`, or `-c TEXT` for shell text")
    if options.argv and not options.argv[0]:
        raise UsageError("the command's name is empty")
    if options.is_json and options.is_raw:
        raise UsageError("--json and --raw exclude each other")


def help_text() -> str:
    lines = [
        "Usage: sandboxd exec [OPTIONS] -- CMD ARGS...",
        "       sandboxd exec [OPTIONS] -c TEXT",
        "",
        "Run one command: judged, confined by the kernel, with honest output.",
        "",
        "Options:",
    ]
    for name, (placeholder, _, told) in _WITH_VALUE.items():
        lines.append(f"  {name + ' ' + placeholder:18}  {told}")
    for name, (_, told) in _FLAGS.items():
        lines.append(f"  {name:18}  {told}")
    lines += [
        "",
        "Exit codes: the command's own; 128+n when signal n ended it; 124 time-out;",
        "125 refused or failed; 126 not executable; 127 not found; 2 usage.",
    ]
    return "\n".join(lines) + "\n"
