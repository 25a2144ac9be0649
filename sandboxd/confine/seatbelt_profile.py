"""A Seatbelt profile made from a policy: text of the profile language and the values of its parameters.

Pure, and apart from the tier so that it can be read, compared and evaluated on every system. Facts
the order rests on (last match wins; none of it was tried on a Mac by us):

 1. Rights of the platform come before every deny: what is allowed later would take a deny back.
 2. No path is ever part of the text. A path is the value of a parameter (`-DKEY=value`), so its
    quotes, parentheses and line ends mean nothing. What depends on the policy in the text is how
    many rules there are, and in which order.
 3. A name is excluded both by `literal` and by `subpath`.
 4. Roots, denied and readable places are written from the outside in: the nearest one decides.
 5. Protected names come after all roots. Folders that lead to them, and the roots themselves, may
    be neither renamed nor removed, else a name could be moved from under its rule.
 6. Volumes usually ignore case. Folders that exist are known by their true name, a new name as it is
    typed, so protected names are also excluded in every spelling; the pattern holds letters of the
    protected name alone and counts the folders above it.
 7. `/tmp`, `/var` and `/etc` lead to `/private/...`: a rule on the former would never match.
 8. Outbound network has to be granted. That grant covers Unix sockets of the host too, so those are
    taken back, and then given for the folders that may be written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from sandboxd.confine.seatbelt_rights import Right, rights
from sandboxd.model import PROXY_PORT, NetworkMode, Policy

_PRIVATE = ("/tmp", "/var", "/etc")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._/-]+\Z")
_TAG = re.compile(r"[A-Za-z0-9._-]+\Z")


class Generated(Struct, frozen=True):
    """What `sandbox-exec` is given: `-p` and one `-D` for each parameter."""

    text: str
    parameters: dict[str, str]


def spelled(path: str) -> str:
    """The path as the kernel spells it."""
    for folder in _PRIVATE:
        if path == folder or path.startswith(folder + "/"):
            return "/private" + path
    return path


def generate(
    policy: Policy,
    *,
    tag: str = "run",
    real: Callable[[str], str] = lambda path: path,
    proxy_port: int = PROXY_PORT,
) -> Generated:
    """The profile of one run. `tag` stands in the message of each refusal, so that the system's log
    tells whose it is; `real` follows links."""
    if not _TAG.match(tag):
        raise ValueError(f"a tag of letters and digits is needed, not {tag!r}")
    return _Writer(policy, tag, real, proxy_port).profile()


class _Writer:
    def __init__(
        self, policy: Policy, tag: str, real: Callable[[str], str], proxy_port: int
    ) -> None:
        self.policy = policy
        self.message = f'(with message "sandboxd-{tag}")'
        self.real = real
        self.proxy_port = proxy_port
        self.lines: list[str] = []
        self.parameters: dict[str, str] = {}

    def profile(self) -> Generated:
        self.lines += [
            "(version 1)",
            "",
            "; nothing but what follows",
            f"(deny default {self.message})",
        ]
        for right in (*rights()["base"], *rights()["reads"]):
            self._right(right)
        self._files()
        self._block("no file that acts for its owner", f"(deny file-write-setugid {self.message})")
        self._protected()
        self._network()
        self._sockets()
        return Generated("\n".join(self.lines) + "\n", self.parameters)

    # ------------------------------------------------------------------ writing

    def _block(self, what: str, *rules: str) -> None:
        self.lines += ["", f"; {what}", *rules]

    def _right(self, right: Right) -> None:
        head = f"(allow {' '.join(right.operations)}"
        rule = head + ")" if not right.filters else "\n  ".join([head, *right.filters]) + ")"
        self._block(f"{right.what} ({right.needed_by})", rule)

    def _named(self, kind: str, paths: Iterable[str]) -> list[tuple[str, str]]:
        """Each path once, as (the name of its parameter, its value)."""
        found = []
        for path in dict.fromkeys(spelled(each) for one in paths for each in (one, self.real(one))):
            name = f"{kind}_{sum(key.startswith(kind + '_') for key in self.parameters)}"
            self.parameters[name] = path
            found.append((name, path))
        return found

    # ------------------------------------------------------------------ files

    def _files(self) -> None:
        """Reads, writes and denied places, the outer ones first; at one place the deny holds."""
        policy = self.policy
        self._block("read everything", "(allow file-read* file-test-existence file-map-executable)")
        self._block(
            "terminals of others: what is typed there is not for this run",
            '(deny file-read* file-write* (require-all (regex #"^/dev/ttys[0-9]+") '
            f'(require-not (extension "com.apple.sandbox.pty"))) {self.message})',
        )
        roots = self._named("WRITE", (*policy.writable, policy.private_tmp))
        hidden = self._named("DENY", (*policy.denied, *_unshown(policy)))
        ordered = sorted(
            [(path, 0, name) for name, path in roots] + [(path, 1, name) for name, path in hidden],
            key=lambda item: (_depth(item[0]), item[1]),
        )
        for _, is_hidden, name in ordered:
            if is_hidden:
                self._block(
                    "denied",
                    self._deny(
                        "file-read* file-write* file-test-existence file-map-executable", name
                    ),
                )
            else:
                rights_there = (
                    "file-read* file-write* file-test-existence file-map-executable file-ioctl"
                )
                self._block(
                    "may be written", f"(allow {rights_there} (subpath (param {_quoted(name)})))"
                )

    def _deny(self, operations: str, name: str) -> str:
        parameter = f"(param {_quoted(name)})"
        return f"(deny {operations} (literal {parameter}) (subpath {parameter}) {self.message})"

    def _protected(self) -> None:
        policy = self.policy
        for name, path in self._named("PROTECT", policy.protected):
            self._block("runs later, outside", self._deny("file-write*", name))
            for root in self._roots():
                self._any_case(root, path)
        pins = self._named("PIN", self._fixed())
        if pins:
            literals = " ".join(f"(literal (param {_quoted(name)}))" for name, _ in pins)
            self._block(
                "folders that lead there may be neither renamed nor removed",
                f"(deny file-write-unlink {literals} {self.message})",
            )

    def _roots(self) -> list[str]:
        places = (*self.policy.writable, self.policy.private_tmp)
        return list(
            dict.fromkeys(spelled(each) for one in places for each in (one, self.real(one)))
        )

    def _any_case(self, root: str, path: str) -> None:
        """The same name in other letters, below one root; names of odd characters have no pattern."""
        inside = _below(path, root)
        if inside is None or not _PLAIN_NAME.match(inside) or inside.lower() == inside.upper():
            return
        key = next(
            key for key, value in self.parameters.items() if value == root and key[:5] == "WRITE"
        )
        letters = "".join(_both_cases(char) for char in inside)
        above = "/[^/]+" * _depth(root)
        pattern = f'(regex #"^{above}/{letters}(/|$)")'
        self._block(
            "the same in other letters",
            f"(deny file-write* (require-all (subpath (param {_quoted(key)})) {pattern}) {self.message})",
        )

    def _fixed(self) -> list[str]:
        """The roots, what is pinned, and every folder between a root and a protected name."""
        policy = self.policy
        found = [*policy.writable, policy.private_tmp, *policy.pinned]
        for root in (*policy.writable, policy.private_tmp):
            for path in policy.protected:
                inside = _below(path, root)
                steps = inside.split("/")[:-1] if inside else []
                found += [
                    root.rstrip("/") + "/" + "/".join(steps[: n + 1]) for n in range(len(steps))
                ]
        return found

    # ------------------------------------------------------------------ network

    def _network(self) -> None:
        mode = self.policy.network
        if mode in (NetworkMode.OPEN, NetworkMode.HOST):
            self._block(
                "the network, both ways",
                "(allow network-outbound)",
                "(allow network-inbound)",
                "(allow network-bind)",
            )
            self._block(
                "sockets of the host are not part of it",
                f'(deny network-outbound (remote unix-socket (subpath "/")) {self.message})',
                f'(deny network-bind (local unix-socket (subpath "/")) {self.message})',
            )
            for right in (*rights()["network"], *rights()["resolver"]):
                self._right(right)
        elif mode is NetworkMode.ALLOWLIST:
            self._block(
                "the proxy, which knows the hosts that are named",
                f'(allow network-outbound (remote ip "localhost:{int(self.proxy_port)}"))',
            )
            for right in rights()["network"]:
                self._right(right)

    def _sockets(self) -> None:
        self._block("connected pairs of sockets", "(allow system-socket (socket-domain AF_UNIX))")
        if self.policy.unix_sockets != "workspace":
            return
        rules = []
        for key in [key for key in self.parameters if key.startswith("WRITE_")]:
            place = f"(subpath (param {_quoted(key)}))"
            rules += [
                f"(allow network-bind (local unix-socket {place}))",
                f"(allow network-outbound (remote unix-socket {place}))",
            ]
        for key in [key for key in self.parameters if key.startswith(("DENY_", "PROTECT_"))]:
            place = f"(subpath (param {_quoted(key)}))"
            rules += [
                f"(deny network-bind (local unix-socket {place}) {self.message})",
                f"(deny network-outbound (remote unix-socket {place}) {self.message})",
            ]
        self._block(
            "sockets in the folders that may be written, and not in what is taken out", *rules
        )


def _unshown(policy: Policy) -> tuple[str, ...]:
    """Files that are to be seen without their secrets: this tier shows no changed copies."""
    hidden = [each.path for each in policy.redacted if each.otherwise == "hide"]
    return (*hidden, *(copy.path for copy in policy.shown))


def _quoted(name: str) -> str:
    return f'"{name}"'


def _depth(path: str) -> int:
    return len([step for step in path.split("/") if step])


def _below(path: str, root: str) -> str | None:
    """The path as seen from a root above it."""
    start = root.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else None


def _both_cases(char: str) -> str:
    if char.isalpha():
        return f"[{char.lower()}{char.upper()}]"
    return char if char in "/_" or char.isdigit() else f"[{char}]" if char != "-" else "-"


def arguments(generated: Generated, command: Sequence[str]) -> tuple[str, ...]:
    """The words behind `sandbox-exec`."""
    values = (f"-D{key}={value}" for key, value in generated.parameters.items())
    return ("-p", generated.text, *values, "--", *command)
