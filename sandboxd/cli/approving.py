"""`sandboxd approve`: a terminal in which a person sees what waits for them and answers by one key.

Nothing that runs writes to this terminal. Without a terminal: `--list`, `--answer ID ANSWER`, and with
`--json` a stream of questions on stdout whose answers are read from stdin, for other front ends.
"""

from __future__ import annotations

import json
import os
import select
import sys

import click
import msgspec

from sandboxd.cli import stdio
from sandboxd.cli.interrupts import SIGINT, Interrupts
from sandboxd.cli.jsonline import Link, field, load
from sandboxd.cli.prompt import Question, question
from sandboxd.cli.told import tell, visible
from sandboxd.client import Client
from sandboxd.config import socket_path
from sandboxd.errors import DaemonUnreachable, Refusal
from sandboxd.model import Answer
from sandboxd.protocol import messages as m
from sandboxd.protocol.asking import connect_socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd.cli.jsonline import Object

ATTACH, READY = 1, 2
ANSWER_NAMES = ("once", "session", "deny", "stop")
_TOLD = {
    "once": "allowed, this once",
    "session": "allowed, for the session",
    "deny": "denied",
    "stop": "denied, and to stop",
    None: "needs no answer any more",
}


@click.command("approve")
@click.option("--list", "is_list", is_flag=True, help="Print what waits, and return.")
@click.option(
    "--answer",
    "answered",
    nargs=2,
    metavar="ID ANSWER",
    help="Answer one: once, session, deny or stop.",
)
@click.option("--reason", metavar="TEXT", help="With --answer: why; the model reads it.")
@click.option("--socket", metavar="PATH", help="The daemon's socket.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON, a question per line.")
def approve_command(
    is_list: bool,
    answered: tuple[str, str] | None,
    reason: str | None,
    socket: str | None,
    is_json: bool,
) -> int:
    """Answer what runs ask, in this terminal: y once, s for the session, n no, r no and why, x stop.

    It waits for questions until you leave with Ctrl-C. A question whose caller shows it to a person
    itself (an agent with a user interface) does not come here; --list shows those too.
    """
    if is_list and answered:
        raise click.UsageError("--list and --answer exclude each other")
    if reason is not None and not answered:
        raise click.UsageError("--reason goes with --answer")
    if answered:
        return _answer(socket, answered, reason, is_json=is_json)
    if is_list:
        return _list(socket, is_json=is_json)
    if is_json:
        return _Desk(_attached(socket)).run(_Lines())
    if not (os.isatty(0) and os.isatty(2)):
        raise click.UsageError("this needs a terminal; else use --list, --answer or --json")
    return _Desk(_attached(socket)).run(_Screen())


def _list(socket: str | None, *, is_json: bool) -> int:
    with Client(connect_socket(socket)) as client:
        listing = client.call("approval.list", m.Empty(), m.ApprovalListing)
    if is_json:
        click.echo(msgspec.json.encode(listing))
        return 0
    for entry in listing.requests:
        click.echo("\n".join(question(load(msgspec.json.encode(entry.ask).decode()))[1:-1]))
        callers = f", {entry.callers} calls" if entry.callers > 1 else ""
        click.echo(f"  id:     {entry.ask.request_id}, asked of the {entry.asked_of}{callers}\n")
    if not listing.requests:
        click.echo("nothing waits")
    return 0


def _answer(
    socket: str | None, answered: tuple[str, str], reason: str | None, *, is_json: bool
) -> int:
    request_id, answer = answered
    if answer not in ANSWER_NAMES:
        raise click.UsageError(f"{answer!r} is no answer; {', '.join(ANSWER_NAMES)} are")
    typed: Answer = msgspec.convert(answer, Answer)
    params = m.ApprovalResolve(request_id=request_id, answer=typed, reason=reason)
    try:
        with Client(connect_socket(socket)) as client:
            counted = client.call("approval.resolve", params, m.ApprovalResolved)
    except Refusal as refusal:
        if not is_json:
            raise
        click.echo(json.dumps({"error": refusal.to_wire()}))
        return refusal.exit_code
    click.echo(msgspec.json.encode(counted) if is_json else _TOLD[counted.answer])
    return 0


def _attached(socket: str | None) -> Link:
    path = socket_path(socket)
    try:
        link = Link.connect(path)
    except OSError as error:
        raise DaemonUnreachable(
            f"no daemon answers on {path}: {error.strerror}",
            hint="start one with `sandboxd serve --detach`",
            path=path,
        ) from error
    # Calls begin in the order in which they come: once the second is answered we are attached.
    link.send(
        {"jsonrpc": "2.0", "id": ATTACH, "method": "approval.attach", "params": {}},
        {"jsonrpc": "2.0", "id": READY, "method": "approval.list", "params": {}},
    )
    return link


# --------------------------------------------------------------------------- attached


