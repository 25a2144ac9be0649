"""The ordered ladder and the choice of a rung: the strongest tier that a real run has shown.

Nothing is downgraded in silence: every choice carries why no stronger rung was taken, and a
tier that was asked for by name is had or refused.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence

from sandboxd.confine import bubblewrap, causes
from sandboxd.confine import probe as probing
from sandboxd.confine.bubblewrap import Bubblewrap
from sandboxd.confine.containment import Containment, Inherited
from sandboxd.confine.landlock import Landlock
from sandboxd.confine.namespaces import Namespaces
from sandboxd.confine.own_network import Resolver
from sandboxd.confine.seatbelt import Seatbelt
from sandboxd.confine.tier import Mechanism, Runner
from sandboxd.errors import TierUnavailable, UnknownTier
from sandboxd.model import TIER_NAMES, NetworkMode, ProbeResult
from sandboxd.system import linux, posix


def mechanisms(
    *, landlock_abi: int | None = None, bwrap: str | None = None
) -> tuple[Mechanism, ...]:
    """The rungs this build has for this operating system, strongest first.

    A mechanism with two forms stands there twice, the fuller form first. `landlock_abi` is for
    kernels older than this one, `bwrap` for another program in bwrap's place.
    """
    uid, gid = os.getuid(), os.getgid()
    if sys.platform == "darwin":
        return (Seatbelt(uid, gid), Containment(uid, gid))
    if sys.platform != "linux":
        return (Containment(uid, gid),)
    abi = linux.landlock_abi() if landlock_abi is None else landlock_abi
    path = bwrap or bubblewrap.find() or bubblewrap.NOWHERE
    is_nested = linux.is_confined()
    has_ipv6 = posix.reaches_ipv6()
    resolver = Resolver()
    return (
        Namespaces(abi, uid, gid, has_ipv6=has_ipv6, resolver=resolver),
        Namespaces(abi, uid, gid, has_nftables=False),
        *(
            Bubblewrap(
                path,
                uid,
                gid,
                joins=joins,
                has_own_proc=has_own_proc,
                landlock_abi=abi,
                has_ipv6=has_ipv6,
                resolver=resolver,
            )
            for joins in (True, False)
            for has_own_proc in (True, False)
        ),
        Landlock(abi, uid, gid, can_supervise=not is_nested),
        (Inherited if is_nested else Containment)(uid, gid),
    )


MISSING = {
    "seatbelt": "only macOS has Seatbelt",
    "bubblewrap": "only Linux has bubblewrap",
    "landlock": "only Linux has Landlock",
    "namespaces": "only Linux has namespaces",
}


RETRY_S = 30.0
"""After a probe ran out of time."""


NETWORK_STAGE = "network"
"""What the cause of a failure names when it was the network's set-up that failed."""


