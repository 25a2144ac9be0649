"""`service`: the daemon as a service of the user's own, started when somebody connects.

systemd: a socket unit and a service unit of the user manager. macOS: a launchd agent that starts at login
and is kept running. Nothing is installed for other users, and nothing needs root.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from xml.sax.saxutils import escape

import click

from sandboxd.cli.told import tell
from sandboxd.config import socket_path
from sandboxd.errors import DaemonUnreachable, PlatformUnsupported
from sandboxd.protocol.asking import connect_socket

LABEL = "sandboxd"
FAILED = 1

SOCKET_UNIT = """[Unit]
Description=sandboxd, the gate beneath a coding agent's tools (socket)

[Socket]
ListenStream={socket}
SocketMode=0600
DirectoryMode=0700

[Install]
WantedBy=sockets.target
"""
SERVICE_UNIT = """[Unit]
Description=sandboxd, the gate beneath a coding agent's tools
Requires=sandboxd.socket
After=sandboxd.socket

[Service]
ExecStart={command} serve --log-json
KillMode=mixed
TimeoutStopSec=20
Restart=on-failure
"""
AGENT = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>{label}</string>
  <key>ProgramArguments</key><array>{words}</array>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
</dict>
</plist>
"""


@click.group("service")
def service_command() -> None:
    """Have the daemon started by systemd (when somebody connects) or launchd (at login)."""


def _is_mac() -> bool:
    return os.uname().sysname == "Darwin"


def files() -> dict[str, str]:
    """Path and content of what is installed. Raises PlatformUnsupported."""
    command = [sys.executable, "-P", "-m", "sandboxd"]
    home = os.environ.get("HOME", "")
    if _is_mac():
        words = "".join(
            f"<string>{escape(word)}</string>" for word in (*command, "serve", "--log-json")
        )
        path = os.path.join(home, "Library/LaunchAgents", f"{LABEL}.plist")
        return {path: AGENT.format(label=LABEL, words=words)}
    if os.uname().sysname != "Linux":
        raise PlatformUnsupported(
            "there is no service manager here that is known",
            hint="start `sandboxd serve --detach` where you log in",
        )
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    folder = os.path.join(base, "systemd/user")
    quoted = " ".join(_for_systemd(word) for word in command)
    return {
        os.path.join(folder, "sandboxd.socket"): SOCKET_UNIT.format(
            socket=socket_path().replace("%", "%%")
        ),
        os.path.join(folder, "sandboxd.service"): SERVICE_UNIT.format(command=quoted),
    }


def _for_systemd(word: str) -> str:
    """One word of ExecStart=, as systemd.syntax(7) and systemd.unit(5) quote it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


@service_command.command("install")
@click.option("--print", "is_print", is_flag=True, help="Print the files and install nothing.")
def install(is_print: bool) -> int:
    """Write the units and start listening."""
    wanted = files()
    for path, content in wanted.items():
        if is_print:
            click.echo(f"# {path}\n{content}")
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        click.echo(f"wrote {path}")
    return 0 if is_print else _manage(_starting(list(wanted)))


@service_command.command("uninstall")
def uninstall() -> int:
    """Stop listening and remove the units; runs in progress are ended."""
    wanted = [path for path in files() if os.path.lexists(path)]
    if not wanted:
        click.echo("nothing is installed")
        return 0
    code = _manage(_stopping(wanted))
    for path in wanted:
        os.unlink(path)
        click.echo(f"removed {path}")
    if not _is_mac():
        _manage([["systemctl", "--user", "daemon-reload"]])
    return code


@service_command.command("status")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def status(is_json: bool) -> int:
    """Say what is installed and whether somebody answers; exit 1 when nobody does."""
    installed = {path: os.path.lexists(path) for path in files()}
    try:
        connect_socket(None).close()
        answers = True
    except DaemonUnreachable:
        answers = False
    if is_json:
        told = {"socket": socket_path(), "answers": answers, "installed": installed}
        click.echo(json.dumps(told))
    else:
        for path, is_there in installed.items():
            click.echo(f"{'installed' if is_there else 'missing  '} {path}")
        click.echo(f"{'somebody' if answers else 'nobody'} answers on {socket_path()}")
    return 0 if answers else FAILED


def _starting(paths: list[str]) -> list[list[str]]:
    if _is_mac():
        return [["launchctl", "load", "-w", path] for path in paths]
    return [
        ["systemctl", "--user", "daemon-reload"],
        ["systemctl", "--user", "enable", "--now", "sandboxd.socket"],
    ]


def _stopping(paths: list[str]) -> list[list[str]]:
    if _is_mac():
        return [["launchctl", "unload", "-w", path] for path in paths]
    return [
        ["systemctl", "--user", "disable", "--now", "sandboxd.socket"],
        ["systemctl", "--user", "stop", "sandboxd.service"],
    ]


def _manage(commands: list[list[str]]) -> int:
    """Run the service manager's commands; where it is not to be had, say which they are."""
    for words in commands:
        done = None
        if shutil.which(words[0]) is not None:
            done = subprocess.run(words, check=False, capture_output=True, text=True)
        if done is None or done.returncode != 0:
            why = done.stderr.strip() if done is not None else f"there is no {words[0]}"
            tell(f"the service manager did not take it: {why}")
            tell("hint: run this where you are logged in: " + shlex.join(words))
            return FAILED
    return 0
