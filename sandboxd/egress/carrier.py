"""One run's way out, put together: its sockets, its rules, who serves what, and its end.

What the run's init handed over comes with tags (`spawn.network` lists them); this module alone
knows which part serves which. Nothing of it outlives `close`.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping

from sandboxd.egress.denials import Denials
from sandboxd.egress.dns import NameServer
from sandboxd.egress.door import Door
from sandboxd.egress.flows import Connections
from sandboxd.egress.hosts import HostRules
from sandboxd.egress.outside import Outside
from sandboxd.egress.proxy import Proxy
from sandboxd.egress.publish import Published
from sandboxd.egress.relay import Relay
from sandboxd.model import Denial, EgressRules, NetworkMode


class Carrier:
    """Serves the network of one run, inside a running event loop."""

    def __init__(
        self,
        mode: NetworkMode,
        rules: EgressRules,
        outside: Outside,
        on_denial: Callable[[Denial], None],
        *,
        connections: Connections | None = None,
    ) -> None:
        """Raises ValueError for a rule that is no host; `on_denial` hears of each denial once."""
        self.denials = Denials(on_denial)
        self.connections = connections or Connections()
        host_rules = HostRules(mode, rules, is_own=outside.is_own)
        self.door = Door(host_rules, outside, self.denials)
        self.names = NameServer(self.door, self.connections)
        self.published = Published(self.connections)

    def serve(
        self, handed: Iterable[tuple[str, int]], published: Mapping[int, socket.socket]
    ) -> None:
        """Take over the run's sockets (tag, descriptor) and the listeners of published ports."""
        relay = Relay(self.door, self.names, self.connections)
        listeners = {
            "tcp": relay.carry_transparent,
            "nat": relay.carry_redirected,
            "dns": self.names.serve_stream,
            "pro": Proxy(self.door, self.connections).serve,
        }
        for tag, fd in handed:
            made = socket.socket(fileno=fd)
            if tag.startswith("host:"):
                handle = functools.partial(relay.carry_to_host, port=int(tag[5:]))
                self.connections.accept_from(made, handle)
            elif tag[:3] in listeners:
                self.connections.accept_from(made, listeners[tag[:3]])
            elif tag.startswith("udp"):
                self.names.serve_datagrams(made)
            else:
                self.published.add(made)
        for port, listener in published.items():
            self.published.serve(listener, port)

    def note_refused(self, host: str, port: int) -> None:
        """Record a connection that the run's own routes refused, when the rules do too."""
        address = ipaddress.ip_address(host)
        denial = self.door.judge(address, port)
        if denial is not None:
            self.denials.add(denial)

    async def close(self) -> None:
        """End every connection and close every socket."""
        self.names.close()
        with contextlib.suppress(OSError):
            await self.connections.close()
        self.published.close()
