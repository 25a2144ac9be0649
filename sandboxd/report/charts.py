"""Charts as inline SVG: whose failures, and the session as a strip of time. Pure text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

LAYERS = ("agent", "harness", "workflow", "environment", "provider", "operator", "unknown")
"""Their colours are the style's `--layer-NAME`."""
RADIUS, WIDTH = 54, 20
STRIP, HEIGHT = 1000, 64


def ring(counts: Mapping[str, int]) -> str:
    """A ring with a part for each layer, and the number of failures in the middle."""
    total = sum(counts.values())
    length = 2 * math.pi * RADIUS
    parts, turned = [], 0.0
    for layer in LAYERS:
        share = counts.get(layer, 0) / total if total else 0.0
        if share:
            gap = 2.5 if share < 1 else 0.0
            dash = f"{max(1.0, share * length - gap):.2f} {length:.2f}"
            parts.append(
                f'<circle class="part" r="{RADIUS}" cx="75" cy="75" stroke="var(--layer-{layer})" '
                f'stroke-dasharray="{dash}" stroke-dashoffset="{-turned * length:.2f}">'
                f"<title>{layer}: {counts[layer]}</title></circle>"
            )
        turned += share
    return (
        '<svg class="ring" viewBox="0 0 150 150" role="img" aria-label="failures by layer">'
        f'<circle class="track" r="{RADIUS}" cx="75" cy="75"/>'
        f'<g transform="rotate(-90 75 75)">{"".join(parts)}</g>'
        f'<text x="75" y="74" class="number">{total}</text>'
        f'<text x="75" y="92" class="label">failed</text></svg>'
    )


class Bar:
    """One call on the strip."""

    def __init__(self, start: float, duration_s: float, outcome: str, title: str, target: str):
        self.start, self.duration_s, self.outcome = start, duration_s, outcome
        self.title, self.target = title, target


def strip(bars: Sequence[Bar], began: float, ended: float) -> str:
    """All calls over time; what fell in between long pauses stays where it was."""
    span = max(ended - began, 0.001)
    drawn = []
    for bar in bars:
        x = (bar.start - began) / span * STRIP
        width = max(3.0, bar.duration_s / span * STRIP)
        is_loud = bar.outcome in ("failed", "refused")
        top, height = (6, 40) if is_loud else (14, 24)
        drawn.append(
            f'<a href="#{escape(bar.target)}"><rect class="o-{escape(bar.outcome)}" x="{min(x, STRIP - 3):.1f}" '
            f'y="{top}" width="{min(width, STRIP - min(x, STRIP - 3)):.1f}" height="{height}" rx="1.5">'
            f"<title>{escape(bar.title)}</title></rect></a>"
        )
    return (
        f'<svg class="strip" viewBox="0 0 {STRIP} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="calls over time"><line x1="0" y1="52" x2="{STRIP}" y2="52"/>{"".join(drawn)}</svg>'
    )
