"""`profile.show` and `profile.explain`: what holds here, which line says so, what to change.

A module beside the engine because it asks the very parts that a run goes through (policy, tier,
classifier, decision, host rules) and so cannot say anything else than what would happen. It runs
nothing and writes no events.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Raw, Struct

from sandboxd import answers, environment, network
from sandboxd import request as request_of
from sandboxd.asking import Proposed
from sandboxd.confine.sbpl import Evaluator
from sandboxd.confine.seatbelt import Seatbelt
from sandboxd.confine.seatbelt_profile import spelled
from sandboxd.confine.tier import Mechanism
from sandboxd.egress.hosts import HostRules, address_of, canonical
from sandboxd.engine import Engine
from sandboxd.errors import InvalidRequest
from sandboxd.filling import places
from sandboxd.model import (
    Action,
    ExecRequest,
    Invocation,
    LaunchPlan,
    NetworkMode,
    Policy,
    Verdict,
)
from sandboxd.policy import is_inside
from sandboxd.profiles import Profile
from sandboxd.profiles.merged import Origin
from sandboxd.protocol.messages import (
    Explanation,
    ProfileExplain,
    ProfileShow,
    ProfileShown,
    ProfileValue,
)
from sandboxd.sessions import Session

BUILT_IN = "built in"


class SeatbeltPlan(Struct, frozen=True):
    """What `sandbox-exec` would be given, as it is shown."""

    tier: str
    profile_text: str
    parameters: dict[str, str]


async def show(engine: Engine, session: Session, params: ProfileShow) -> ProfileShown:
    """The merged profile with the origin of each value; with a tier also its launch plan."""
    profile = session.rules_for(params.profile)
    plan: LaunchPlan | SeatbeltPlan | None = None
    if params.tier is not None:
        request = ExecRequest(argv=("true",), tier=params.tier)
        rung, policy = await _confined(engine, session, profile, request)
        if isinstance(rung, Seatbelt):
            made = rung.generated(policy)
            plan = SeatbeltPlan(tier=rung.name, profile_text=made.text, parameters=made.parameters)
        else:
            plan = _plan(rung, policy, session, profile)
    return ProfileShown(
        profile=profile.name,
        layers=profile.layers,
        values=tuple(_values(profile)),
        plan=Raw(msgspec.json.encode(plan)),
    )


async def _confined(
    engine: Engine, session: Session, profile: Profile, request: ExecRequest
) -> tuple[Mechanism, Policy]:
    """The rung and the policy as a run would get them; Seatbelt's are shown on every system."""
    if request.tier == Seatbelt.name and all(
        rung.name != Seatbelt.name for rung in engine.ladder.rungs
    ):
        elsewhere = Seatbelt(os.getuid(), os.getgid(), tags=lambda: "run")
        policy = engine.policy(session, profile, request, session.cwd, system="macos")
        return elsewhere, engine.for_rung(policy, elsewhere, session.home)
    rung, mode, _ = await engine.choose(profile, request)
    policy = engine.policy(session, profile, request, session.cwd)
    return rung, engine.for_rung(engine.in_mode(policy, mode, rung), rung, session.home)


def _plan(rung: Mechanism, policy: Policy, session: Session, profile: Profile) -> LaunchPlan:
    env, _ = environment.build(
        session.environment, {}, profile, tmp=rung.temp_path(policy), cwd=session.cwd
    )
    nothing = Invocation(
        program="/bin/true",
        argv=("true",),
        environment=network.environment(policy, env),
        cwd=session.cwd,
    )
    return rung.plan(nothing, policy)


def _values(profile: Profile) -> list[ProfileValue]:
    """Every value in the order of the schema, entries of lists one by one."""
    egress, limits = profile.egress, profile.limits
    found = [
        ("approval", profile.approval),
        ("min_tier", profile.min_tier),
        ("network.mode", profile.network.value),
        ("network.fallback", profile.network_fallback.value if profile.network_fallback else None),
        *_entries("network.allow", egress.allow),
        *_entries("network.deny", egress.deny),
        ("network.allow_private", str(egress.allow_private).lower()),
        *_entries("network.publish", tuple(map(str, egress.publish))),
        ("unix_sockets", profile.unix_sockets),
        *_entries("files.write", profile.write),
        *_entries("files.read_roots", profile.read_roots),
        *_entries("files.protect", profile.protect),
        *_entries("files.redact", tuple(entry.path for entry in profile.redact)),
        *_entries("files.deny", profile.deny),
        ("environment.mode", profile.environment_mode),
        *_entries("environment.pass", profile.environment_pass),
        *_entries("environment.scrub", profile.environment_scrub),
        *((f"environment.set:{name}", text) for name, text in profile.environment_set.items()),
        *((f"limits.{name}", getattr(limits, name)) for name in limits.__struct_fields__),
        ("limits.cache_bytes", profile.cache_bytes),
        *_entries("commands", profile.commands),
    ]
    why = {**{entry.path: entry.why for entry in profile.redact}, **profile.reasons}
    return [
        _value(profile, key, str(value), why.get(str(value), ""))
        for key, value in found
        if value is not None
    ]


