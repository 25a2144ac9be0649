"""The network of a run's own, as tiers plan it: what init makes, and what the run is told of it.

Apart from the tiers because more than one has it. Pure but for `Resolver`, which is handed to them:
`spawn.network` makes what is said here. Source: resolv.conf(5).
"""

from __future__ import annotations

import os

from sandboxd.confine.tier import RELAYED
from sandboxd.model import PROXY_PORT, REFUSED_RANGES, NetworkMode, NetworkSetup, Policy

UNREACHABLE = tuple(text for text in REFUSED_RANGES if text not in ("127.0.0.0/8", "::1/128"))
"""Loopback is the run's own."""
PUBLISH_POOL = 32
RESOLV_CONF_PATH = "/etc/resolv.conf"
RESOLV_CONF = "nameserver 127.0.0.1\noptions attempts:2 timeout:5\n"
MAX_RESOLV_CONF = 64 * 1024


def resolv_conf(hosts_own: str) -> str:
    """A run's file, made from this host's: our server, and how short names are completed (`search`,
    `domain`, `options ndots`), without which names of a private network mean nothing."""
    kept = []
    for line in hosts_own.splitlines():
        word, *rest = line.split() or [""]
        if word in ("search", "domain") and rest:
            kept.append(" ".join([word, *rest]))
        elif word == "options":
            kept += [f"options {option}" for option in rest if option.startswith("ndots:")]
    return RESOLV_CONF + "".join(line + "\n" for line in kept)


class Resolver:
    """The text of a run's resolv.conf, made anew when this host's has changed."""

    def __init__(self, path: str = RESOLV_CONF_PATH) -> None:
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._text = RESOLV_CONF

    def __call__(self) -> str:
        try:
            found = os.stat(self._path)
            version = (found.st_mtime_ns, found.st_size, found.st_ino)
            if version != self._version:
                with open(self._path, encoding="ascii", errors="ignore") as file:
                    self._text = resolv_conf(file.read(MAX_RESOLV_CONF))
                self._version = version
        except OSError:
            return RESOLV_CONF
        return self._text


def plain_resolver() -> str:
    """For a host of which nothing is known."""
    return RESOLV_CONF


def network_setup(
    policy: Policy, *, has_ipv6: bool, has_nftables: bool = True, hears_refusals: bool = True
) -> NetworkSetup | None:
    """The run's own network; None when it shares the host's.

    Without `hears_refusals` nobody could tell of a route that refused, so what is refused arrives
    at the daemon like everything else.
    """
    if policy.network is NetworkMode.HOST:
        return None
    is_relayed = policy.network in RELAYED
    is_allowlist = policy.network is NetworkMode.ALLOWLIST
    # A range that some address of may be named is left to the daemon, which judges each address.
    may_name = policy.egress.allow or policy.egress.allow_private
    return NetworkSetup(
        carries=("everything" if has_nftables else "proxy") if is_relayed else "nothing",
        has_ipv6_source=is_relayed and has_ipv6,
        unreachable=UNREACHABLE if is_relayed and hears_refusals and not may_name else (),
        proxy_port=PROXY_PORT if is_allowlist else None,
        host_ports=policy.egress.host_ports if is_relayed else (),
        publish_pool=PUBLISH_POOL if policy.egress.publish else 0,
    )
