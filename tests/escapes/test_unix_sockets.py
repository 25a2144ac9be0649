"""Unix sockets: the run's own work, the host's are out of reach under every name.

A server of the host listens outside the workspace; behind such sockets stand Docker, D-Bus, the
ssh agent, databases: each a full escape.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import msgspec
import pytest

from sandboxd.model import NetworkMode
from tests.confined import ATTEMPT, REQUIRED_TIERS, Ground, make_ground, python_in

KERNEL = [name for name in REQUIRED_TIERS if name != "containment"]

CONNECT = "attempt(lambda: socket.socket(socket.AF_UNIX).connect({address!r}))"


class Server:
    """Listens at a path of the host and notes who came."""

    def __init__(self, bound_to: str, folder: str | None = None) -> None:
        self.visitors: list[bytes] = []
        self._socket = socket.socket(socket.AF_UNIX)
        before = os.getcwd()
        if folder is not None:
            os.chdir(folder)
        try:
            self._socket.bind(bound_to)
        finally:
            os.chdir(before)
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            while True:
                connected, _ = self._socket.accept()
                self.visitors.append(b"came")
                connected.close()
        except OSError:
            return

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def ground() -> Iterator[Ground]:
    yield from make_ground()


@pytest.fixture
def server(ground: Ground) -> Iterator[Server]:
    made = Server(ground.outside + "/s.sock")
    yield made
    made.close()


@pytest.fixture(params=KERNEL)
def tier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_runs_own_sockets_work(tier: str, ground: Ground) -> None:
    """In the workspace by a relative and an absolute name, and in the temporary folder."""
    code = """
import os, socket, threading
kept = []
for path in ("own.sock", os.path.abspath("abs.sock"), os.environ["TMPDIR"] + "/t.sock"):
    server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen(); kept.append(server)
    client = socket.socket(socket.AF_UNIX); client.connect(path)
    peer, _ = server.accept(); peer.sendall(b"hello"); assert client.recv(5) == b"hello"
os.mkdir("sub"); os.chdir("sub")
client = socket.socket(socket.AF_UNIX); client.connect("../own.sock")
os.symlink("../own.sock", "link"); socket.socket(socket.AF_UNIX).connect("link")
assert socket.socket(socket.AF_UNIX).connect_ex("missing.sock") == 2
print("fine")
"""
    assert python_in(tier, ground, code) == "fine"


def test_a_manager_process_serves_its_children(tier: str, ground: Ground) -> None:
    code = "from multiprocessing import Manager\nwith Manager() as m:\n l = m.list([1]); l.append(2); print(list(l))"
    assert python_in(tier, ground, code) == "[1, 2]"


def test_a_full_backlog_waits_instead_of_failing(tier: str, ground: Ground) -> None:
    code = """
import socket, threading, time
server = socket.socket(socket.AF_UNIX); server.bind("s"); server.listen(0)
def later():
    time.sleep(0.3)
    for _ in range(4): server.accept()
threading.Thread(target=later).start()
clients = [socket.socket(socket.AF_UNIX) for _ in range(4)]
for client in clients: client.connect("s")
fast = socket.socket(socket.AF_UNIX); fast.setblocking(False)
print("fine")
"""
    assert python_in(tier, ground, code) == "fine"


ROADS = {
    "absolute": "{outside}/s.sock",
    "dotted": "{workspace}/../outside/s.sock",
    "relative": "../outside/s.sock",
    "link": "link",
    "link_to_folder": "folder/s.sock",
    "through_proc": "/proc/self/root{outside}/s.sock",
    "through_cwd": "/proc/self/cwd/../outside/s.sock",
}


@pytest.mark.parametrize("road", ROADS)
def test_a_socket_of_the_host_is_not_reached(
    road: str, tier: str, ground: Ground, server: Server
) -> None:
    os.symlink(ground.outside + "/s.sock", ground.workspace + "/link")
    os.symlink(ground.outside, ground.workspace + "/folder")
    address = ROADS[road].format(outside=ground.outside, workspace=ground.workspace)
    code = ATTEMPT + f"print({CONNECT.format(address=address)})"
    assert python_in(tier, ground, code) in ("EPERM", "EACCES", "ENOENT")
    assert server.visitors == []


class Service(Server):
    """A service of the host that would act with the user's full rights for whoever asks."""

    def _serve(self) -> None:
        try:
            while True:
                connected, _ = self._socket.accept()
                self.visitors.append(connected.recv(100))
                connected.sendall(b"HTTP/1.1 201 Created\r\n\r\n")
                connected.close()
        except OSError:
            return


