"""`sandboxd exec`: one command through a running daemon, or through the engine in process.

Both ways speak the same protocol over a socket to the same handlers; they differ only in which
process is at the other end, so they cannot behave differently.
"""

from __future__ import annotations

import os

from sandboxd.cli import stdio
from sandboxd.cli.jsonline import Link, dump
from sandboxd.cli.options import Options, UsageError, help_text, parse
from sandboxd.cli.told import tell, tell_refusal
from sandboxd.config import socket_path
from sandboxd.errors import CwdMissing, DaemonUnreachable, InvalidArgument, Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd.cli.embedded import Embedded
    from sandboxd.cli.jsonline import Object

USAGE = 2
PER_WORKSPACE = "workspace"
"""The session id by which a server keeps one session per workspace."""


def main(words: list[str]) -> int:
    """Run `sandboxd exec WORDS`; returns the exit code."""
    kinds = stdio.guard()
    try:
        options = parse(words)
        _check_utf8(words, options)
    except UsageError as error:
        return _misused(str(error), is_json=_wants_json(words))
    if options.wants_help:
        stdio.write_all(1, help_text().encode())
        return 0
    if options.learn is not None and os.path.lexists(options.learn):
        told = f"--learn writes a new file, and {options.learn} is there already"
        return _misused(told, is_json=options.is_json)
    try:
        opening, request = messages(options, kinds)
        return _run(options, kinds, opening, request)
    except Refusal as refusal:
        return refused(refusal.to_wire(), is_json=options.is_json)
    except Exception as error:
        if not options.is_json or os.environ.get("SANDBOXD_DEBUG"):
            raise
        return refused(_fault(error), is_json=True)


def _check_utf8(words: list[str], options: Options) -> None:
    """Raises UsageError for an option that JSON cannot carry; the command itself is judged apart."""
    for word in words[: len(words) - len(options.argv)]:
        if not word.isascii() and not _is_utf8(word) and word != options.text:
            raise UsageError(f"an option is not UTF-8: {word!r}")


def _wants_json(words: list[str]) -> bool:
    """Whether --json stands before the command, in a line that could not be parsed."""
    end = words.index("--") if "--" in words else len(words)
    return "--json" in words[:end]


def _misused(sentence: str, *, is_json: bool) -> int:
    hint = "sandboxd exec --help"
    if is_json:
        wire: Object = {
            "code": "USAGE",
            "origin": "client",
            "message": sentence,
            "hint": hint,
            "retryable": False,
        }
        return refused(wire, is_json=True)
    tell(sentence)
    tell(f"hint: {hint}")
    return USAGE


def refused(refusal: Object, *, is_json: bool) -> int:
    """Show a refusal the way that was asked for; returns its exit code."""
    if not is_json:
        return tell_refusal(refusal)
    stdio.write_all(1, (dump({"error": refusal}) + "\n").encode("ascii"))
    return Refusal.from_wire(refusal).exit_code


def _fault(error: Exception) -> Object:
    """What nobody expected, in the shape of a refusal."""
    return {
        "code": "FAULT",
        "origin": "fault",
        "message": f"{type(error).__name__}: {error}",
        "hint": "this is a bug in sandboxd; SANDBOXD_DEBUG=1 shows where",
        "retryable": False,
    }


def _run(options: Options, kinds: list[str], opening: Object, request: Object) -> int:
    from sandboxd.cli.exchange import Exchange

    relay = None
    if is_interactive(options, kinds):
        from sandboxd.cli.relay import Relay

        relay = Relay(kinds)
        request["pty"] = relay.pty()
        request["pace"] = True
    link, embedded = connect(options.socket, no_daemon=options.no_daemon)
    try:
        return Exchange(link, options, kinds, relay).run(opening, request)
    finally:
        link.close()
        if embedded is not None:
            embedded.close()


def connect(socket: str | None, *, no_daemon: bool) -> tuple[Link, Embedded | None]:
    """The daemon that answers, else the engine in this process.

    Raises DaemonUnreachable when a socket was named and nobody answers there.
    """
    if not no_daemon:
        path = socket_path(socket)
        try:
            return Link.connect(path), None
        except OSError as error:
            if socket or os.environ.get("SANDBOXD_SOCKET"):
                raise DaemonUnreachable(
                    f"no daemon answers on {path}: {error.strerror}",
                    hint="start it with `sandboxd serve --socket PATH --detach`, or leave the socket out",
                    path=path,
                ) from error
    from sandboxd.cli.embedded import Embedded

    embedded = Embedded()
    return embedded.take_link(), embedded


