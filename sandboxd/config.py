"""Where sandboxd keeps things: socket, state, temporary folders, user configuration.

A module of its own because the `exec` fast path needs the socket path and nothing else: it
imports only `os`, no YAML, no typing machinery. Environment variables begin with
`SANDBOXD_`. Sources: unix(7) for the length of sun_path, the XDG base directory specification.
"""

from __future__ import annotations

import os

from sandboxd.errors import SocketUnusable

SOCKET_NAME = "sandboxd.sock"
SUN_PATH_MAX = 103 if os.uname().sysname == "Darwin" else 107
"""Bytes that fit into sockaddr_un.sun_path before its terminating NUL."""


def socket_path(explicit: str | None = None) -> str:
    """The path of the daemon's socket: `--socket`, `SANDBOXD_SOCKET`, the runtime folder.

    The runtime folder is `$XDG_RUNTIME_DIR/sandboxd`, or a short private one below /tmp when
    that is unset, unwritable or too long. Nothing is created. Raises SocketUnusable when a
    path that was named is too long.
    """
    named = explicit or os.environ.get("SANDBOXD_SOCKET")
    if named:
        return _checked(os.path.abspath(named))
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base.startswith("/") and os.access(base, os.W_OK | os.X_OK):
        path = os.path.join(base, "sandboxd", SOCKET_NAME)
        if len(os.fsencode(path)) <= SUN_PATH_MAX:
            return path
    return os.path.join(private_folder(), SOCKET_NAME)


def _checked(path: str) -> str:
    length = len(os.fsencode(path))
    if length > SUN_PATH_MAX:
        raise SocketUnusable(
            f"the socket path has {length} bytes; this system takes {SUN_PATH_MAX}",
            hint="name a shorter path with --socket or SANDBOXD_SOCKET",
            path=path,
        )
    return path


def private_folder() -> str:
    """The short per-user folder below /tmp (not created here)."""
    return f"/tmp/sandboxd-{os.getuid()}"


def make_private(folder: str, mode: int = 0o700) -> str:
    """Create `folder` with `mode`, or prove that an existing one is ours and private.

    Raises SocketUnusable when it cannot be made, is a link, belongs to somebody else or is open
    to others: another user could otherwise sit in a world-writable /tmp and wait for us.
    """
    try:
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        try:
            os.mkdir(folder, mode)
        except FileExistsError:
            pass
        found = os.lstat(folder)
    except OSError as error:
        raise SocketUnusable(
            f"cannot use the folder {folder}: {error.strerror}",
            hint="name another place with --socket or SANDBOXD_SOCKET, or set XDG_RUNTIME_DIR",
            path=folder,
        ) from error
    is_folder = (found.st_mode & 0o170000) == 0o040000
    if not is_folder or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise SocketUnusable(
            f"{folder} is not a private folder of this user",
            hint=f"remove it, or make it yours alone: chown {os.getuid()} and chmod 700",
            path=folder,
        )
    return folder


def state_folder() -> str:
    """Where events and kept output live: `$XDG_STATE_HOME/sandboxd`, created with mode 0700.

    Falls back to the private folder below /tmp when the home folder cannot be written (service
    accounts such as nobody have none).
    """
    home = os.environ.get("HOME", "")
    base = os.environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        base = os.path.join(home, ".local", "state") if home.startswith("/") else ""
    if base:
        try:
            return make_private(os.path.join(base, "sandboxd"))
        except SocketUnusable:
            pass
    return make_private(os.path.join(_shared_base(), "state"))


def temp_folder() -> str:
    """Where sessions' private temporary folders lie, on disk: below $TMPDIR, else /tmp."""
    return make_private(os.path.join(_shared_base(), "sessions"), _walkable())


def temp_base() -> str:
    """The per-user folder that holds them (not created here); hidden from every run."""
    base = os.environ.get("TMPDIR", "")
    if not base.startswith("/") or not os.path.isdir(base):
        base = "/tmp"
    return os.path.join(os.path.realpath(base), f"sandboxd-{os.getuid()}")


def _shared_base() -> str:
    return make_private(temp_base(), _walkable())


def _walkable() -> int:
    """Root's runs act as the workspace's owner, who must be able to walk to the run's own folder."""
    return 0o711 if os.getuid() == 0 else 0o700


def config_folder() -> str:
    """`$XDG_CONFIG_HOME/sandboxd`; it may not exist."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        base = os.path.join(os.environ.get("HOME", "/"), ".config")
    return os.path.join(base, "sandboxd")
