"""Which file a command would execute: PATH look-up with the run's environment, and bash itself.

Done before anybody is asked: no one should approve a command that cannot start.
"""

from __future__ import annotations

import os
import stat

from sandboxd.errors import InvalidArgument, NotExecutable, ProgramMissing
from sandboxd.model import ExecRequest

BASH_PLACES = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/opt/homebrew/bin/bash")


def bash() -> str | None:
    """The bash that runs shell text, by absolute path; None when the host has none."""
    return next((path for path in BASH_PLACES if os.access(path, os.X_OK)), None)


def shell_name() -> str:
    """What runs shell text on this host, as the classifier names it."""
    return "bash" if bash() is not None else "sh"


def command_line(request: ExecRequest, path: str, cwd: str) -> tuple[str, tuple[str, ...]]:
    """(program, argv) of the request. Raises ProgramMissing, NotExecutable, InvalidArgument."""
    if request.argv is not None:
        _check_arguments(request.argv)
        return find_program(request.argv[0], path, cwd), request.argv
    text = request.command or ""
    _check_arguments((text,))
    shell = bash()
    if shell is not None:
        return shell, ("bash", "--noprofile", "--norc", "-c", text)
    return find_program("sh", path, cwd), ("sh", "-c", text)


def find_program(name: str, path: str, cwd: str) -> str:
    """The absolute path of the program, as execvp(3) would find it with this PATH."""
    if "/" in name:
        return _checked(os.path.join(cwd, name), name)
    unusable = None
    for folder in path.split(":"):
        candidate = os.path.join(cwd, folder, name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            unusable = unusable or candidate
    if unusable is not None:
        raise _not_executable(unusable)
    raise ProgramMissing(
        f"there is no program {name!r} on PATH",
        hint="install it, correct the name, or give its path; shell text (pipes, builtins) goes with -c",
        path=name,
    )


def _checked(path: str, name: str) -> str:
    try:
        found = os.stat(path)
    except OSError as error:
        raise ProgramMissing(
            f"there is no program {name!r}: {error.strerror}",
            hint="check the path; a relative one starts at the working directory",
            path=name,
        ) from error
    if stat.S_ISDIR(found.st_mode) or not os.access(path, os.X_OK):
        raise _not_executable(path)
    return path


def _not_executable(path: str) -> NotExecutable:
    return NotExecutable(
        f"{path} is not executable",
        hint="make it executable (chmod +x), or name its interpreter before it",
        path=path,
    )


def _check_arguments(arguments: tuple[str, ...]) -> None:
    for number, argument in enumerate(arguments):
        if "\0" in argument:
            raise InvalidArgument(
                f"argument {number} holds a NUL, which no program can receive",
                hint="take it out, or pass the data on standard input",
            )
