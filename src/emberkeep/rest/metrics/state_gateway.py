"""Metrics of every task manager's state gateway, from its own counters: how much state came from the node's disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.protocol.messages import StateGatewayReport

_LABEL = "task_manager"
_PREFIX = "emberkeep_state_gateway_"
_GAUGES = (
    ("copies", "State files with a copy on the node's disk."),
    ("used_bytes", "Bytes that copies of state files take on the node's disk."),
)
_COUNTERS = (
    ("hits", "State files opened that were read from the node's disk, at least in part."),
    ("misses", "State files opened that were read from the durable store alone."),
    ("local_read_bytes", "Bytes of state files read from the node's disk."),
    ("remote_read_bytes", "Bytes of state files read from the durable store."),
    ("written_bytes", "Bytes of state files written to the durable store."),
    ("kept_bytes", "Bytes of state files written to the durable store and kept on the node's disk."),
    ("verify_failures", "Copies on the node's disk whose bytes were wrong."),
    ("stale", "Copies on the node's disk of files that were replaced elsewhere."),
    ("disk_failures", "Times that the node's disk refused a copy or a note of a rename."),
    ("evictions", "Copies dropped for the quota."),
    ("purged", "Copies dropped as their durable file was gone."),
    ("fenced", "Requests of attempts that were over."),
)


class StateGatewayMetrics(Collector):
    """Collector that exposes what ``show`` was last given. Metrics are named after the fields of StateGatewayReport."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._views: Sequence[TaskManagerView] = ()
        registry.register(self)

    def show(self, views: Sequence[TaskManagerView]) -> None:
        """Replace what is exposed: the reports of the task managers."""
        self._views = views

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics for the registry; nothing if no task manager keeps local state."""
        reports = [(view.info.id, report) for view in self._views if (report := view.report.state_gateway) is not None]
        for field, doc in _GAUGES if reports else ():
            yield _filled(GaugeMetricFamily(_PREFIX + field, doc, labels=[_LABEL]), field, reports)
        for field, doc in _COUNTERS if reports else ():
            yield _filled(CounterMetricFamily(_PREFIX + field, doc, labels=[_LABEL]), field, reports)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, field: str, reports: Iterable[tuple[str, StateGatewayReport]]
) -> Metric:
    for name, report in reports:
        family.add_metric([name], getattr(report, field))
    return family
