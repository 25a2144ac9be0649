"""Stage egress: the daemon's side of a run's network. Relay, DNS, proxy, published ports."""
