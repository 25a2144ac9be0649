"""The result says where shell text ended up, so that a harness can keep its `cd`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.client import Client
from sandboxd.model import Result
from tests.confined import REQUIRED_TIERS


@pytest.fixture
def client(daemon: Any, workspace: Path) -> Iterator[Client]:
    (workspace / "sub" / "below").mkdir(parents=True)
    with Client.connect(daemon.socket, workspace=str(workspace)) as client:
        yield client


def run(client: Client, text: str, **more: Any) -> Result:
    return client.exec(text, approve="all", **more)


@pytest.mark.parametrize("tier", REQUIRED_TIERS)
def test_the_next_command_can_begin_where_the_last_one_ended(
    client: Client, workspace: Path, tier: str
) -> None:
    first = run(client, "cd sub && cd below; pwd; exit 3", tier=tier)
    assert (first.cwd, first.exit_code) == (f"{workspace}/sub/below", 3)
    assert first.stdout is not None
    assert first.stdout.text == f"{workspace}/sub/below\n"
    again = run(client, "cd .. && pwd", cwd=first.cwd, tier=tier)
    assert (again.cwd, again.exit_code) == (f"{workspace}/sub", 0)


@pytest.mark.parametrize(
    ("text", "ended_in"),
    [
        ("cd sub", "sub"),
        ("pushd sub >/dev/null; pushd below >/dev/null; popd >/dev/null", "sub"),
        ("if true; then cd sub; fi; false", "sub"),
        ("cd sub; kill -TERM $$", "sub"),
        ("cd sub; kill -KILL $$", ""),
        ("(cd sub)", ""),
        ("cd sub | cat", ""),
        ("cd missing", ""),
        ("echo cd sub", ""),
        ("cd sub; exec true", ""),
        ("cd /tmp", ""),
        ("mkdir gone; cd gone; rmdir ../gone", ""),
        ("cd /usr; cd lib", "/usr/lib"),
        ("cd sub; trap 'echo bye' EXIT", ""),
        ("cd 'sub/below'; cd -P ..", "sub"),
    ],
)
def test_only_a_folder_in_which_the_shell_itself_stood_is_told(
    client: Client, workspace: Path, text: str, ended_in: str
) -> None:
    assert run(client, text).cwd == str(workspace / ended_in)


def test_exit_codes_and_signals_are_not_changed_by_looking(client: Client) -> None:
    assert run(client, "cd sub; false").exit_code == 1
    assert run(client, "cd sub; exit 77").exit_code == 77
    assert run(client, "set -e; cd sub; false; echo not reached").exit_code == 1
    killed = run(client, "cd sub; kill -TERM $$")
    assert (killed.exit_code, killed.signal) == (143, "SIGTERM")
    late = run(client, "cd sub; sleep 30", timeout_s=0.5)
    assert (late.timed_out, late.exit_code) == (True, 124)


def test_an_argument_vector_has_no_folder_of_its_own(client: Client, workspace: Path) -> None:
    assert run(client, ["bash", "-c", "cd sub"]).cwd == str(workspace)  # type: ignore[arg-type]
