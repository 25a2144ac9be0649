"""What a redirect does: harmless sinks and descriptor copies, reads, writes, network devices.

Source: bash(1) REDIRECTION, including the names that bash itself interprets
(`/dev/tcp/HOST/PORT`, `/dev/udp/HOST/PORT`, `/dev/fd/N`, `/dev/stdout`, ...).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sandboxd.classify.findings import NOTHING, Finding, destructive, mutating
from sandboxd.model import MUTATING, Redirect, Word

SINKS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"))
_DEVICES = (
    *("/dev/sd", "/dev/nvme", "/dev/vd", "/dev/xvd", "/dev/hd", "/dev/mmcblk", "/dev/disk"),
    *("/dev/rdisk", "/dev/mapper/", "/dev/dm-", "/dev/md", "/dev/loop", "/dev/zd"),
    *("/dev/mem", "/dev/kmem", "/dev/port", "/proc/", "/sys/"),
)
_DUPLICATE = re.compile(r"[0-9]*-?\Z")
_NETWORK = ("/dev/tcp/", "/dev/udp/")
_EXPANSION = re.compile(r"[$`~*?\[{]")

Resolve = Callable[[str], str | None]


def is_device(path: str) -> bool:
    """A block device, kernel memory or a kernel setting: writing there cannot be taken back."""
    return path.startswith(_DEVICES)


def grade_redirect(redirect: Redirect, resolve: Resolve) -> Finding:
    """What this redirect does to the machine; `resolve` makes a path absolute."""
    operator, target = redirect.operator, redirect.target
    if operator in ("<<", "<<-", "<<<"):
        return NOTHING
    if target is None:
        return mutating("the target of a redirect is missing", "redirect")
    if operator in (">&", "<&") and target.is_literal and _DUPLICATE.match(target.text):
        return NOTHING
    if operator == "<":
        return _read(target, resolve)
    if operator == "<&":
        return mutating("the descriptor that is copied is not literal", "redirect")
    return write_to(target, resolve)


def _read(target: Word, resolve: Resolve) -> Finding:
    if target.text.startswith("<(") and not target.is_literal:
        return NOTHING
    if _may_be_network(target):
        return mutating("reading from /dev/tcp or /dev/udp opens a connection", "redirect")
    if not target.is_literal:
        return NOTHING
    path = resolve(target.text)
    return Finding(read_paths=(path,)) if path else NOTHING


def _may_be_network(target: Word) -> bool:
    if target.is_literal:
        return target.text.startswith(_NETWORK)
    match = _EXPANSION.search(target.text)
    known = target.text[: match.start()] if match else target.text
    return any(name.startswith(known) or known.startswith(name) for name in _NETWORK)


def write_to(target: Word, resolve: Resolve) -> Finding:
    """Writing to the file that `target` names, whoever opens it."""
    if not target.is_literal:
        return mutating(f"writes to a file that only running it names ({target.text})", "redirect")
    if target.text in SINKS:
        return NOTHING
    if target.text.startswith(_NETWORK):
        return mutating("writing to /dev/tcp or /dev/udp sends data over the network", "redirect")
    path = resolve(target.text)
    if is_device(path or target.text):
        return destructive(f"writes to the device or kernel file {target.text}", "redirect")
    return Finding(
        MUTATING,
        f"writes to the file {target.text}",
        "redirect",
        write_paths=(path or target.text,),
    )
