"""What a run is told of names: our server, and the host's way of completing short ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.confine.own_network import RESOLV_CONF, Resolver, resolv_conf


@pytest.mark.parametrize(
    ("hosts_own", "kept"),
    [
        ("", ""),
        ("nameserver 10.0.0.2\nnameserver ::1\n", ""),
        ("search corp.example dev.example\n", "search corp.example dev.example\n"),
        ("  search\tcorp.example \n", "search corp.example\n"),
        (
            "domain corp.example\noptions edns0 ndots:5 trust-ad timeout:30\n",
            "domain corp.example\noptions ndots:5\n",
        ),
        ("# search no.example\n;search no.example\nsearch\nsortlist 10.0.0.0\n", ""),
    ],
)
def test_only_what_completes_short_names_is_kept(hosts_own: str, kept: str) -> None:
    assert resolv_conf(hosts_own) == RESOLV_CONF + kept


def test_a_change_on_the_host_shows_in_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    resolver = Resolver(str(file))
    assert resolver() == RESOLV_CONF
    file.write_text("search a.example\n")
    assert resolver() == RESOLV_CONF + "search a.example\n"
    file.write_bytes(b"search b.example\n\xff\n")
    os.utime(file, ns=(1, 1))
    assert resolver() == RESOLV_CONF + "search b.example\n"
    file.unlink()
    assert resolver() == RESOLV_CONF
