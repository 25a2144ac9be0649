"""The network of a run's own, as tiers plan it: what init makes, and what the run is told of it.

Apart from the tiers because more than one has it. Pure: `spawn.network` makes what is said here.
"""

from __future__ import annotations

from sandboxd.confine.tier import RELAYED
from sandboxd.model import PROXY_PORT, REFUSED_RANGES, NetworkMode, NetworkSetup, Policy

UNREACHABLE = tuple(text for text in REFUSED_RANGES if text not in ("127.0.0.0/8", "::1/128"))
"""Loopback is the run's own."""
PUBLISH_POOL = 32
RESOLV_CONF_PATH = "/etc/resolv.conf"
RESOLV_CONF = "nameserver 127.0.0.1\noptions attempts:2 timeout:5\n"


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
