"""The one canonical path rule: from what a caller wrote to the one path that is judged and touched.

Every file tool, preview and rule asks here, and nobody else resolves paths: a second opinion would
judge another file than the tool touches. In order:

    1  `~` and `~/..` at the very beginning is the session's home; anywhere else `~` is a name
    2  a relative path begins at the session's working directory
    3  `..` is collapsed by name, before links are looked at: `link/../x` is `x` beside the link
    4  links are followed, in the run's view: `/tmp` is the session's own
    5  the result, without any link or `..`, must lie in a root, or the answer is a refusal

Step 4 looks at the disk and can be overtaken; `handles` opens the result without following a link,
so that a swap in between is an error and never another file. Names are compared as the laxest file
system would (case, Unicode form, invisible characters) where something is denied or protected, and
exactly where something is allowed.
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from sandboxd.errors import (
    DeniedPath,
    Fault,
    InvalidArgument,
    NotFound,
    OutsideRoot,
    ProtectedPath,
    SpecialFile,
)
from sandboxd.model import Policy
from sandboxd.policy import is_inside
from sandboxd.system import beneath

Want = Literal["read", "write"]

MAX_LINKS = 40
"""As the kernel counts them (path_resolution(7))."""
KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
"""Never files: what they show is the daemon's own, and what is written there reaches the kernel."""
_INVISIBLE = {*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF}
"""Code points that HFS+ leaves out when it compares names; git refuses them for the same reason."""
_BARE_NAMES = ("config", "hooks")
"""What makes git run a program, in a repository without a `.git` folder."""


@dataclass(frozen=True)
class Scope:
    """What the file tools of one session may touch. All paths absolute and free of links."""

    workspace: str
    cwd: str
    home: str
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    denied: tuple[str, ...]
    protected: tuple[str, ...]
    own: tuple[str, ...]
    private_tmp: str
    visible: tuple[str, ...]
    owner: tuple[int, int] | None
    copies: tuple[tuple[str, str], ...] = ()
    """Files that are shown without their secrets: where they really lie, and what is shown."""

    @classmethod
    def of(cls, policy: Policy, *, cwd: str, home: str, read_roots: Iterable[str] = ()) -> Scope:
        """The scope of a session under its policy."""
        tmp = os.path.realpath(policy.private_tmp)
        writable = _real([*policy.writable, tmp])
        return cls(
            workspace=os.path.realpath(policy.workspace),
            cwd=os.path.realpath(cwd),
            home=home,
            readable=_real([*writable, *read_roots]),
            writable=writable,
            denied=_both(policy.denied),
            protected=_both(policy.protected),
            own=_both(policy.own),
            private_tmp=tmp,
            visible=_real(policy.visible),
            owner=policy.owner,
            copies=tuple((copy.path, copy.text) for copy in policy.shown),
        )

    def copy_of(self, path: str) -> str | None:
        """What a run sees in place of this file; None when it sees the file itself."""
        return next((text for real, text in self.copies if real == path), None)


@dataclass(frozen=True)
class Place:
    """Where a path leads: checked, canonical, not yet opened."""

    path: str
    """Absolute, without links, `.` or `..`: what is judged, locked, remembered and opened."""
    root: str
    """The root that it lies in."""
    shown: str
    """As messages name it: relative to the working directory, or as the run sees it."""
    found: os.stat_result | None
    """lstat(2) of it; None when nothing has this name."""
    protected: str | None = None
    """The protected name that it is or lies in, for something that is to be written."""

    @property
    def below(self) -> str:
        """The path below its root; `.` for the root itself."""
        return self.path[len(self.root.rstrip("/")) + 1 :] or "."


def locate(text: str, scope: Scope, want: Want) -> Place:
    """The place that `text` names. Raises OutsideRoot, DeniedPath, ProtectedPath (sandboxd itself),
    SpecialFile, NotFound (links in a circle), InvalidArgument; Fault when the root has vanished."""
    with beneath.acting_as(scope.owner):
        path, found = resolve(anchored(text, scope), scope)
    shown = shown_as(path, scope)
    _refuse_hidden(path, shown, text, scope)
    root = _root_of(path, shown, text, scope, want)
    if found is None or path == root:
        _refuse_vanished(root, scope)
    if found is not None:
        _refuse_special(found, shown)
    if want == "read":
        return Place(path, root, shown, found)
    if scope.copy_of(path) is not None:
        raise DeniedPath(
            f"{shown} is shown without its secrets, and a change would lose them",
            hint="ask the person to change it; `files.redact` of the profile names it",
            path=shown,
            rule="files.redact",
        )
    if is_inside(fold(path), map(fold, scope.own)):
        raise ProtectedPath(
            f"{shown} belongs to sandboxd itself",
            hint="work on another copy of it; the one that runs is never written",
            path=shown,
            rule="own-code",
        )
    return Place(path, root, shown, found, protected_by(path, scope))


