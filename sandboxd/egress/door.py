"""One way out for everything of a run: judged by name, resolved, judged by address, dialled.

A module of its own because relay, proxy and DNS must judge alike: what one refuses, none lets out.
`Names` remembers which names led to which addresses, since a transparent connection shows an
address only.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Iterable

from sandboxd.egress import hosts
from sandboxd.egress.denials import Denials
from sandboxd.egress.hosts import Address, HostRules
from sandboxd.egress.outside import Outside
from sandboxd.model import Denial

LOOPBACK = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))
MAX_PINNED = 4096
MAX_NAMES = 16


class Names:
    """Address -> the names that this run was told lead there, the oldest forgotten first."""

    def __init__(self) -> None:
        self._names: OrderedDict[Address, dict[str, None]] = OrderedDict()

    def add(self, name: str, addresses: Iterable[Address]) -> None:
        for address in addresses:
            known = self._names.setdefault(hosts.plain(address), {})
            self._names.move_to_end(hosts.plain(address))
            if name in known or len(known) < MAX_NAMES:
                known[name] = None
        while len(self._names) > MAX_PINNED:
            self._names.popitem(last=False)

    def of(self, address: Address) -> list[str]:
        return list(self._names.get(hosts.plain(address), ()))


class Door:
    """Opens connections for one run, or says why not. Raises OSError when nobody answers."""

    def __init__(self, rules: HostRules, outside: Outside, denials: Denials) -> None:
        self.rules = rules
        self.outside = outside
        self.denials = denials
        self.names = Names()

    async def open_host(self, host: str, port: int) -> socket.socket | Denial:
        """To a host as a program names it."""
        name = hosts.canonical(host)
        if name is None or not 0 < port < 65536:
            shown = host[: hosts.MAX_NAME].encode("ascii", "backslashreplace").decode()
            return self._deny(
                Denial(
                    evidence="proxy",
                    rule="network.host",
                    host=shown,
                    hint="this is neither a host name nor an address with a port from 1 to 65535",
                )
            )
        address = hosts.address_of(name)
        if address is not None:
            return await self.open_address(address, port)
        denial = self.rules.judge_name(name, port)
        if denial is not None:
            return self._deny(denial)
        return await self._open_any(await self.outside.lookup(name), port, name)

    async def open_address(self, address: Address, port: int) -> socket.socket | Denial:
        """To an address, which may have come from a name that this run asked for."""
        denial = self.judge(address, port)
        if denial is not None:
            return self._deny(denial)
        return await self.outside.dial(hosts.plain(address), port)

    def begin_address(self, address: Address, port: int) -> socket.socket | Denial:
        """The same for one who need not know when the connection is there."""
        denial = self.judge(address, port)
        if denial is not None:
            return self._deny(denial)
        return self.outside.begin(hosts.plain(address), port)

    async def open_loopback(self, port: int) -> socket.socket | Denial:
        """To a port of this host's loopback, at the addresses that a rule names."""
        judged = [(it, self.rules.judge_address(it, port)) for it in LOOPBACK]
        allowed = [address for address, denial in judged if denial is None]
        return await self._open_any(allowed or [LOOPBACK[0]], port, "localhost")

    def judge(self, address: Address, port: int) -> Denial | None:
        """May this address be reached, by itself or under a name that led to it?"""
        by_itself = self.rules.judge_address(address, port)
        by_name = [self._judge_as(name, address, port) for name in self.names.of(address)]
        denials = [denial for denial in (*by_name, by_itself) if denial is not None]
        for denial in denials:
            if denial.rule.startswith("network.deny"):
                return denial
        return denials[0] if len(denials) == len(by_name) + 1 else None

    def _judge_as(self, name: str, address: Address, port: int) -> Denial | None:
        denial = self.rules.judge_name(name, port)
        return denial or self.rules.judge_address(address, port, name=name)

    async def _open_any(
        self, addresses: list[Address], port: int, name: str
    ) -> socket.socket | Denial:
        """To the first that is allowed and answers."""
        judged = [(it, self.rules.judge_address(it, port, name=name)) for it in addresses]
        allowed = [address for address, denial in judged if denial is None]
        if not allowed:
            denials = [denial for _, denial in judged if denial is not None]
            if not denials:
                raise OSError(f"{name} has no address")
            return self._deny(denials[0])
        failure = OSError(f"{name} has no address")
        for address in allowed:
            try:
                return await self.outside.dial(hosts.plain(address), port)
            except OSError as error:
                failure = error
        raise failure

    def _deny(self, denial: Denial) -> Denial:
        self.denials.add(denial)
        return denial
