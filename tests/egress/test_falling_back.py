"""Kernels and tiers that cannot do everything: the named fallback, said, or a refusal; never silence."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from sandboxd.confine.namespaces import Namespaces
from sandboxd.confine.select import Ladder, mechanisms
from sandboxd.errors import TierUnavailable
from sandboxd.model import EgressRules, ExecRequest, Invocation, LaunchPlan, NetworkMode
from sandboxd.spawn.launcher import LaunchFailed
from tests.confined import Ground, with_launcher
from tests.egress.gate import text, through_gate
from tests.egress.running import PRELUDE
from tests.egress.world import PUBLIC, Carried, World, http_server, run_carried

ROOT = Path(__file__).resolve().parents[2]
OPEN, ALLOWLIST, HOST = NetworkMode.OPEN, NetworkMode.ALLOWLIST, NetworkMode.HOST


async def without_nftables(plan: LaunchPlan) -> tuple[int, bytes]:
    """What launching says on a kernel that lacks nf_tables; everything else goes well."""
    if plan.network is not None and plan.network.carries == "everything":
        raise LaunchFailed("network.nftables", errno.EOPNOTSUPP, "")
    return 0, b"done\n"


def ladder() -> Ladder:
    return Ladder(mechanisms(), without_nftables)


def test_open_without_nftables_is_refused_with_the_cause() -> None:
    with pytest.raises(TierUnavailable, match=r"network\.nftables: Operation not supported"):
        asyncio.run(ladder().choose_network((OPEN,)))


def test_open_without_nftables_takes_the_fallback_in_the_same_tier_and_says_why() -> None:
    tried = ladder()
    mechanism, network, _ = asyncio.run(tried.choose_network((OPEN, HOST)))
    assert (mechanism.name, network) == ("namespaces", HOST)
    cause = tried.cause(mechanism, OPEN)
    assert cause is not None
    assert "no nf_tables" in cause
    assert "modprobe" in cause
    assert tried.cause(mechanism, HOST) is None


def test_allowlist_without_nftables_is_the_proxy_alone() -> None:
    mechanism, network, _ = asyncio.run(ladder().choose_network((ALLOWLIST,)))
    assert (mechanism.name, network) == ("namespaces", ALLOWLIST)
    assert isinstance(mechanism, Namespaces)
    assert not mechanism.has_nftables


def test_a_failure_that_is_not_the_networks_is_not_tried_again_with_another() -> None:
    tried: list[str] = []

    async def nothing_works(plan: LaunchPlan) -> tuple[int, bytes]:
        tried.append(plan.tier.name)
        raise LaunchFailed("uid_map", errno.EPERM, "")

    with pytest.raises(TierUnavailable):
        asyncio.run(
            Ladder(mechanisms(), nothing_works).choose_network((OPEN, HOST), tier="namespaces")
        )
    assert tried == ["namespaces"]


def test_the_proxy_alone_carries_who_uses_it_and_nobody_else(ground: Ground, world: World) -> None:
    world.hosts = {"good.example": [PUBLIC]}
    policy = msgspec.structs.replace(
        ground.policy(ALLOWLIST), egress=EgressRules(allow=("good.example",))
    )
    rung = Namespaces(0, os.getuid(), os.getgid(), has_nftables=False)
    code = f"""
import urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{"http": "http://127.0.0.1:3128"}}))
print(opener.open("http://good.example/", timeout=9).read().decode().strip())
for target in ("{PUBLIC}", "10.0.0.1", "169.254.169.254"):
    print(attempt(lambda: fetch(target)))
"""
    argv = (sys.executable, "-I", "-c", PRELUDE + code)
    invocation = Invocation(
        program=sys.executable,
        argv=argv,
        environment={"PATH": os.environ["PATH"]},
        cwd=ground.workspace,
    )
    plan = rung.plan(invocation, policy)
    assert any("no nf_tables" in gap for gap in plan.tier.gaps)

    async def work(launcher: object) -> Carried:
        return await run_carried(launcher, plan, policy, world)  # type: ignore[arg-type]

    with http_server() as port:
        world.servers = {(PUBLIC, 80): port}
        carried = with_launcher(work)  # type: ignore[arg-type]
    assert carried.output.split("\n")[:4] == ["good.example /"] + ["OSError"] * 3


def test_nat_serves_where_there_is_no_tproxy() -> None:
    """The set-up itself, in namespaces of its own: destinations are read from SO_ORIGINAL_DST."""
    code = """
    import os, socket
    from sandboxd.egress.relay import redirected_destination
    from sandboxd.spawn import network
    from sandboxd.system import linux
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    setup = {"carries": "everything", "has_ipv6_source": True, "unreachable": ["10.0.0.0/8"]}
    made = dict(network._redirected(network.Messages(setup).send_routes()))
    for tag, place in (("nat4", ("203.0.113.5", 80)), ("nat6", ("2001:db8::5", 443))):
        listener = socket.socket(fileno=made[tag].detach())
        client = socket.create_connection(place, 5)
        near, _ = listener.accept()
        print(*redirected_destination(near), client.getpeername()[:2] == place)
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asking.connect(("8.8.8.8", 53))
    asking.send(b"question")
    data, peer = made["udp4"].recvfrom(100)
    made["udp4"].sendto(b"answer", peer)
    print(data, asking.recv(100))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert done.stdout.split("\n")[:-1] == [
        "203.0.113.5 80 True",
        "2001:db8::5 443 True",
        "b'question' b'answer'",
    ], done.stderr


