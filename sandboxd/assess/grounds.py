"""The part of a policy that rules and decisions rest on, and how it is recorded and made anew.

A module of its own because live judging and replay must build it the same way: `grounds_of` from a
policy in force, `grounds_under` from what was recorded and a profile of today, which looks nothing up.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping

import msgspec

from sandboxd.decide.rules.registry import BrokenOptions, rules_with
from sandboxd.decide.rules.rule import Rule
from sandboxd.errors import ProfileBroken
from sandboxd.filling import variables as filling_of
from sandboxd.model import Policy
from sandboxd.policy import linked_common_folder
from sandboxd.profiles import Profile, fill_in
from sandboxd.proposals import Grounds, Laid
from sandboxd.sessions import Session

MOST_KEPT = 64
"""Different grounds of one session that are remembered; more are made anew."""


def active_rules(grounds: Grounds) -> tuple[Rule, ...]:
    """The rules that are on. Raises ProfileBroken for options that no rule takes."""
    if not grounds.rules:
        return rules_with({})
    try:
        return rules_with(grounds.rules)
    except BrokenOptions as error:
        raise ProfileBroken(
            f"profile {grounds.profile}, key '{error.key}': {error}",
            hint="correct that option; sandboxd/decide/rules lists rules and options",
        ) from error


def grounds_of(policy: Policy, profile: Profile, session: Session) -> tuple[str, Laid]:
    """What is judged against under this policy, and the name under which it is recorded."""
    key = (
        *(policy.profile, policy.approval, policy.writable, policy.denied, policy.private_tmp),
        *(policy.network, policy.egress, policy.protected, profile.network, profile.read_roots),
        msgspec.json.encode(profile.rules),
    )
    known = session.shared.grounds
    if key not in known:
        if len(known) >= MOST_KEPT:
            known.clear()
        laid = _lay(policy, profile, session)
        known[key] = "g-" + hashlib.sha256(msgspec.json.encode(laid)).hexdigest()[:12], laid
    return known[key]


def _lay(policy: Policy, profile: Profile, session: Session) -> Laid:
    variables = filling_of(
        profile,
        workspace=policy.workspace,
        home=session.home,
        tmp=policy.private_tmp,
        common=linked_common_folder(policy.workspace),
        env=session.environment,
    )
    readable = (*policy.writable, *_filled(profile.read_roots, variables))
    denied = set(_filled(profile.deny, variables))
    real = {path: os.path.realpath(path) for path in (*readable, *policy.denied)}
    links = {path: target for path, target in real.items() if path != target}
    grounds = Grounds(
        profile=policy.profile,
        approval=policy.approval,
        workspace=policy.workspace,
        readable=_with_real(readable, links),
        writable=_with_real(policy.writable, links),
        denied=_with_real(policy.denied, links),
        private_tmp=os.path.realpath(policy.private_tmp),
        protected=policy.protected,
        network=policy.network,
        egress=policy.egress,
        rules={name: dict(options) for name, options in profile.rules.items()},
    )
    return Laid(
        grounds=grounds,
        asked_network=profile.network,
        variables=variables,
        hidden=tuple(path for path in policy.denied if path not in denied),
        links=links,
    )


def grounds_under(laid: Laid, profile: Profile) -> Grounds:
    """The recorded grounds as another profile would make them: a folder counts as there, links lead
    where they led, and what sandboxd itself hides stays hidden. A network mode that the profile still
    asks for is the one that was had then."""
    variables, links = laid.variables, laid.links
    writable = _filled(profile.write, variables)
    denied = (*_filled(profile.deny, variables), *laid.hidden)
    protected = (os.path.join(laid.grounds.workspace, name) for name in profile.protect)
    is_same_network = profile.network is laid.asked_network
    return msgspec.structs.replace(
        laid.grounds,
        profile=profile.name,
        approval=profile.approval,
        writable=_with_real(writable, links),
        readable=_with_real((*writable, *_filled(profile.read_roots, variables)), links),
        denied=_with_real(denied, links),
        protected=tuple(dict.fromkeys((*laid.grounds.protected, *protected))),
        network=laid.grounds.network if is_same_network else profile.network,
        egress=profile.egress,
        rules={name: dict(options) for name, options in profile.rules.items()},
    )


def _filled(texts: Iterable[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    filled = (fill_in(text, variables) for text in texts)
    return tuple(os.path.normpath(path) for path in filled if path)


def _with_real(paths: Iterable[str], links: Mapping[str, str]) -> tuple[str, ...]:
    """Each path as it is named and as it is without links, each once."""
    return tuple(dict.fromkeys(name for path in paths for name in (path, links.get(path, path))))
