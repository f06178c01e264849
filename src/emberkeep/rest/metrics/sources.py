"""Metrics of the sources of streaming queries: which of them lags, and which has become silent.

A query reports at most ``SOURCES_KEPT`` sources, each at most ``METRICS_KEPT`` numbers of its own, so the number of
series is bounded with that of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from emberkeep.jobmanager.views.query_labels import source_labels
from emberkeep.jobs.progress.records import SourceProgress

_Value = Callable[[SourceProgress], float | None]

_GAUGES: tuple[tuple[str, str, _Value], ...] = (
    (
        "backlog_rows",
        "Rows that one source of the query has and that are not read yet; absent if the source does not say.",
        lambda source: source.backlog_rows,
    ),
    (
        "backlog_seconds",
        "Time that the source's backlog takes at the rate of the newest micro-batch; absent if that is unknown.",
        lambda source: source.backlog_seconds,
    ),
    (
        "input_rows_per_second",
        "Rate at which rows arrive from the source, as Spark reports it.",
        lambda source: source.input_rate,
    ),
)


def source_metrics(queries: Iterable[tuple[str, str, tuple[SourceProgress, ...]]]) -> Iterator[Metric]:
    """Yield the metrics. ``queries``: job, label and sources of each query."""
    labelled = [
        ([job, query, label], source) for job, query, sources in queries for label, source in source_labels(sources)
    ]
    for name, doc, value in _GAUGES:
        family = GaugeMetricFamily(f"emberkeep_query_source_{name}", doc, labels=["job", "query", "source"])
        for labels, source in labelled:
            if (known := value(source)) is not None:
                family.add_metric(labels, float(known))
        yield family
    reported = GaugeMetricFamily(
        "emberkeep_query_source_reported",
        "Number that the source reports itself, such as how far it is behind. `metric`: the source's own name for it.",
        labels=["job", "query", "source", "metric"],
    )
    for labels, source in labelled:
        for name, number in source.metrics.items():
            reported.add_metric([*labels, name], number)
    yield reported
