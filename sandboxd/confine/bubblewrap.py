"""Tier `bubblewrap`: the system's `bwrap`, for hosts that let it and not us make namespaces.

Ubuntu's AppArmor profile and a setuid bwrap are such hosts. The view is the one of `namespaces`,
said in bwrap's options. It has two forms:

- *joined*: bwrap makes the namespaces and starts a shell as pid 1 that does nothing; our init
  enters them (`spawn.joining`) and goes on as in `namespaces`: Landlock beneath the view, supervised
  connect(), the relayed network, a pty inside, names covered again.
- *beneath*: bwrap starts the program itself, where its namespaces cannot be entered (a setuid bwrap
  owns them as root). It does not tell everything then: a program ended by signal n looks like exit
  code 128+n; which step of the set-up failed is only in its words on stderr; processes that outlive
  the program die at once with its pid 1, uncounted and without time to finish. The program is not
  itself the leader of its session (that pid 1 is), finds PWD in its environment, and its `argv[0]`
  is always its path. Landlock would forbid bwrap's own mounts. bwrap stands in the foreground of a
  terminal too, so Ctrl-C may end the whole run. A network that carries something is made by us in a
  user namespace above bwrap's, where nobody in the run has a capability; a setuid bwrap is an
  ordinary one in there. Hosts that let bwrap alone make namespaces cannot have it.

Facts the options rest on, each measured:

- bwrap as root keeps every capability unless told `--cap-drop ALL`: a run could remount `/`.
- bwrap runs before anything holds. The run's environment must not reach it (LD_PRELOAD would run
  the run's code outside), so it gets none; beneath it, it sets the run's with `--setenv`.
- A command line can be read by every user of the host, the environment of a run cannot: options
  go in by `--args`, from an unnamed file.
- It must be a file that only root can write, found at a fixed place: never by PATH.
- A mount point that does not exist is created by bwrap, in the workspace too. So what does not
  exist is not named; `look` is handed in so that the plan stays pure.

Source: bwrap(1), version 0.5 or newer (`--clearenv`, `--perms`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable

from sandboxd.confine import namespaces, own_network, seccomp, tier
from sandboxd.confine.siblings import Siblings
from sandboxd.errors import TierUnavailable
from sandboxd.model import (
    Invocation,
    LaunchPlan,
    Maker,
    MountStep,
    NetworkMode,
    NetworkSetup,
    Policy,
    Tier,
)

PLACES = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")
NOWHERE = "/nonexistent/bwrap"
"""In bwrap's place where there is none: running it fails, as it should."""
TMP = "/tmp"
PID_1 = (
    "/bin/sh",
    "-c",
    'trap "" HUP INT QUIT TERM; trap : CHLD; echo; until read line; do jobs >/dev/null; done',
)
"""Says that the view is complete, reaps what is left to it, and ends when it is sent a line. The end
of an orphan interrupts its reading; listing its jobs (it has none) is what makes a shell wait for
strangers without starting anything itself, which a limit on processes could refuse."""
ARGS_FD, SECCOMP_FD, STATUS_FD, RESOLV_FD, COPIES_FD = 3, 4, 5, 6, 7
"""The last is the first of as many as there are copies."""
READ_ONLY_PROC = (
    "sys",
    "sysrq-trigger",
    "irq",
    "bus",
    "fs",
    "acpi",
    "mtrr",
    "scsi",
    "latency_stats",
)
"""What uid 0 could write in a new /proc even without capabilities, and nobody else. bwrap covers the
first four only when the folder itself is writable, which /proc/sys never is: core_pattern stayed
open (measured)."""

Look = Callable[[str], tuple[str, bool] | None]
"""Where a path really lies and whether it is a folder; None when it is absent or out of reach."""


def look(path: str) -> tuple[str, bool] | None:
    """The real `Look`."""
    try:
        real = os.path.realpath(path, strict=True)
        return real, stat.S_ISDIR(os.stat(real).st_mode)
    except OSError:
        return None


def may_reach(path: str, ids: tuple[int, int]) -> bool:
    """False when the folders above surely stop this user: what they stop needs no cover, and bwrap,
    which acts as that user, could not put one there. In doubt true: then bwrap refuses."""
    parent = os.path.dirname(path)
    while parent != "/":
        found = os.stat(parent)
        others = found.st_mode & (
            stat.S_IXGRP | stat.S_IXOTH
        )  # an access list shows in the group's
        if not (found.st_mode & stat.S_IXUSR if found.st_uid == ids[0] else others):
            return False
        parent = os.path.dirname(parent)
    return True


