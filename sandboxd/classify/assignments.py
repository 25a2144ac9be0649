"""What a variable assignment does, before a command or by itself.

Before a command the variable reaches a program, so only names that are known to change nothing
but an answer's looks are read-only. By itself it stays in the shell; only names that change what
later commands mean are dangerous there. A subscript is arithmetic, and bash runs `$(..)` in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandboxd.classify.findings import NOTHING, Finding, mutating
from sandboxd.classify.tables import Variables
from sandboxd.model import Assignment

_RULE = "assignment"


def grade_prefix(
    assignments: Sequence[Assignment], command_name: str, variables: Variables
) -> Finding:
    """`NAME=value COMMAND ...`: what the command's environment is given."""
    for assignment in assignments:
        if assignment.has_subscript:
            return mutating(f"the subscript of {assignment.name} is evaluated", _RULE)
        if assignment.name == "IFS" and command_name == "read":
            continue
        if not variables.is_harmless(assignment.name) and not _has_known_value(
            assignment, variables
        ):
            return _dangerous(assignment.name)
    return NOTHING


def grade_standing(assignments: Sequence[Assignment], variables: Variables) -> Finding:
    """Assignments without a command: they stay in this shell."""
    for assignment in assignments:
        if assignment.has_subscript:
            return mutating(f"the subscript of {assignment.name} is evaluated", _RULE)
        if variables.is_dangerous(assignment.name) and not _has_known_value(assignment, variables):
            return _dangerous(assignment.name)
    return Finding(rule=_RULE, reason="sets variables of this shell only", changes_meaning=True)


def _has_known_value(assignment: Assignment, variables: Variables) -> bool:
    value = assignment.value
    if value is None or not value.is_literal or assignment.is_append:
        return False
    return variables.is_harmless_value(assignment.name, value.text)


def _dangerous(name: str) -> Finding:
    return mutating(f"the variable {name} may change what a program does", _RULE)
