"""Converts metric families of Prometheus to OpenTelemetry's data model, without I/O.

Names stay those of ``/metrics``, so that dashboards and the reference name the same metrics. A translator to Prometheus
adds units and ``_total`` only to names that lack them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

ATTRIBUTES = {"job": "emberkeep.job", "instance": "emberkeep.instance"}
"""Labels that get another name: Prometheus replaces ``job`` and ``instance`` with the name and id of the service."""

_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}  # by the end of a metric's name; in UCUM
_UNKNOWN = 0  # the start of a series whose beginning this process does not know
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_Labels = tuple[tuple[str, str], ...]


def metrics_data(families: Iterable[Metric], resource: Resource, version: str, now_ns: int) -> MetricsData:
    """Return counters, gauges and histograms as one resource's metrics at ``now_ns`` (Unix nanoseconds).

    Values that are not a number are left out: to OpenTelemetry, an unknown value is an absent one. So are families of
    other types, such as summaries, which Emberkeep does not have.
    """
    metrics = [metric for family in families for metric in _converted(family, now_ns)]
    scope = ScopeMetrics(InstrumentationScope("emberkeep", version), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _converted(family: Metric, now_ns: int) -> Iterator[OtlpMetric]:
    if family.type == "histogram":
        points = list(_histogram_points(family, now_ns))
        if points:
            yield _metric(family.name, family, Histogram(points, _CUMULATIVE))
    elif family.type == "counter":
        name = f"{family.name}_total"
        started = {
            _labels(sample): sample.value for sample in family.samples if sample.name == f"{family.name}_created"
        }
        numbers = _numbers(name, family.samples, now_ns, started)
        if numbers:
            yield _metric(name, family, Sum(numbers, _CUMULATIVE, is_monotonic=True))
    elif family.type in ("gauge", "info"):
        name = f"{family.name}_info" if family.type == "info" else family.name
        numbers = _numbers(name, family.samples, now_ns, {})
        if numbers:
            yield _metric(name, family, Gauge(numbers))


def _metric(name: str, family: Metric, data: Sum | Gauge | Histogram) -> OtlpMetric:
    stem = name.removesuffix("_total")
    is_rate = stem.endswith("_per_second")
    unit = "" if is_rate else _UNITS.get(stem.rpartition("_")[2], "")
    return OtlpMetric(name, family.documentation, unit, data)


def _numbers(
    name: str, samples: Iterable[Sample], now_ns: int, started: Mapping[_Labels, float]
) -> Sequence[NumberDataPoint]:
    return [
        NumberDataPoint(_attributes(sample.labels), _start(started.get(_labels(sample))), now_ns, float(sample.value))
        for sample in samples
        if sample.name == name and not math.isnan(sample.value)
    ]


def _histogram_points(family: Metric, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Yield a point for each series. Prometheus counts in each bucket what is in those below it; OTLP does not."""
    buckets: dict[_Labels, dict[float, int]] = {}
    others: dict[tuple[str, _Labels], float] = {}
    for sample in family.samples:
        if sample.name == f"{family.name}_bucket":
            buckets.setdefault(_labels(sample), {})[float(sample.labels["le"])] = int(sample.value)
        else:
            others[sample.name.removeprefix(f"{family.name}_"), _labels(sample)] = sample.value
    for labels, cumulative in buckets.items():
        bounds = sorted(cumulative)
        counts = [cumulative[bound] for bound in bounds]
        yield HistogramDataPoint(
            attributes=_attributes(dict(labels)),
            start_time_unix_nano=_start(others.get(("created", labels))),
            time_unix_nano=now_ns,
            count=counts[-1],
            bucket_counts=[upper - lower for lower, upper in zip([0, *counts], counts, strict=False)],
            explicit_bounds=[bound for bound in bounds if not math.isinf(bound)],
            # Optional in the message, but not in the class: Prometheus records neither extreme, and no sum of values
            # that may be negative.
            sum=cast("float", others.get(("sum", labels))),
            min=cast("float", None),
            max=cast("float", None),
        )


def _start(seconds: float | None) -> int:
    return _UNKNOWN if seconds is None else int(seconds * 1_000_000_000)


def _labels(sample: Sample) -> _Labels:
    return tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))


def _attributes(labels: Mapping[str, str]) -> dict[str, str]:
    return {ATTRIBUTES.get(name, name): value for name, value in labels.items()}
