"""The daemon as a service: units, a socket that is handed over, logs, manual pages, completion."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd import Client

CLI = [sys.executable, "-m", "sandboxd"]
HAND_OVER = """
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1]); listening.listen()
os.dup2(listening.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.executable, [sys.executable, "-m", "sandboxd", "serve", "--log-json"])
"""


def sandboxd(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_socket_that_is_handed_over_is_served_and_left_where_it_is(tmp_path: Path) -> None:
    path = f"/tmp/sbx-act-{os.getpid()}"
    daemon = subprocess.Popen(
        [sys.executable, "-c", HAND_OVER, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == f"listening on {path} (pid {daemon.pid})\n"
        with Client.connect(path, workspace=str(tmp_path)) as client:
            result = client.exec(["sh", "-c", "env; ls /proc/self/fd"], approve="all")
            assert result.stdout is not None
            assert "LISTEN_" not in result.stdout.text
        second = sandboxd("serve", "--socket", path)
        assert second.returncode == 125
        assert f"process {daemon.pid}" in second.stderr
    finally:
        daemon.terminate()
        _, log = daemon.communicate(timeout=30)
    try:
        assert daemon.returncode == 0
        assert os.path.exists(path), "it belongs to the service manager"
        assert not os.path.exists(path + ".lock")
        events = [json.loads(line) for line in log.splitlines()]
        names = [event["event"] for event in events]
        assert names[0] == "listening"
        assert {"connected", "disconnected", "stopping"} <= set(names)
        assert all(isinstance(event["time"], float) for event in events)
    finally:
        os.unlink(path)


def test_what_is_handed_over_must_be_one_listening_socket() -> None:
    code = (
        "import os, sys; os.dup2(os.open('/dev/null', 0), 3)\n"
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='2')\n"
        "import socket; s = socket.socket(socket.AF_UNIX); os.dup2(s.fileno(), 3)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'sandboxd', 'serve'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert "no listening Unix socket" in done.stderr


def test_units_are_written_where_the_user_manager_looks_and_taken_away(tmp_path: Path) -> None:
    config, bin_folder = tmp_path / "config", tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n')
    (bin_folder / "systemctl").chmod(0o755)
    here = {"XDG_CONFIG_HOME": str(config), "PATH": f"{bin_folder}:/usr/bin:/bin"}
    assert sandboxd("service", "install", **here).returncode == 0
    folder = config / "systemd/user"
    unit = (folder / "sandboxd.service").read_text()
    assert f'ExecStart="{sys.executable}" "-P" "-m" "sandboxd" serve --log-json' in unit
    assert "NoNewPrivileges" not in unit  # setuid bwrap, and runs of other tiers, would not work
    assert "SocketMode=0600" in (folder / "sandboxd.socket").read_text()
    assert (tmp_path / "told").read_text() == (
        "--user daemon-reload\n--user enable --now sandboxd.socket\n"
    )
    told = sandboxd("service", "status", "--json", **here)
    assert told.returncode == 1
    assert list(json.loads(told.stdout)["installed"].values()) == [True, True]
    assert sandboxd("service", "uninstall", **here).returncode == 0
    assert list(folder.iterdir()) == []
    assert sandboxd("service", "uninstall", **here).stdout == "nothing is installed\n"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_itself_takes_the_units(tmp_path: Path) -> None:
    config = str(tmp_path)
    sandboxd("service", "install", XDG_CONFIG_HOME=config)
    unit = f"{config}/systemd/user/sandboxd.service"
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", unit], capture_output=True, text=True, check=False
    )
    assert "sandboxd" not in done.stderr or done.returncode == 0, done.stderr


def test_without_a_service_manager_it_says_what_to_run(tmp_path: Path) -> None:
    done = sandboxd("service", "install", XDG_CONFIG_HOME=str(tmp_path), PATH="/nonexistent")
    assert done.returncode == 1
    assert "hint: run this where you are logged in: systemctl --user daemon-reload" in done.stderr


def test_every_command_has_a_manual_page_that_a_formatter_takes(tmp_path: Path) -> None:
    done = sandboxd("man", "--output", str(tmp_path))
    assert done.returncode == 0
    pages = {page.name for page in tmp_path.iterdir()}
    for name in ("", "-exec", "-approve", "-serve", "-terminal-start", "-service-install"):
        assert f"sandboxd{name}.1" in pages
    exec_page = (tmp_path / "sandboxd-exec.1").read_text()
    assert "\\-\\-min\\-tier T" in exec_page
    assert ".SH EXIT STATUS" in exec_page
    if shutil.which("groff"):
        words = ["groff", "-man", "-Tascii", "-ww", *map(str, sorted(tmp_path.iterdir()))]
        made = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (made.returncode, made.stderr) == (0, "")
    assert sandboxd("man", "nothing").returncode == 2


def test_completion_completes_commands_and_options() -> None:
    script = sandboxd("completion", "bash").stdout
    assert "_SANDBOXD_COMPLETE=bash_complete" in script
    words = {
        "_SANDBOXD_COMPLETE": "bash_complete",
        "COMP_WORDS": "sandboxd appr",
        "COMP_CWORD": "1",
    }
    assert sandboxd(**words).stdout == "plain,approve\n"
    words.update(COMP_WORDS="sandboxd approve --an", COMP_CWORD="2")
    assert sandboxd(**words).stdout == "plain,--answer\n"
    assert sandboxd("completion", "tcsh").returncode == 2


def test_status_names_sessions_and_queues(tmp_path: Path) -> None:
    path = f"/tmp/sbx-st-{os.getpid()}"
    daemon = subprocess.Popen([*CLI, "serve", "--socket", path], stdout=subprocess.PIPE)
    try:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        with Client.connect(path, workspace=str(tmp_path)) as client:
            assert client.session is not None
            told = json.loads(sandboxd("status", "--socket", path, "--json").stdout)
            assert (told["connections"], told["sessions"], told["approvals"]) == (2, 1, 0)
            assert told["rss_bytes"] > 1 << 20
            [entry] = told["session_list"]
            assert (entry["session_id"], entry["clients"]) == (client.session.session_id, 1)
            shown = sandboxd("status", "--socket", path).stdout
            assert "question(s) for a person" in shown
            assert f"session {client.session.session_id}: {tmp_path}" in shown
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
    finally:
        daemon.terminate()
        daemon.wait(30)
