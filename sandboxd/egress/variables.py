"""The environment that leads programs to the run's proxy. A pure module.

Names in both cases, because curl reads `http_proxy` in lower case only and others the reverse. All
point to HTTP: a SOCKS URL makes some Python clients fail for want of a library. Loopback is the
run's own and goes direct. Programs that heed none of these are carried transparently.

Two numbers beside them: pip and npm wait between attempts as if a refusal could pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from sandboxd.egress import hosts

NO_PROXY = "localhost,127.0.0.1,::1"
PROXIES = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "ftp_proxy",
    "grpc_proxy",
    "ws_proxy",
    "wss_proxy",
)
TOOLS = (
    "PIP_PROXY",
    "npm_config_proxy",
    "npm_config_https_proxy",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
    "CARGO_HTTP_PROXY",
    "GLOBAL_AGENT_HTTP_PROXY",
    "GLOBAL_AGENT_HTTPS_PROXY",
)
HASTE = {
    "PIP_RETRIES": "1",
    "npm_config_fetch_retries": "1",
    "npm_config_fetch_retry_mintimeout": "250",
    "npm_config_fetch_retry_maxtimeout": "1000",
}


def inner_proxies(environment: Mapping[str, str]) -> list[str]:
    """Proxies at an address of a private network or of this host's loopback, as `address:port` or
    `localhost:port`: those that the caller's own programs are led to. Names and what has no port are
    left out."""
    found: dict[str, None] = {}
    values = map(environment.get, (*PROXIES, *map(str.upper, PROXIES)))
    for value in filter(None, values):
        try:
            parts = urlsplit(value if "://" in value else f"http://{value}")
            host, port = parts.hostname or "", parts.port
        except ValueError:
            continue
        address = hosts.address_of(host)
        if port and (host == "localhost" or (address is not None and hosts.is_inner(address))):
            shown = f"[{address}]" if ":" in str(address) else str(address or host)
            found[f"{shown}:{port}"] = None
    return list(found)


def proxy_variables(port: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables for a proxy on the run's 127.0.0.1 at `port`; they replace proxies that the
    caller uses itself, and leave settings of the caller's other than proxies."""
    url = f"http://127.0.0.1:{port}"
    made: dict[str, str] = {}
    for name in PROXIES:
        made[name] = made[name.upper()] = url
    made |= dict.fromkeys(TOOLS, url)
    for name in ("no_proxy", "NO_PROXY", "npm_config_noproxy"):
        made[name] = NO_PROXY
    made["NODE_USE_ENV_PROXY"] = "1"
    java = " ".join(
        f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}"
        for scheme in ("http", "https")
    )
    given = environment.get("JAVA_TOOL_OPTIONS", "")
    made["JAVA_TOOL_OPTIONS"] = f"{given} {java}".strip()
    made |= {name: value for name, value in HASTE.items() if name not in environment}
    return made
