"""Escalation end to end: what counts as evidence, and what a token opens."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandboxd import errors
from sandboxd.client import Client
from sandboxd.model import ApprovalAsk, Denial, ExecRequest, Result
from tests.ptys import on_pty


@dataclass
class Place:
    """A workspace and a folder beside it, both outside /tmp (which is the run's own)."""

    daemon: Any
    workspace: str
    outside: str
    asked: list[ApprovalAsk] = field(default_factory=list)

    def client(self, answer: str | None = None, **more: Any) -> Client:
        def approver(ask: ApprovalAsk) -> Any:
            self.asked.append(ask)
            return answer

        more.setdefault("workspace", self.workspace)
        return Client.connect(self.daemon.socket, approver=approver if answer else None, **more)


@pytest.fixture
def place(daemon: Any) -> Iterator[Place]:
    top = os.path.realpath(tempfile.mkdtemp(prefix="sbx-", dir="/var/tmp"))
    for name in ("work", "outside"):
        os.mkdir(f"{top}/{name}")
    yield Place(daemon, f"{top}/work", f"{top}/outside")
    shutil.rmtree(top)


def denied(client: Client, request: ExecRequest) -> tuple[Result, Denial]:
    result = client.run(request)
    assert result.exit_code != 0
    assert result.denial is not None, result
    return result, result.denial


def again(request: ExecRequest, denial: Denial, **changed: Any) -> ExecRequest:
    from msgspec.structs import replace

    assert denial.escalation is not None
    return replace(request, escalation=denial.escalation.token, **changed)


def touching(place: Place, name: str = "file") -> ExecRequest:
    return ExecRequest(command=f"touch {place.outside}/{name}", approve="all")


@pytest.mark.parametrize("tier", ["namespaces", "bubblewrap", "landlock"])
def test_a_refused_write_is_evidence_and_a_person_lets_the_same_command_out(
    place: Place, tier: str
) -> None:
    from msgspec.structs import replace

    request = replace(touching(place), tier=tier)
    with place.client("session") as client:
        first, denial = denied(client, request)
        assert (denial.evidence, denial.path) == ("policy", f"{place.outside}/file")
        assert (first.unconfined, first.tier.name) == (False, tier)
        second = client.run(again(request, denial))
        assert (second.exit_code, second.unconfined) == (0, True)
        assert (second.tier.name, second.decision.approved_by) == ("containment", "person")
        assert os.path.exists(f"{place.outside}/file")
        [ask] = place.asked
        assert ask.escalation is not None
        assert (ask.escalation.tier, ask.escalation.denial.path) == (tier, denial.path)
        assert ask.escalation.ran.endswith("exit code 1")
        assert (ask.may_remember, ask.command) == (False, request.command)
        third = client.run(request)  # nothing was remembered: the sandbox holds as before
        assert third.unconfined is False
        with pytest.raises(errors.EscalationRefused):
            client.run(again(request, denial))


def test_words_are_a_guess_and_offer_nothing(place: Place) -> None:
    os.mkdir(f"{place.workspace}/mine")
    lies = (
        "echo 'Permission denied' >&2; exit 1",
        f"echo \"touch: cannot touch '{place.workspace}/mine': Permission denied\" >&2; exit 1",
        "echo \"open '/etc/no-such-folder/x': Permission denied\" >&2; exit 1",
        "echo \"'/dev/watchdog': Permission denied\" >&2; exit 1",
        "cat /etc/hostname 2>&1; echo Operation not permitted: /etc/hostname: no >&2; exit 3",
    )
    with place.client() as client:
        for text in lies[:4]:
            _, denial = denied(client, ExecRequest(command=text, approve="all"))
            assert (denial.evidence, denial.escalation) == ("text", None), text


def test_a_name_that_the_command_only_prints_is_told_as_such(place: Place) -> None:
    """The probe finds that the name is refused; only the person can know that it was never tried."""
    text = f"echo \"cannot write '{place.outside}/x': Permission denied\" >&2; exit 1"
    with place.client() as client:
        _, denial = denied(client, ExecRequest(command=text, approve="all"))
    assert denial.evidence == "policy"
    assert denial.hint is not None
    assert "from the command's own output" in denial.hint
    assert not os.path.exists(f"{place.outside}/x")


def test_an_answer_in_advance_never_lets_anything_out_and_the_token_survives_nobody(
    place: Place,
) -> None:
    request, name = touching(place), "esc-" + os.path.basename(os.path.dirname(place.workspace))
    with place.client(session_id=name) as client:
        _, denial = denied(client, request)
        with pytest.raises(errors.ApprovalRequired):
            client.run(again(request, denial))
        with place.client("deny", session_id=name) as asking, pytest.raises(errors.ApprovalDenied):
            asking.run(again(request, denial))
        with pytest.raises(errors.EscalationRefused):
            client.run(again(request, denial))
    assert not os.path.exists(f"{place.outside}/file")


def test_forged_reused_and_foreign_tokens_are_refused_before_anybody_is_asked(place: Place) -> None:
    request = touching(place)
    with place.client("once") as client, place.client("once") as stranger:
        wrong: list[tuple[Client, dict[str, Any]]] = [
            (client, {"command": f"touch {place.outside}/other"}),
            (client, {"env": {"LD_PRELOAD": "/x"}}),
            (client, {"cwd": "/usr"}),
            (client, {"stdin": "more"}),
            (client, {"tier": "landlock"}),
            (stranger, {}),
        ]
        for caller, changed in wrong:
            _, denial = denied(client, request)
            with pytest.raises(errors.EscalationRefused):
                caller.run(again(request, denial, **changed))
            with pytest.raises(errors.EscalationRefused):
                client.run(again(request, denial))
        with pytest.raises(errors.EscalationRefused):
            client.run(ExecRequest(command="true", escalation="forged"))
    assert place.asked == []
    assert os.listdir(place.outside) == []


def test_a_refused_unix_socket_is_evidence_from_the_kernel(place: Place) -> None:
    path = f"{place.outside}/s"
    with socket.socket(socket.AF_UNIX) as listening, place.client() as client:
        listening.bind(path)
        listening.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({path!r})"
        request = ExecRequest(argv=(sys.executable, "-I", "-c", code), approve="all")
        _, denial = denied(client, request)
    assert (denial.evidence, denial.rule, denial.path) == ("kernel", "unix_sockets", path)
    assert denial.escalation is not None


def test_a_host_that_the_relay_refused_is_evidence(place: Place) -> None:
    with place.client(profile="allowlist") as client:
        request = ExecRequest(argv=("curl", "-sSf", "http://example.invalid/"), approve="all")
        _, denial = denied(client, request)
    assert denial.evidence == "proxy"
    assert denial.escalation is not None


def test_protected_names_may_be_changed_out_there_and_are_not_set_aside(place: Place) -> None:
    git = f"{place.workspace}/.git/hooks"
    os.makedirs(git)
    Path(f"{place.workspace}/.git/HEAD").write_text("ref: refs/heads/main\n")
    request = ExecRequest(
        command="python3 -c \"open('.git/hooks/' + 'post-commit', 'w').write('x')\"", approve="all"
    )
    with place.client("once") as client:
        _, denial = denied(client, request)
        assert denial.evidence == "policy"
        result = client.run(again(request, denial))
    assert (result.exit_code, result.set_aside) == (0, ())
    assert os.listdir(git) == ["post-commit"]


def test_the_log_says_who_was_let_out_and_holds_no_token(place: Place) -> None:
    request = touching(place)
    with place.client("once") as client:
        _, denial = denied(client, request)
        result = client.run(again(request, denial))
        assert denial.escalation is not None
        client.status()
    log = sqlite3.connect(os.path.join(os.environ["XDG_STATE_HOME"], "sandboxd/events.db"))
    deadline = time.monotonic() + 20
    rows: list[tuple[str, Any]] = []
    while "result" not in dict(rows) and time.monotonic() < deadline:
        time.sleep(0.05)
        rows = log.execute(
            "SELECT kind, payload FROM events WHERE run_id = ?", (result.run_id,)
        ).fetchall()
    kinds = [kind for kind, _ in rows]
    told = [kind for kind in kinds if kind.startswith(("approval", "escalated", "launch"))]
    assert told == ["approval_asked", "approval_answered", "escalated", "launch"]
    assert '"unconfined":true' in str(dict(rows)["result"]).replace(" ", "")
    everything = "".join(str(row[0]) for row in log.execute("SELECT payload FROM events"))
    assert denial.escalation.token not in everything


def test_at_a_terminal_the_question_follows_the_dead_run_and_no_keeps_its_exit_code(
    place: Place,
) -> None:
    """The run draws a false question and prints keys; the true one comes when it is dead."""
    draw = "printf '\\033[2J\\033[HAllow it? [y once, n no] y\\n'"
    for key, code in (("n", 1), ("y", 0)):
        words = ["exec", "--approve", "all", "-c", f"{draw}; touch {place.outside}/t"]
        argv = [sys.executable, "-m", "sandboxd", *words]
        env = {**os.environ, "TERM": "xterm"}
        with on_pty(argv, cwd=place.workspace, env=env, size=(50, 160)) as terminal:
            terminal.type("y")  # typed ahead: it goes to the run, or is thrown away
            terminal.expect(b"WITHOUT A SANDBOX?", 60)
            terminal.expect(b"x stop]")
            assert not os.path.exists(f"{place.outside}/t")
            assert b"starts from the beginning" in terminal.seen
            terminal.type(key)
            assert terminal.wait(60) == code
    assert os.path.exists(f"{place.outside}/t")
