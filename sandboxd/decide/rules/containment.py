"""Rules about where a call reaches: PathContainment, ManifestContainment, WriteScope.

Containment judges what is changed and what is only read; WriteScope judges what is changed. All of them
take the canonical path from the world, never from the text of the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from sandboxd.decide.rules.rule import Case, Rule
from sandboxd.policy import is_inside
from sandboxd.proposals import Grounds, Parameter, PathFact, Risk, Violation

HARMLESS = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd")
"""What commands may write anywhere: nothing is kept there."""


class PathContainment(Rule, frozen=True, kw_only=True):
    """What a call reads and changes lies in the folders of the session, and in nothing denied.

    A command's sandbox holds its writes wherever they point, so what it names outside is asked about;
    a tool that runs elsewhere has nothing behind it and is refused.
    """

    risk: Risk = "high"
    command_risk: Risk = "medium"
    guess_risk: Risk = "medium"
    denied_risk: Risk = "critical"

    def violations(self, case: Case) -> Iterator[Violation]:
        for parameter in case.call.with_role("path"):
            yield from self._judge(case, parameter, case.grounds.writable, "changes")
        for parameter in case.call.with_role("source_path"):
            yield from self._judge(case, parameter, case.grounds.readable, "reads")

    def _judge(
        self, case: Case, parameter: Parameter, roots: tuple[str, ...], verb: str
    ) -> Iterator[Violation]:
        if parameter.origin == "command":
            yield from self._judge_of_command(case, parameter, verb)
            return
        fact = case.world.path(parameter.value)
        why = trouble(fact, case.grounds, roots)
        if why is None:
            return
        is_denied = fact.canonical is not None and is_denied_path(fact.canonical, case.grounds)
        yield self.violation(
            self.denied_risk if is_denied else self._risk(parameter),
            f"it {verb} {fact.shown or parameter.value}, {why}",
            "name a file inside the workspace, or ask the person for what lies elsewhere",
            parameter,
        )

    def _risk(self, parameter: Parameter) -> Risk:
        return self.guess_risk if parameter.origin == "guessed" else self.risk

    def _judge_of_command(self, case: Case, parameter: Parameter, verb: str) -> Iterator[Violation]:
        """Reading is wide for commands: only what is denied counts, and only where no kernel hides it."""
        if verb == "reads" and (case.has_kernel or not case.grounds.denied):
            return
        if parameter.value in HARMLESS or parameter.value.startswith("/dev/fd/"):
            return
        fact = case.world.path(parameter.value)
        if fact.canonical is None:
            return
        is_denied = is_denied_path(fact.canonical, case.grounds)
        if is_denied or (
            verb == "changes" and trouble(fact, case.grounds, case.grounds.writable) is not None
        ):
            why = "which is denied by the profile" if is_denied else "outside what may be written"
            yield self.violation(
                self.command_risk,
                f"the command {verb} {fact.shown or parameter.value}, {why}",
                "work in the workspace, or have a person approve it",
                parameter,
            )


class ManifestContainment(Rule, frozen=True, kw_only=True):
    """Every path of a call that names several (a patch, a list of files) lies inside: one outside
    refuses the whole, because such a call is meant to happen as a whole."""

    risk: Risk = "high"
    most_files: int = 1000

    def violations(self, case: Case) -> Iterator[Violation]:
        named = case.call.with_role("manifest")
        if len(named) > self.most_files:
            yield self.violation(
                self.risk,
                f"it names {len(named)} files; up to {self.most_files} are judged",
                "split it into smaller calls",
            )
            return
        for parameter in named:
            fact = case.world.path(parameter.value)
            why = trouble(fact, case.grounds, case.grounds.writable)
            if why is not None:
                yield self.violation(
                    self.risk,
                    f"one of its files is {fact.shown or parameter.value}, {why}",
                    "leave that file out; nothing of the call was done",
                    parameter,
                )


class WriteScope(Rule, frozen=True, kw_only=True):
    """What is changed lies in the part of the workspace that the task is about, and a protected name
    (it runs later, outside) is asked about each time."""

    only: tuple[str, ...] = ()
    """Shell patterns below the workspace; with none, all of it."""
    never: tuple[str, ...] = ()
    risk: Risk = "high"
    protected_risk: Risk = "medium"

    def violations(self, case: Case) -> Iterator[Violation]:
        if case.call.is_opaque and (self.only or self.never):
            yield self.violation(
                self.risk,
                "the command cannot be read, so what it changes is not known",
                "write it plainly, or change files with the file tools",
            )
        for parameter in case.call.with_role("path", "manifest"):
            is_command = parameter.origin == "command"
            if is_command and not self.only and not self.never:
                continue  # protected names of commands: the sandbox and their verdict see to those
            fact = case.world.path(parameter.value)
            if fact.canonical is None or parameter.value in HARMLESS:
                continue
            if not is_command and fact.protected is not None:
                yield self.violation(
                    self.protected_risk,
                    f"{fact.shown} is protected ({fact.protected}): it runs later, outside",
                    "have a person approve exactly this change",
                    parameter,
                    may_remember=False,
                )
            why = self._out_of_scope(fact.canonical, case.grounds.workspace)
            if why is not None:
                yield self.violation(
                    self.risk,
                    f"{fact.shown or fact.canonical} is {why}",
                    "change only what this task is about: " + ", ".join(self.only or ("nothing",)),
                    parameter,
                )

    def _out_of_scope(self, path: str, workspace: str) -> str | None:
        if not is_inside(path, (workspace,)):
            return None  # the other rules' matter
        below = path[len(workspace.rstrip("/")) + 1 :]
        if any(_matches(below, pattern) for pattern in self.never):
            return "one of the files that are not to be changed"
        if self.only and not any(_matches(below, pattern) for pattern in self.only):
            return "outside the part that may be changed"
        return None


def trouble(fact: PathFact, grounds: Grounds, roots: tuple[str, ...]) -> str | None:
    """Why a path is not inside, in words; None when it is."""
    if fact.canonical is None:
        return f"which cannot be judged: {fact.error}"
    if is_denied_path(fact.canonical, grounds):
        return "which is denied by the profile"
    if is_inside(fact.canonical, (*roots, grounds.private_tmp)):
        return None
    return "which lies outside the folders of this session"


def is_denied_path(path: str, grounds: Grounds) -> bool:
    """Compared as the laxest file system would, because a deny must not be dodged by case."""
    if grounds.private_tmp and is_inside(path, (grounds.private_tmp,)):
        return False
    lowered = path.lower()
    return any(is_inside(lowered, (name.lower(),)) for name in grounds.denied)


def _matches(below: str, pattern: str) -> bool:
    """`src/**` and `src/` are everything below src; else one path, `*` crossing no slash."""
    if pattern.endswith(("/**", "/")):
        return is_inside(below, (pattern.rstrip("*").rstrip("/"),))
    parts, wanted = below.split("/"), pattern.split("/")
    if len(wanted) == 1:
        return fnmatchcase(parts[-1], pattern)
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