SERVICES = {
    "docker": ("{outside}/docker.sock", "DOCKER_HOST", "unix://{place}"),
    "dbus": ("\0dbus-{mark}", "DBUS_SESSION_BUS_ADDRESS", "unix:abstract=dbus-{mark}"),
    "dbus_by_path": ("{outside}/bus", "DBUS_SESSION_BUS_ADDRESS", "unix:path={place}"),
    "ssh_agent": ("{outside}/agent", "SSH_AUTH_SOCK", "{place}"),
    "x11": ("\0/tmp/.X11-unix/X{mark}", "DISPLAY", ":{mark}"),
}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_that_acts_for_the_user_is_not_reached(
    service: str, tier: str, ground: Ground
) -> None:
    """Though the run knows where it listens, and every variable that leads there is set."""
    place, variable, value = SERVICES[service]
    mark = str(os.getpid())
    place = place.format(outside=ground.outside, mark=mark)
    made = Service(place)
    try:
        code = (
            ATTEMPT
            + f"""
def ask():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect({place!r}); s.sendall(b"POST /containers/create"); s.recv(100)
print(attempt(ask))"""
        )
        address = value.format(place=place, mark=mark)
        answer = python_in(tier, ground, code, **{variable: address})
        assert answer in ("EPERM", "EACCES", "ENOENT", "ECONNREFUSED")
        assert made.visitors == []
    finally:
        made.close()


def test_renamed_relative_and_later_sockets_are_not_reached(tier: str, ground: Ground) -> None:
    relative = Server("rel.sock", ground.outside)
    renamed = Server(ground.outside + "/before.sock")
    os.rename(ground.outside + "/before.sock", ground.outside + "/after.sock")
    code = ATTEMPT
    for name in ("rel.sock", "after.sock"):
        code += f"print({CONNECT.format(address=ground.outside + '/' + name)})\n"
    answers = python_in(tier, ground, code).split()
    assert set(answers) <= {"EPERM", "EACCES"}, answers
    assert relative.visitors == renamed.visitors == []
    relative.close()
    renamed.close()


def test_a_link_swapped_after_the_look_does_not_win(
    tier: str, ground: Ground, server: Server
) -> None:
    """Two threads: one flips a link between the run's own socket and the host's, one connects."""
    code = f"""
import os, socket, threading, time
own = socket.socket(socket.AF_UNIX); own.bind("own.sock"); own.listen(500)
def accept():
    while True: own.accept()[0].close()
threading.Thread(target=accept, daemon=True).start()
def flip():
    while True:
        for target in ("own.sock", {ground.outside + "/s.sock"!r}):
            os.symlink(target, "new"); os.rename("new", "road")
os.symlink("own.sock", "road")
threading.Thread(target=flip, daemon=True).start()
end = time.monotonic() + 2; reached = 0
while time.monotonic() < end:
    client = socket.socket(socket.AF_UNIX)
    reached += client.connect_ex("road") == 0
    client.close()
print(reached > 0, flush=True)
os._exit(0)
"""
    assert python_in(tier, ground, code) == "True"
    assert server.visitors == []


def test_an_address_changed_after_the_look_does_not_win(
    tier: str, ground: Ground, server: Server
) -> None:
    """The address lies in shared memory and is rewritten all the time by another thread."""
    code = f"""
import ctypes, os, socket, threading, time
own = socket.socket(socket.AF_UNIX); own.bind("own.sock"); own.listen(500)
def accept():
    while True: own.accept()[0].close()
threading.Thread(target=accept, daemon=True).start()
def sockaddr(path): return (b"\\x01\\x00" + path.encode()).ljust(110, b"\\0")
good, bad = sockaddr("own.sock"), sockaddr({ground.outside + "/s.sock"!r})
memory = ctypes.create_string_buffer(good, 110)
def flip():
    while True:
        ctypes.memmove(memory, bad, 110); ctypes.memmove(memory, good, 110)
threading.Thread(target=flip, daemon=True).start()
libc = ctypes.CDLL(None)
end = time.monotonic() + 2; reached = 0
while time.monotonic() < end:
    client = socket.socket(socket.AF_UNIX)
    reached += libc.connect(client.fileno(), memory, 110) == 0
    client.close()
print(reached > 0, flush=True)
os._exit(0)
"""
    assert python_in(tier, ground, code) == "True"
    assert server.visitors == []


