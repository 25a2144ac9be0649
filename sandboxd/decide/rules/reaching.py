"""Rules about what a call reaches or runs: NetworkHost, ExecInterpreter; and RepeatLimit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from sandboxd.decide.rules.rule import Case, Rule
from sandboxd.model import NetworkMode
from sandboxd.proposals import Parameter, Risk, Violation

_VERSION = re.compile(r"[-.]?\d[\d.]*$")


class NetworkHost(Rule, frozen=True, kw_only=True):
    """Nothing reaches a host that the network rules deny; a person's earlier yes stands for a name on
    the allowlist, and for nothing else.

    A command's network holds by itself; a tool that runs elsewhere has nothing behind it.
    """

    risk: Risk = "high"
    command_risk: Risk = "medium"

    def violations(self, case: Case) -> Iterator[Violation]:
        for parameter in case.call.with_role("host"):
            host, grounds = parameter.value, case.grounds
            is_command = parameter.origin == "command"
            if grounds.network is NetworkMode.OFF:
                if is_command:
                    continue  # its own network has nobody in it
                yield self._denied(parameter, "the network is off")
                continue
            denial = case.judge_host(host, grounds, is_command)
            if denial is None:
                continue  # a host that nobody has named is asked about once, rule or not
            if denial.rule != "network.allow" or not case.world.grant(host).is_granted:
                yield self._denied(parameter, denial.rule)

    def _denied(self, parameter: Parameter, why: str) -> Violation:
        is_command = parameter.origin == "command"
        subject = "the command" if is_command else "it"
        return self.violation(
            self.command_risk if is_command else self.risk,
            f"{subject} reaches {parameter.value}, which is not allowed ({why})",
            "use another host, or have the profile's network.allow name it",
            parameter,
        )


class ExecInterpreter(Rule, frozen=True, kw_only=True):
    """Interpreters that a profile does not want: by name, by path, inside `bash -c` and wrappers, as
    `env python`, and by the first line of a script that is run."""

    deny: tuple[str, ...] = ()
    """Names without version: `python` is python3 and python3.11 too."""
    risk: Risk = "high"

    def violations(self, case: Case) -> Iterator[Violation]:
        if not self.deny:
            return
        if case.call.is_opaque:
            yield self.violation(
                self.risk,
                "the command cannot be read, so what it runs is not known",
                "write it plainly; the profile does not allow every interpreter",
            )
        for parameter in case.call.with_role("program"):
            found = self._denied_name(parameter.value)
            via = ""
            if found is None and "/" in parameter.value:
                found, via = self._of_script(case, parameter.value), " by its first line"
            if found is not None:
                yield self.violation(
                    self.risk,
                    f"it runs {parameter.value}, which is the interpreter {found}{via}",
                    "do it without that interpreter; the profile does not allow it",
                    parameter,
                )

    def _denied_name(self, program: str) -> str | None:
        name = interpreter_name(program)
        return name if name in self.deny or os.path.basename(program) in self.deny else None

    def _of_script(self, case: Case, program: str) -> str | None:
        fact = case.world.path(program)
        if fact.canonical is None or not fact.exists:
            return None
        by_link = self._denied_name(fact.canonical)  # a link to the interpreter, under another name
        if by_link is not None:
            return by_link
        named = case.world.script(fact.canonical).interpreters
        return next((found for name in named if (found := self._denied_name(name))), None)


def interpreter_name(program: str) -> str:
    """`/usr/bin/python3.11` -> `python`."""
    return _VERSION.sub("", os.path.basename(program)) or program


class RepeatLimit(Rule, frozen=True, kw_only=True):
    """The same call, refused again and again, is told so and stopped before anybody is asked again."""

    limit: int = 3
    """Refusals in a row after which it is stopped."""
    within_s: float = 600.0
    risk: Risk = "critical"

    def violations(self, case: Case) -> Iterator[Violation]:
        if not case.call.key:
            return
        found = case.world.refusals(case.call.key)
        if found.count >= self.limit and found.age_s <= self.within_s:
            yield self.violation(
                self.risk,
                f"this same call has been refused {found.count} times in a row",
                "do not send it again: do something else, or ask the person what they want",
            )
