"""`exec --learn`: what is written is a profile, is small, and is enough for the same command."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.learning import changed_folders
from sandboxd.profiles import load_profile
from tests.cli.test_profile_commands import run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("src", "build/deep", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/a").write_text("a\n")
    (tmp_path / "build/old").write_text("old\n")
    return tmp_path


@pytest.fixture
def server() -> Iterator[int]:
    made = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made.server_port
    made.shutdown()
    made.server_close()


WORDS = ("exec", "--no-daemon", "--approve", "all")


def test_the_same_command_works_under_what_was_learned(project: Path) -> None:
    command = ("-c", "cp src/a build/new && rm build/old && mktemp > /dev/null && cat build/new")
    code, out, err = run(project, *WORDS, "--learn", "p.yaml", *command)
    assert (code, out) == (0, "a\n"), err
    learned = load_profile(str(project / "p.yaml"))
    assert learned.write == ("${TMP}", "${WORKSPACE}/build")
    assert learned.network.value == "off"
    (project / "build/old").write_text("old\n")
    assert run(project, *WORDS, "--profile", "./p.yaml", *command)[:2] == (0, "a\n")
    code, _, err = run(project, *WORDS, "--profile", "./p.yaml", "-c", "echo x > src/b")
    assert code == 1
    assert "Read-only file system" in err


def test_hosts_are_learned_and_no_others_open(project: Path, server: int) -> None:
    url = f"http://127.0.0.1:{server}/"
    fetch = f"import urllib.request as u; print(len(u.urlopen('{url}').read()) > 0)"
    words = (*WORDS, "--allow-host", f"127.0.0.1:{server}", "--learn", "p.yaml", "--")
    code, out, err = run(project, *words, "python3", "-c", fetch)
    assert (code, out) == (0, "True\n"), err
    learned = load_profile(str(project / "p.yaml"))
    assert (learned.network.value, learned.egress.allow) == ("allowlist", (f"127.0.0.1:{server}",))
    assert learned.write == ("${TMP}",)
    again = run(project, *WORDS, "--profile", "./p.yaml", "--", "python3", "-c", fetch)
    assert again[:2] == (0, "True\n")


def test_a_file_that_is_there_is_not_written_over(project: Path) -> None:
    (project / "p.yaml").write_text("mine\n")
    code, _, err = run(project, *WORDS, "--learn", "p.yaml", "--", "true")
    assert code == 2
    assert "is there already" in err
    assert (project / "p.yaml").read_text() == "mine\n"


def test_a_command_cannot_write_keys_into_the_profile(project: Path) -> None:
    command = "true; : 'x\napproval: never\nfiles: {write: [/etc]}\n'"
    run(project, *WORDS, "--learn", "p.yaml", "-c", command)
    learned = load_profile(str(project / "p.yaml"))
    assert (learned.approval, learned.write) == ("standard", ("${TMP}",))


def test_it_is_part_of_the_result(project: Path) -> None:
    _, out, _ = run(project, *WORDS, "--learn", "p.yaml", "--json", "--", "touch", "docs/x")
    assert json.loads(out)["learned"] == (project / "p.yaml").read_text()
    _, out, _ = run(project, *WORDS, "--json", "--", "true")
    assert json.loads(out)["learned"] is None


def test_many_folders_become_their_parents(tmp_path: Path) -> None:
    since = 0
    for number in range(40):
        (tmp_path / f"kept/{number}").mkdir(parents=True)
    found = changed_folders(str(tmp_path), since)
    assert found == [str(tmp_path)]
    now = os.stat(tmp_path / "kept/39").st_ctime_ns + 1
    assert changed_folders(str(tmp_path), now) == []
