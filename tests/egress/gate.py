"""The whole gate in this process, with a world of the test's in the place of the host's network."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from sandboxd.engine import Engine
from sandboxd.model import ApprovalAsk, ApprovalReply, ExecRequest, Result
from sandboxd.pipeline import RunControl, run_command
from tests.egress.world import World


class Channel:
    """A caller that cannot be asked and looks at the result only."""

    can_approve = False
    approves_last = False

    def asking(self, ask: object, *, is_elsewhere: bool = False) -> None:
        raise AssertionError("nobody is asked in these tests")

    async def approve(self, ask: ApprovalAsk) -> ApprovalReply:
        raise AssertionError("nobody is asked in these tests")

    def has_room(self) -> bool:
        return True

    def started(self, run_id: str, control: RunControl) -> None:
        pass

    def output(self, stream: str, chunk: bytes) -> None:
        pass


def through_gate(world: World, workspace: Path, *requests: ExecRequest) -> list[Result]:
    """Run requests one after the other in one session."""

    async def main() -> list[Result]:
        engine = await Engine.create()
        engine.outside = world
        try:
            session = engine.open_session(
                workspace=str(workspace), cwd=str(workspace), environment=dict(os.environ)
            )
            return [
                await asyncio.wait_for(run_command(engine, session, request, Channel()), 60)
                for request in requests
            ]
        finally:
            await engine.close()

    return asyncio.run(main())


def text(result: Result) -> str:
    """What the program printed, both streams."""
    return "".join(stream.text for stream in (result.stdout, result.stderr) if stream is not None)
