"""Metrics of connections: those of this JobManager's port, and how many the ports of task managers have rejected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.rest.ports import PortConnections


class ConnectionMetrics(Collector):
    """Collector that exposes the state of a port, and what ``show`` was last given."""

    def __init__(self, registry: CollectorRegistry, port: PortConnections) -> None:
        self._port = port
        self._views: Sequence[TaskManagerView] = ()
        registry.register(self)

    def show(self, views: Sequence[TaskManagerView]) -> None:
        """Replace what is exposed: the reports of the task managers."""
        self._views = views

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics for the registry."""
        connections = GaugeMetricFamily(
            "emberkeep_connections", "Open connections to this JobManager's port.", labels=["login"]
        )
        connections.add_metric(["yes"], self._port.proven)
        connections.add_metric(["no"], self._port.unproven)
        yield connections
        rejected = CounterMetricFamily(
            "emberkeep_connections_rejected",
            "Connections without a valid login that this JobManager refused or closed, by reason.",
            labels=["reason"],
        )
        for reason, count in self._port.rejections().items():
            rejected.add_metric([reason], count)
        yield rejected
        elsewhere = CounterMetricFamily(
            "emberkeep_task_manager_connections_rejected",
            "Connections without a valid login that task managers refused or closed.",
            labels=["task_manager"],
        )
        for view in self._views:
            elsewhere.add_metric([view.info.id], view.report.connections_rejected)
        yield elsewhere