def _entries(key: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(f"{key}:{text}", text) for text in texts]


def _value(profile: Profile, key: str, value: str, why: str) -> ProfileValue:
    name = (
        key.partition(":")[0] if not key.startswith("environment.set:") else key.replace(":", ".")
    )
    origin = profile.origin(key)
    return ProfileValue(
        key=name,
        value=value,
        why=why,
        file=origin.file if origin else None,
        line=origin.line if origin else None,
    )


# --------------------------------------------------------------------------- explain


async def explain(engine: Engine, session: Session, params: ProfileExplain) -> Explanation:
    """What would happen to one access or one command. Raises InvalidRequest unless exactly one
    was named."""
    asked = [each for each in (params.read, params.write, params.host, params.command) if each]
    if len(asked) != 1:
        raise InvalidRequest(
            f"{'nothing' if not asked else 'more than one thing'} was asked about",
            hint="name one of read, write, host and command",
        )
    profile = session.rules_for(params.profile)
    request = ExecRequest(argv=("true",), tier=params.tier)
    rung, policy = await _confined(engine, session, profile, request)
    if params.host:
        return _explain_host(profile, policy, rung, params.host)
    if params.command:
        return await _explain_command(engine, session, profile, policy, rung, params.command)
    operation: answers.Operation = "read" if params.read else "write"
    path = os.path.join(session.cwd, _at_home(params.read or params.write or "", session.home))
    return _explain_path(session, profile, policy, rung, operation, path)


def _at_home(path: str, home: str) -> str:
    is_home = path == "~" or path.startswith("~/")
    return home + path[1:] if is_home else path


def _explain_path(
    session: Session,
    profile: Profile,
    policy: Policy,
    rung: Mechanism,
    operation: answers.Operation,
    path: str,
) -> Explanation:
    real = os.path.realpath(path)
    has_private_tmp = rung.temp_path(policy) == "/tmp"
    answer = answers.allows(
        answers.resolved(policy), operation, real, has_private_tmp=has_private_tmp
    )
    if isinstance(rung, Seatbelt):
        answer = _as_evaluated(rung, policy, operation, real, answer)
    key, entry = _entry_of(session, profile, policy, answer)
    origin = profile.origin(key)
    name = path if real == os.path.normpath(path) else f"{path} (which is {real})"
    return Explanation(
        allowed=answer.allowed or not rung.is_kernel,
        outcome=answer.kind,
        sentence=_sentence(answer, operation, name, rung, entry) + _because(profile, entry),
        change=_change(answer, operation, entry, origin),
        rule=key or None,
        tier=rung.name,
        file=_file(origin),
        line=_line(origin),
    )


def _as_evaluated(
    rung: Seatbelt,
    policy: Policy,
    operation: answers.Operation,
    path: str,
    answer: answers.PathAnswer,
) -> answers.PathAnswer:
    """What the generated profile itself says; it also holds protected names in other letters."""
    made = rung.generated(policy)
    what = "file-read-data" if operation == "read" else "file-write-data"
    is_allowed = Evaluator(made.text, made.parameters).allows(what, spelled(path))
    if is_allowed == answer.allowed:
        return answer
    folded = [name for name in policy.protected if is_inside(path.lower(), [name.lower()])]
    if not is_allowed and folded:
        return answers.PathAnswer(False, "protected", folded[0])
    return msgspec.structs.replace(answer, allowed=is_allowed)


def _file(origin: Origin | None) -> str | None:
    return origin.file if origin else None


def _line(origin: Origin | None) -> int | None:
    return origin.line if origin else None


def _entry_of(
    session: Session, profile: Profile, policy: Policy, answer: answers.PathAnswer
) -> tuple[str, str]:
    """The key and the text of the profile's entry that became the policy's."""
    if answer.kind == "outside":
        return "files.write", ""
    if answer.kind in ("readable", "device", "own") or answer.entry is None:
        return "", ""
    listed = [("files.write", text) for text in profile.write]
    if answer.kind in ("denied", "redacted"):
        listed = [("files.redact", entry.path) for entry in profile.redact]
        listed += [("files.deny", text) for text in profile.deny]
    elif answer.kind == "protected":
        listed = [("files.protect", f"${{WORKSPACE}}/{name}") for name in profile.protect]
    for key, text in listed:
        found = places(
            profile,
            text,
            workspace=policy.workspace,
            home=session.home,
            tmp=policy.private_tmp,
            env=session.environment,
        )
        if answer.entry in found or answer.entry in map(os.path.realpath, found):
            entry = text.removeprefix("${WORKSPACE}/") if key == "files.protect" else text
            return f"{key}:{entry}", entry
    return "", ""


