"""One run's network between request and relay: its rules, its variables, its published ports.

A module beside the pipeline because here the parts meet that know nothing of each other: profile and
request, the launcher's sockets, the egress stage. It writes no events and knows no verdicts.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Mapping

import msgspec

from sandboxd.confine.tier import RELAYED
from sandboxd.egress import publish, variables
from sandboxd.egress.carrier import Carrier
from sandboxd.egress.hosts import Address, Pattern, address_of, canonical, parse_pattern
from sandboxd.egress.outside import Outside
from sandboxd.errors import InvalidRequest, ProfileBroken, TierUnavailable
from sandboxd.model import (
    PROXY_PORT,
    Denial,
    ExecRequest,
    LaunchPlan,
    NetworkMode,
    Policy,
)
from sandboxd.profiles import Profile

MAX_PUBLISHED = 16
LOOPBACK = (ipaddress.ip_network("127.0.0.1"), ipaddress.ip_network("::1"))
DNS_PORT = 53


def with_proxies(policy: Policy, environment: Mapping[str, str]) -> Policy:
    """In `open`, the policy with the proxies that the session's own environment leads programs to:
    without them nothing works where they are the only way out. Said in the gaps; a deny still wins."""
    if policy.network is not NetworkMode.OPEN:
        return policy
    found = [it for it in variables.inner_proxies(environment) if not it.endswith(":53")]
    if not found:
        return policy
    told = f"network: the proxy of the caller's environment can be reached: {', '.join(found)}"
    rules = msgspec.structs.replace(policy.egress, allow=(*policy.egress.allow, *found))
    return msgspec.structs.replace(policy, egress=rules, notes=(*policy.notes, told))


def with_request(policy: Policy, request: ExecRequest) -> Policy:
    """The policy with the hosts and ports that the request adds.

    Raises InvalidRequest for what is no host or no port, ProfileBroken for a profile's rule that is
    no host.
    """
    for text in request.allow_hosts:
        _check_host(text)
    _check_profile(policy)
    rules = policy.egress
    ports = tuple(dict.fromkeys((*rules.publish, *request.publish)))
    if len(ports) > MAX_PUBLISHED or any(not 0 < port < 65536 for port in ports):
        raise InvalidRequest(
            f"`publish` takes up to {MAX_PUBLISHED} ports from 1 to 65535", hint="correct `publish`"
        )
    if request.allow_hosts and policy.network is NetworkMode.OFF:
        raise InvalidRequest(
            f"a host was allowed, and the profile {policy.profile} turns the network off",
            hint="use --profile allowlist with --allow-host",
        )
    allow = tuple(dict.fromkeys((*rules.allow, *request.allow_hosts)))
    if ports == rules.publish and not allow:
        return policy
    allow, host_ports = _of_this_host(allow, policy.network)
    changed = msgspec.structs.replace(rules, allow=allow, publish=ports, host_ports=host_ports)
    return msgspec.structs.replace(policy, egress=changed)


def _of_this_host(
    allow: tuple[str, ...], mode: NetworkMode
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The entries with `localhost:PORT` as addresses too, and the ports of this host's loopback that
    they name. Raises InvalidRequest for a port that the run needs itself, or too many."""
    ports: dict[int, None] = {}
    spelled = list(allow)
    for pattern in map(parse_pattern, allow):
        if pattern.port is None:
            continue
        if pattern.name == "localhost":
            spelled += [f"127.0.0.1:{pattern.port}", f"[::1]:{pattern.port}"]
        elif pattern.network not in LOOPBACK:
            continue
        ports[pattern.port] = None
    taken = {DNS_PORT, PROXY_PORT} if mode is NetworkMode.ALLOWLIST else {DNS_PORT}
    if len(ports) > MAX_PUBLISHED or taken.intersection(ports):
        raise InvalidRequest(
            f"up to {MAX_PUBLISHED} ports of localhost can be allowed, and not {sorted(taken)}: "
            "there the run's name server and proxy listen",
            hint="take such an entry out of --allow-host or network.allow",
        )
    return tuple(dict.fromkeys(spelled)), tuple(ports)


def in_mode(policy: Policy, mode: NetworkMode, tier: str, cause: str | None = None) -> Policy:
    """The policy with the network mode that the tier enforces; a fallback becomes a gap."""
    if mode is policy.network:
        return policy
    because = f" ({cause})" if cause else ""
    told = (
        f"network: tier {tier} cannot enforce {policy.network.value} here{because}; it is "
        f"{mode.value}, the fallback that profile {policy.profile} names"
    )
    return msgspec.structs.replace(policy, network=mode, notes=(*policy.notes, told))


def named(policy: Policy, hosts: Iterable[str]) -> set[str]:
    """Those of the hosts that the policy allows by name or address; `*` names nobody."""
    patterns = [parse_pattern(text) for text in policy.egress.allow if text.strip() != "*"]
    return {host for host in hosts if any(_is_named(host, one) for one in patterns)}


def _is_named(host: str, pattern: Pattern) -> bool:
    known = canonical(host)
    if known is None:
        return False
    address = address_of(known)
    return pattern.names(known, None) if address is None else pattern.covers(address, None)


def _check_host(text: str) -> None:
    try:
        parse_pattern(text)
    except ValueError as error:
        raise InvalidRequest(
            f"`allow_hosts`: {error}",
            hint="write host, *.domain, an address or a range, or host:port",
        ) from error


