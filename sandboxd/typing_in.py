"""What typing into a terminal means to the gate: which text is a command, and how it is judged.

Apart from the pipeline so that the order of things there stays on a screen; nothing here decides
or records. A shell lives as long as its terminal, so a line is judged together with the earlier
lines that changed what it means (a function, an alias, a variable).
"""

from __future__ import annotations

import asyncio

import msgspec

from sandboxd.decide.approvals import ApprovalChannel
from sandboxd.keys import Line
from sandboxd.model import (
    ApprovalAsk,
    ApprovalReply,
    Approve,
    CommandClass,
    ExecRequest,
    Pty,
    Reason,
    Verdict,
)
from sandboxd.spawn.waiting import State
from sandboxd.supervise import Supervised
from sandboxd.terminal import Terminal

TERM = "xterm-256color"
MAX_CHANGES = 32 * 1024
"""Characters of earlier lines that are kept in mind; beyond, nothing can be taken for harmless."""
CHANGING_WORDS = frozenset(
    {".", "alias", "bind", "builtin", "command", "declare", "enable", "eval", "exec", "export"}
    | {"function", "hash", "local", "popd", "pushd", "read", "readonly", "set", "shopt", "source"}
    | {"trap", "typeset", "ulimit", "umask", "unalias", "unset", "mapfile", "readarray", "getopts"}
)


class Inside:
    """The channel of a terminal's run: the terminal hears it, its opener is asked."""

    def __init__(
        self, terminal: Terminal, opener: ApprovalChannel, started: asyncio.Future[None]
    ) -> None:
        self.can_approve = opener.can_approve
        self.approves_last = opener.approves_last
        self._terminal = terminal
        self._opener = opener
        self._started = started

    @property
    def started_at_all(self) -> bool:
        return self._started.done()

    async def approve(self, ask: ApprovalAsk) -> ApprovalReply:
        return await self._opener.approve(ask)

    def asking(self, ask: ApprovalAsk | None, *, is_elsewhere: bool = False) -> None:
        self._opener.asking(ask, is_elsewhere=is_elsewhere)

    def started(self, run_id: str, control: object) -> None:
        assert isinstance(control, Supervised)
        self._terminal.started(control)
        self._started.set_result(None)

    def output(self, stream: str, chunk: bytes) -> None:
        self._terminal.output(chunk)

    def has_room(self) -> bool:
        """The backlog makes its own room."""
        return True


def in_terminal(request: ExecRequest) -> ExecRequest:
    """The request on a pty, with a TERM that what we render understands."""
    pty = msgspec.structs.replace(request.pty or Pty(), fds=(0, 1, 2))
    env = {"TERM": TERM, **request.env}
    return msgspec.structs.replace(request, pty=pty, env=env, stdin=None, stdin_b64=None)


async def is_for_shell(terminal: Terminal, text: str) -> bool:
    """Whether a shell would, or might, run what is typed now.

    Not when a program is reading this very input and there is one line of it; after the first
    line the program may have ended.
    """
    if not await terminal.shells():
        return False
    sight = await terminal.look()
    if sight.is_password:
        return False
    is_read = sight.state in (State.WAITING_FOR_INPUT, State.POLLS_INPUT) and not sight.is_shell
    is_one_line = not any(end in text[:-1] for end in "\r\n")
    return not (is_read and is_one_line)


def clear_line(terminal: Terminal) -> str:
    """Keys (Ctrl-E, Ctrl-U) that take away what a program has left unread on the shell's line, if
    anything may have been left: nobody has judged that."""
    shell = terminal.shell
    if not shell.is_leftover or shell.line == Line():
        return ""
    shell.line = Line()
    return "\x05\x15"


async def shell_name(terminal: Terminal) -> str:
    """The shell that lines are judged for: bash, or one of which only the common part is known."""
    names = await terminal.shells()
    return "bash" if names == {"bash"} else "sh"


def as_request(terminal: Terminal, line: Line, approve: Approve) -> ExecRequest:
    """A line as a command in the shell's own folder, after what changed its meaning."""
    asked = terminal.request
    return ExecRequest(
        command="\n".join((*terminal.shell.changes, line.text)),
        cwd=terminal.shell_folder() or asked.cwd,
        env=asked.env,
        profile=asked.profile,
        approve=approve,
    )


def unreadable(terminal: Terminal, line: Line) -> Verdict | None:
    """The verdict on what cannot be known; None when the line can be judged."""
    if not line.is_readable:
        told = "the line was edited with keys, so what runs is not known"
    elif terminal.shell.is_opaque:
        told = (
            "an earlier line in this shell could not be read and may have changed what this means"
        )
    else:
        return None
    return Verdict(
        class_=CommandClass.DESTRUCTIVE,
        parsed=False,
        cacheable=False,
        reasons=(Reason("unparsed", told),),
    )


def remember(terminal: Terminal, line: Line, verdict: Verdict) -> None:
    """Keep in mind what an accepted line changes for later ones."""
    shell = terminal.shell
    if not verdict.parsed:
        shell.is_opaque = True
    elif changes_meaning(line.text, verdict):
        if line.text not in shell.changes:
            shell.changes.append(line.text)
        shell.is_opaque = shell.is_opaque or sum(map(len, shell.changes)) > MAX_CHANGES


def changes_meaning(text: str, verdict: Verdict) -> bool:
    """Whether later lines of the same shell may mean something else after this one; in doubt, yes."""
    plain = text.replace("\\", "").replace('"', "").replace("'", "")
    if "=" in plain or "(" in plain or "{" in plain:
        return True
    if verdict.class_ is not CommandClass.READ_ONLY and ("$" in plain or "`" in plain):
        return True
    for separator in ";&|!)}<>\n\t":
        plain = plain.replace(separator, " ")
    return not CHANGING_WORDS.isdisjoint(plain.split())
