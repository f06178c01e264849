"""What a collector shows as Prometheus is what /metrics shows."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from emberkeep.adapters.otlp.conversion import metrics_data
from tests.unit.adapters.otlp.collector import Series, as_prometheus
from tests.unit.rest.metrics.sample_scrape import sample_metrics

NOW_NS = 1_795_000_000_000_000_000
VALUES = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
AMOUNTS = st.floats(min_value=0, max_value=1e12)


def sent(families: Iterable[Metric]) -> ExportMetricsServiceRequest:
    return encode_metrics(metrics_data(families, Resource({"service.name": "emberkeep"}), "0.1.0", NOW_NS))


def exposed(families: Iterable[Metric]) -> Series:
    """Return what /metrics has, without unknown values and times of creation."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created") and not math.isnan(sample.value)
    }


async def test_all_metrics_of_a_leader_arrive_with_their_names_and_values() -> None:
    families = await sample_metrics()
    assert as_prometheus(sent(families)) == exposed(families)
    kinds = {family.type for family in families}
    assert kinds == {"counter", "gauge", "histogram", "info"}, "each of them is converted"


async def test_each_metric_has_its_description_and_unit() -> None:
    families = await sample_metrics()
    (resource,) = sent(families).resource_metrics
    (scope,) = resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("emberkeep", "0.1.0")
    found = {metric.name: metric for metric in scope.metrics}
    assert all(metric.description for metric in found.values())
    units = {
        "emberkeep_recovery_seconds": "s",
        "emberkeep_certificate_expiry_timestamp_seconds": "",
        "emberkeep_blob_uploaded_bytes_total": "By",
        "emberkeep_task_manager_cpu_ratio": "1",
        "emberkeep_query_input_rows_per_second": "",
        "emberkeep_jobs": "",
    }
    assert {name: found[name].unit if name in found else "" for name in units} == units


@given(
    counts=st.dictionaries(VALUES, AMOUNTS, max_size=4),
    levels=st.dictionaries(st.tuples(VALUES, VALUES), NUMBERS, max_size=4),
    times=st.lists(st.tuples(VALUES, NUMBERS), max_size=20),
    bounds=st.sets(AMOUNTS, min_size=1, max_size=6),
)
def test_any_metrics_survive(
    counts: dict[str, float],
    levels: dict[tuple[str, str], float],
    times: list[tuple[str, float]],
    bounds: set[float],
) -> None:
    registry = CollectorRegistry()
    counter = Counter("emberkeep_a_bytes", "a", ["kind"], registry=registry)
    for kind, amount in counts.items():
        counter.labels(kind).inc(amount)
    gauge = Gauge("emberkeep_b_ratio", "b", ["job", "query"], registry=registry)
    for labels, level in levels.items():
        gauge.labels(*labels).set(level)
    histogram = Histogram("emberkeep_c_seconds", "c", ["job"], buckets=sorted(bounds), registry=registry)
    for job, seconds in times:
        histogram.labels(job).observe(seconds)
    families = list(registry.collect())
    assert as_prometheus(sent(families)) == exposed(families)


def test_a_series_begins_when_this_process_began_to_count_it() -> None:
    registry = CollectorRegistry()
    own = Counter("emberkeep_own", "counted here", registry=registry)
    (family,) = registry.collect()
    created = next(sample.value for sample in family.samples if sample.name.endswith("_created"))
    own.inc(3)
    elsewhere = CounterMetricFamily("emberkeep_elsewhere", "counted by a task manager for days", value=7)
    (resource,) = sent([*registry.collect(), elsewhere]).resource_metrics
    points = [metric.sum.data_points[0] for metric in resource.scope_metrics[0].metrics]
    assert [(point.as_double, point.start_time_unix_nano) for point in points] == [(3, int(created * 1e9)), (7, 0)]
    assert {point.time_unix_nano for point in points} == {NOW_NS}


def test_an_unknown_value_is_left_out() -> None:
    known = GaugeMetricFamily("emberkeep_known", "known", labels=["kind"])
    known.add_metric(["a"], 1)
    known.add_metric(["b"], math.nan)
    unknown = GaugeMetricFamily("emberkeep_unknown", "unknown", value=math.nan)
    assert as_prometheus(sent([known, unknown])) == {("emberkeep_known", frozenset({("kind", "a")})): 1}