def test_high_register_halves_give_no_way_past_init(
    tier: str, ground: Ground, server: Server
) -> None:
    """Init's own calls carry random words there; zeros, ones and the placeholders are none."""
    code = (
        ATTEMPT
        + f"""
address = (b"\\x01\\x00" + {ground.outside + "/s.sock"!r}.encode()).ljust(110, b"\\0")
for high, low in ((0x5EC0C0DE, 0x5EC0C0DF), (0xFFFFFFFF, 0xFFFFFFFF), (0, 0), (1, 1)):
    client = socket.socket(socket.AF_UNIX)
    fd = ctypes.c_long((low << 32 | client.fileno()) - (1 << 64 if low >> 31 else 0))
    size = ctypes.c_long((high << 32 | 110) - (1 << 64 if high >> 31 else 0))
    print(attempt(lambda: syscall(42 if os.uname().machine == "x86_64" else 203, fd, address, size)))
"""
    )
    answers = python_in(tier, ground, code).split()
    assert set(answers) <= {"EPERM", "EACCES", "EINVAL"}, answers
    assert server.visitors == []


@pytest.mark.parametrize("network", [NetworkMode.OFF, NetworkMode.HOST])
def test_abstract_names_of_the_host_are_not_reached(
    network: NetworkMode, tier: str, ground: Ground
) -> None:
    name = f"\0sandboxd-{os.getpid()}-{network.value}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        code = ATTEMPT + f"print({CONNECT.format(address=name)})"
        answer = python_in(tier, ground, code, ground.policy(network))
        assert answer in ("EPERM", "ECONNREFUSED")


def test_with_unix_sockets_none_there_are_only_pairs(tier: str, ground: Ground) -> None:
    policy = msgspec.structs.replace(ground.policy(), unix_sockets="none")
    code = (
        ATTEMPT
        + "print(attempt(lambda: socket.socket(socket.AF_UNIX)), attempt(socket.socketpair))"
    )
    assert python_in(tier, ground, code, policy) == "EPERM ALLOWED"


def test_internet_connections_keep_their_meaning(tier: str, ground: Ground) -> None:
    """Blocking, non-blocking, refused, timed out and interrupted connects answer as without us."""
    code = """
import errno, signal, socket, threading
server = socket.create_server(("127.0.0.1", 0)); address = server.getsockname()
with socket.create_connection(address) as client:
    assert not client.get_inheritable() and client.getpeername() == address
closed = socket.create_server(("127.0.0.1", 0)); gone = closed.getsockname(); closed.close()
assert socket.socket().connect_ex(gone) == errno.ECONNREFUSED
quick = socket.socket(); quick.setblocking(False)
assert quick.connect_ex(address) in (0, errno.EINPROGRESS)
timed = socket.socket(); timed.settimeout(5); timed.connect(address)
assert timed.gettimeout() == 5
assert socket.socket().connect_ex(("127.0.0.1", 0)) == errno.ECONNREFUSED
datagram = socket.socket(type=socket.SOCK_DGRAM); datagram.connect(address)
six = socket.socket(socket.AF_INET6)
assert six.connect_ex(("::1", gone[1])) in (errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETUNREACH)
results = []
threads = [threading.Thread(target=lambda: results.append(socket.create_connection(address))) for _ in range(50)]
[t.start() for t in threads]; [t.join() for t in threads]
assert len(results) == 50
try:
    open("/dev/null").close(); socket.socket(fileno=0).connect(address)
except OSError as error:
    assert error.errno == errno.ENOTSOCK, error
print("fine")
"""
    assert python_in(tier, ground, code) == "fine"


def test_a_socket_server_of_node_listens_and_answers(tier: str, ground: Ground) -> None:
    code = """
const net = require('net');
const server = net.createServer(c => c.end('hello')).listen('n.sock', () => {
  net.connect('n.sock').on('data', d => { console.log(String(d)); server.close(); });
});
"""
    from tests.confined import run_in

    ended, output = run_in(tier, ground, [node(), "-e", code])
    assert (ended.code, output) == (0, "hello\n")


def node() -> str:
    found = subprocess.run(["which", "node"], capture_output=True, text=True, check=True).stdout
    return found.strip() or sys.exit("node is missing")