def anchored(text: str, scope: Scope) -> str:
    """Steps 1 to 3: absolute, `..` collapsed by name. Raises InvalidArgument."""
    if not text or "\0" in text:
        raise InvalidArgument(
            "the path is empty" if not text else "the path holds a NUL",
            hint="name a file, absolute or relative to the working directory",
        )
    if text == "~" or text.startswith("~/"):
        text = scope.home + text[1:]
    path = os.path.normpath(os.path.join(scope.cwd, text))
    return path[1:] if path.startswith("//") else path


def resolve(path: str, scope: Scope) -> tuple[str, os.stat_result | None]:
    """Step 4: the path without links, and what lies there; None for what does not exist."""
    done, links = "/", 0
    rest = _steps(path)
    found: os.stat_result | None = None
    while rest:
        name = rest.pop()
        if name == "..":
            done, found = os.path.dirname(done), None
            continue
        step = _in_view(os.path.join(done, name), rest, scope)
        try:
            found = os.lstat(step)
        except OSError as error:
            return _absent(step, rest, error), None
        if not stat.S_ISLNK(found.st_mode):
            done = step
            continue
        links += 1
        if links > MAX_LINKS:
            raise NotFound(
                f"{path} leads through more than {MAX_LINKS} links",
                hint="the links go in a circle; name the file itself",
            )
        try:
            target = os.readlink(step)
        except OSError:  # it was no link any more: look at it again
            rest.append(name)
            continue
        done = "/" if target.startswith("/") else done
        rest += _steps(target)
        found = None
    return done, found if found is not None else _lstat(done)


def _steps(path: str) -> list[str]:
    """The components of a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _in_view(step: str, rest: list[str], scope: Scope) -> str:
    """The run's /tmp is the session's own, but for folders of /tmp that it sees.

    What is there on the host alone stays the host's, and so lies outside: a name that means somebody
    else's file must not quietly become a new one of ours.
    """
    if step != "/tmp" or not scope.private_tmp:
        return step
    whole = os.path.normpath("/".join([step, *reversed(rest)]))
    kept = (scope.workspace, scope.private_tmp, *scope.visible, *scope.writable)
    return step if is_inside(whole, kept) or _is_host_s(whole, scope) else scope.private_tmp


def _is_host_s(path: str, scope: Scope) -> bool:
    """Whether a path in /tmp, or the folder it would lie in, exists on the host and not in the
    session's own /tmp."""
    for one in (path, os.path.dirname(path)):
        if one == "/tmp" or os.path.lexists(scope.private_tmp + one[len("/tmp") :]):
            return False
        if os.path.lexists(one):
            return True
    return False


