"""Asking the person at this terminal: the question as it is drawn, and the one key that answers it.

A module of its own because it is a boundary: what was typed ahead is thrown away, so neither a
run nor a paste can have answered already, and everything the command could influence is made
visible, so an escape sequence cannot draw another question. Nothing that runs writes to this
terminal while a question stands: it is asked before the run starts, when it is over, or in a terminal
where nothing else is shown (`sandboxd approve`).
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

ANSWERS = {"y": "once", "s": "session", "n": "deny", "r": "deny", "x": "stop"}
_CHOICES = {
    "y": "y once",
    "s": "s session",
    "n": "n no",
    "r": "r no, and why",
    "x": "x stop",
}
_HEADLINES = {
    "read_only": "This command reads.",
    "mutating": "This command changes things.",
    "destructive": "This command DESTROYS things.",
}
_SHOWN_LINES = 40
_LONGEST_REASON = 2000
_LINE_START = b"\r\x1b[0m\x1b[K"


class Question:
    """One question on fds 0 and 2; drawn once, waited for as often as something interrupts."""

    def __init__(self, ask: Object) -> None:
        self._ask = ask
        verdict = field(ask, "verdict")
        may_remember = ask.get("may_remember", verdict.get("cacheable"))
        self._keys = "ysnrx" if may_remember else "ynrx"

    def draw(self) -> None:
        """Everything but the last line, which `wait` draws."""
        os.write(2, _LINE_START)
        _write("\n".join(question(self._ask, is_coloured=_is_coloured())) + "\n")

    def wait(self, interrupts: Interrupts, other: int | None = None) -> Object | None:
        """The reply; None when a signal came, or the descriptor `other` has something to read. Raises
        EOFError when the terminal has gone."""
        prompt = f"Allow it? [{', '.join(_CHOICES[key] for key in self._keys)}] "
        key = _one_key(prompt, self._keys, interrupts, other)
        if key is None:
            return None
        _write(f"{key}\n")
        reply: Object = {"answer": ANSWERS[key]}
        if key == "r":
            reply["reason"] = _one_line("Why not? ")
        return reply


def question(ask: Object, *, is_coloured: bool = False) -> list[str]:
    """The lines that show what is asked."""
    verdict = field(ask, "verdict")
    if verdict.get("parsed"):
        headline = _HEADLINES.get(str(verdict.get("class")), "This command must be approved.")
    else:
        headline = "This command cannot be read with certainty."
    escalation = field(ask, "escalation")
    if escalation:
        headline = "Run this again WITHOUT A SANDBOX?"
    lines = ["", f"sandboxd: {headline}", ""]
    lines += _command(ask, is_coloured=is_coloured)
    lines += ["", *_stopped(escalation)]
    lines += [f"  why:    {reason}" for reason in _reasons(ask, verdict)]
    for title, name in (("in", "cwd"), ("loses", "loses")):
        if ask.get(name):
            lines.append(f"  {title + ':':7} {visible(str(ask[name]))}")
    for title, name in (("writes", "writes"), ("hosts", "hosts"), ("makes", "creates")):
        named = ask.get(name)
        if isinstance(named, list) and named:
            lines.append(f"  {title + ':':7} " + visible(", ".join(map(str, named))))
    tier = field(ask, "tier")
    boundary = "" if tier.get("kernel") else " (no kernel boundary)"
    lines.append(f"  tier:   {visible(str(tier.get('name')))}{boundary}")
    gaps = tier.get("gaps")
    lines += [f"  open:   {visible(str(gap))}" for gap in (gaps if isinstance(gaps, list) else ())]
    diff = ask.get("diff")
    if isinstance(diff, str) and diff:
        lines += ["", *_shortened(visible_lines(diff))]
    return [*lines, ""]


_GRADES = {
    "kernel": "the kernel refused it",
    "proxy": "the relay refused it",
    "policy": "its own output names this, and a probe agrees",
}


def _stopped(escalation: Object) -> list[str]:
    """Why it was stopped, and what it has done already."""
    if not escalation:
        return []
    denial = field(escalation, "denial")
    what = denial.get("path") or denial.get("host") or ""
    grade = _GRADES.get(str(denial.get("evidence")), "by its own words")
    lines = [
        f"  denied: {visible(str(denial.get('rule')))} {visible(str(what))} ({grade})",
        f"  so far: in tier {visible(str(escalation.get('tier')))} {visible(str(escalation.get('ran')))}",
        "  again:  it starts from the beginning; what it did already may happen twice",
    ]
    if denial.get("hint"):
        lines.insert(1, f"          {visible(str(denial['hint']))}")
    return lines


def _command(ask: Object, *, is_coloured: bool) -> list[str]:
    """The command, its deciding parts in bold where there is colour."""
    text = str(ask.get("command"))
    marks = _spans(ask.get("marks")) if is_coloured else []
    return _shortened(_marked(text, marks))


def _marked(text: str, spans: list[tuple[int, int]]) -> str:
    """Visible text with the spans in bold; a line break ends and begins it again."""
    shown, position = "", 0
    for start, end in spans:
        start = max(start, position)
        if end <= start:
            continue
        bold = visible_lines(text[start:end]).replace("\n", "\x1b[0m\n\x1b[1m")
        shown += f"{visible_lines(text[position:start])}\x1b[1m{bold}\x1b[0m"
        position = end
    return shown + visible_lines(text[position:])


def _shortened(text: str) -> list[str]:
    """At most `_SHOWN_LINES`, with the number of those left out from the middle."""
    lines = text.split("\n")
    if len(lines) > _SHOWN_LINES:
        half = _SHOWN_LINES // 2
        left_out = f"[{len(lines) - 2 * half} lines not shown]"
        lines = [*lines[:half], left_out, *lines[-half:]]
    return ["    " + line for line in lines]


def _spans(value: Value | None) -> list[tuple[int, int]]:
    found = []
    for item in value if isinstance(value, list) else ():
        if isinstance(item, list | tuple) and len(item) == 2:
            start, end = item
            if isinstance(start, int) and isinstance(end, int):
                found.append((start, end))
    return sorted(found)


def _reasons(ask: Object, verdict: Object) -> list[str]:
    """Why: each reason of the verdict with the part that it speaks of, else why we ask at all."""
    command = str(ask.get("command"))
    told = []
    reasons = verdict.get("reasons")
    for reason in reasons if isinstance(reasons, list) else ():
        if not isinstance(reason, dict):
            continue
        sentence = visible(str(reason.get("message")))
        for start, end in _spans([reason.get("span")]):
            part = command[start:end].strip()
            if part and part != command.strip():
                sentence += f": {visible(part if len(part) < 60 else part[:57] + '...')}"
        told.append(sentence)
    asked = ask.get("reasons")
    hosts = ask.get("hosts")
    if isinstance(asked, list) and (not told or hosts):
        told += [visible(str(one)) for one in asked if not told or " reaches " in str(one)]
    return list(dict.fromkeys(told))


def _one_key(prompt: str, allowed: str, interrupts: Interrupts, other: int | None) -> str | None:
    """One of the `allowed` keys, read without echo; what was typed before the prompt is dropped."""
    before = termios.tcgetattr(0)
    raw = termios.tcgetattr(0)
    raw[3] &= ~(termios.ICANON | termios.ECHO)
    poller = select.poll()
    watched = (0, interrupts.fileno(), *([other] if other is not None else []))
    for number in watched:
        poller.register(number, select.POLLIN)
    try:
        termios.tcsetattr(0, termios.TCSAFLUSH, raw)
        os.write(2, _LINE_START)
        _write(prompt)
        while True:
            ready = [number for number, _ in poller.poll()]
            if interrupts.fileno() in ready or other in ready:
                return None
            key = _key()
            if key in allowed:
                return key
    finally:
        termios.tcsetattr(0, termios.TCSAFLUSH, before)


def _key() -> str:
    try:
        key = os.read(0, 1).decode("ascii", "replace").lower()
    except OSError:
        key = ""
    if not key or key == "\x04":
        raise EOFError
    return key


def _one_line(prompt: str) -> str:
    """A line that is typed with the terminal's own editing; empty at the end of file."""
    _write(prompt)
    try:
        typed = os.read(0, _LONGEST_REASON)
    except OSError:
        return ""
    return typed.decode("utf-8", "replace").strip()


def _is_coloured() -> bool:
    """In colour on a terminal, unless NO_COLOR is set (no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _write(text: str) -> None:
    os.write(2, text.encode("utf-8", "replace"))
