"""Who a failure belongs to: one table from reason to layer and origin. Pure.

The same table serves when a result is made and when old events are counted, so history and today
agree; a reason is stored as it is, and only its reading can change with a later version.

  agent        what the model proposed: a gate, a rule, or the command itself said no
  harness      our machinery
  workflow     limits and settings that the caller chose
  environment  the machine: sandbox, missing program or tier, network, disk
  provider     the caller vanished
  operator     a person cancelled or denied
  unknown      nothing here tells
"""

from __future__ import annotations

from collections.abc import Mapping

from sandboxd.model import Attribution, Denial, Layer, Origin

LAYERS: tuple[Layer, ...] = (
    "agent",
    "harness",
    "workflow",
    "environment",
    "provider",
    "operator",
    "unknown",
)

TABLE: dict[str, tuple[Layer, Origin]] = {
    # a run that ended
    "exit_status": ("agent", "tool"),
    "exit_status_text": ("unknown", "tool"),
    "crashed": ("agent", "tool"),
    "killed": ("unknown", "host"),
    "limit.wall": ("workflow", "limit"),
    "limit.cpu": ("workflow", "limit"),
    "limit.file_size": ("workflow", "limit"),
    "limit": ("workflow", "limit"),
    "denial.kernel": ("environment", "sandbox"),
    "denial.policy": ("environment", "sandbox"),
    "denial.proxy": ("environment", "sandbox"),
    "protected_name": ("environment", "sandbox"),
    "network": ("environment", "host"),
    "program_missing": ("environment", "host"),
    "not_executable": ("environment", "host"),
    # what was never run
    "refusal.APPROVAL_REQUIRED": ("agent", "gate"),
    "refusal.APPROVAL_DENIED": ("operator", "gate"),
    "refusal.RULE_VIOLATED": ("agent", "rule"),
    "refusal.CANCELLED": ("operator", "client"),
    "refusal.TIER_UNAVAILABLE": ("environment", "host"),
    "refusal.PLATFORM_UNSUPPORTED": ("environment", "host"),
    "refusal.WORKSPACE_REFUSED": ("workflow", "gate"),
    "refusal.PROGRAM_MISSING": ("environment", "host"),
    "refusal.NOT_EXECUTABLE": ("environment", "host"),
    "refusal.OVERLOADED": ("workflow", "limit"),
    "refusal.UNKNOWN_TIER": ("workflow", "client"),
    "refusal.UNKNOWN_PROFILE": ("workflow", "client"),
    "refusal.PROFILE_BROKEN": ("workflow", "client"),
    "refusal.DAEMON_RUNNING": ("environment", "host"),
    "refusal.DAEMON_UNREACHABLE": ("environment", "host"),
    "refusal.SOCKET_UNUSABLE": ("environment", "host"),
    "fault": ("harness", "host"),
    "client_vanished": ("provider", "client"),
    "egress_denied": ("environment", "sandbox"),
}
"""Reason -> layer and origin. `limit.*` and refusals that are not named fall back, see `lookup`."""

_ORIGINS: dict[str, Layer] = {
    "gate": "agent",
    "rule": "agent",
    "client": "agent",
    "tool": "agent",
    "sandbox": "environment",
    "host": "environment",
    "limit": "workflow",
}
"""For a refusal whose code is not in the table: what its own origin says."""

CRASHES = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGPIPE", "SIGTRAP"})
NETWORK_EXITS = {
    "curl": frozenset({5, 6, 7, 28, 35, 52, 56}),  # curl(1), EXIT CODES
    "wget": frozenset({4}),  # wget(1), EXIT STATUS
    "ssh": frozenset({255}),  # ssh(1), EXIT STATUS
}
"""Exit codes by which a program itself says that the network failed."""


def attribute(reason: str, origin: str | None = None, *, detail: str | None = None) -> Attribution:
    """The attribution of a reason; `origin` is a refusal's own."""
    layer, where = lookup(reason, origin)
    return Attribution(primary=layer, origin=where, reason=reason, detail=detail)


def lookup(reason: str, origin: str | None = None) -> tuple[Layer, Origin]:
    """The table's answer: exact, then without its last part, then by origin, else unknown."""
    found = TABLE.get(reason) or TABLE.get(reason.rpartition(".")[0])
    if found is not None:
        return found
    layer = _ORIGINS.get(origin or "", "unknown")
    return layer, _origin(origin)


def _origin(text: str | None) -> Origin:
    for known in ("gate", "rule", "sandbox", "limit", "host", "tool", "client"):
        if text == known:
            return known
    return "tool"


def reason_of_result(
    *,
    exit_code: int,
    signal: str | None,
    timed_out: bool,
    limit: str | None,
    denial: Denial | None,
    exit_meaning: Mapping[str, str],
    programs: tuple[str, ...] = (),
) -> str | None:
    """Why this run failed, or None: it succeeded, or its exit code is an answer.

    A limit goes before a denial and both before the exit code, because they explain it. Evidence
    `text` is a guess from words that any program can print: it is never taken for a denial.
    """
    if timed_out or limit is not None:
        return f"limit.{limit or 'wall'}"
    if exit_code == 0 or (signal is None and str(exit_code) in exit_meaning):
        return None
    if denial is not None and denial.evidence != "text":
        return f"denial.{denial.evidence}"
    if signal is not None:
        return "denial.kernel" if signal == "SIGSYS" else _reason_of_signal(signal)
    return _reason_of_exit(exit_code, programs, is_text=denial is not None)


def _reason_of_signal(signal: str) -> str:
    return "crashed" if signal in CRASHES else "killed"


def _reason_of_exit(exit_code: int, programs: tuple[str, ...], *, is_text: bool) -> str:
    if exit_code in (126, 127):  # what shells say, POSIX 2.8.2
        return "program_missing" if exit_code == 127 else "not_executable"
    last = programs[-1].rpartition("/")[2] if programs else ""
    if exit_code in NETWORK_EXITS.get(last, ()):
        return "network"
    return "exit_status_text" if is_text else "exit_status"


def attribution_of_refusal(code: str, origin: str) -> Attribution:
    return attribute(f"refusal.{code}", origin)
