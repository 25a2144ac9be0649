"""The conversation of one `exec` with its server: output, input, signals, approval, result.

A single poll loop over three things: the server's lines, our stdin (read only when the run has
taken what we sent before, so a slow program slows the producer), and signals.
"""

from __future__ import annotations

import binascii
import os
import select

from sandboxd.cli import stdio
from sandboxd.cli.interrupts import (
    SIGCONT,
    SIGINT,
    SIGPIPE,
    SIGTSTP,
    SIGWINCH,
    Interrupts,
    signal_name,
)
from sandboxd.cli.jsonline import Link, field
from sandboxd.cli.options import Options
from sandboxd.cli.outlet import Outlet
from sandboxd.cli.show import Show
from sandboxd.cli.told import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd.cli.jsonline import Object
    from sandboxd.cli.prompt import Question
    from sandboxd.cli.relay import Relay

INPUT_BYTES = 262144
ANSWER_WITHIN_S = 30
INITIALIZE, EXEC, WRITE, TOLD = 1, 2, 3, 4
FAILED = 125


class Exchange:
    """One command, from its request to its exit code."""

    def __init__(
        self, link: Link, options: Options, kinds: list[str], relay: Relay | None = None
    ) -> None:
        self._link = link
        self._relay = relay
        self._show = Show(options, kinds, relay)
        self._interrupts = Interrupts((SIGWINCH, SIGCONT) if relay is not None else ())
        self._poller = select.poll()
        self._run_id: str | None = None
        self._has_input = kinds[0] == stdio.PIPE or (relay is not None and relay.has_keys)
        self._is_open = False
        self._told = TOLD
        self._tells = not options.is_json
        self._caught: int | None = None
        self._exit: int | None = None
        self._asked: str | None = None
        """The question that stands on this terminal."""
        self._request: Object = {}
        self._may_ask_again = relay is not None and kinds[0] == kinds[2] == stdio.TERMINAL
        self._stopped: int | None = None
        """The exit code of the run that the sandbox stopped, while it may run again."""

    def run(self, opening: Object, request: Object) -> int:
        """Send the command and see it through; returns the exit code."""
        try:
            return self._run(opening, request)
        finally:
            self._give_back()

    def _run(self, opening: Object, request: Object) -> int:
        self._request = request
        with self._interrupts:
            self._link.send(
                _call(INITIALIZE, "initialize", opening), _call(EXEC, "command.exec", request)
            )
            self._poller.register(self._link.fileno(), select.POLLIN)
            self._poller.register(self._interrupts.fileno(), select.POLLIN)
            for outlet in self._show.outlets.values():
                self._poller.register(outlet.fileno(), select.POLLIN)
            while self._exit is None:
                self._wait()
            return self._exit if self._has_passed_on() else self._broken_off()

    def _wait(self) -> None:
        limit_ms = None if self._is_open else ANSWER_WITHIN_S * 1000
        ready = [number for number, _ in self._poller.poll(limit_ms)]
        if not ready:
            self._lost(f"the server has not answered within {ANSWER_WITHIN_S} s")
        if self._interrupts.fileno() in ready:
            for number in self._interrupts.caught():
                self._interrupted(number)
        for outlet in self._show.outlets.values():
            if outlet.fileno() in ready:
                outlet.noticed()
                if outlet.error is not None:
                    self._output_failed(outlet.error)
        if self._link.fileno() in ready:
            self._read_lines()
            self._rest_while_full()
        if 0 in ready and self._exit is None:
            self._pass_input()

    # ----------------------------------------------------------------- the server's lines

    def _read_lines(self) -> None:
        try:
            messages = self._link.receive()
        except ValueError:
            self._lost("whoever answers on the socket does not speak this protocol")
            return
        if messages is None:
            self._lost("the server closed the connection before the command ended")
            return
        for message in messages:
            if self._exit is None:
                self._take(message)

    def _take(self, message: Object) -> None:
        method, params = message.get("method"), field(message, "params")
        if method == "command.output":
            self._output(params)
        elif method == "command.state":
            self._state(params)
        elif method == "approval.resolved":
            self._resolved(params.get("request_id"))
        elif method == "approval.request":
            self._approve(message.get("id"), params)
        elif "error" in message:
            self._failed(message.get("id"), field(message, "error"))
        elif message.get("id") == INITIALIZE:
            self._is_open = True
        elif message.get("id") == EXEC:
            self._give_back()
            self._ended(field(message, "result"))
        elif message.get("id") == WRITE:
            self._listen_to_input()

    def _ended(self, result: Object) -> None:
        denial = field(result, "denial")
        token = field(denial, "escalation").get("token")
        if not self._may_ask_again or not isinstance(token, str):
            self._exit = self._show.result(result)
            return
        # The run is over, so nothing but us writes here: ask at once, in this very process.
        denial.pop("escalation")
        self._may_ask_again, self._run_id = False, None
        self._stopped = self._show.result(result)
        again: Object = {**self._request, "escalation": token}
        self._link.send(_call(EXEC, "command.exec", again))

    def _output(self, params: Object) -> None:
        try:
            self._show.piece(params)
        except OSError as error:
            self._output_failed(error)

    def _output_failed(self, error: OSError) -> None:
        """Whoever read us has gone: end the run as SIGPIPE would have ended the program."""
        if not isinstance(error, BrokenPipeError):
            tell(f"cannot write the output: {error.strerror}")
        self._cancel()
        self._caught = self._caught or SIGPIPE

    def _rest_while_full(self) -> None:
        """Stop reading the link while too much waits for a slow reader."""
        for outlet in self._show.outlets.values():
            while outlet.is_full and not self._interrupts.has_caught():
                self._sleep_until(outlet)

    def _has_passed_on(self) -> bool:
        """Wait until everything has reached its reader; False when it cannot."""
        for outlet in self._show.outlets.values():
            while not outlet.is_dry and not self._interrupts.has_caught():
                self._sleep_until(outlet)
        return all(outlet.is_dry and not outlet.error for outlet in self._show.outlets.values())

    def _sleep_until(self, outlet: Outlet) -> None:
        poller = select.poll()
        poller.register(outlet.fileno(), select.POLLIN)
        poller.register(self._interrupts.fileno(), select.POLLIN)
        poller.poll()
        outlet.noticed()

    def _broken_off(self) -> int:
        """The exit code when the output did not reach its reader."""
        caught = [*self._interrupts.caught(), self._caught]
        for outlet in self._show.outlets.values():
            if outlet.error is not None and not isinstance(outlet.error, BrokenPipeError):
                return FAILED
        return 128 + (caught[0] or SIGPIPE)

    def _state(self, params: Object) -> None:
        state = params.get("state")
        if state == "waiting_for_approval" and self._tells:
            tell(f"waits for an answer: sandboxd approve --answer {params.get('request_id')} once")
        elif state == "running" and self._run_id is None:
            self._run_id = str(params.get("run_id"))
            if self._relay is not None:
                self._relay.take()
            if self._has_input:
                self._poller.register(0, select.POLLIN)
        elif state == "stopped" and self._relay is not None:
            self._stop()

    def _stop(self) -> None:
        """The program was stopped by a key: stop too, as the shell before us expects."""
        self._give_back()
        os.kill(0, SIGTSTP)
        self._go_on()

    def _go_on(self) -> None:
        """We are in the foreground again, or were never stopped (no shell with job control)."""
        if self._relay is not None and self._run_id is not None:
            self._relay.take()
            self._resize()
            params: Object = {"run_id": self._run_id, "signal": "CONT"}
            self._tell("command.terminate", params)

    def _resize(self) -> None:
        if self._relay is not None and self._run_id is not None:
            params: Object = {"run_id": self._run_id, **self._relay.size()}
            self._tell("command.resize", params)

    def _tell(self, method: str, params: Object) -> None:
        """A call whose answer nobody needs; several may be on their way."""
        self._told += 1
        self._link.send(_call(self._told, method, params))

    def _give_back(self) -> None:
        if self._relay is not None:
            self._relay.give_back()

    def _failed(self, number: object, error: Object) -> None:
        if number == WRITE:  # the program has closed its stdin, or ended
            self._has_input = False
        elif isinstance(number, int) and number > TOLD:
            return
        else:
            self._give_back()
            refusal = field(error, "data") or {"message": error.get("message"), "hint": ""}
            code = self._show.refusal(refusal, self._caught)
            self._exit = code if self._stopped is None else self._stopped

    def _lost(self, sentence: str) -> None:
        self._give_back()
        refusal: Object = {
            "code": "DAEMON_UNREACHABLE",
            "origin": "host",
            "message": sentence,
            "hint": "see `sandboxd status`; the command's tree dies with its server",
            "retryable": True,
        }
        self._exit = self._show.refusal(refusal, self._caught)

    # ----------------------------------------------------------------- approval

    def _approve(self, number: object, ask: Object) -> None:
        from sandboxd.cli.prompt import Question

        self._asked = str(ask.get("request_id"))
        question = Question(ask)
        question.draw()
        while (reply := self._reply(question)) is None:
            caught = self._interrupts.caught()
            for signal in caught:
                self._interrupted(signal)
            if any(signal not in (SIGWINCH, SIGCONT) for signal in caught):
                return
            if not caught:
                self._read_lines()
            if self._asked is None or self._exit is not None:
                return
        self._asked = None
        self._link.send({"jsonrpc": "2.0", "id": number, "result": reply})  # type: ignore[dict-item]  # the server's own id

    def _reply(self, question: Question) -> Object | None:
        try:
            return question.wait(self._interrupts, self._link.fileno())
        except EOFError:
            return {"answer": "deny", "reason": "the terminal has gone"}

    def _resolved(self, request_id: object) -> None:
        """Answered elsewhere, or not needed any more."""
        if self._asked is not None and self._asked == request_id:
            self._asked = None
            os.write(2, b"\r\n")
            tell("answered elsewhere")

    # ----------------------------------------------------------------- input

    def _listen_to_input(self) -> None:
        if self._has_input:
            self._poller.register(0, select.POLLIN)

    def _pass_input(self) -> None:
        self._poller.unregister(0)
        try:
            data = os.read(0, INPUT_BYTES)
        except OSError:
            data = b""
        params: Object = {"run_id": self._run_id}
        if data:
            params["bytes_b64"] = binascii.b2a_base64(data, newline=False).decode("ascii")
        else:
            params["eof"] = True
            self._has_input = False
        self._link.send(_call(WRITE, "command.write", params))

    # ----------------------------------------------------------------- signals

    def _interrupted(self, number: int) -> None:
        """The first Ctrl-C goes to the run; anything after it, or else, ends the run."""
        if number in (SIGWINCH, SIGCONT):
            self._resize() if number == SIGWINCH else self._go_on()
            return
        is_first = self._caught is None
        self._caught = number
        if number == SIGINT and is_first and self._run_id is not None:
            params: Object = {"run_id": self._run_id, "signal": signal_name(number)}
            self._tell("command.terminate", params)
        else:
            self._cancel()

    def _cancel(self) -> None:
        self._link.send({"jsonrpc": "2.0", "method": "cancel", "params": {"id": EXEC}})


def _call(number: int, method: str, params: Object) -> Object:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
