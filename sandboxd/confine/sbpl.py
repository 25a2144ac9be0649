"""What a Seatbelt profile would decide: a small evaluator of its language, for systems without one.

It serves tests and `profile explain`, never a run. It is strict where the system is: a parameter
without a value, an operation or form that it does not know, an import, a rule that leaves the
sandbox (`no-sandbox`) are refused, so that what it answers is about the whole profile. Rules, as
read and not tried on a Mac: of all rules whose operation and filter match, the last one counts;
several filters in one rule are alternatives; `subpath P` is P and all below it; `regex` may match
anywhere; `file-read*` covers every operation that begins so; paths are spelled as the kernel does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

OPERATIONS = frozenset(
    [
        "default",
        "file-ioctl",
        "file-map-executable",
        "file-read-data",
        "file-read-metadata",
        "file-read-xattr",
        "file-test-existence",
        "file-write-create",
        "file-write-data",
        "file-write-flags",
        "file-write-mode",
        "file-write-owner",
        "file-write-setugid",
        "file-write-times",
        "file-write-unlink",
        "file-write-xattr",
        "iokit-open",
        "ipc-posix-sem",
        "ipc-posix-shm-read-data",
        "ipc-posix-shm-read-metadata",
        "ipc-posix-shm-write-create",
        "ipc-posix-shm-write-data",
        "ipc-posix-shm-write-unlink",
        "mach-host-exception-port-set",
        "mach-host-special-port-set",
        "mach-lookup",
        "network-bind",
        "network-inbound",
        "network-outbound",
        "process-exec",
        "process-fork",
        "process-info-codesignature",
        "process-info-pidinfo",
        "process-info-setcontrol",
        "pseudo-tty",
        "signal",
        "sysctl-read",
        "sysctl-write",
        "system-fcntl",
        "system-socket",
        "user-preference-read",
        "user-preference-write",
    ]
)
VNODE_TYPES = ("REGULAR-FILE", "DIRECTORY", "SYMLINK", "CHARACTER-DEVICE", "BLOCK-DEVICE", "SOCKET")


class ProfileError(ValueError):
    """The text is no profile that this evaluator can answer for; says what and on which line."""


class Subject(Struct, frozen=True, kw_only=True):
    """What an operation is about; what does not apply stays empty."""

    path: str | None = None
    """A file, or the place of a Unix socket."""
    vnode_type: str = "REGULAR-FILE"
    extensions: tuple[str, ...] = ()
    address: str | None = None
    """`host:port` at the other end or to listen on; host is `localhost` or anything else."""
    name: str | None = None
    """A service, sysctl, class of driver or piece of shared memory."""
    target: str = "same-sandbox"
    """Whom a signal goes to: `same-sandbox`, `self` or `others`."""
    domain: str | None = None
    protocol: int | None = None


class Answer(Struct, frozen=True):
    """Whether it is allowed, and the line of the rule that says so."""

    allowed: bool
    line: int


Filter = Callable[[Subject], bool]
Word = str


class _Raw(str):
    """A raw string `#"..."`: no escapes."""


class _Text(str):
    """A quoted string."""


class _List(list[object]):
    """One parenthesised form, with the line that it begins on."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _Rule(Struct, frozen=True):
    allowed: bool
    operations: tuple[str, ...]
    filters: tuple[Filter, ...]
    line: int

    def speaks_of(self, operation: str, subject: Subject) -> bool:
        if not any(_covers(pattern, operation) for pattern in self.operations):
            return False
        return not self.filters or any(one(subject) for one in self.filters)


class Evaluator:
    """One profile with its parameters. Raises ProfileError for what it cannot answer for."""

    def __init__(self, text: str, parameters: Mapping[str, str]) -> None:
        self._reader = _Reader(parameters)
        forms = list(_forms(text))
        if not forms or list(forms[0]) != ["version", "1"]:
            raise ProfileError("line 1: a profile begins with (version 1)")
        self._rules = [rule for form in forms[1:] for rule in self._reader.rules(form)]
        if not any("default" in rule.operations for rule in self._rules):
            raise ProfileError("line 1: there is no rule for default")

    def decide(self, operation: str, subject: Subject | None = None) -> Answer:
        """What becomes of one operation."""
        if operation not in OPERATIONS or operation == "default":
            raise ProfileError(f"there is no operation {operation!r}")
        about = subject or Subject()
        for rule in reversed(self._rules):
            if "default" not in rule.operations and rule.speaks_of(operation, about):
                return Answer(rule.allowed, rule.line)
        last = next(rule for rule in reversed(self._rules) if "default" in rule.operations)
        return Answer(last.allowed, last.line)

    def allows(self, operation: str, path: str) -> bool:
        """Whether this operation on this file is allowed."""
        return self.decide(operation, Subject(path=path)).allowed


