"""Metrics of the push of metrics to an OpenTelemetry collector."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from emberkeep.rest.ports import Pushes


class PushMetrics(Collector):
    """Collector of the counts of pushes; of zeros while nothing is pushed."""

    def __init__(self, registry: CollectorRegistry, pushes: Callable[[], Pushes | None]) -> None:
        self._pushes = pushes
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics for the registry."""
        pushes = self._pushes()
        family = CounterMetricFamily(
            "emberkeep_metrics_pushes", "Pushes of these metrics to an OpenTelemetry collector.", labels=["outcome"]
        )
        family.add_metric(["sent"], 0 if pushes is None else pushes.sent)
        family.add_metric(["failed"], 0 if pushes is None else pushes.failed)
        yield family
