"""Whole runs through the pipeline, for tests of what the guardian does while they live."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from sandboxd import config
from sandboxd.engine import Engine
from sandboxd.model import ApprovalAsk, ApprovalReply, Approve, ExecRequest, Result
from sandboxd.pipeline import RunControl, run_command
from sandboxd.sessions import Session
from tests.confined import ATTEMPT, Ground, make_ground, read, write

TIERS = ("namespaces", "landlock")
"""One that covers protected names by mounts, one that cannot."""
LIVING = ATTEMPT + "import sys\ndef say(*words):\n    print(*words, flush=True)\n"


class Channel:
    """A caller that nobody can ask, and that collects what it hears."""

    can_approve = False
    approves_last = False

    def __init__(self) -> None:
        self.control: RunControl | None = None
        self.text = ""
        self.heard = asyncio.Event()

    def asking(self, ask: object, *, is_elsewhere: bool = False) -> None:
        raise AssertionError("nobody is asked in these tests")

    async def approve(self, ask: ApprovalAsk) -> ApprovalReply:
        raise AssertionError("nobody is asked in these tests")

    def has_room(self) -> bool:
        return True

    def started(self, run_id: str, control: RunControl) -> None:
        self.control = control

    def output(self, stream: str, chunk: bytes) -> None:
        self.text += chunk.decode(errors="replace")
        self.heard.set()

    async def line(self, number: int) -> str:
        """The line with this number, once the run has written it."""
        while self.text.count("\n") <= number:
            self.heard.clear()
            await asyncio.wait_for(self.heard.wait(), 20)
        return self.text.split("\n")[number]

    async def tell(self, text: str) -> None:
        assert self.control is not None
        await self.control.write(text.encode())


class Gate:
    """An engine and a session in the workspace of a ground."""

    def __init__(self, ground: Ground, tier: str) -> None:
        self.ground = ground
        self.tier = tier

    def request(self, command: str | list[str], approve: Approve, **more: Any) -> ExecRequest:
        is_text = isinstance(command, str)
        named = {"command": command} if is_text else {"argv": tuple(command)}
        return ExecRequest(tier=self.tier, approve=approve, **named, **more)

    def sh(self, command: str | list[str], approve: Approve = "all", **more: Any) -> Result:
        """Run one command to its end."""

        async def work(engine: Engine, session: Session) -> Result:
            request = self.request(command, approve, **more)
            return await run_command(engine, session, request, Channel())

        return self.engine(work)

    def python(self, code: str) -> Result:
        """Run Python code to its end, with `attempt` and `put` at hand."""
        return self.sh([sys.executable, "-I", "-c", LIVING + code])

    def talk(
        self,
        code: str,
        work: Callable[[Channel], Coroutine[Any, Any, None]],
    ) -> Result:
        """Run Python code whose stdin stays open, and do something while it lives."""

        async def living(engine: Engine, session: Session) -> Result:
            channel = Channel()
            argv = [sys.executable, "-I", "-c", LIVING + code]
            running = asyncio.ensure_future(
                run_command(engine, session, self.request(argv, "all", stdin_open=True), channel)
            )
            while channel.control is None and not running.done():
                await asyncio.sleep(0.01)
            if channel.control is not None:
                await work(channel)
                channel.control.close_stdin()
            return await running

        return self.engine(living)

    def engine(self, work: Callable[[Engine, Session], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            engine = await Engine.create()
            try:
                return await work(engine, self.session(engine))
            finally:
                await engine.close()

        return asyncio.run(main())

    def session(self, engine: Engine) -> Session:
        """One session over all calls: what was set aside stays to be looked at."""
        return engine.open_session(
            workspace=self.ground.workspace,
            cwd=self.ground.workspace,
            session_id="guarded-" + os.path.basename(self.ground.top),
            environment={**HOST_GIT, "HOME": self.ground.home},
        )

    @property
    def folder(self) -> str:
        """The session's folder."""
        return os.path.join(config.temp_folder(), "guarded-" + os.path.basename(self.ground.top))


def make_gate(tier: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    for ground in make_ground():
        for name in ("state", "runtime", "config"):
            os.mkdir(f"{ground.top}/{name}", 0o700)
        monkeypatch.setenv("XDG_STATE_HOME", ground.top + "/state")
        monkeypatch.setenv("XDG_RUNTIME_DIR", ground.top + "/runtime")
        monkeypatch.setenv("XDG_CONFIG_HOME", ground.top + "/config")
        gate = Gate(ground, tier)
        yield gate
        shutil.rmtree(gate.folder, ignore_errors=True)


def git(*arguments: str) -> str:
    """Plain git on the host, as the person would run it; fails loudly."""
    done = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, env=HOST_GIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


HOST_GIT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}


async def until(condition: Callable[[], bool], what: str, limit_s: float = 10) -> None:
    """Wait for something that the guardian does beside the run."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.005)


def committed(folder: str) -> None:
    git("init", "-q", "-b", "main", folder)
    write(folder + "/file", "1\n")
    git("-C", folder, "add", "file")
    git("-C", folder, "commit", "-qm", "one")


def stored(gate: Gate) -> dict[str, str]:
    """What was set aside: the end of its stored name -> content of the (first) file in it."""
    found = {}
    for folder, _, files in os.walk(gate.folder + "/set-aside"):
        for file in files:
            found[os.path.join(folder, file)] = read(os.path.join(folder, file))
    return found


def hidden(path: str) -> str:
    """Shell text that appends `evil` to a file without naming it to whoever reads the text."""
    code = (
        "import os; p = bytes.fromhex('" + path.encode().hex() + "').decode(); "
        "os.makedirs(os.path.dirname(p) or '.', exist_ok=True); open(p, 'a').write('evil' + chr(10))"
    )
    return f'python3 -c "{code}"'


def below(gate: Gate, *names: str) -> tuple[str, ...]:
    return tuple(os.path.join(gate.ground.workspace, name) for name in names)