def _absent(step: str, rest: list[str], error: OSError) -> str:
    """The path of something that is not there; other failures are not an absence."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return os.path.normpath("/".join([step, *reversed(rest)]))
    if error.errno == errno.ENAMETOOLONG:
        raise InvalidArgument(
            "the path or one of its names is too long", hint="file systems take 255 bytes a name"
        ) from error
    raise Fault(
        f"the system refused to look at a part of the path: {error.strerror}",
        hint="check the permissions of the folders on the way",
    ) from error


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


# --------------------------------------------------------------------------- what is allowed


def _refuse_hidden(path: str, shown: str, text: str, scope: Scope) -> None:
    if is_inside(path, KERNEL_FOLDERS):
        raise SpecialFile(
            f"{text} lies in {path.split('/')[1]!r}, which holds no files",
            hint="use a command to ask the kernel",
            path=shown,
        )
    if is_inside(path, (scope.private_tmp,)):
        return
    if is_inside(fold(path), _folded(scope.denied)):
        raise DeniedPath(
            f"{shown} is denied to every run by the profile",
            hint="ask the person for what you need from it; `files.deny` of the profile names it",
            path=shown,
            rule="files.deny",
        )


def _root_of(path: str, shown: str, text: str, scope: Scope, want: Want) -> str:
    """The innermost root around the path."""
    roots = scope.readable if want == "read" else scope.writable
    around = [root for root in roots if is_inside(path, (root,))]
    if around:
        return max(around, key=len)
    leads = f"{text} is {path}, which" if os.path.normpath(text) != path else path
    key = "files.read_roots" if want == "read" else "files.write"
    if want == "write" and is_inside(path, scope.readable):
        raise OutsideRoot(
            f"{leads} may be read and not written",
            hint=f"write in the workspace; `{key}` of the profile names the folders",
            path=shown,
            rule=key,
        )
    raise OutsideRoot(
        f"{leads} lies outside the folders of this session",
        hint=f"name a file in the workspace; `{key}` of the profile can name more folders",
        path=shown,
        rule=key,
    )


def _refuse_vanished(root: str, scope: Scope) -> None:
    """A root that is gone is no missing file."""
    if not os.path.isdir(root):
        raise Fault(
            f"the folder {shown_as(root, scope)} of this session is gone",
            hint="make it again, or open a session in another workspace",
        )


def _refuse_special(found: os.stat_result, shown: str) -> None:
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise SpecialFile(
            f"{shown} is {kind_of(found.st_mode)}, not a file",
            hint="only regular files are read and written here; use a command for others",
            path=shown,
        )


def kind_of(mode: int) -> str:
    """What a mode says it is, in words."""
    words = {
        stat.S_IFDIR: "a folder",
        stat.S_IFREG: "a file",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return words.get(stat.S_IFMT(mode), "a special file")


def protected_by(path: str, scope: Scope) -> str | None:
    """The protected name that the path is or lies in: the policy's own list, the same names at any
    depth of the workspace, every `.git`, and what a bare repository runs. None: unprotected."""
    if is_inside(path, (scope.private_tmp,)) and not is_inside(path, (scope.workspace,)):
        return None
    folded = fold(path)
    for name in scope.protected:
        if is_inside(folded, (fold(name),)):
            return shown_as(name, scope)
    inside = is_inside(path, (scope.workspace,))
    parts = (path[len(scope.workspace) :] if inside else path).strip("/").split("/")
    names = _names_anywhere(scope.protected, scope.workspace)
    for number, part in enumerate(parts):
        if fold(part) in names:
            return "/".join(parts[: number + 1])
    return _in_bare_repository(path)


@lru_cache(64)
def _names_anywhere(protected: tuple[str, ...], workspace: str) -> frozenset[str]:
    tops = {os.path.basename(name) for name in protected if os.path.dirname(name) == workspace}
    return frozenset({fold(name) for name in tops} | {".git", "git~1"})


def _in_bare_repository(path: str) -> str | None:
    """`config` or something in `hooks` beside HEAD, objects and refs (gitrepository-layout(5))."""
    for name in (path, os.path.dirname(path)):
        folder = os.path.dirname(name)
        if fold(os.path.basename(name)) in _BARE_NAMES and all(
            os.path.lexists(os.path.join(folder, part)) for part in ("HEAD", "objects", "refs")
        ):
            return os.path.basename(name)
    return None


# --------------------------------------------------------------------------- names


def fold(name: str) -> str:
    """The name as the laxest file system compares it."""
    if name.isascii():
        return name.lower()
    visible = "".join(character for character in name if ord(character) not in _INVISIBLE)
    return unicodedata.normalize("NFKC", visible).casefold()


@lru_cache(256)
def _folded(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(fold, paths))


def shown_as(path: str, scope: Scope) -> str:
    """The path as messages and results name it, good to be sent again: relative to the working
    directory in the workspace, in the private /tmp as `/tmp`, else absolute."""
    if is_inside(path, (scope.workspace,)) and is_inside(scope.cwd, (scope.workspace,)):
        if path.startswith(scope.cwd + "/"):
            return path[len(scope.cwd) + 1 :]
        return os.path.relpath(path, scope.cwd)
    if is_inside(path, (scope.private_tmp,)):
        return "/tmp" + path[len(scope.private_tmp) :]
    return path


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))


def _both(paths: Iterable[str]) -> tuple[str, ...]:
    """Each path as it is named and as it really is."""
    named = list(paths)
    return tuple(dict.fromkeys([*named, *(os.path.realpath(path) for path in named)]))
