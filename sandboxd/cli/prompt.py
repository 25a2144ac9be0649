"""Asking the person at this terminal, before anything runs.

A module of its own because it is a boundary: what was typed ahead is thrown away, so neither a
run nor a paste can have answered already, and everything the command could influence is made
visible, so an escape sequence cannot draw another question.
"""

from __future__ import annotations

import os
import select
import termios

from sandboxd.cli.jsonline import field
from sandboxd.cli.told import visible, visible_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd.cli.interrupts import Interrupts
    from sandboxd.cli.jsonline import Object, Value

ANSWERS = {"y": "once", "s": "session", "n": "deny"}
_HEADLINES = {
    "read_only": "This command reads.",
    "mutating": "This command changes things.",
    "destructive": "This command DESTROYS things.",
}


def ask_person(ask: Object, interrupts: Interrupts) -> str | None:
    """`once`, `session` or `deny`; None when a signal came instead of an answer."""
    verdict = field(ask, "verdict")
    may_remember = bool(verdict.get("cacheable"))
    _write("\n".join(_question(ask, verdict)) + "\n")
    choices = "y = once, s = for this session, n = no" if may_remember else "y = once, n = no"
    allowed = "ysn" if may_remember else "yn"
    answer = _one_key(f"Allow it? [{choices}] ", allowed, interrupts)
    _write(f"{answer or ''}\n")
    return ANSWERS[answer] if answer else None


def _question(ask: Object, verdict: Object) -> list[str]:
    if verdict.get("parsed"):
        headline = _HEADLINES.get(str(verdict.get("class")), "This command must be approved.")
    else:
        headline = "This command cannot be read with certainty."
    lines = ["", f"sandboxd: {headline}", ""]
    lines += ["    " + line for line in visible_lines(str(ask.get("command"))).split("\n")]
    lines.append("")
    lines += [f"  why:    {visible(reason)}" for reason in _reasons(verdict.get("reasons"))]
    for title, name in (("writes", "writes"), ("hosts", "hosts"), ("makes", "creates")):
        named = ask.get(name)
        if isinstance(named, list) and named:
            lines.append(f"  {title + ':':7} " + visible(", ".join(map(str, named))))
    if ask.get("loses"):
        lines.append(f"  loses:  {visible(str(ask['loses']))}")
    tier = field(ask, "tier")
    boundary = "" if tier.get("kernel") else " (no kernel boundary)"
    lines += [f"  tier:   {visible(str(tier.get('name')))}{boundary}", ""]
    return lines


def _reasons(reasons: Value) -> list[str]:
    if not isinstance(reasons, list):
        return []
    return [str(reason.get("message")) for reason in reasons if isinstance(reason, dict)]


def _one_key(prompt: str, allowed: str, interrupts: Interrupts) -> str | None:
    """One of the `allowed` keys, read without echo; what was typed before the prompt is dropped."""
    before = termios.tcgetattr(0)
    raw = termios.tcgetattr(0)
    raw[3] &= ~(termios.ICANON | termios.ECHO)
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(interrupts.fileno(), select.POLLIN)
    try:
        termios.tcsetattr(0, termios.TCSAFLUSH, raw)
        _write(prompt)
        while True:
            ready = [number for number, _ in poller.poll()]
            if interrupts.fileno() in ready:
                return None
            key = os.read(0, 1).decode("ascii", "replace").lower()
            if not key:
                return "n"
            if key in allowed:
                return key
    finally:
        termios.tcsetattr(0, termios.TCSAFLUSH, before)


def _write(text: str) -> None:
    os.write(2, text.encode("utf-8", "replace"))
