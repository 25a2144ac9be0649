"""Statistics as OpenTelemetry metrics; the extra `sandboxd[otel]`.

Its packages are imported when they are needed and nowhere else. Where the metrics go is said by the
environment, as for every program that speaks OTLP (`OTEL_EXPORTER_OTLP_ENDPOINT`, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from sandboxd import __version__
from sandboxd.errors import Fault, PlatformUnsupported

SEND_WITHIN_MS = 10_000


class Reason(Protocol):
    """One row of `reasons` in the statistics."""

    @property
    def reason(self) -> str: ...
    @property
    def layer(self) -> str: ...
    @property
    def origin(self) -> str: ...
    @property
    def count(self) -> int: ...


class Counted(Protocol):
    """The statistics, as far as they are sent."""

    @property
    def ok(self) -> int: ...
    @property
    def answers(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def reasons(self) -> Iterable[Reason]: ...
    @property
    def classes(self) -> Mapping[str, int]: ...
    @property
    def tiers(self) -> Mapping[str, int]: ...


Point = tuple[str, int, dict[str, str]]
"""Name of the counter, value, attributes."""


def points(found: Counted) -> list[Point]:
    """Every counter with its attributes."""
    calls = {"ok": found.ok, "answer": found.answers, "failed": found.failed}
    return [
        *(("sandboxd.calls", count, {"outcome": name}) for name, count in calls.items()),
        *(
            (
                "sandboxd.failures",
                row.count,
                {"layer": row.layer, "origin": row.origin, "reason": row.reason},
            )
            for row in found.reasons
        ),
        *(("sandboxd.verdicts", count, {"class": name}) for name, count in found.classes.items()),
        *(("sandboxd.launches", count, {"tier": name}) for name, count in found.tiers.items()),
    ]


def send(found: Counted) -> str:
    """Send the counters once; returns a sentence. Raises PlatformUnsupported without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
    except ImportError as error:
        raise PlatformUnsupported(
            f"OpenTelemetry is not installed: {error.name}", hint="pip install 'sandboxd[otel]'"
        ) from error
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(), export_interval_millis=1e9)
    resource = Resource.create({"service.name": "sandboxd", "service.version": __version__})
    provider = MeterProvider(metric_readers=[reader], resource=resource)
    meter = provider.get_meter("sandboxd", __version__)
    found_points = points(found)
    counters = {name: meter.create_counter(name) for name, _, _ in found_points}
    for name, value, attributes in found_points:
        counters[name].add(value, attributes)
    has_sent = provider.force_flush(SEND_WITHIN_MS)
    provider.shutdown()
    if not has_sent:
        raise Fault("the metrics could not be sent within 10 s")
    return f"sent {len(found_points)} counters"
