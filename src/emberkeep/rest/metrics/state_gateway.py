"""Metrics of every task manager's state gateway, from its own counters: how much state came from the node's disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.protocol.messages.task_manager_reports import StateGatewayReport

_LABEL = "task_manager"
_PREFIX = "emberkeep_state_gateway_"
_GAUGES = (
    ("copies", "State files with a copy on the node's disk."),
    ("used_bytes", "Bytes of copies of state files on the node's disk."),
)
_COUNTERS = (
    ("hits", "Opened state files that were read at least partly from the node's disk."),
    ("misses", "Opened state files that were read from the durable store alone."),
    ("local_read_bytes", "Bytes of state files read from the node's disk."),
    ("remote_read_bytes", "Bytes of state files read from the durable store."),
    ("written_bytes", "Bytes of state files written to the durable store."),
    ("kept_bytes", "Bytes of state files written to the durable store and kept on the node's disk."),
    ("verify_failures", "Damaged copies found on the node's disk."),
    ("stale", "Outdated copies on the node's disk: the file was replaced in the durable store."),
    ("disk_failures", "Failures to write a copy, or the record of a rename, to the node's disk."),
    ("evictions", "Copies deleted to stay within the quota."),
    ("purged", "Copies deleted because their durable file no longer exists."),
    ("fenced", "Requests from attempts that were over."),
    ("standby_bytes", "Bytes of state files copied from the durable store for reserved standbys."),
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