async def ours_fails(plan: LaunchPlan) -> tuple[int, bytes]:
    """As under AppArmor profiles that name bwrap only: ours fails at its first step."""
    if plan.namespaces:
        apart = "" if "mount" in plan.namespaces else "network."
        raise LaunchFailed(apart + "uid_map", errno.EPERM, "")
    return 0, b"done\n"


async def joining_fails_too(plan: LaunchPlan) -> tuple[int, bytes]:
    """As with a setuid bwrap there."""
    if plan.maker is not None:
        raise LaunchFailed("join", errno.EPERM, "")
    return await ours_fails(plan)


def test_where_bwrap_alone_may_make_namespaces_the_network_in_them_is_relayed() -> None:
    chosen = asyncio.run(Ladder(mechanisms(), ours_fails).choose_network((OPEN, HOST)))
    assert (chosen[0].name, chosen[1]) == ("bubblewrap", OPEN)


def test_where_they_cannot_be_entered_either_nothing_is_relayed() -> None:
    ladder = Ladder(mechanisms(), joining_fails_too)
    mechanism, network, _ = asyncio.run(ladder.choose_network((OPEN, HOST)))
    assert (mechanism.name, network) == ("bubblewrap", HOST)
    with pytest.raises(TierUnavailable, match=r"bubblewrap: .*join"):
        asyncio.run(ladder.choose_network((OPEN,), tier="bubblewrap"))


def test_a_host_without_user_namespaces_fails_at_the_networks_own_step() -> None:
    """What the zygote really says where namespaces were wanted for the network only."""
    code = """
    import asyncio, os
    from sandboxd.confine.select import mechanisms
    from sandboxd.model import Invocation, NetworkMode, Policy
    from sandboxd.spawn.launcher import Launcher, LaunchFailed
    from sandboxd.system import linux
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    rung = next(it for it in mechanisms() if it.name == "bubblewrap" and not it.joins)
    policy = Policy(profile="p", workspace="/", writable=(), private_tmp="/", network=NetworkMode.OPEN)
    plan = rung.plan(Invocation(program="/bin/true", argv=("true",), environment={}, cwd="/"), policy)
    async def main():
        launcher = Launcher()
        launcher.start()
        try:
            await launcher.launch(plan, (0, 1, 2))
        except LaunchFailed as failed:
            print(failed)
        await launcher.close()
    asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert done.stdout == "network.clone: No space left on device\n", done.stderr


@pytest.mark.parametrize("tier", ["landlock", "containment"])
def test_default_takes_its_fallback_in_a_tier_without_a_relay_and_says_so(
    tmp_path: Path, world: World, tier: str
) -> None:
    asked = ExecRequest(argv=("echo", "ran"), approve="all", tier=tier)
    [result] = through_gate(world, tmp_path, asked)
    assert text(result) == "ran\n"
    told = [gap for gap in result.tier.gaps if "fallback" in gap]
    assert told == [
        f"network: tier {tier} cannot enforce open here; it is host, the fallback that profile default names"
    ]
    assert any("the host's own" in gap for gap in result.tier.gaps)


def test_a_profile_that_closes_the_network_has_no_fallback(tmp_path: Path, world: World) -> None:
    file = tmp_path / "closed.yaml"
    for mode in ("off", "allowlist", "open"):
        file.write_text(f"extends: default\nnetwork: {mode}\n")
        asked = ExecRequest(argv=("true",), approve="all", tier="containment", profile=str(file))
        with pytest.raises(TierUnavailable, match=f"cannot enforce network {mode}"):
            through_gate(world, tmp_path, asked)