class Ladder:
    """Probes rungs when they are first needed and remembers what it found."""

    def __init__(
        self,
        rungs: tuple[Mechanism, ...],
        run: Runner,
        facts: Callable[[], causes.HostFacts] = causes.gather,
    ) -> None:
        self.rungs = rungs
        self._run = run
        self._facts = facts
        self._found: dict[tuple[Mechanism, NetworkMode], ProbeResult] = {}
        self._retry_at: dict[tuple[Mechanism, NetworkMode], float] = {}

    async def probe(self, mechanism: Mechanism, network: NetworkMode) -> ProbeResult:
        """What a real run showed, remembered for the daemon's life; a probe that ran out of time
        only for RETRY_S, since a busy machine says nothing about the next minute."""
        key = (mechanism, network)
        if time.monotonic() >= self._retry_at.get(key, math.inf):
            del self._found[key], self._retry_at[key]
        if key not in self._found:
            found = self._too_slow(mechanism, network) or await probing.probe(
                mechanism, self._run, network, probing.probe_base()
            )
            self._found[key] = found if found.available else causes.explained(found, self._facts())
            if probing.TOO_SLOW in (found.cause or ""):
                self._retry_at[key] = time.monotonic() + RETRY_S
        return self._found[key]

    def cause(self, mechanism: Mechanism, network: NetworkMode) -> str | None:
        """Why a probe found that the rung cannot hold with this network, and what to do about it;
        None where none was tried."""
        found = self._found.get((mechanism, network))
        if found is None or found.available:
            return None
        return f"{found.cause}; remedy: {found.remedy}"

    def _too_slow(self, mechanism: Mechanism, network: NetworkMode) -> ProbeResult | None:
        """The result of another form of this mechanism that used up the rung's time."""
        for (other, mode), found in self._found.items():
            is_same = other.name == mechanism.name and mode is network
            if is_same and not found.available and probing.TOO_SLOW in (found.cause or ""):
                return found
        return None

    def forget(self, mechanism: Mechanism, network: NetworkMode) -> None:
        """A set-up that had been shown to work failed: look again before the next run."""
        self._found.pop((mechanism, network), None)
        self._retry_at.pop((mechanism, network), None)

    async def survey(self, network: NetworkMode) -> list[tuple[Mechanism, ProbeResult]]:
        """Each mechanism in the form that holds, else in its fullest with the reason."""
        found: dict[str, tuple[Mechanism, ProbeResult]] = {}
        for mechanism in self.rungs:
            known = found.get(mechanism.name)
            if known is not None and known[1].available:
                continue
            if self._has_a_form_for(mechanism, network):
                continue
            result = await self.probe(mechanism, network)
            if known is None or result.available:
                found[mechanism.name] = (mechanism, result)
        return list(found.values())

    async def choose(
        self, network: NetworkMode, *, tier: str | None = None, min_tier: str | None = None
    ) -> tuple[Mechanism, tuple[str, ...]]:
        """The strongest rung that holds, and why none above it was taken.

        Raises UnknownTier for a name that exists nowhere and TierUnavailable, with cause and
        remedy, when what was asked for is not to be had.
        """
        mechanism, _, why = await self.choose_network((network,), tier=tier, min_tier=min_tier)
        return mechanism, why

    async def choose_network(
        self,
        networks: Sequence[NetworkMode],
        *,
        tier: str | None = None,
        min_tier: str | None = None,
    ) -> tuple[Mechanism, NetworkMode, tuple[str, ...]]:
        """As `choose`, with the first of these network modes that the rung can really enforce: a
        weaker network before a weaker rung."""
        for name in (tier, min_tier):
            if name is not None and name not in TIER_NAMES:
                raise UnknownTier(
                    f"there is no tier {name!r}", hint=f"use one of {', '.join(TIER_NAMES)}"
                )
        reasons: list[str] = []
        for mechanism in self.rungs:
            if tier is not None and mechanism.name != tier:
                reasons.append(f"{mechanism.name}: not asked for")
                continue
            causes_here: list[str] = []
            for network in networks:
                if self._has_a_form_for(mechanism, network):
                    continue
                cause = await self._why_not(mechanism, network)
                if cause is None:
                    self._check_minimum(mechanism, min_tier, reasons)
                    stronger = [why for why in reasons if not why.startswith(f"{mechanism.name}: ")]
                    return mechanism, network, tuple(dict.fromkeys(stronger))
                causes_here.append(f"{mechanism.name}: {cause}")
                if NETWORK_STAGE not in cause:
                    break  # another network would not help
            if not any(reason.startswith(f"{mechanism.name}: ") for reason in reasons):
                reasons += causes_here[-1:]  # of several forms the fullest tells why
        raise self._unavailable(tier or min_tier or "any", reasons)

    def _has_a_form_for(self, mechanism: Mechanism, network: NetworkMode) -> bool:
        """Whether this form cannot do the mode and another form of the mechanism can."""
        return network not in mechanism.networks and any(
            network in rung.networks for rung in self.rungs if rung.name == mechanism.name
        )

    async def _why_not(self, mechanism: Mechanism, network: NetworkMode) -> str | None:
        if network not in mechanism.networks:
            return f"cannot enforce {NETWORK_STAGE} {network.value}"
        found = await self.probe(mechanism, network)
        return None if found.available else f"{found.cause}. Remedy: {found.remedy}"

    def _check_minimum(
        self, mechanism: Mechanism, min_tier: str | None, reasons: list[str]
    ) -> None:
        if min_tier is not None and TIER_NAMES.index(mechanism.name) > TIER_NAMES.index(min_tier):
            raise self._unavailable(min_tier, reasons)

    def _unavailable(self, wanted: str, reasons: list[str]) -> TierUnavailable:
        asked = [reason for reason in reasons if not reason.endswith(": not asked for")]
        told = "; ".join(dict.fromkeys(asked)) or MISSING.get(wanted, "it is not available here")
        return TierUnavailable(
            f"tier {wanted} is not to be had on this host: {told}",
            hint="run `sandboxd doctor` for causes and remedies, or ask for a weaker tier with --tier or --min-tier",
        )
