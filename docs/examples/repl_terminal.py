"""A Python REPL in a terminal that outlives the call: typed into, read, asked what it waits for."""

from __future__ import annotations

import asyncio
import os
import sys

from sandboxd import AsyncClient


async def main() -> None:
    async with await AsyncClient.spawn(workspace=os.getcwd()) as client:
        repl = [sys.executable, "-i", "-q"]
        async with await client.terminal(repl, approve="all") as terminal:
            await terminal.read(wait_s=20)
            for line in ("x = 6 * 7", "print('the answer is', x)"):
                await terminal.write(line + "\n")
                shown = await terminal.read(wait_s=20)
                sys.stdout.write("\n".join((*shown.lines, *shown.live)).rstrip() + "\n")
            sys.stdout.write(f"the REPL {shown.state.replace('_', ' ')}\n")


if __name__ == "__main__":
    asyncio.run(main())
