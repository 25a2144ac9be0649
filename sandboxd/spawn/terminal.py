"""A run's own pty: made by init in the run's devpts, its master handed to the daemon.

The user's own terminal is never passed in: a survivor would read the next password typed on it. A
pty that the daemon made would not exist in the run's devpts, so `tty`, tmux and gpg would fail.

Init is the session leader and the pty its controlling terminal; the program is the foreground
group of that session. That order makes Ctrl-Z work: a group whose parent lies in another session
is orphaned, and the kernel does not stop those. So the program is started by fork here: it must
be in the foreground before it runs, and posix_spawn(3) cannot say so from Python.

Loaded by init: nothing but C modules and `os` may be imported here.
Sources: pts(4), ioctl_tty(2), tcsetpgrp(3), setpgid(2), credentials(7).
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket
import fcntl
import marshal
import os
import sys
import termios

from sandboxd.spawn.reports import SetUpFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

TIOCGPTN = 0x80045430
TIOCSPTLCK = 0x40045431
IUTF8 = 0o40000

JOB_SIGNALS = (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGQUIT)


def make(cols: int, rows: int, control: _socket.socket) -> int:
    """A pty of that size as our controlling terminal; its master goes to the daemon, its slave is
    returned. We must be a session leader without a terminal. Raises SetUpFailed."""
    stage = "/dev/ptmx"
    try:
        master = os.open(stage, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        fcntl.ioctl(master, TIOCSPTLCK, (0).to_bytes(4, sys.byteorder))
        number = int.from_bytes(fcntl.ioctl(master, TIOCGPTN, bytes(4)), sys.byteorder)
        stage = f"/dev/pts/{number}"
        slave = os.open(stage, os.O_RDWR | os.O_CLOEXEC)
        _dress(slave, cols, rows)
    except OSError as error:
        raise SetUpFailed("pty", error.errno or 0, stage) from None
    ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, master.to_bytes(4, sys.byteorder))]
    control.sendmsg([marshal.dumps(("pty",))], ancillary)
    os.close(master)
    return slave


def _dress(slave: int, cols: int, rows: int) -> None:
    size = b"".join(value.to_bytes(2, sys.byteorder) for value in (rows, cols, 0, 0))
    fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
    settings = termios.tcgetattr(slave)
    settings[0] |= IUTF8
    termios.tcsetattr(slave, termios.TCSANOW, settings)


def start(
    program: bytes,
    argv: list[bytes],
    environment: dict[bytes, bytes],
    places: dict[int, int],
    slave: int,
    default_signals: tuple[int, ...],
) -> int:
    """The program as the foreground group of our session, with the descriptors `places` (number
    there: number here). Returns its pid once it has been executed; raises OSError when it was not."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(program, argv, environment, places, slave, default_signals, tell)
    os.close(tell)
    try:
        failed = os.read(told, 4)
    finally:
        os.close(told)
    if failed:
        os.waitpid(pid, 0)
        raise OSError(int.from_bytes(failed, sys.byteorder), "exec")
    return pid


def _become(
    program: bytes,
    argv: list[bytes],
    environment: dict[bytes, bytes],
    places: dict[int, int],
    slave: int,
    default_signals: tuple[int, ...],
    tell: int,
) -> NoReturn:
    """The forked child: never returns (fact 1 of `zygote`)."""
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # we are in the background still
        os.tcsetpgrp(slave, os.getpid())
        signal.set_wakeup_fd(-1)
        for number in (*default_signals, *JOB_SIGNALS):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for place, fd in places.items():
            os.dup2(fd, place)
        os.execve(program, argv, environment)
    except OSError as error:
        os.write(tell, (error.errno or 1).to_bytes(4, sys.byteorder))
    finally:
        os._exit(127)


def foreground(slave: int) -> int:
    """The group that is in the foreground; 0 when there is none."""
    try:
        return max(0, os.tcgetpgrp(slave))
    except OSError:
        return 0
