"""The ground of a run: what its init sets up without knowing the run.

Process, ids, private /dev and /proc, network. A module of its own because an init may do this long
before its run comes (`spare`). Sources: user_namespaces(7), PR_SET_CHILD_SUBREAPER and
PR_SET_PDEATHSIG in prctl(2); the numbered facts are those of `zygote`.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import errno
import os

from sandboxd.spawn import network
from sandboxd.spawn.reports import SetUpFailed, namespace_stage
from sandboxd.spawn.view import Private
from sandboxd.system import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Request = dict[str, Any]


class Ground:
    """See the module. `request` needs only the entries that `spare.PREPARED` names, and `netlink`:
    the messages that make its network."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.private = Private()
        self.sockets: network.Tagged = []
        self._is_made = False
        self._failure: SetUpFailed | None = None
        self._begin()

    def _begin(self) -> None:
        signal.set_wakeup_fd(-1)
        os.setsid()
        if "pid" in self.request["namespaces"]:
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        else:
            linux.prctl(linux.PR_SET_PDEATHSIG, 0)
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)

    def make_ahead(self) -> None:
        """Make it before the run comes; what fails is the run's to hear, from `make`."""
        try:
            self.make(None)
        except SetUpFailed as failure:
            self._failure = failure
        except OSError as error:
            self._failure = SetUpFailed("init", error.errno or 0, str(error.filename or ""))
        linux.prctl(linux.PR_SET_DUMPABLE, 0)  # fact 5

    def make(self, gate: int | None) -> None:
        """Make what is not made yet. Raises SetUpFailed."""
        if self._failure is not None:
            raise self._failure
        if self._is_made:
            return
        self._is_made = True
        namespaces = self.request["namespaces"]
        if "user" in namespaces:
            self._become_inside(gate)
        elif self.request["outside_ids"] is not None:
            _become(self.request["outside_ids"])
        if "mount" in namespaces:
            self.private.make(self.request["private"])
        if not self.request["is_joined"]:  # else all this belongs into namespaces yet to be entered
            self.make_network()
            self.drop_bounding_set()

    def make_network(self) -> None:
        if self.request["network"] is not None:
            self.sockets = network.set_up(self.request["network"], self.request["netlink"])

    def drop_bounding_set(self) -> None:
        if self.request["drop_privileges"]:
            linux.drop_bounding_set()

    def _become_inside(self, gate: int | None) -> None:
        """Fill the user namespace's maps (fact 2) and take on the ids inside."""
        linux.prctl(linux.PR_SET_DUMPABLE, 1)
        inside, outside = self.request["inside_ids"], self.request["outside_ids"]
        if gate is None:
            try:
                write_file("/proc/self/setgroups", "deny")
                write_file("/proc/self/uid_map", f"{inside[0]} {outside[0]} 1\n")
                write_file("/proc/self/gid_map", f"{inside[1]} {outside[1]} 1\n")
            except OSError as error:
                raise SetUpFailed(self._stage("uid_map"), error.errno or 0) from None
            return
        if os.read(gate, 1) != b"1":
            raise SetUpFailed(self._stage("uid_map"), errno.EPERM)
        os.setgroups([])
        _become(inside)

    def _stage(self, name: str) -> str:
        return namespace_stage(self.request, name)


def _become(ids: tuple[int, int]) -> None:
    linux.setresgid(ids[1])
    linux.setresuid(ids[0])


def write_file(path: str, text: str) -> None:
    """Write a file of /proc in one call, as its interface wants it."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
