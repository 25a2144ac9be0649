"""Does a tier really hold on this host? Answered by running it, never by asking for versions.

`unshare` returning 0 proves nothing: AppArmor lets it succeed and strips the capabilities, a
container masks /proc, `max_user_namespaces=0` says "no space". So the probe does what a run
does: it reads a canary that must be hidden and writes where it must fail.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import time

from sandboxd import config
from sandboxd.confine.tier import Mechanism, Runner
from sandboxd.errors import SandboxdError
from sandboxd.model import Invocation, NetworkMode, Policy, ProbeResult
from sandboxd.policy import workspace_owner

LIMIT_S = 2.0
TOO_SLOW = f"did not finish within {LIMIT_S:g} s"

SCRIPT = """
echo ok > "$1/inside" || echo FAIL cannot write the workspace
echo ok > "$TMPDIR/inside" || echo FAIL cannot write the temporary folder
(echo x > "$2/outside") 2>/dev/null && echo FAIL wrote outside
cat "$3/canary" 2>/dev/null | grep -q . && echo FAIL read a denied file
echo done
"""


async def probe(mechanism: Mechanism, run: Runner, network: NetworkMode, base: str) -> ProbeResult:
    """Run the tier once, for at most LIMIT_S seconds, in folders made below `base`."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="probe-", dir=base) as folder:
        cause = await _cause(mechanism, run, network, folder)
    return ProbeResult(
        tier=mechanism.name,
        available=cause is None,
        seconds=round(time.monotonic() - begun, 4),
        cause=cause,
        remedy=mechanism.remedy if cause is not None else None,
    )


async def _cause(
    mechanism: Mechanism, run: Runner, network: NetworkMode, folder: str
) -> str | None:
    """Why the tier does not hold; None when it does."""
    policy = _policy(folder, network)
    names = [os.path.join(folder, name) for name in ("workspace", "outside", "denied")]
    invocation = Invocation(
        program="/bin/sh",
        argv=("sh", "-c", SCRIPT, "sh", *names),
        environment={"PATH": "/usr/bin:/bin", "TMPDIR": mechanism.temp_path(policy)},
        cwd=names[0],
    )
    try:
        plan = mechanism.plan(invocation, policy)
        code, output = await asyncio.wait_for(run(plan), LIMIT_S)
    except TimeoutError:
        return TOO_SLOW
    except (SandboxdError, OSError) as error:
        return str(error)
    lines = output.decode(errors="replace").split("\n")
    if not mechanism.is_kernel:
        lines = [
            line for line in lines if line not in ("FAIL wrote outside", "FAIL read a denied file")
        ]
    failed = [line[5:] for line in lines if line.startswith("FAIL ")]
    if failed:
        return "; ".join(failed)
    if code == 0 and "done" in lines:
        return None
    last = [line for line in lines if line][-1:] or ["it said nothing"]
    return f"the probe ended with {code}: {last[0]}"


def _policy(folder: str, network: NetworkMode) -> Policy:
    for name in ("workspace", "outside", "denied", "tmp"):
        os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, "denied", "canary"), "w", encoding="ascii") as file:
        file.write(secrets.token_hex(8))
    workspace = os.path.join(folder, "workspace")
    return Policy(
        profile="probe",
        workspace=workspace,
        writable=(workspace,),
        denied=(os.path.join(folder, "denied"),),
        private_tmp=os.path.join(folder, "tmp"),
        # Shown, so that hiding the canary is the tier's own doing and not that of a private /tmp.
        visible=(folder,) if folder.startswith("/tmp/") else (),
        network=network,
        owner=workspace_owner(workspace),
    )


def probe_base() -> str:
    """Where probes make their folders."""
    return config.temp_folder()
