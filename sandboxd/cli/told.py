"""What `exec` says to a person on stderr, and which exit code a refusal has.

A module of its own because the fast path needs it and it must stay free of imports. Everything
that comes from a command, a path or the network is made visible before it reaches a terminal:
an escape sequence in a file name must not rewrite the sentence it stands in.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd.cli.jsonline import Object


def visible(text: str) -> str:
    """`text` on one line, with control, bidirectional and broken characters spelled out."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else _spelled(character) for character in text
    )


def visible_lines(text: str) -> str:
    """Like `visible`, keeping line breaks."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _spelled(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def tell(sentence: str) -> None:
    """One line on stderr; nobody to tell it to is not an error."""
    line = f"sandboxd: {visible(sentence)}\n".encode("utf-8", "replace")
    try:
        os.write(2, line)
    except OSError:
        return


def tell_refusal(refusal: Object) -> int:
    """Message and hint on stderr; returns the exit code of the refusal's class."""
    from sandboxd.errors import Refusal, for_model

    raised = Refusal.from_wire(refusal)
    for line in for_model(raised).split("\n"):
        tell(line)
    return raised.exit_code


def tell_about(result: Object, timeout_s: float | None) -> None:
    """What needs saying after a run: a weaker tier, a limit, survivors, a denial."""
    _tell_tier(result.get("tier"))
    if result.get("timed_out"):
        after = f"{timeout_s:g} s" if timeout_s is not None else "its time limit"
        tell(f"stopped after {after}")
    elif result.get("limit"):
        tell(f"limit reached: {result['limit']}")
    survivors = result.get("survivors")
    if survivors:
        were = (
            "process outlived the command and was"
            if survivors == 1
            else "processes outlived the command and were"
        )
        tell(f"{survivors} {were} killed")
    set_aside = result.get("set_aside")
    if isinstance(set_aside, list) and set_aside:
        tell("set aside, because it would run later outside: " + ", ".join(map(str, set_aside)))
    refreshed = result.get("refreshed")
    if isinstance(refreshed, list) and refreshed:
        tell("changed files that were read before: " + ", ".join(map(str, refreshed)))
    notices = result.get("notices")
    for notice in notices if isinstance(notices, list) else ():
        tell(str(notice))
    _tell_denial(result.get("denial"))


LESSER_NETWORK = "network: tier "
"""How a gap begins that says which network was taken in the place of the profile's."""


def _tell_tier(tier: object) -> None:
    if not isinstance(tier, dict):
        return
    for gap in tier.get("gaps") or ():
        if str(gap).startswith(LESSER_NETWORK):
            tell(str(gap))
    if not tier.get("why_not_stronger"):
        return
    boundary = "" if tier.get("kernel") else " (no kernel boundary)"
    reasons = "; ".join(str(reason) for reason in tier["why_not_stronger"])
    tell(f"ran in the tier {tier.get('name')}{boundary}: {reasons}")


def _tell_denial(denial: object) -> None:
    if not isinstance(denial, dict):
        return
    what = denial.get("path") or denial.get("host") or denial.get("rule")
    if denial.get("evidence") == "proxy" and denial.get("rule"):
        what = f"{what} ({denial['rule']})"
    perhaps = "perhaps " if denial.get("evidence") == "text" else ""
    tell(f"{perhaps}the sandbox refused {what}")
    if denial.get("hint"):
        tell(f"hint: {denial['hint']}")
    escalation = denial.get("escalation")
    if isinstance(escalation, dict):
        tell(
            "a person may let the same command run without a sandbox: --escalate "
            f"{escalation.get('token')}"
        )
