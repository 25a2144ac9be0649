"""How `exec` shows output and result: live to a terminal, whole to a pipe, JSON, or raw."""

from __future__ import annotations

import binascii
import os

from sandboxd.cli import stdio
from sandboxd.cli.jsonline import dump, field
from sandboxd.cli.options import Options
from sandboxd.cli.outlet import Outlet
from sandboxd.cli.told import tell, tell_about

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd.cli.jsonline import Object
    from sandboxd.cli.relay import Relay

_DESCRIPTORS = {"stdout": 1, "stderr": 2, "output": 1}
FAILED = 125
TIMED_OUT = 124


class Show:
    """Where the pieces of one run go."""

    def __init__(self, options: Options, kinds: list[str], relay: Relay | None = None) -> None:
        self._options = options
        self._kinds = kinds
        self._relay = relay
        is_plain = not options.is_json and not options.is_raw
        self._live = {
            name: options.is_raw or (is_plain and relay is not None and name == "output")
            for name, number in _DESCRIPTORS.items()
        }
        self.outlets = {
            number: Outlet(number)
            for number in (1, 2)
            if options.is_raw and kinds[number] == stdio.PIPE
        }
        self._missed_bytes = 0

    def piece(self, params: Object) -> None:
        """A `command.output` notification."""
        name = str(params.get("stream"))
        if not self._live.get(name):
            return
        number = _DESCRIPTORS[name]
        gap_bytes, gap_lines = params.get("gap_bytes"), params.get("gap_lines")
        if isinstance(gap_bytes, int) and gap_bytes:
            self._missed_bytes += gap_bytes
            if not self._options.is_raw:
                tell(f"[{gap_lines or 0} lines, {gap_bytes} bytes left out: too fast to show]")
        encoded, lines = params.get("bytes_b64"), params.get("lines")
        if isinstance(encoded, str):
            self._pass_on(number, binascii.a2b_base64(encoded))
        if isinstance(lines, list):
            text = "".join(f"{line}\n" for line in lines)
            self._pass_on(number, text.encode("utf-8", "replace"))

    def _pass_on(self, number: int, data: bytes) -> None:
        if self._relay is not None:
            self._relay.show(data)
            return
        outlet = self.outlets.get(number)
        if outlet is not None:
            outlet.put(data)
        else:
            stdio.write_all(number, data)

    def result(self, result: Object) -> int:
        """The end of a run; returns the exit code."""
        code = TIMED_OUT if result.get("timed_out") else result.get("exit_code")
        if not isinstance(code, int):
            code = FAILED
        try:
            self._keep_learned(result)
            self._write_result(result)
        except BrokenPipeError:
            return code
        except OSError as error:
            tell(f"cannot write the output: {error.strerror}")
            return FAILED
        # What was promised whole and is not must not look like a success.
        is_cut = self._options.is_raw and self._missed_bytes
        return code or (FAILED if is_cut or self._is_lost(result) else 0)

    def _is_lost(self, result: Object) -> bool:
        """Whether something was to be written where nothing is open; says so."""
        closed = {number for number in (1, 2) if self._kinds[number] == stdio.CLOSED}
        if self._options.is_json:
            is_lost = 1 in closed
        else:
            is_lost = any(
                number in closed and field(result, name).get("total_bytes")
                for name, number in _DESCRIPTORS.items()
            )
        if is_lost:
            tell("cannot write the output: it is closed")
        return is_lost

    def _write_result(self, result: Object) -> None:
        if self._options.is_json:
            stdio.write_all(1, (dump(result) + "\n").encode("ascii"))
            return
        self._write_texts(result)
        if self._options.is_raw and self._missed_bytes:
            tell(f"{self._missed_bytes} bytes of output were left out: the reader was too slow")
        tell_about(result, self._options.timeout_s)

    def _keep_learned(self, result: Object) -> None:
        """Write the profile that was learned to a new file of the caller's."""
        path, text = self._options.learn, result.get("learned")
        if path is None or not isinstance(text, str):
            return
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            stdio.write_all(fd, text.encode())
        finally:
            os.close(fd)
        shown = path if "/" in path else f"./{path}"
        tell(f"what this run needed is in {path}: read it, then name it with --profile {shown}")

    def _write_texts(self, result: Object) -> None:
        """The captured streams that were not shown live."""
        for name, number in _DESCRIPTORS.items():
            text = field(result, name).get("text")
            if isinstance(text, str) and text and not self._live[name]:
                stdio.write_all(number, text.encode("utf-8", "replace"))

    def refusal(self, refusal: Object, caught: int | None) -> int:
        """The run was refused, or ended by a signal that we caught; returns the exit code."""
        from sandboxd.cli.exec import refused

        if caught is not None and refusal.get("code") == "CANCELLED":
            if self._options.is_json:
                refused(refusal, is_json=True)
            else:
                self._write_texts(field(refusal, "data"))
            return 128 + caught
        return refused(refusal, is_json=self._options.is_json)