def _covers(pattern: str, operation: str) -> bool:
    return pattern == operation or (pattern.endswith("*") and operation.startswith(pattern[:-1]))


# ------------------------------------------------------------------ reading


_TOKEN = re.compile(
    r'[ \t\r\n]+|;[^\n]*|(?P<open>\()|(?P<close>\))|#"(?P<raw>[^"]*)"'
    r'|"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>[^\s()";#]+)',
    re.DOTALL,
)


def _forms(text: str) -> Iterator[_List]:
    """Every form at the top level."""
    stack: list[_List] = []
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ProfileError(f"line {line}: {text[position : position + 20]!r} cannot be read")
        position = match.end()
        if match["open"]:
            stack.append(_List(line))
        elif match["close"]:
            if not stack:
                raise ProfileError(f"line {line}: a parenthesis too many")
            done = stack.pop()
            if stack:
                stack[-1].append(done)
            else:
                yield done
        elif (atom := _atom(match)) is not None:
            if not stack:
                raise ProfileError(f"line {line}: {atom!r} stands outside any form")
            stack[-1].append(atom)
        line += match[0].count("\n")
    if stack:
        raise ProfileError(f"line {stack[0].line}: a parenthesis is not closed")


def _atom(match: re.Match[str]) -> str | None:
    if match["raw"] is not None:
        return _Raw(match["raw"])
    if match["text"] is not None:
        return _Text(re.sub(r"\\(.)", r"\1", match["text"], flags=re.DOTALL))
    return match["word"]


class _Reader:
    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._parameters = parameters

    def rules(self, form: _List) -> Iterator[_Rule]:
        head = form[0] if form else ""
        if head not in ("allow", "deny"):
            raise _unknown(form, f"the form {head!r} is not known")
        operations = [item for item in form[1:] if isinstance(item, str)]
        for name in operations:
            if isinstance(name, _Text | _Raw) or not any(_covers(name, one) for one in OPERATIONS):
                raise _unknown(form, f"the operation {name!r} is not known")
        if not operations:
            raise _unknown(form, "a rule without an operation")
        nested = [item for item in form[1:] if isinstance(item, _List)]
        filters = [self._filter(item) for item in nested if not self._is_modifier(item)]
        yield _Rule(head == "allow", tuple(operations), tuple(filters), form.line)

    def _is_modifier(self, form: _List) -> bool:
        """`(with message "x")` changes what is told, not what is decided."""
        if not form or form[0] != "with":
            return False
        kind = form[1] if len(form) > 1 else ""
        if kind not in ("message", "report", "no-report", "no-log") or isinstance(kind, _Text):
            raise _unknown(form, f"`with {kind}` changes more than what is told")
        return True

    def _filter(self, form: _List) -> Filter:
        head = form[0] if form else ""
        rest = form[1:]
        if not isinstance(head, str) or not rest:
            raise _unknown(form, "a filter that cannot be read")
        if head in ("require-all", "require-any", "require-not"):
            return self._combined(head, form)
        if head in ("remote", "local"):
            return self._network(form)
        made = _FILTERS.get(head)
        if made is None:
            raise _unknown(form, f"the filter {head!r} is not known")
        values = [self._value(item, form, is_regex="regex" in head) for item in rest]
        filters = [made(value) for value in values]
        return lambda subject: any(one(subject) for one in filters)

    def _combined(self, head: str, form: _List) -> Filter:
        nested = [item for item in form[1:] if isinstance(item, _List)]
        if len(nested) != len(form) - 1 or (head == "require-not" and len(nested) != 1):
            raise _unknown(form, f"{head} takes filters")
        inner = [self._filter(item) for item in nested]
        if head == "require-all":
            return lambda subject: all(one(subject) for one in inner)
        if head == "require-any":
            return lambda subject: any(one(subject) for one in inner)
        return lambda subject: not inner[0](subject)

    def _network(self, form: _List) -> Filter:
        kind, rest = form[1], form[2:]
        if kind == "unix-socket":
            if not rest:
                return lambda subject: subject.path is not None
            if len(rest) != 1 or not isinstance(rest[0], _List):
                raise _unknown(form, "a filter of a socket's path is expected")
            return self._filter(rest[0])
        if kind not in ("ip", "tcp", "udp") or len(rest) > 1:
            raise _unknown(form, f"`{form[0]} {kind}` is not known")
        wanted = self._value(rest[0], form) if rest else "*:*"
        host, colon, port = wanted.rpartition(":")
        if not colon or host not in ("*", "localhost") or not (port == "*" or port.isdigit()):
            raise _unknown(form, f"the address {wanted!r} is not `*` or `localhost` with a port")
        return lambda subject: _is_at(subject.address, host, port)

    def _value(self, item: object, form: _List, *, is_regex: bool = False) -> str:
        if isinstance(item, _List):
            return self._computed(item)
        if isinstance(item, _Raw) != is_regex:
            raise _unknown(form, 'a pattern is written #"...", and nothing else is')
        return str(item)

    def _computed(self, form: _List) -> str:
        head = form[0] if form else ""
        if head == "param" and len(form) == 2 and isinstance(form[1], _Text):
            if form[1] not in self._parameters:
                raise _unknown(form, f"the parameter {str(form[1])!r} has no value")
            return self._parameters[form[1]]
        if head == "string-append":
            return "".join(self._value(item, form) for item in form[1:])
        raise _unknown(form, f"{head!r} gives no value")


