"""`exec --learn`: the smallest profile that one run needed, for a person to read and edit.

Two things are seen, in every tier and without tracing anything: which folders below the writable ones
have changed on disk since the run began, and to whom the relay connected. So reads are not seen, nor
files that were opened for writing and left as they were; what the host changed meanwhile is taken for
the run's; and where the network is the host's own its use is unknown. The profile says so itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import time
from collections.abc import Callable

from sandboxd.egress.hosts import Address
from sandboxd.egress.outside import Outside
from sandboxd.model import ExecRequest, NetworkMode, Policy, Result
from sandboxd.profiles import Profile

MAX_ENTRIES = 300_000
MAX_FOLDERS = 16
TICK_NS = 20_000_000
"""Time stamps of files come from a clock that is this much behind."""
USUAL_PORTS = (80, 443)


class Heard(Outside):
    """The way outside, with a memory of who was reached."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self.reached: dict[tuple[Address, int], None] = {}

    def is_own(self, address: Address) -> bool:
        return self._outside.is_own(address)

    def reaches_ipv6(self) -> bool:
        return self._outside.reaches_ipv6()

    async def lookup(self, name: str) -> list[Address]:
        return await self._outside.lookup(name)

    def nameservers(self) -> list[tuple[str, int]]:
        return self._outside.nameservers()

    async def datagram(self, server: tuple[str, int]) -> socket.socket:
        return await self._outside.datagram(server)

    def _note(self, address: Address, port: int) -> None:
        if (str(address), port) not in self._outside.nameservers():
            self.reached[address, port] = None

    async def dial(self, address: Address, port: int) -> socket.socket:
        self._note(address, port)
        return await self._outside.dial(address, port)

    def begin(self, address: Address, port: int) -> socket.socket:
        self._note(address, port)
        return self._outside.begin(address, port)


class Learner:
    """What one run needs, from its beginning to its end."""

    def __init__(self, outside: Outside) -> None:
        self.begun_ns = time.time_ns() - TICK_NS
        self.outside = Heard(outside)

    def profile(
        self,
        request: ExecRequest,
        result: Result,
        policy: Policy,
        profile: Profile,
        names_of: Callable[[Address], list[str]],
    ) -> str:
        """The text of the profile. `names_of` tells which names had led to an address."""
        lines = [
            *_head(request, result),
            f"extends: {json.dumps(profile.name)}",
            "files:",
            "  write:",
        ]
        lines += [f"    - {json.dumps(text)}" for text in self._written(policy)]
        lines += self._network(policy, names_of)
        if result.denial is not None and (result.denial.path or result.denial.host):
            lines += ["# Refused in this run; allow it if it is meant to be:"]
            lines += [f"#   {_shown(result.denial.path or result.denial.host or '')}"]
        return "\n".join(lines) + "\n"

    def _written(self, policy: Policy) -> list[str]:
        found = ["${TMP}"]
        for root in policy.writable:
            if root == policy.private_tmp:
                continue
            named = "${WORKSPACE}" if root == policy.workspace else root
            for folder in changed_folders(root, self.begun_ns):
                found.append(named + folder[len(root) :])
        return found

    def _network(self, policy: Policy, names_of: Callable[[Address], list[str]]) -> list[str]:
        if policy.network is NetworkMode.HOST:
            return ["network: host   # not relayed in this tier: who was reached is unknown"]
        hosts: dict[str, None] = {}
        for address, port in self.outside.reached:
            names = names_of(address) or [f"[{address}]" if address.version == 6 else str(address)]
            behind = "" if port in USUAL_PORTS else f":{port}"
            hosts.update(dict.fromkeys(name + behind for name in names))
        if not hosts:
            return ["network: off"]
        return [
            "network:",
            "  mode: allowlist",
            "  allow:",
            *(f"    - {json.dumps(h)}" for h in hosts),
        ]


def _head(request: ExecRequest, result: Result) -> list[str]:
    command = request.command if request.command is not None else shlex.join(request.argv or ())
    return [
        f"# Learned from one run in tier {result.tier.name}, exit code {result.exit_code}:",
        f"#   {_shown(command)}",
        "# Seen: folders in which files changed, and hosts that were connected to. Not seen: what was",
        "# read, files that were opened for writing and left alone, what another run would do. Read it,",
        "# edit it, and name it with --profile.",
    ]


def _shown(text: str) -> str:
    """On one line: a comment must not become a key."""
    return text[:400].encode("unicode_escape").decode("ascii")


def changed_folders(root: str, since_ns: int) -> list[str]:
    """The topmost folders below `root` in which something changed; few, else their parents."""
    changed: list[str] = []
    queue, seen = [root], 0
    while queue:
        folder = queue.pop()
        if _has_changed(folder, since_ns):
            changed.append(folder)
            continue  # it is granted with all that lies below
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                seen += 1
                if entry.is_dir(follow_symlinks=False):
                    queue.append(entry.path)
        if seen > MAX_ENTRIES:
            return [root]
    while len(changed) > MAX_FOLDERS:
        deepest = max(changed, key=lambda path: path.count("/"))
        parent = os.path.dirname(deepest)
        changed = [path for path in changed if not path.startswith(parent + "/")] + [parent]
    return sorted(changed)


def _has_changed(folder: str, since_ns: int) -> bool:
    """Whether names came or went in the folder, or a file directly in it was written."""
    try:
        if os.lstat(folder).st_ctime_ns >= since_ns:
            return True
        with os.scandir(folder) as entries:
            return any(
                entry.stat(follow_symlinks=False).st_ctime_ns >= since_ns
                for entry in entries
                if not entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return False