# --------------------------------------------------------------------------- what is sent


def messages(options: Options, kinds: list[str]) -> tuple[Object, Object]:
    """The parameters of `initialize` and of `command.exec`."""
    cwd = _cwd(options.cwd)
    workspace = options.workspace or os.environ.get("SANDBOXD_WORKSPACE")
    opening: Object = {
        "protocol_version": 1,
        "client": {"name": "sandboxd exec"},
        "capabilities": {
            "approvals": kinds[0] == kinds[2] == stdio.TERMINAL,
            "own_terminal": True,
        },
        "cwd": cwd,
        "env": dict(_environment()),
    }
    _put(opening, "workspace", os.path.abspath(workspace) if workspace else None)
    session = options.session or os.environ.get("SANDBOXD_SESSION")
    opening["session_id"] = session or PER_WORKSPACE
    named = options.profile or os.environ.get("SANDBOXD_PROFILE")
    _put(opening, "profile", profile_name(named))
    request: Object = {"cwd": cwd, "approve": options.approve, "stream": _stream(options, kinds)}
    if options.is_raw:
        request["pace"] = True
    _put(request, "command", _carried(options.text))
    _put(request, "argv", [_carried(word) for word in options.argv] or None)
    _put(request, "tier", options.tier)
    _put(request, "min_tier", options.min_tier)
    _put(request, "timeout_s", options.timeout_s)
    _put(request, "escalation", options.escalation)
    _put(request, "env", dict(options.env) or None)
    _put(request, "env_pass", list(options.env_pass) or None)
    _put(request, "allow_hosts", list(options.allow_hosts) or None)
    _put(request, "publish", list(options.publish) or None)
    _put(request, "learn", options.learn is not None or None)
    has_input = kinds[0] == stdio.PIPE or (
        kinds[0] == stdio.TERMINAL and is_interactive(options, kinds)
    )
    _put(request, "stdin_open", has_input or None)
    _put(request, "merge", _is_merged(options, kinds) or None)
    return opening, request


def profile_name(named: str | None) -> str | None:
    """A profile's name, or its file as a path that means the same to every process."""
    return os.path.abspath(named) if named and "/" in named else named


def _put(wire: Object, name: str, value: object) -> None:
    if value is not None:
        wire[name] = value  # type: ignore[assignment]  # only JSON values are put


def _cwd(named: str | None) -> str:
    try:
        cwd = os.path.abspath(named) if named else os.getcwd()
        if named and not os.path.isdir(cwd):
            raise CwdMissing(
                f"the working directory {named!r} does not exist or is no folder",
                hint="name an existing folder with --cwd",
                path=cwd,
            )
    except FileNotFoundError as error:
        raise CwdMissing(
            "the current folder does not exist any more", hint="change to another folder"
        ) from error
    carried = _carried(cwd)
    assert carried is not None
    return carried


def _carried(text: str | None) -> str | None:
    """`text`, if JSON can carry it."""
    if text is not None and not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"an argument is not UTF-8: {text!r}",
                hint="name the file through a pattern or a shell variable inside -c text",
            ) from error
    return text


def _environment() -> dict[str, str]:
    """The caller's environment; what JSON cannot carry is left out and said."""
    passed: dict[str, str] = {}
    left_out: list[str] = []
    for name, value in os.environ.items():
        both = name + value
        if both.isascii() or _is_utf8(both):
            passed[name] = value
        else:
            left_out.append(name)
    if left_out:
        tell("not passed on, because not UTF-8: " + ", ".join(left_out))
    return passed


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _stream(options: Options, kinds: list[str]) -> str:
    if options.is_json:
        return "none"
    if options.is_raw:
        return "raw"
    return "raw" if is_interactive(options, kinds) else "none"


def is_interactive(options: Options, kinds: list[str]) -> bool:
    """Whether somebody sits before a terminal: the run gets one of its own then."""
    return stdio.TERMINAL in kinds and not options.is_json and not options.is_raw


def _is_merged(options: Options, kinds: list[str]) -> bool:
    """Both streams go to one pipe or file: keep the order in which they came."""
    is_plain = not options.is_json and not options.is_raw
    return is_plain and kinds[1] == kinds[2] == stdio.PIPE and stdio.is_same_file(1, 2)