def _sentence(
    answer: answers.PathAnswer, operation: str, name: str, rung: Mechanism, entry: str
) -> str:
    if not rung.is_kernel:
        return f"{name}: tier {rung.name} has no kernel boundary: nothing keeps a run from it"
    if answer.kind == "denied":
        kept = f"by {entry}" if entry else "because it is sandboxd's own"
        return f"{name} is hidden from every run, {kept}"
    if answer.kind == "redacted":
        told = "is shown with its secrets taken out" if operation == "read" else "stays read-only"
        return f"{name} {told}"
    if answer.kind in ("protected", "own"):
        told = "it runs later, outside" if answer.kind == "protected" else "it is sandboxd's own"
        return f"{name} stays read-only, because {told}"
    if answer.kind == "outside":
        return f"{name} cannot be written: it lies in none of the writable folders"
    if answer.kind == "temporary":
        does = "read" if operation == "read" else "written"
        return f"{name} may be {does}; /tmp is the session's own, not the host's"
    return f"{name} may be {'read' if operation == 'read' else 'written'}"


def _because(profile: Profile, entry: str) -> str:
    redacted = {each.path: each.why for each in profile.redact}
    why = profile.reasons.get(entry) or redacted.get(entry)
    return f" ({why})" if why else ""


def _change(answer: answers.PathAnswer, operation: str, entry: str, origin: Origin | None) -> str:
    if answer.allowed and answer.kind != "redacted":
        return ""
    if answer.kind in ("denied", "redacted"):
        if not entry:
            return "this cannot be changed"
        return (
            f'a profile of your own with `files: {{reveal: ["{entry}"]}}` shows it to runs; '
            "name it with --profile"
        )
    if answer.kind == "protected":
        return "a command that names it as its target may write it once a person has approved it"
    if answer.kind == "own":
        return "install sandboxd outside the workspace, or name another --workspace"
    return (
        "name another --workspace, or add the folder under `files.write` in a profile of your own "
        f"(the list stands at {origin})"
        if origin
        else "name another --workspace"
    )


def _explain_host(profile: Profile, policy: Policy, rung: Mechanism, text: str) -> Explanation:
    mode = profile.origin("network.mode")
    if policy.network in (NetworkMode.HOST, NetworkMode.OFF):
        is_host = policy.network is NetworkMode.HOST
        told = "the network is the host's own" if is_host else "the network is off"
        return Explanation(
            allowed=is_host,
            outcome="reached" if is_host else "refused",
            sentence=f"{text} {'is' if is_host else 'cannot be'} reached: {told}",
            change="" if is_host else f"--profile allowlist --allow-host {text}",
            rule="network.mode",
            tier=rung.name,
            file=_file(mode),
            line=_line(mode),
        )
    name, _, port = text.rpartition(":") if text.count(":") == 1 else (text, "", "")
    host = canonical(name or text)
    if host is None or (port and not port.isdigit()):
        raise InvalidRequest(f"{text!r} is no host", hint="write host, an address, or host:port")
    rules = HostRules(policy.network, policy.egress, is_own=lambda _: False)
    address = address_of(host)
    number = int(port) if port else 443
    denial = rules.judge_address(address, number) if address else rules.judge_name(host, number)
    key = _network_key(denial.rule if denial else "network.mode")
    later = "" if address else "; its addresses are judged again when it is looked up"
    return Explanation(
        allowed=denial is None,
        outcome="refused" if denial else "reached",
        sentence=f"{text} is refused by {denial.rule}" if denial else f"{text} is reached{later}",
        change=(denial.hint or "") if denial else "",
        rule=denial.rule if denial else "network.mode",
        tier=rung.name,
        file=_file(profile.origin(key) or mode),
        line=_line(profile.origin(key) or mode),
    )


def _network_key(rule: str) -> str:
    """The profile's key of a host rule: `network.deny: X` stands at `network.deny:X`."""
    return rule.replace(": ", ":")


async def _explain_command(
    engine: Engine,
    session: Session,
    profile: Profile,
    policy: Policy,
    rung: Mechanism,
    command: str,
) -> Explanation:
    request = ExecRequest(command=command)
    cwd = request_of.cwd_of(session, request)
    verdict = await engine.judge(session, profile, request, policy, cwd)
    plan = _plan(rung, policy, session, profile)
    decision = Proposed(session, request, verdict, policy, plan.tier, "", command, cwd).decide()
    does = {Action.ALLOW: "runs unasked", Action.ASK: "is asked about"}.get(
        decision.action, "is refused"
    )
    reasons = "; ".join(decision.reasons)
    refused = [
        f"{path} cannot be written there"
        for path in verdict.write_paths
        if rung.is_kernel
        and not answers.allows(answers.resolved(policy), "write", os.path.realpath(path)).allowed
    ]
    return Explanation(
        allowed=decision.action is Action.ALLOW,
        outcome=decision.action.value,
        sentence=". ".join([f"{command} {does}: {reasons}", *refused]),
        change=_command_change(decision.action, verdict),
        rule=verdict.reasons[0].rule if verdict.reasons else None,
        tier=rung.name,
        file=_file(profile.origin("approval")),
        line=_line(profile.origin("approval")),
    )


def _command_change(action: Action, verdict: Verdict) -> str:
    if action is not Action.ASK:
        return ""
    is_worst = not verdict.parsed or verdict.class_.value == "destructive"
    return (
        f"--approve {'all' if is_worst else 'mutating'} gives your word in advance; `approval` in a "
        "profile of your own changes it for all commands"
    )
