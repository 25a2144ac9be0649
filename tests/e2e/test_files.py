"""Guarded files through a real daemon: shared with commands, judged, concurrent, and by command line."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.client import Client
from sandboxd.errors import (
    ApprovalDenied,
    ApprovalRequired,
    FileRefusal,
    NotObserved,
    ProtectedPath,
    StaleVersion,
)
from sandboxd.model import ApprovalAsk
from sandboxd.protocol import file_messages as f

EDITS = int(os.environ.get("SANDBOXD_TEST_EDITS", "6"))
CLIENTS = int(os.environ.get("SANDBOXD_TEST_CLIENTS", "8"))
"""50 clients of 200 edits each is the long run: SANDBOXD_TEST_CLIENTS=50 SANDBOXD_TEST_EDITS=200."""


@pytest.fixture
def client(daemon: Any, workspace: Path) -> Iterator[Client]:
    with Client.connect(daemon.socket, workspace=str(workspace)) as connected:
        yield connected


def write(client: Client, path: str, content: str) -> f.FsChanged:
    return client.files.write(path, content, approve="mutating")


def edit(client: Client, path: str, old: str, new: str) -> f.FsChanged:
    return client.files.edit(path, (old, new), approve="mutating")


# ------------------------------------------------------------------ beside commands


def test_a_formatter_of_ours_makes_nothing_stale_and_is_told(
    client: Client, workspace: Path
) -> None:
    """read, `ruff format` through command.exec, edit: accepted and told."""
    ruff = shutil.which("ruff", path=os.path.dirname(sys.executable)) or shutil.which("ruff")
    assert ruff is not None, "ruff is among the test requirements"
    (workspace / "a.py").write_text("x = {  'a':1 }\ny = 2\n")
    client.files.read("a.py")
    result = client.exec([ruff, "format", "--no-cache", "a.py"], approve="all")
    assert result.exit_code == 0, result
    assert result.refreshed == ("a.py",)
    assert (workspace / "a.py").read_text() == 'x = {"a": 1}\ny = 2\n'
    changed = edit(client, "a.py", "y = 2", "y = 3")
    assert changed.refreshed is not None
    assert "ruff format" in changed.refreshed
    assert edit(client, "a.py", "y = 3", "y = 4").refreshed is None


def test_an_external_change_before_a_command_stays_external(
    client: Client, workspace: Path
) -> None:
    """Only what changed inside the run is taken in."""
    (workspace / "a").write_text("1\n")
    client.files.read("a")
    (workspace / "a").write_text("by a person\n")
    result = client.exec("echo more >> a", approve="all")
    assert result.refreshed == ()
    with pytest.raises(StaleVersion) as told:
        edit(client, "a", "more", "less")
    assert told.value.data is not None
    assert "by a person" in told.value.data["lines"]


def test_what_a_read_only_command_showed_counts_as_seen_and_a_write_never_does(
    client: Client, workspace: Path
) -> None:
    for name in ("a", "b", "c"):
        (workspace / name).write_text("one\n")
    time.sleep(0.02)  # longer than the clock of file times ticks
    assert client.exec("cat a | head -3").exit_code == 0
    edit(client, "a", "one", "two")
    client.exec("cat b > copy; sed -i s/one/two/ b", approve="all")
    with pytest.raises(NotObserved):
        edit(client, "b", "two", "three")
    client.exec("cat missing c")
    with pytest.raises(NotObserved):
        edit(client, "c", "one", "two")


def test_a_link_and_dots_in_a_command_register_no_other_file(
    client: Client, workspace: Path
) -> None:
    (workspace / "deep/er").mkdir(parents=True)
    (workspace / "link").symlink_to("deep/er")
    (workspace / "deep/x").write_text("kernel's\n")
    (workspace / "x").write_text("ours\n")
    time.sleep(0.02)
    result = client.exec("cat link/../x")
    assert result.stdout is not None
    assert result.stdout.text == "kernel's\n"
    with pytest.raises(NotObserved):
        edit(client, "x", "ours", "mine")


def test_a_file_that_our_command_deleted_may_be_written_anew(
    client: Client, workspace: Path
) -> None:
    write(client, "a", "1\n")
    client.exec("rm a", approve="all")
    write(client, "a", "2\n")
    (workspace / "a").unlink()
    with pytest.raises(StaleVersion, match="deleted"):
        write(client, "a", "3\n")


def test_tmp_is_the_session_s_for_files_and_commands_alike(client: Client, workspace: Path) -> None:
    write(client, "/tmp/note", "from the file tools\n")
    result = client.exec("cat $TMPDIR/note")
    assert result.stdout is not None
    assert result.stdout.text == "from the file tools\n"
    assert not os.path.exists("/tmp/note")
    assert client.files.read("/tmp/note").path == "/tmp/note"


# ------------------------------------------------------------------ decisions


class Person:
    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalAsk] = []

    def __call__(self, ask: ApprovalAsk) -> Any:
        self.asked.append(ask)
        return self.answers.pop(0)


@pytest.fixture
def asking(daemon: Any, workspace: Path) -> Iterator[Callable[..., Client]]:
    with contextlib.ExitStack() as stack:

        def connect(person: Person, **more: Any) -> Client:
            connected = Client.connect(
                daemon.socket, workspace=str(workspace), approver=person, **more
            )
            return stack.enter_context(connected)

        yield connect


def test_the_approver_sees_the_difference_and_the_new_folders(asking: Any, workspace: Path) -> None:
    person = Person("once", "deny")
    client = asking(person)
    client.files.write("a/b/c", "new\n")
    (ask,) = person.asked
    assert ask.command == "fs.write a/b/c"
    assert ask.creates == ("a", "a/b")
    assert ask.diff is not None
    assert "+new" in ask.diff
    assert ask.writes == (str(workspace / "a/b/c"),)
    with pytest.raises(ApprovalDenied):
        client.files.edit("a/b/c", ("new", "newer"))
    assert "-new\n+newer" in (person.asked[1].diff or "")
    assert (workspace / "a/b/c").read_text() == "new\n"


def test_an_approval_for_the_session_holds_for_the_operation_and_its_paths(
    asking: Any, workspace: Path
) -> None:
    person = Person("session", "deny", "deny")
    client = asking(person)
    client.files.write("a", "1\n")
    client.files.write("./a", "2\n")
    assert len(person.asked) == 1
    for change in (
        lambda: client.files.write("b", "1"),
        lambda: client.files.edit("a", ("2", "3")),
    ):
        with pytest.raises(ApprovalDenied):
            change()


def test_a_protected_name_is_asked_about_each_time(asking: Any, workspace: Path) -> None:
    person = Person("session", "session", "deny")
    client = asking(person, profile="agent")
    client.files.write(".envrc", "1\n")
    client.files.write(".envrc", "2\n")
    assert [ask.may_remember for ask in person.asked] == [False, False]
    with pytest.raises(ApprovalDenied):
        client.files.write("sub/.git/hooks/pre-commit", "x")
    assert not (workspace / "sub").exists()


def test_where_nobody_is_ever_asked_a_protected_name_is_refused(
    daemon: Any, workspace: Path
) -> None:
    with Client.connect(daemon.socket, workspace=str(workspace), profile="farm") as client:
        client.files.write("ordinary", "x")
        with pytest.raises(ProtectedPath):
            client.files.write(".vscode/tasks.json", "x")


def test_trust_in_the_sandbox_covers_guarded_writes(daemon: Any, workspace: Path) -> None:
    with Client.connect(daemon.socket, workspace=str(workspace), profile="agent") as client:
        assert client.files.write("a", "x\n").change_id is not None
        with pytest.raises(ApprovalRequired):
            client.files.patch("--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n")


def test_nobody_to_ask_is_a_refusal_and_a_dry_run_asks_nobody(
    client: Client, workspace: Path
) -> None:
    with pytest.raises(ApprovalRequired):
        client.files.write("a", "x")
    told = client.files.write("a/b", "x", dry_run=True)
    assert (told.dry_run, told.created_directories, told.change_id) == (True, ("a",), None)
    assert os.listdir(workspace) == []


# ------------------------------------------------------------------ many at once


def test_every_accepted_edit_is_there_and_every_other_was_refused(
    daemon: Any, workspace: Path
) -> None:
    """Many clients of one session, and a second process, edit different snippets of one file."""
    session = f"many-{os.getpid()}"
    lines = [f"client {c} snippet {n}: 0" for c in range(CLIENTS + 1) for n in range(EDITS)]
    (workspace / "shared").write_text("\n".join(lines) + "\n")
    accepted: set[tuple[int, int]] = set()
    refused: list[str] = []
    guard = threading.Lock()

    def work(number: int) -> None:
        with Client.connect(daemon.socket, workspace=str(workspace), session_id=session) as client:
            client.files.read("shared", limit=1, again=True)
            for n in range(EDITS):
                old = f"client {number} snippet {n}: 0"
                for _ in range(200):
                    try:
                        edit(client, "shared", old + "\n", old[:-1] + "1\n")
                    except FileRefusal as refusal:
                        with guard:
                            refused.append(refusal.code)
                        client.files.read("shared", limit=1, again=True)
                        continue
                    with guard:
                        accepted.add((number, n))
                    break

    second = subprocess.Popen(
        [sys.executable, "-c", SECOND_PROCESS, str(workspace), str(CLIENTS), str(EDITS)],
        stdout=subprocess.PIPE,
        text=True,
    )
    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told, _ = second.communicate(timeout=100 + 100 * EDITS)
    accepted |= {(CLIENTS, int(n)) for n in told.split()}
    text = (workspace / "shared").read_text()
    assert text.count("\n") == len(lines)
    for c in range(CLIENTS + 1):
        for n in range(EDITS):
            now = f"client {c} snippet {n}: {int((c, n) in accepted)}\n"
            assert now in text, (now, len(accepted))
    assert len(accepted) == (CLIENTS + 1) * EDITS
    print(f"{len(accepted)} accepted, {len(refused)} refused")
    assert set(refused) <= {"FS_STALE_VERSION", "FILE_BUSY"}


SECOND_PROCESS = """
import sys
from sandboxd.client import Client
from sandboxd.errors import FileRefusal
from sandboxd.cli.reaching import reach
from sandboxd.protocol.asking import opening
workspace, number, edits = sys.argv[1], sys.argv[2], int(sys.argv[3])
with reach(no_daemon=True) as client:
    client.initialize(opening(workspace=workspace, cwd=workspace))
    for n in range(edits):
        old = f"client {number} snippet {n}: 0"
        for _ in range(200):
            try:
                client.files.read("shared", limit=1, again=True)
                client.files.edit("shared", (old + "\\n", old[:-1] + "1\\n"), approve="mutating")
            except FileRefusal:
                continue
            print(n)
            break
