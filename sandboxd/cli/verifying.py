"""`verify`: does a tier of this host hold what it says? Tried, not asked.

The engine runs in this process, whatever daemon there may be: what is verified is this build on
this host, as this user.
"""

from __future__ import annotations

import asyncio
import json
import os

import click
import msgspec

from sandboxd.cli.told import visible
from sandboxd.confine.tier import Mechanism
from sandboxd.confine.verify import Finding, Report, verify
from sandboxd.engine import Engine
from sandboxd.errors import UnknownTier
from sandboxd.model import TIER_NAMES, NetworkMode, ProbeResult

MARKS = {"ok": "ok", "residual": "open", "skipped": "skipped", "surprise": "SURPRISE"}


@click.command("verify")
@click.option("--tier", metavar="NAME", help="Only this tier.")
@click.option("--all", "is_all", is_flag=True, help="Every tier that this host has.")
@click.option("--strict", is_flag=True, help="Let nothing pass: see below.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def verify_command(tier: str | None, is_all: bool, strict: bool, is_json: bool) -> int:
    """Try about ninety attacks and pieces of ordinary work inside the strongest tier of this host,
    against files, sockets and a process made for it, and compare with what is expected.

    Exit 1 on any surprise. With --strict also on a probe that was skipped, on one that got through
    without the tier's own gaps saying so, and on a tier that is missing although
    SANDBOXD_TEST_TIERS names it.
    """
    if tier is not None and tier not in TIER_NAMES:
        raise UnknownTier(f"there is no tier {tier!r}", hint=f"use one of {', '.join(TIER_NAMES)}")
    os.environ["VERIFY_SECRET"] = "must not be inherited"  # row environment_secret
    reports, missing = asyncio.run(_verify(tier, is_all))
    lost = _lost(reports) if strict and is_all else []
    if is_json:
        _print_json(reports, missing, lost)
    else:
        _print_text(reports, missing, strict)
        for name in lost:
            click.echo(f"{name}: MISSING although SANDBOXD_TEST_TIERS names it")
    loose = [end for report in reports for end in report.loose_ends] if strict else []
    return 1 if loose or lost or any(report.surprises for report in reports) else 0


def _lost(reports: list[Report]) -> list[str]:
    """Tiers that SANDBOXD_TEST_TIERS says this host must have and that were not verified."""
    required = filter(None, os.environ.get("SANDBOXD_TEST_TIERS", "").split(","))
    return [name for name in required if name not in {report.tier for report in reports}]


async def _verify(tier: str | None, is_all: bool) -> tuple[list[Report], list[ProbeResult]]:
    """Reports of the tiers asked for in each network mode they know, and what is missing.

    Raises TierUnavailable when a tier was asked for by name.
    """
    engine = await Engine.create(keeps_spare=True)  # as a daemon's runs have it
    try:
        if is_all and tier is None:
            survey = await engine.ladder.survey(NetworkMode.HOST)
        else:
            chosen, _ = await engine.ladder.choose(NetworkMode.HOST, tier=tier)
            survey = [(chosen, await engine.ladder.probe(chosen, NetworkMode.HOST))]
        missing = [found for _, found in survey if not found.available]
        present = [mechanism for mechanism, found in survey if found.available]
        return [report for each in present for report in await _in_each_network(engine, each)], (
            missing
        )
    finally:
        await engine.close()


async def _in_each_network(engine: Engine, mechanism: Mechanism) -> list[Report]:
    return [await verify(mechanism, network, engine.run_plan) for network in mechanism.networks]


def _print_text(reports: list[Report], missing: list[ProbeResult], strict: bool) -> None:
    for report in reports:
        click.echo(f"{report.tier}, network {report.network.value}, uid {report.uid}")
        for finding in report.findings:
            click.echo("  " + _line(finding))
        for end in report.loose_ends if strict else ():
            click.echo(f"  LOOSE END  {visible(end)}")
        click.echo(
            f"  {len(report.findings)} probes in {report.seconds:g} s: "
            f"{len(report.surprises)} surprise(s), {len(report.residuals)} known to be open"
        )
    for found in missing:
        click.echo(f"{found.tier}: not here: {visible(found.cause or 'unknown')}")
        if found.remedy:
            click.echo(f"  remedy: {visible(found.remedy)}")


def _line(finding: Finding) -> str:
    found = f"{finding.found} ({finding.detail})" if finding.detail else finding.found
    return (
        f"{MARKS[finding.verdict]:<9} {finding.name:<24} expected {finding.expected:<8} "
        f"found {visible(found):<22} {finding.says}"
    )


def _print_json(reports: list[Report], missing: list[ProbeResult], lost: list[str]) -> None:
    value = {
        "reports": msgspec.to_builtins(reports),
        "missing": msgspec.to_builtins(missing),
        "required_and_missing": lost,
        "surprises": sum(len(report.surprises) for report in reports),
    }
    click.echo(json.dumps(value, separators=(",", ":")))