class _Desk:
    """The questions that lie before an attached approver, oldest first."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.waiting: dict[str, Object] = {}
        self._number = READY
        self._mine: dict[int, str] = {}
        self.exit: int | None = None

    def run(self, view: _Screen | _Lines) -> int:
        with Interrupts() as interrupts:
            try:
                while self.exit is None:
                    view.step(self, interrupts)
            finally:
                self.link.close()
        return self.exit

    def interrupted(self, interrupts: Interrupts) -> bool:
        """Leave, when a signal has come: what waits goes to whoever is next."""
        caught = interrupts.caught()
        if caught:
            self.exit = 0 if caught[0] == SIGINT else 128 + caught[0]
        return bool(caught)

    def receive(self, view: _Screen | _Lines) -> None:
        messages = self.link.receive()
        if messages is None:
            tell("the server closed the connection")
            self.exit = 125
        for message in messages or ():
            self._take(message, view)

    def _take(self, message: Object, view: _Screen | _Lines) -> None:
        params, number = field(message, "params"), message.get("id")
        if message.get("method") == "approval.pending":
            self.waiting[str(params.get("request_id"))] = params
            view.asked(params)
        elif message.get("method") == "approval.resolved":
            request_id, answer = str(params.get("request_id")), params.get("answer")
            self.waiting.pop(request_id, None)
            view.resolved(request_id, answer if isinstance(answer, str) else None)
        elif number == READY:
            view.attached()
        elif "error" in message and number == ATTACH:
            tell(str(field(message, "error").get("message")))
            self.exit = 125
        elif "error" in message and isinstance(number, int):
            self.waiting.pop(self._mine.pop(number, ""), None)
            tell("too late: " + str(field(message, "error").get("message")))

    def answer(self, request_id: str, reply: Object) -> None:
        self.waiting.pop(request_id, None)
        self._number += 1
        self._mine[self._number] = request_id
        params: Object = {"request_id": request_id, **reply}
        self.link.send(
            {
                "jsonrpc": "2.0",
                "id": self._number,
                "method": "approval.resolve",
                "params": params,
            }
        )


class _Screen:
    """Questions drawn one after the other; a key answers the one that stands."""

    def __init__(self) -> None:
        self._standing: str | None = None
        self._question: Question | None = None

    def step(self, desk: _Desk, interrupts: Interrupts) -> None:
        if self._standing is None and desk.waiting:
            self._standing = next(iter(desk.waiting))
            self._question = Question(desk.waiting[self._standing])
            self._question.draw()
        if self._question is None or self._standing is None:
            _sleep(desk.link.fileno(), interrupts.fileno())
            if not self._left(desk, interrupts):
                desk.receive(self)
            return
        try:
            reply = self._question.wait(interrupts, desk.link.fileno())
        except EOFError:
            desk.exit = 0
            return
        if reply is not None:
            request_id, self._standing, self._question = self._standing, None, None
            desk.answer(request_id, reply)
        elif not self._left(desk, interrupts):
            desk.receive(self)

    def _left(self, desk: _Desk, interrupts: Interrupts) -> bool:
        if desk.interrupted(interrupts):
            os.write(2, b"\r\n")
        return desk.exit is not None

    def attached(self) -> None:
        tell("waiting for questions; Ctrl-C leaves")

    def asked(self, ask: Object) -> None:
        """It is drawn when its turn comes."""

    def resolved(self, request_id: str, answer: str | None) -> None:
        if request_id == self._standing:
            self._standing = self._question = None
            os.write(2, b"\r\n")
            if answer is None:
                tell(_TOLD[None])
            else:
                tell(f"answered elsewhere: {_TOLD.get(answer, answer)}")
        elif answer is not None:
            tell(visible(f"{request_id}: {_TOLD.get(answer, answer)}"))


class _Lines:
    """`{"attached": {}}`, then `{"pending": ask}` and `{"resolved": ..}` on stdout; `{"request_id", "answer", "reason"?}` on stdin."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_listening = True

    def step(self, desk: _Desk, interrupts: Interrupts) -> None:
        watched = [desk.link.fileno(), interrupts.fileno(), *([0] if self._is_listening else [])]
        ready = _sleep(*watched)
        if interrupts.fileno() in ready and desk.interrupted(interrupts):
            return
        if desk.link.fileno() in ready:
            desk.receive(self)
        if 0 in ready:
            self._read(desk)

    def _read(self, desk: _Desk) -> None:
        data = os.read(0, 65536)
        self._is_listening = bool(data)  # without stdin it still tells, and others may answer
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                reply = msgspec.json.decode(line, type=m.ApprovalResolve)
            except msgspec.MsgspecError as error:
                tell(f"not an answer: {error}")
                continue
            told: Object = {"answer": reply.answer}
            if reply.reason is not None:
                told["reason"] = reply.reason
            desk.answer(reply.request_id, told)

    def attached(self) -> None:
        self._say("attached", {})

    def asked(self, ask: Object) -> None:
        self._say("pending", ask)

    def resolved(self, request_id: str, answer: str | None) -> None:
        self._say("resolved", {"request_id": request_id, "answer": answer})

    def _say(self, name: str, value: Object) -> None:
        stdio.write_all(1, (json.dumps({name: value}) + "\n").encode("ascii"))
        sys.stdout.flush()


def _sleep(*watched: int) -> list[int]:
    poller = select.poll()
    for number in watched:
        poller.register(number, select.POLLIN)
    return [number for number, _ in poller.poll()]