"""


def test_two_clients_of_which_one_is_late(daemon: Any, workspace: Path) -> None:
    (workspace / "a").write_text("1\n")
    with (
        Client.connect(daemon.socket, workspace=str(workspace)) as first,
        Client.connect(daemon.socket, workspace=str(workspace)) as second,
    ):
        first.files.read("a")
        second.files.read("a")
        edit(first, "a", "1", "2")
        with pytest.raises(StaleVersion):
            edit(second, "a", "1", "3")


# ------------------------------------------------------------------ the command line


def run_file(cli: Any, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    way = ["--no-daemon"] if cli.way == "embedded" else []
    if "input" not in more:
        more["stdin"] = subprocess.DEVNULL
    command = [sys.executable, "-m", "sandboxd", "file", *way, *words]
    return subprocess.run(
        command, cwd=cli.workspace, env=cli.environment, capture_output=True, timeout=90, **more
    )


def test_a_session_lasts_from_one_file_command_to_the_next(cli: Any, workspace: Path) -> None:
    (workspace / "a").write_text("one\ntwo\n")
    assert run_file(cli, "read", "a").stdout == b"one\ntwo\n"
    done = run_file(cli, "edit", "a", "--old", "two", "--new", "2", "--approve", "mutating")
    assert (done.returncode, b"-two\n+2" in done.stdout) == (0, True), done
    assert b"file undo --change c-" in done.stderr


def test_file_commands_for_people_and_scripts(daemon_cli: Any, workspace: Path) -> None:
    def file(*words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        return run_file(daemon_cli, *words, **more)

    done = file("write", "d/n", "--approve", "mutating", "--json", input=b"x\n")
    assert json.loads(done.stdout)["created_directories"] == ["d"]
    assert file("undo", "--approve", "mutating").returncode == 0
    (workspace / "a").write_text("one\n2\n")
    found = file("grep", "-C", "1", "one")
    assert found.stdout == b"a:1:one\na-2-2\n", found
    assert file("list").stdout == b"d/\na\n"
    missing = file("read", "nope")
    assert (missing.returncode, missing.stdout) == (125, b"")
    assert b"NOT_FOUND" in missing.stderr
    assert b"Nothing was changed" in missing.stderr
    patch = b"--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-2\n+3\n"
    assert file("patch", "--approve", "mutating", input=patch).returncode == 0
    assert (workspace / "a").read_text() == "one\n3\n"
    assert b"fs.patch" in file("undo", "--list").stdout


# ------------------------------------------------------------------ the run's view


@pytest.fixture
def home() -> Iterator[Path]:
    """Not below /tmp, which runs do not see."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def test_what_is_redacted_for_runs_is_redacted_here_and_not_changed(
    daemon: Any, workspace: Path, tmp_path: Path, home: Path
) -> None:
    """A token in a git configuration inside a read root: shown without it, by read, copy and grep."""
    (home / ".gitconfig").write_text(
        "[user]\n\tname = me\n[http]\n\textraheader = Authorization: Bearer s3cr3t-t0ken\n"
    )
    profile = tmp_path / "p.yaml"
    profile.write_text(f'extends: default\nfiles:\n  read_roots: ["${{WORKSPACE}}", "{home}"]\n')
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    with Client.connect(
        daemon.socket, workspace=str(workspace), profile=str(profile), env=env
    ) as client:
        text = client.files.read("~/.gitconfig").text
        assert "me" in text
        assert "s3cr3t" not in text
        client.files.copy("~/.gitconfig", "copy", approve="all")
        assert "s3cr3t" not in (workspace / "copy").read_text()
        found = client.files.grep(f.FsGrep(pattern="s3cr3t", path=str(home), ignored=True))
        assert found.total_lines == 0


def test_what_the_caller_s_own_tools_read_counts_for_ours(client: Client, workspace: Path) -> None:
    """One ledger: intent.assess of a harness's own Read, then our edit."""
    (workspace / "a").write_text("1\n")
    client.assess("Read", {"file_path": str(workspace / "a")})
    assert edit(client, "a", "1", "2").version is not None
    (workspace / "a").write_text("by a person\n")
    judged = client.assess("Edit", {"file_path": str(workspace / "a"), "old_string": "1", "new_string": "2"})  # fmt: skip
    assert any(one.rule == "StaleWrite" for one in judged.violations)
