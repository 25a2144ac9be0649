"""What the attempts of `sandboxd verify` are aimed at: made by the verifier, gone afterwards.

Nothing of the user's own is ever a target. The folders lie below /var/tmp: what lies below /tmp is
hidden by a private /tmp anyway, and would show nothing about the tier.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import cast

BASE = "/var/tmp"
SHARED_MEMORY = "/dev/shm"
CONTENT = b"as it was\n"
LOOK_S = 0.005
"""Between two looks at what the attempts wish."""


class Victims:
    """The folders of one verification, and the facts that the attempts are told."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.mark = os.path.basename(top)
        self.home, self.outside, self.workspace, self.tmp = (
            os.path.join(top, name) for name in ("home", "outside", "workspace", "tmp")
        )
        self.daemon_folder = os.path.join(top, "daemon")
        self.secret = secrets.token_hex(16)
        self.facts: dict[str, str | int | bool] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def make_files(self) -> None:
        for folder in (self.home, self.outside, self.workspace, self.tmp, self.daemon_folder):
            os.mkdir(folder, 0o700)
        for name in (".ssh/id_rsa", ".netrc"):
            put(f"{self.home}/{name}", self.secret.encode())
        for path in (
            f"{self.home}/.bashrc",
            *(f"{self.outside}/{name}" for name in ("file", "to_unlink", "to_rename")),
            *(
                f"{self.workspace}/{name}"
                for name in (".envrc", ".mcp.json", ".claude/settings.json")
            ),
            *(f"{self.workspace}/.git/{name}" for name in ("config", "hooks/pre-commit")),
        ):
            put(path, CONTENT)
        put(f"{self.workspace}/.git/HEAD", b"ref: refs/heads/main\n")
        for folder in ("objects", "refs"):
            os.mkdir(f"{self.workspace}/.git/{folder}")
        put(f"{self.top}/hard", CONTENT)
        os.link(f"{self.top}/hard", f"{self.workspace}/hard")
        put(f"{SHARED_MEMORY}/{self.mark}", CONTENT)
        self.facts |= {
            "secret": f"{self.home}/.ssh/id_rsa",
            "secret_digest": hashlib.sha256(self.secret.encode()).hexdigest(),
            "replaced_secret": f"{self.home}/.netrc",
            "late_socket": f"{self.top}/late",
            "home_file": f"{self.home}/.bashrc",
            "outside": self.outside,
            "victim_file": f"{self.outside}/file",
            "shared_memory": f"{SHARED_MEMORY}/{self.mark}",
            "mark": self.mark,
            "uid": os.getuid(),
        }

    def start_process(self) -> None:
        """A process of this user with a secret in its environment."""
        code = "import sys, time; print('up', flush=True); time.sleep(120)"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", code, "VERIFY"],
            stdout=subprocess.PIPE,
            env={"VERIFY_SECRET": self.secret},
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.facts["victim"] = self.process.pid

    def view(self) -> dict[str, bytes]:
        """Every file outside the workspace with its content: what no run may change."""
        found = {}
        for top in (self.home, self.outside):
            for folder, _, names in os.walk(top):
                for name in names:
                    with open(os.path.join(folder, name), "rb") as file:
                        found[os.path.join(folder, name)] = file.read()
        return found

    def is_process_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def survivors(self) -> list[int]:
        """Processes that carry our mark in their arguments: what is left of a run."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                if f'"mark": "{self.mark}"'.encode() in file.read():
                    found.append(int(name))
        return found

    def remove(self) -> None:
        for pid in self.survivors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{SHARED_MEMORY}/{self.mark}")
        shutil.rmtree(self.top, ignore_errors=True)


class _Wishes:
    """What the attempts ask the host to do while they run: a file of the workspace says it."""

    def __init__(self, victims: Victims, stack: contextlib.AsyncExitStack) -> None:
        self.victims = victims
        self.stack = stack

    async def serve(self) -> None:
        acts = {
            "late_socket": self.late_socket,
            "replaced_secret": self.replaced_secret,
            "replaced_protected": self.replaced_protected,
        }
        while True:
            for name, act in acts.items():
                wish, done = (
                    f"{self.victims.workspace}/{word}-{name}" for word in ("wish", "done")
                )
                if os.path.exists(wish) and not os.path.exists(done):
                    await act()
                    put(done, b"")
            await asyncio.sleep(LOOK_S)

    async def late_socket(self) -> None:
        server = await asyncio.start_unix_server(_hang_up, f"{self.victims.top}/late")
        self.stack.callback(server.close)

    async def replaced_secret(self) -> None:
        _rename_over(f"{self.victims.home}/.netrc", self.victims.secret.encode())

    async def replaced_protected(self) -> None:
        _rename_over(f"{self.victims.workspace}/.mcp.json", CONTENT)


def _rename_over(path: str, content: bytes) -> None:
    put(path + ".new", content)
    os.rename(path + ".new", path)


class _Echo(asyncio.DatagramProtocol):
    """Answers every datagram, so that the sender knows that it arrived."""

    transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | None, int]) -> None:
        self.transport.sendto(b"heard", addr)


@contextlib.asynccontextmanager
async def make() -> AsyncIterator[Victims]:
    """Files, a process, listeners on every kind of socket and a terminal, for one verification."""
    victims = Victims(os.path.realpath(tempfile.mkdtemp(prefix="sandboxd-verify-", dir=BASE)))
    terminal = os.openpty()
    try:
        victims.make_files()
        victims.start_process()
        victims.facts["terminal"] = os.ttyname(terminal[1])
        async with contextlib.AsyncExitStack() as stack:
            await _listen(victims, stack)
            serving = asyncio.ensure_future(_Wishes(victims, stack).serve())
            stack.callback(serving.cancel)
            yield victims
    finally:
        for fd in terminal:
            os.close(fd)
        victims.remove()


async def _listen(victims: Victims, stack: contextlib.AsyncExitStack) -> None:
    tcp = await asyncio.start_server(_hang_up, "127.0.0.1", 0)
    victims.facts["tcp_port"] = tcp.sockets[0].getsockname()[1]
    paths = {
        "daemon_socket": f"{victims.daemon_folder}/s",
        "host_socket": f"{victims.top}/s",
        "abstract_socket": f"\0{victims.mark}",
    }
    servers = [tcp]
    for name, path in paths.items():
        servers.append(await asyncio.start_unix_server(_hang_up, path))
        victims.facts[name] = path.lstrip("\0")
    for server in servers:
        stack.callback(server.close)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(_Echo, ("127.0.0.1", 0))
    stack.callback(transport.close)
    victims.facts["udp_port"] = transport.get_extra_info("sockname")[1]


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def put(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