def _unknown(form: _List, why: str) -> ProfileError:
    return ProfileError(f"line {form.line}: {why}")


# ------------------------------------------------------------------ filters


def _literal(value: str) -> Filter:
    return lambda subject: subject.path == value


def _subpath(value: str) -> Filter:
    folder = value.rstrip("/")
    return lambda subject: (
        subject.path is not None
        and (subject.path == folder or subject.path.startswith(folder + "/"))
    )


def _prefix(value: str) -> Filter:
    return lambda subject: subject.path is not None and subject.path.startswith(value)


def _ancestors(value: str) -> Filter:
    return lambda subject: (
        subject.path is not None and (subject.path == "/" or value.startswith(subject.path + "/"))
    )


def _regex(value: str) -> Filter:
    pattern = _compiled(value)
    return lambda subject: subject.path is not None and pattern.search(subject.path) is not None


def _compiled(value: str) -> re.Pattern[str]:
    """`$` is the end, `.` any character, as POSIX has it."""
    try:
        return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", value), re.DOTALL | re.ASCII)
    except re.error as error:
        raise ProfileError(f"the pattern {value!r} cannot be read: {error}") from None


def _vnode_type(value: str) -> Filter:
    if value not in VNODE_TYPES:
        raise ProfileError(f"there is no kind of file {value!r}")
    return lambda subject: subject.path is not None and subject.vnode_type == value


def _extension(value: str) -> Filter:
    return lambda subject: value in subject.extensions


def _name(value: str) -> Filter:
    return lambda subject: subject.name == value


def _name_prefix(value: str) -> Filter:
    return lambda subject: subject.name is not None and subject.name.startswith(value)


def _name_regex(value: str) -> Filter:
    pattern = _compiled(value)
    return lambda subject: subject.name is not None and pattern.search(subject.name) is not None


def _target(value: str) -> Filter:
    if value not in ("self", "same-sandbox", "others"):
        raise ProfileError(f"there is no target {value!r}")
    allowed = ("self", "same-sandbox") if value == "same-sandbox" else (value,)
    return lambda subject: subject.target in allowed


def _socket_domain(value: str) -> Filter:
    return lambda subject: subject.domain == value


def _socket_protocol(value: str) -> Filter:
    return lambda subject: subject.protocol is not None and str(subject.protocol) == value


def _is_at(address: str | None, host: str, port: str) -> bool:
    if address is None:
        return False
    there, _, number = address.rpartition(":")
    return host in ("*", there) and port in ("*", number)


_FILTERS: Mapping[str, Callable[[str], Filter]] = {
    "literal": _literal,
    "path": _literal,
    "subpath": _subpath,
    "prefix": _prefix,
    "path-ancestors": _ancestors,
    "regex": _regex,
    "vnode-type": _vnode_type,
    "extension": _extension,
    "global-name": _name,
    "global-name-prefix": _name_prefix,
    "local-name": _name,
    "xpc-service-name": _name,
    "xpc-service-name-prefix": _name_prefix,
    "sysctl-name": _name,
    "sysctl-name-prefix": _name_prefix,
    "iokit-registry-entry-class": _name,
    "iokit-user-client-class": _name,
    "ipc-posix-name": _name,
    "ipc-posix-name-prefix": _name_prefix,
    "ipc-posix-name-regex": _name_regex,
    "target": _target,
    "socket-domain": _socket_domain,
    "socket-protocol": _socket_protocol,
}


def evaluate(text: str, arguments: Sequence[str]) -> Evaluator:
    """The evaluator for what `sandbox-exec` was given: `-DKEY=value` words."""
    values = (word[2:].partition("=") for word in arguments if word.startswith("-D"))
    return Evaluator(text, {key: value for key, _, value in values})