def find(places: Iterable[str] = PLACES) -> str | None:
    """The first bwrap that only root could have put there; None when there is none."""
    root = _root_as_seen()
    for place in places:
        try:
            found = os.stat(place)
        except OSError:
            continue
        is_roots = found.st_uid == root and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if is_roots and stat.S_ISREG(found.st_mode) and found.st_mode & 0o111:
            return os.path.realpath(place)
    return None


def _root_as_seen() -> int:
    """Root's id in this user namespace: the overflow id where it is not mapped (user_namespaces(7))."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            if any(line.split()[0] == "0" for line in file):
                return 0
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            return int(file.read())
    except OSError:
        return 0


class Bubblewrap:
    """See the module. Without `joins` it is the form beneath bwrap. Without `has_own_proc` it is for
    hosts that mask their /proc: the kernel lets nobody mount a new one there."""

    name = "bubblewrap"
    is_kernel = True
    shows_copies = True
    networks = tuple(NetworkMode)
    remedy = (
        "install bubblewrap 0.5 or newer from the distribution (`apt install bubblewrap`) on a host "
        "that lets it make namespaces; in a container only its owner can allow that"
    )

    def __init__(
        self,
        path: str,
        uid: int,
        gid: int,
        *,
        joins: bool = True,
        has_own_proc: bool = True,
        landlock_abi: int = 0,
        siblings: Siblings | None = None,
        has_ipv6: bool = False,
        resolver: Callable[[], str] = own_network.plain_resolver,
        looking: Look = look,
    ) -> None:
        self.path = path
        self.ids = (uid, gid)
        self.joins = joins
        self.has_own_proc = has_own_proc
        self.landlock_abi = landlock_abi if joins else 0
        self.siblings = siblings or Siblings()
        self.has_ipv6 = has_ipv6
        self.resolver = resolver
        self.look = looking

    def temp_path(self, policy: Policy) -> str:
        return TMP

    def plan(
        self, invocation: Invocation, policy: Policy, why_not_stronger: tuple[str, ...] = ()
    ) -> LaunchPlan:
        """Raises TierUnavailable when bwrap itself lies where the run may write."""
        if any(_is_below(self.path, root) for root in policy.writable):
            raise TierUnavailable(
                f"{self.path} lies in a folder the run may write: it could be replaced by a run",
                hint="choose another --workspace, or another tier",
                path=self.path,
            )
        make = self._joined if self.joins else self._beneath
        told = tier.describe(self, self._enforces(policy), self._gaps(policy), why_not_stronger)
        return make(invocation, policy, told)

    def _joined(self, invocation: Invocation, policy: Policy, told: Tier) -> LaunchPlan:
        network = own_network.network_setup(policy, has_ipv6=self.has_ipv6)
        roots = [path for path in policy.writable if path != policy.private_tmp]
        supervises = policy.unix_sockets == "workspace"
        return LaunchPlan(
            tier=told,
            argv=invocation.argv,
            program=invocation.program,
            environment=invocation.environment,
            cwd=invocation.cwd,
            umask=invocation.umask,
            rlimits=tier.rlimits(policy.limits),
            outside_ids=self._foreign(policy),
            mounts=covers(policy),
            maker=Maker(
                program=self.path,
                argv=("bwrap", "--args", str(ARGS_FD), "--", *PID_1),
                passed=self._passed(self.options(policy), policy),
                status_fd=STATUS_FD,
                roots=((TMP, policy.private_tmp), *((path, path) for path in roots)),
                has_proc=self.has_own_proc,
            ),
            network=network,
            landlock=namespaces.landlock_rules(policy, self.siblings)
            if self.landlock_abi
            else None,
            seccomp=tier.filter_program(True, True, supervises),
            connect_secret=seccomp.CONNECT_SECRET,
            connect_roots=(*roots, TMP) if supervises else None,
        )

    def _beneath(self, invocation: Invocation, policy: Policy, told: Tier) -> LaunchPlan:
        command = (invocation.program, *invocation.argv[1:])
        network = self._network_above(policy)
        ids = policy.owner or self.ids
        return LaunchPlan(
            tier=told,
            argv=("bwrap", "--args", str(ARGS_FD), "--", *command),
            program=self.path,
            environment={},
            cwd=invocation.cwd,
            umask=invocation.umask,
            rlimits=tier.rlimits(policy.limits),
            namespaces=("user", "net") if network is not None else (),
            network=network,
            inside_ids=ids if network is not None else None,
            outside_ids=ids if network is not None else self._foreign(policy),
            drop_privileges=False,  # a setuid bwrap needs them; it gives them up itself
            passed=self._passed(self.options(policy, invocation), policy),
            status_fd=STATUS_FD,
        )

    def _passed(self, options: list[str], policy: Policy) -> dict[int, bytes]:
        """What bwrap reads by descriptor, and where it tells its status."""
        passed = {ARGS_FD: b"".join(os.fsencode(word) + b"\0" for word in options), STATUS_FD: b""}
        program = tier.filter_program(True, True, False)
        if program is not None:
            passed[SECCOMP_FD] = program
        if self._resolver(policy) is not None:
            passed[RESOLV_FD] = self.resolver().encode()
        for number, copy in enumerate(policy.shown):
            passed[COPIES_FD + number] = copy.text.encode()
        return passed

    def _foreign(self, policy: Policy) -> tuple[int, int] | None:
        """Whom bwrap is started as, when it is not ourselves."""
        return policy.owner if policy.owner != self.ids else None

    def _network_above(self, policy: Policy) -> NetworkSetup | None:
        """What we make beneath which bwrap runs; None where it is the host's, or none at all, which
        is bwrap's to make."""
        if policy.network is NetworkMode.OFF and not policy.egress.publish:
            return None
        return own_network.network_setup(policy, has_ipv6=self.has_ipv6, hears_refusals=False)

    def _resolver(self, policy: Policy) -> str | None:
        """The file to cover by ours, links followed; None where there is none or nobody would answer."""
        found = self.look(own_network.RESOLV_CONF_PATH)
        return found[0] if found is not None and policy.network in tier.RELAYED else None

    def options(self, policy: Policy, beneath: Invocation | None = None) -> list[str]:
        """Everything bwrap is told, in the order it does it. Later mounts lie on earlier ones, so:
        the whole, read-only; /proc and /dev; what is hidden; the private /tmp; the roots beneath
        it or anywhere; and only then what is taken out of the roots again. `beneath` is what bwrap
        itself is to start."""
        words = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        if policy.network is not NetworkMode.HOST and (
            beneath is None or self._network_above(policy) is None
        ):
            words.append("--unshare-net")
        words.append("--die-with-parent")
        if beneath is None:
            words.append("--as-pid-1")
        elif not beneath.has_terminal:  # on a pty of its own there is nobody else's to inject into
            words.append("--new-session")
        words += ["--cap-drop", "ALL"]
        words += ["--json-status-fd", str(STATUS_FD)]
        if tier.filter_program(True, True, False) is not None:
            words += ["--seccomp", str(SECCOMP_FD)]
        words += ["--ro-bind", "/", "/"]
        words += self._proc((policy.owner or self.ids)[0])
        words += ["--dev", "/dev", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        if (resolver := self._resolver(policy)) is not None:
            words += ["--perms", "0444", "--ro-bind-data", str(RESOLV_FD), resolver]
        words += self._hidden(policy, lambda path: not _is_below(path, TMP))
        roots = [path for path in policy.writable if path != policy.private_tmp]
        shown = [path for path in policy.visible if path not in roots]
        inside = [TMP, *roots, *shown]
        words += _copies(policy, lambda path: not _is_below_any(path, inside))
        words += ["--bind", policy.private_tmp, TMP]
        words += _roots(roots, shown)
        words += self._kept(policy)
        words += self._hidden(policy, lambda path: _is_below_any(path, [*roots, *shown]))
        words += _copies(policy, lambda path: _is_below_any(path, [*roots, *shown]))
        return words if beneath is None else [*words, *_started(beneath)]

    def _proc(self, uid: int) -> list[str]:
        if not self.has_own_proc:
            return []  # the host's, read-only with all of `/`
        words = ["--proc", "/proc"]
        for name in READ_ONLY_PROC if uid == 0 else ():
            words += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
        return words

    def _hidden(self, policy: Policy, is_wanted: Callable[[str], bool]) -> list[str]:
        """A folder becomes an empty one that not even its owner may list, a file a device that
        does not open (binds carry `nodev`)."""
        words = []
        foreign = self._foreign(policy)
        absent = (each.path for each in policy.redacted)
        for path in filter(is_wanted, (*policy.denied, *absent)):
            found = self.look(path)
            if found is None or (foreign and not may_reach(found[0], foreign)):
                continue
            real, is_folder = found
            if is_folder:
                words += ["--perms", "0000", "--tmpfs", real, "--remount-ro", real]
            else:
                words += ["--ro-bind", "/dev/null", real]
        return words

    def _kept(self, policy: Policy) -> list[str]:
        """Protected names read-only; the git folders around them bound on themselves first, since
        a mount point can be neither renamed nor removed. Links are skipped: they have no content."""
        pins = [path for path in policy.pinned if self._is_plain(path)]
        keep = [path for path in policy.protected if self._is_plain(path)]
        words = []
        for how, paths in (("--bind", pins), ("--ro-bind", keep)):
            for path in paths:
                words += [how, path, path]
        return words

    def _is_plain(self, path: str) -> bool:
        """Whether it exists and no link leads there."""
        found = self.look(path)
        return found is not None and found[0] == path

    def _enforces(self, policy: Policy) -> tuple[str, ...]:
        roots = [path for path in policy.writable if path != policy.private_tmp]
        held = [
            "writes only to " + ", ".join([*roots, TMP + " (private)"]),
            "denied files look empty; protected names in the workspace are read-only",
            "own process ids, /dev, /dev/shm, ipc; no process of the host can be signalled",
            "no capabilities, no setuid, no nested namespaces, mounts, keyrings, io_uring or bpf",
            tier.socket_words(policy) if self.joins else "no Unix sockets except socketpair",
            *tier.network_words(policy),
        ]
        if self.landlock_abi:
            held.append(f"Landlock (ABI {self.landlock_abi}) beneath the mounts")
        return tuple(held)

    def _gaps(self, policy: Policy) -> tuple[str, ...]:
        gaps = [
            *tier.host_gaps(policy),
            tier.ABSENT_NAMES_GAP,
            "nested repositories other than submodules and linked worktrees are not covered",
            *(JOINED_GAPS if self.joins else BENEATH_GAPS),
        ]
        if self.joins and not self.landlock_abi:
            gaps.append("no Landlock in this kernel: the mount view stands alone")
        if not self.has_own_proc:
            gaps.append(
                "/proc is the host's (masked here, so no new one can be made): names and command "
                "lines of the host's processes can be seen"
            )
        return tuple(gaps)


JOINED_GAPS = (namespaces.REPLACED_GAP,)
BENEATH_GAPS = (
    "a protected or denied file that the host replaces during a run is no longer covered",
    "no Landlock beneath the mounts: the view stands alone",
    "roots are bound by name: a folder swapped for a link at launch would be followed",
    "processes that outlive the program are killed at once and not counted",
    "Ctrl-C at a terminal may end the whole run",
)


def covers(policy: Policy) -> tuple[MountStep, ...]:
    """What lies over names and is to be put there again when the host replaces them."""
    return tuple(
        step
        for step in namespaces.mount_steps(policy)
        if step.kind in ("pin", "readonly", "blank", "copy")
    )


def _started(invocation: Invocation) -> list[str]:
    """How the program starts that bwrap itself executes."""
    words = ["--clearenv"]
    for name, value in invocation.environment.items():
        words += ["--setenv", name, value]
    return [*words, "--chdir", invocation.cwd]


def _copies(policy: Policy, is_wanted: Callable[[str], bool]) -> list[str]:
    """Files covered by what comes through a descriptor; `look` has shown that they exist."""
    words = []
    for number, copy in enumerate(policy.shown):
        if is_wanted(copy.path):
            words += ["--perms", "0444", "--ro-bind-data", str(COPIES_FD + number), copy.path]
    return words


def _roots(roots: list[str], shown: list[str]) -> list[str]:
    """Outer folders first: a later mount on a parent would hide an earlier one on its child."""
    placed = [(path, "--bind") for path in roots]
    placed += [(path, "--ro-bind-try") for path in shown if not _is_below_any(path, roots)]
    words = []
    for path, how in sorted(placed):
        words += [how, path, path]
    return words


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _is_below_any(path: str, folders: Iterable[str]) -> bool:
    return any(_is_below(path, folder) for folder in folders)