def check_hosts(profile: Profile) -> None:
    """Raises ProfileBroken, with the line, for an entry that is no host."""
    for key, texts in (("allow", profile.egress.allow), ("deny", profile.egress.deny)):
        for text in texts:
            try:
                parse_pattern(text)
            except ValueError as error:
                origin = profile.origin(f"network.{key}:{text}")
                where = f"{origin.file}, line {origin.line}" if origin else profile.name
                raise ProfileBroken(
                    f"{where}, key 'network.{key}': {error}.", hint="correct that entry"
                ) from error


def _check_profile(policy: Policy) -> None:
    for text in (*policy.egress.allow, *policy.egress.deny):
        try:
            parse_pattern(text)
        except ValueError as error:
            raise ProfileBroken(
                f"profile {policy.profile}, key 'network': {error}", hint="correct that entry"
            ) from error


def environment(policy: Policy, variables_so_far: Mapping[str, str]) -> dict[str, str]:
    """The run's environment, with its proxy where it has one."""
    if policy.network is not NetworkMode.ALLOWLIST:
        return dict(variables_so_far)
    return {**variables_so_far, **variables.proxy_variables(PROXY_PORT, variables_so_far)}


def check(plan: LaunchPlan, policy: Policy) -> None:
    """Raises TierUnavailable when the tier cannot do what was asked of the network."""
    if policy.egress.publish and policy.network is not NetworkMode.HOST and plan.network is None:
        raise TierUnavailable(
            f"tier {plan.tier.name} cannot publish ports of a run whose network is {policy.network.value}",
            hint="leave out --publish, or use the tier namespaces or bubblewrap",
        )


REFUSED = re.compile(r"[Cc]onnection refused|ECONNREFUSED|Couldn't connect|Failed to connect")
OWN = re.compile(r"(?:127\.0\.0\.1|\blocalhost\b|::1\b)(?:\]?:|.{0,12}?\bport )([0-9]{1,5})\b")


def own_loopback(plan: LaunchPlan, text: str) -> Denial | None:
    """A guess from a program's own words: what it looked for at 127.0.0.1 is this host's."""
    found = OWN.search(text) if REFUSED.search(text) else None
    if found is None or plan.network is None or plan.network.carries == "nothing":
        return None
    return Denial(
        evidence="text",
        rule="network.loopback",
        host=f"localhost:{found[1]}",
        hint=(
            "127.0.0.1 is the run's own; where this host's is meant, name the port: "
            f"--allow-host localhost:{found[1]}"
        ),
    )


class WayOut:
    """What carries one run's connections; begins after the launch, ends with the run.

    Most runs never use the network, so what serves it is made when something arrives.
    """

    def __init__(
        self, policy: Policy, outside: Outside, on_denial: Callable[[Denial], None]
    ) -> None:
        """Takes the published ports at once. Raises InvalidRequest when one cannot be had."""
        self._policy = policy
        self._outside = outside
        self._on_denial = on_denial
        self._carrier: Carrier | None = None
        self._waiting: list[tuple[str, int]] = []
        self._listeners: dict[int, socket.socket] = {}
        if policy.network is NetworkMode.HOST or not policy.egress.publish:
            return
        try:
            self._listeners = publish.listen(policy.egress.publish)
        except OSError as error:
            raise InvalidRequest(
                f"port {error.filename} of 127.0.0.1 cannot be published: {error.strerror}",
                hint="publish another port, or end what listens there",
            ) from error

    @property
    def denial(self) -> Denial | None:
        """The first that was denied."""
        return self._carrier.denials.first if self._carrier is not None else None

    def names_of(self, address: Address) -> list[str]:
        """Which names had led the run to an address."""
        return self._carrier.door.names.of(address) if self._carrier is not None else []

    def begin(self, handed: list[tuple[str, int]]) -> None:
        """Serve the sockets that the run's init handed over, ours from now on."""
        self._waiting = handed
        if self._listeners:
            self._serve()
            return
        loop = asyncio.get_running_loop()
        for _, fd in handed:
            loop.add_reader(fd, self._serve)

    def _serve(self) -> None:
        """Something has arrived, or may arrive from the host."""
        handed, listeners = self._stop_waiting(), self._listeners
        self._listeners = {}
        self._opened().serve(handed, listeners)

    def _opened(self) -> Carrier:
        if self._carrier is None:
            policy = self._policy
            self._carrier = Carrier(policy.network, policy.egress, self._outside, self._on_denial)
        return self._carrier

    def _stop_waiting(self) -> list[tuple[str, int]]:
        handed, self._waiting = self._waiting, []
        loop = asyncio.get_running_loop()
        for _, fd in handed:
            loop.remove_reader(fd)
        return handed

    def add_unreachable(self, addresses: list[bytes]) -> None:
        """What the run's routes refused (struct sockaddr), as denials where a rule says so."""
        for address in addresses if self._policy.network in RELAYED else ():
            self._opened().note_refused(*_inet_address(address))

    async def close(self) -> None:
        """End all connections; every socket is closed."""
        for _, fd in self._stop_waiting():
            os.close(fd)
        for listener in self._listeners.values():
            listener.close()
        if self._carrier is not None:
            await self._carrier.close()


def _inet_address(address: bytes) -> tuple[str, int]:
    """Host and port of a struct sockaddr_in or sockaddr_in6: ip(7), ipv6(7)."""
    port = int.from_bytes(address[2:4], "big")
    if int.from_bytes(address[:2], sys.byteorder) == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, address[8:24].ljust(16, b"\0")), port
    return socket.inet_ntop(socket.AF_INET, address[4:8].ljust(4, b"\0")), port
