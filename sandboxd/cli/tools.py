"""`doctor --tools`: does what people run every day work in the tier that their runs get?

Each tool does a piece of ordinary work (profiles/tools.yaml) through the same gate as any command,
with the caller's own environment, in a workspace that is thrown away.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import click
import msgspec
from msgspec import Struct

from sandboxd.cli.reaching import here
from sandboxd.cli.told import visible
from sandboxd.client import Client
from sandboxd.data import data_folder
from sandboxd.errors import Refusal, TierUnavailable, UnknownTier
from sandboxd.model import ExecRequest, Result
from sandboxd.strict_yaml import read_yaml

BASE = "/var/tmp"
"""Not below /tmp, which a run sees as its own."""
LIMIT_S = 60.0


class Tool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of profiles/tools.yaml."""

    name: str
    needs: str
    runs: str


class Tried(Struct, frozen=True, kw_only=True):
    """What came of one tool."""

    name: str
    is_installed: bool
    works: bool = False
    tier: str | None = None
    seconds: float = 0.0
    said: str = ""
    """The last line of its output; of its error output when it failed."""


def tools() -> tuple[Tool, ...]:
    """The entries of profiles/tools.yaml. Raises ProfileBroken."""
    path = data_folder("profiles") + "/tools.yaml"
    with open(path, encoding="utf-8") as file:
        rows = read_yaml(file.read(), path).entries()["tools"].items or ()
    plain = ({key: node.scalar() for key, node in row.entries().items()} for row in rows)
    return tuple(msgspec.convert(row, Tool) for row in plain)


def try_all(client: Client, tier: str | None = None) -> Iterator[Tried]:
    """Every tool in its turn, in one session of a workspace of its own, in `tier` or the one that is chosen.

    Raises UnknownTier and TierUnavailable.
    """
    top = tempfile.mkdtemp(prefix="sandboxd-tools-", dir=BASE)
    try:
        client.initialize(msgspec.structs.replace(here(top, None), cwd=top, session_id=None))
        for tool in tools():
            yield try_one(client, tool, top, tier)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def try_one(client: Client, tool: Tool, top: str, tier: str | None = None) -> Tried:
    if shutil.which(tool.needs) is None:
        return Tried(name=tool.name, is_installed=False)
    folder = os.path.join(top, tool.name)
    os.mkdir(folder)
    request = ExecRequest(
        command="set -e\n" + tool.runs, cwd=folder, tier=tier, approve="all", timeout_s=LIMIT_S
    )
    try:
        result = client.run(request)
    except (UnknownTier, TierUnavailable):
        raise
    except Refusal as refusal:
        return Tried(name=tool.name, is_installed=True, said=str(refusal))
    return Tried(
        name=tool.name,
        is_installed=True,
        works=result.exit_code == 0,
        tier=result.tier.name,
        seconds=result.duration_s,
        said=_last_line(result),
    )


def _last_line(result: Result) -> str:
    streams = (result.stdout, result.stderr)
    for captured in streams if result.exit_code == 0 else reversed(streams):
        lines = captured.text.strip().splitlines() if captured is not None else []
        if lines:
            return lines[-1]
    return f"exit code {result.exit_code}, and it said nothing"


def show(tried: Tried) -> None:
    """One line on stdout."""
    if not tried.is_installed:
        click.echo(f"{tried.name}: not installed")
        return
    word = "works" if tried.works else "FAILS"
    where = f" in {tried.tier}" if tried.tier else ""
    click.echo(f"{tried.name}: {word}{where} ({tried.seconds:.1f} s): {visible(tried.said)}")
