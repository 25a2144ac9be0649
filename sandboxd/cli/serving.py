"""`serve`: the daemon in the foreground, detached, or over stdio."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable

import click

from sandboxd.client import Client
from sandboxd.config import socket_path
from sandboxd.daemon.lifecycle import handed_socket, held_lock, held_socket
from sandboxd.daemon.report import Report, as_json, unreported
from sandboxd.daemon.server import serve_socket, serve_stdio
from sandboxd.errors import Fault, Refusal, SandboxdError
from sandboxd.protocol.asking import connect_socket

_HIGHEST_FD = 1 << 20


@click.command("serve")
@click.option("--socket", metavar="PATH", help="Listen here (SANDBOXD_SOCKET).")
@click.option("--detach", is_flag=True, help="Go to the background; return once it answers.")
@click.option("--stdio", is_flag=True, help="Serve one client over stdin and stdout.")
@click.option("--json", "is_json", is_flag=True, help="Say pid and socket as JSON.")
@click.option("--log-json", is_flag=True, help="Tell what happens as JSON lines on stderr.")
def serve_command(
    socket: str | None, detach: bool, stdio: bool, is_json: bool, log_json: bool
) -> int:
    """Run the daemon that `exec` and other clients talk to.

    It stops on SIGTERM, SIGINT and SIGHUP: runs are ended, the socket is removed. Where a service
    manager hands the socket over (LISTEN_FDS), that one is used; see `sandboxd service`.
    """
    if stdio:
        if socket or detach:
            raise click.UsageError("--stdio excludes --socket and --detach")
        asyncio.run(serve_stdio())
        return 0
    if log_json and detach:
        raise click.UsageError("--log-json excludes --detach, which has no stderr")
    report = as_json if log_json else unreported
    handed = handed_socket()
    if handed is not None:
        path = handed.getsockname()
        with held_lock(path):
            asyncio.run(
                serve_socket(handed, path, lambda: _say(os.getpid(), path, is_json=is_json), report)
            )
        return 0
    path = socket_path(socket)
    if detach:
        return _detach(path, is_json=is_json)
    _serve(path, lambda: _say(os.getpid(), path, is_json=is_json), report)
    return 0


def _serve(path: str, ready: Callable[[], None], report: Report = unreported) -> None:
    with held_socket(path) as listening:
        asyncio.run(serve_socket(listening, path, ready, report))


def _say(pid: int, path: str, *, is_json: bool) -> None:
    if is_json:
        click.echo(json.dumps({"pid": pid, "socket": path}))
    else:
        click.echo(f"listening on {path} (pid {pid})")


# --------------------------------------------------------------------------- detached


def _detach(path: str, *, is_json: bool) -> int:
    """Start the daemon in a session of its own; returns when it has answered a call."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _daemonised(path, write)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as said:
        report = said.read()
    if not report:
        raise Fault("the daemon ended before it could say why; try it without --detach")
    told = json.loads(report)
    if "error" in told:
        raise Refusal.from_wire(told["error"])
    with Client(connect_socket(path)) as client:
        status = client.status()
    _say(status.pid, path, is_json=is_json)
    return 0


def _daemonised(path: str, report: int) -> None:
    """The daemon's own life after the fork; never returns."""
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    code = 1
    try:
        os.chdir("/")
        # A pipe that our caller waits on must not stay open for as long as the daemon lives.
        os.closerange(3, report)
        os.closerange(report + 1, _HIGHEST_FD)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        _serve(path, lambda: _report(report, {"pid": os.getpid()}))
        code = 0
    except Refusal as refusal:
        _report(report, {"error": refusal.to_wire()})
    except SandboxdError as error:
        _report(report, {"error": {"message": str(error)}})
    except BaseException as error:
        _report(report, {"error": {"message": f"{type(error).__name__}: {error}"}})
    finally:
        os._exit(code)


def _report(number: int, told: object) -> None:
    try:
        os.write(number, json.dumps(told).encode())
        os.close(number)
    except OSError:
        return
